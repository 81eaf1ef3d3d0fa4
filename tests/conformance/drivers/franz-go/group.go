package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stele/conformance/driver"
)

// member is one consumer of a group. The client joins, heartbeats and
// rebalances by itself; its callbacks keep the assignment known here.
type member struct {
	client *kgo.Client

	mu       sync.Mutex
	owned    map[driver.TopicPartition]bool
	kept     []driver.Record // met, and not yet polled for
	assigned chan struct{}   // closed at the first assignment, which may be empty
}

func (c *client) join(ctx context.Context, command *driver.Command) (any, error) {
	if c.members[command.Member] != nil {
		return nil, &driver.Failure{Name: "MEMBER_EXISTS", Text: command.Member}
	}
	start := kgo.NewOffset().AtStart()
	if command.Start == "latest" {
		start = kgo.NewOffset().AtEnd()
	}
	m := &member{owned: map[driver.TopicPartition]bool{}, assigned: make(chan struct{})}
	var first sync.Once
	options := []kgo.Opt{
		kgo.ConsumerGroup(command.Group),
		kgo.ConsumeTopics(command.Topics...),
		kgo.ConsumeResetOffset(start),
		kgo.SessionTimeout(command.SessionTimeout()),
		kgo.HeartbeatInterval(driver.HeartbeatInterval),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, gained map[string][]int32) {
			m.gain(gained)
			first.Do(func() { close(m.assigned) })
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.lose(lost) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.lose(lost) }),
	}
	if command.Protocol == "consumer" {
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	if command.InstanceID != "" {
		options = append(options, kgo.InstanceID(command.InstanceID))
	}
	var err error
	if m.client, err = c.open(options...); err != nil {
		return nil, err
	}
	for {
		select {
		case <-m.assigned:
			c.members[command.Member] = m
			return m.assignment(), nil
		default:
		}
		// Polling is how the client tells that it cannot join.
		if err := m.meet(ctx, 50*time.Millisecond, 0); err != nil {
			m.client.CloseAllowingRebalance()
			return nil, err
		}
		if ctx.Err() != nil {
			m.client.CloseAllowingRebalance()
			return nil, driver.ErrTimedOut
		}
	}
}

func (m *member) gain(partitions map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			m.owned[driver.TopicPartition{Topic: topic, Partition: number}] = true
		}
	}
}

// lose forgets the records met from these partitions too: whoever has the
// partition next meets them again, from what was committed.
func (m *member) lose(partitions map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			delete(m.owned, driver.TopicPartition{Topic: topic, Partition: number})
		}
		m.kept = slices.DeleteFunc(m.kept, func(r driver.Record) bool {
			return r.Topic == topic && slices.Contains(numbers, r.Partition)
		})
	}
}

func (m *member) assignment() any {
	m.mu.Lock()
	defer m.mu.Unlock()
	owned := slices.Collect(maps.Keys(m.owned))
	if owned == nil {
		owned = []driver.TopicPartition{}
	}
	return map[string]any{"assignment": sorted(owned)}
}

// meet polls once, for at most this long and this many records (0: as many as
// come). It keeps the records that came beside an error too: the client does
// not give them again.
func (m *member) meet(ctx context.Context, wait time.Duration, count int) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	fetches := m.client.PollRecords(ctx, count)
	m.keep(fetches)
	for _, failed := range fetches.Errors() {
		// The client recovers from all of these by joining again.
		passing := errors.Is(failed.Err, context.DeadlineExceeded) || errors.Is(failed.Err, kerr.RebalanceInProgress) ||
			errors.Is(failed.Err, kerr.UnknownMemberID) || errors.Is(failed.Err, kerr.IllegalGeneration)
		if !passing {
			return failed.Err
		}
	}
	return nil
}

func (m *member) keep(fetches kgo.Fetches) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) {
		// A rebalance may have come between the poll and here.
		if m.owned[driver.TopicPartition{Topic: r.Topic, Partition: r.Partition}] {
			m.kept = append(m.kept, toRecord(r, r.Topic))
		}
	})
}

func (c *client) member(command *driver.Command) (*member, error) {
	m := c.members[command.Member]
	if m == nil {
		return nil, &driver.Failure{Name: "NO_SUCH_MEMBER", Text: command.Member}
	}
	return m, nil
}

func (c *client) assignment(ctx context.Context, command *driver.Command) (any, error) {
	m, err := c.member(command)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(command.Poll()); time.Now().Before(end); {
		if err := m.meet(ctx, time.Until(end), 0); err != nil {
			return nil, err
		}
	}
	return m.assignment(), nil
}

func (c *client) poll(ctx context.Context, command *driver.Command) (any, error) {
	m, err := c.member(command)
	if err != nil {
		return nil, err
	}
	for missing := m.missing(command.Count); missing > 0 && ctx.Err() == nil; missing = m.missing(command.Count) {
		if err := m.meet(ctx, time.Second, missing); err != nil {
			return nil, err
		}
	}
	return map[string]any{"records": m.take(command.Count)}, nil
}

// missing says how many of count records are not kept yet.
func (m *member) missing(count int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return count - len(m.kept)
}

// take removes at most count kept records.
func (m *member) take(count int) []driver.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(count, len(m.kept))
	records := append([]driver.Record{}, m.kept[:n]...)
	m.kept = m.kept[n:]
	return records
}

func (c *client) commit(ctx context.Context, command *driver.Command) (any, error) {
	m, err := c.member(command)
	if err != nil {
		return nil, err
	}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	metadata := map[driver.TopicPartition]*string{}
	for _, o := range command.Offsets {
		if offsets[o.Topic] == nil {
			offsets[o.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[o.Topic][o.Partition] = kgo.EpochOffset{Epoch: -1, Offset: o.Offset}
		metadata[o.TopicPartition] = &o.Metadata
	}
	// The client has no argument for metadata, only this hook.
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for _, topic := range request.Topics {
			for i := range topic.Partitions {
				partition := &topic.Partitions[i]
				partition.Metadata = metadata[driver.TopicPartition{Topic: topic.Topic, Partition: partition.Partition}]
			}
		}
		return nil
	})
	m.client.CommitOffsetsSync(ctx, offsets, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, failed error,
	) {
		if err = failed; err != nil {
			return
		}
		for _, topic := range response.Topics {
			for _, partition := range topic.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(partition.ErrorCode))
			}
		}
	})
	return driver.None{}, err
}

func (c *client) leave(ctx context.Context, command *driver.Command) (any, error) {
	m, err := c.member(command)
	if err != nil {
		return nil, err
	}
	delete(c.members, command.Member)
	return driver.None{}, m.close(ctx)
}

func (m *member) close(ctx context.Context) error {
	// Close leaves too, but keeps to itself whether that worked.
	err := m.client.LeaveGroupContext(ctx)
	m.client.Close()
	return err
}
