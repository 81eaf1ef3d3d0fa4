package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"stele/conformance/driver"
)

// transact uses a producer that lives until the driver ends.
func (c *client) transact(ctx context.Context, command *driver.Command) (any, error) {
	producer := c.transactional[command.Producer]
	isNew := producer == nil
	if isNew {
		var err error
		producer, err = c.open(
			kgo.TransactionalID(command.TransactionalID),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		if err != nil {
			return nil, err
		}
		c.transactional[command.Producer] = producer
	}
	if isNew || command.Begins {
		if err := producer.BeginTransaction(); err != nil {
			return nil, err
		}
	}
	records := make([]*kgo.Record, len(command.Records))
	for i, r := range command.Records {
		records[i] = &kgo.Record{Topic: command.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	if command.Source != "" {
		if err := commitOffset(ctx, producer, command); err != nil {
			return nil, err
		}
	}
	switch command.End {
	case "commit":
		return driver.None{}, producer.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return driver.None{}, producer.EndTransaction(ctx, kgo.TryAbort)
	}
	return driver.None{}, nil
}

// commitOffset does what a GroupTransactSession does for a member of the group.
func commitOffset(ctx context.Context, producer *kgo.Client, command *driver.Command) error {
	id, epoch, err := producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = command.TransactionalID, id, epoch
	add.Group = command.Group
	added, err := add.RequestWith(ctx, producer)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return err
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch = command.TransactionalID, id, epoch
	commit.Group = command.Group
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = command.Offset.Number
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = command.Source
	topic.Partitions = append(topic.Partitions, partition)
	commit.Topics = append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, producer)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
}
