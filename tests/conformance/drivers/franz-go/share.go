package main

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"stele/conformance/driver"
)

// shareMember is one member of a share group. What it took and did not settle
// yet is in held.
type shareMember struct {
	client *kgo.Client
	held   map[driver.Place]*kgo.Record

	mu     sync.Mutex
	failed error // of the acknowledgements since the last settle
}

var outcomes = map[string]kgo.AckStatus{
	"accept": kgo.AckAccept, "release": kgo.AckRelease, "reject": kgo.AckReject,
}

func (c *client) share(_ context.Context, command *driver.Command) (any, error) {
	if c.shares[command.Member] != nil {
		return nil, &driver.Failure{Name: "MEMBER_EXISTS", Text: command.Member}
	}
	m := &shareMember{held: map[driver.Place]*kgo.Record{}}
	var err error
	m.client, err = c.open(
		kgo.ShareGroup(command.Group),
		kgo.ConsumeTopics(command.Topics...),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.failed = errors.Join(m.failed, results.Error())
		}),
	)
	if err != nil {
		return nil, err
	}
	c.shares[command.Member] = m
	return map[string]any{}, nil
}

func (c *client) take(ctx context.Context, command *driver.Command) (any, error) {
	m, err := c.shareMember(command)
	if err != nil {
		return nil, err
	}
	records := []driver.Record{}
	for len(records) == 0 && ctx.Err() == nil {
		fetches := m.client.PollRecords(ctx, 0)
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				return nil, failed.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			record := toRecord(r, r.Topic)
			record.Deliveries = r.DeliveryCount()
			records = append(records, record)
			m.held[driver.Place{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}] = r
		})
	}
	return map[string]any{"records": records}, nil
}

func (c *client) settle(ctx context.Context, command *driver.Command) (any, error) {
	m, err := c.shareMember(command)
	if err != nil {
		return nil, err
	}
	for _, outcome := range command.Outcomes {
		m.client.MarkAcks(outcomes[outcome.Kind], m.held[outcome.Place])
		delete(m.held, outcome.Place)
	}
	if err := m.client.FlushAcks(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := m.failed
	m.failed = nil
	return map[string]any{}, failed
}

func (c *client) unshare(_ context.Context, command *driver.Command) (any, error) {
	m, err := c.shareMember(command)
	if err != nil {
		return nil, err
	}
	delete(c.shares, command.Member)
	m.client.Close()
	return map[string]any{}, nil
}

func (c *client) shareMember(command *driver.Command) (*shareMember, error) {
	m := c.shares[command.Member]
	if m == nil {
		return nil, &driver.Failure{Name: "NO_SUCH_MEMBER", Text: command.Member}
	}
	return m, nil
}
