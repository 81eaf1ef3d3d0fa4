package main

import (
	"context"

	"github.com/IBM/sarama"

	"stele/conformance/driver"
)

// transact uses a producer that lives until the driver ends.
func (c *client) transact(_ context.Context, command *driver.Command) (any, error) {
	producer := c.transactional[command.Producer]
	isNew := producer == nil
	if isNew {
		config := c.newConfig()
		config.Producer.Partitioner = sarama.NewManualPartitioner
		config.Producer.Transaction.ID = command.TransactionalID
		config.Producer.Return.Successes = true
		// What this client demands for transactions.
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
		var err error
		if producer, err = sarama.NewSyncProducer(c.bootstrap, config); err != nil {
			return nil, err
		}
		c.transactional[command.Producer] = producer
	}
	if isNew || command.Begins {
		if err := producer.BeginTxn(); err != nil {
			return nil, err
		}
	}
	if len(command.Records) > 0 {
		messages := make([]*sarama.ProducerMessage, len(command.Records))
		for i, r := range command.Records {
			messages[i] = &sarama.ProducerMessage{
				Topic: command.Topic, Partition: r.Partition, Key: encoder(r.Key), Value: encoder(r.Value),
			}
		}
		if err := producer.SendMessages(messages); err != nil {
			return nil, err
		}
	}
	if command.Source != "" {
		offsets := map[string][]*sarama.PartitionOffsetMetadata{
			command.Source: {{Partition: 0, Offset: command.Offset.Number}},
		}
		if err := producer.AddOffsetsToTxn(offsets, command.Group); err != nil {
			return nil, err
		}
	}
	switch command.End {
	case "commit":
		return driver.None{}, producer.CommitTxn()
	case "abort":
		return driver.None{}, producer.AbortTxn()
	}
	return driver.None{}, nil
}
