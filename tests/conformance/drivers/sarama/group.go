package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"stele/conformance/driver"
)

// The client reports a failed commit from another goroutine, if at all.
const commitErrorWait = 100 * time.Millisecond

// member is one consumer of a group, and the handler of its sessions. The
// client runs a session from one rebalance to the next, all by itself; a claim
// of a partition waits with each record until the tests ask for it.
type member struct {
	group    sarama.ConsumerGroup
	cancel   context.CancelFunc
	finished chan struct{}
	records  chan *sarama.ConsumerMessage
	assigned chan struct{} // closed at the first assignment
	errs     chan error    // what the client reports by the way; the newest are dropped when nobody looks
	fatal    chan error    // why the member is out

	mu      sync.Mutex
	session sarama.ConsumerGroupSession // nil between sessions
	first   sync.Once
}

func (c *client) join(ctx context.Context, command *driver.Command) (any, error) {
	if c.members[command.Member] != nil {
		return nil, &driver.Failure{Name: "MEMBER_EXISTS", Text: command.Member}
	}
	config := c.newConfig()
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if command.Start == "latest" {
		config.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	config.Consumer.Group.Session.Timeout = command.SessionTimeout()
	config.Consumer.Group.Heartbeat.Interval = driver.HeartbeatInterval
	config.Consumer.Group.InstanceId = command.InstanceID
	group, err := sarama.NewConsumerGroup(c.bootstrap, command.Group, config)
	if err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(context.Background())
	m := &member{
		group:    group,
		cancel:   cancel,
		finished: make(chan struct{}),
		records:  make(chan *sarama.ConsumerMessage),
		assigned: make(chan struct{}),
		errs:     make(chan error, 16),
		fatal:    make(chan error, 1),
	}
	go m.watch()
	go m.run(background, command.Topics)
	select {
	case <-m.assigned:
		c.members[command.Member] = m
		return m.assignment(), nil
	case err = <-m.fatal:
	case <-ctx.Done():
		err = driver.ErrTimedOut
	}
	_ = m.close()
	return nil, err
}

const joinAgainPause = 200 * time.Millisecond

// run joins again after each session; it ends with the member, or with an error before its first session.
func (m *member) run(ctx context.Context, topics []string) {
	defer close(m.finished)
	for ctx.Err() == nil {
		err := m.group.Consume(ctx, topics, m)
		if err == nil || ctx.Err() != nil {
			continue
		}
		select {
		case <-m.assigned:
			// The coordinator has died, for example: an application consumes again.
			time.Sleep(joinAgainPause)
		default:
			m.fail(err)
			return
		}
	}
}

func (m *member) watch() {
	for err := range m.group.Errors() {
		if errors.Is(err, sarama.ErrFencedInstancedId) {
			m.fail(err)
			// To join again would throw out the one that took its place.
			m.cancel()
		}
		select {
		case m.errs <- err:
		default:
		}
	}
}

func (m *member) fail(err error) {
	select {
	case m.fatal <- err:
	default:
	}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	m.session = session
	m.mu.Unlock()
	m.first.Do(func() { close(m.assigned) })
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case m.records <- message:
		case <-session.Context().Done():
			// Whoever has the partition next meets the record again.
			return nil
		}
	}
	return nil
}

func (m *member) current() sarama.ConsumerGroupSession {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session
}

func (m *member) assignment() any {
	pairs := []driver.TopicPartition{}
	if session := m.current(); session != nil {
		for topic, partitions := range session.Claims() {
			for _, partition := range partitions {
				pairs = append(pairs, driver.TopicPartition{Topic: topic, Partition: partition})
			}
		}
	}
	return map[string]any{"assignment": pairs}
}

func (c *client) member(command *driver.Command) (*member, error) {
	m := c.members[command.Member]
	if m == nil {
		return nil, &driver.Failure{Name: "NO_SUCH_MEMBER", Text: command.Member}
	}
	return m, nil
}

// assignment has nothing to poll: the client serves its rebalances.
func (c *client) assignment(_ context.Context, command *driver.Command) (any, error) {
	m, err := c.member(command)
	if err != nil {
		return nil, err
	}
	select {
	case err := <-m.fatal:
		return nil, err
	case <-time.After(command.Poll()):
		return m.assignment(), nil
	}
}

func (c *client) poll(ctx context.Context, command *driver.Command) (any, error) {
	m, err := c.member(command)
	if err != nil {
		return nil, err
	}
	records := []driver.Record{}
	for len(records) < command.Count {
		select {
		case message := <-m.records:
			records = append(records, toRecord(message, message.Topic))
			continue
		case err := <-m.fatal:
			return nil, err
		case <-ctx.Done():
		}
		break
	}
	return map[string]any{"records": records}, nil
}

func (c *client) commit(_ context.Context, command *driver.Command) (any, error) {
	m, err := c.member(command)
	if err != nil {
		return nil, err
	}
	session := m.current()
	if session == nil {
		return nil, sarama.ErrRebalanceInProgress
	}
	for _, o := range command.Offsets {
		if !slices.Contains(session.Claims()[o.Topic], o.Partition) {
			return nil, &driver.Failure{Name: "NOT_ASSIGNED", Text: o.Topic}
		}
	}
	for len(m.errs) > 0 {
		<-m.errs
	}
	for _, o := range command.Offsets {
		session.MarkOffset(o.Topic, o.Partition, o.Offset, o.Metadata)
		// Marking goes forward only; this goes back, or stays and sets the metadata.
		session.ResetOffset(o.Topic, o.Partition, o.Offset, o.Metadata)
	}
	session.Commit()
	select {
	case err := <-m.errs:
		return nil, err
	case <-time.After(commitErrorWait):
		return driver.None{}, nil
	}
}

func (c *client) leave(_ context.Context, command *driver.Command) (any, error) {
	m, err := c.member(command)
	if err != nil {
		return nil, err
	}
	delete(c.members, command.Member)
	return driver.None{}, m.close()
}

func (m *member) close() error {
	m.cancel()
	<-m.finished
	return m.group.Close()
}
