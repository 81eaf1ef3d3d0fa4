// The conformance driver for sarama: its producer, consumer, consumer group
// and cluster admin.
package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"stele/conformance/driver"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var acks = map[string]sarama.RequiredAcks{
	"0":   sarama.NoResponse,
	"1":   sarama.WaitForLocal,
	"all": sarama.WaitForAll,
}

type client struct {
	bootstrap []string
	login     *driver.Login // nil for none
	metadata  sarama.Client
	admin     sarama.ClusterAdmin
	members   map[string]*member
	// Transactional producers by the tests' names of them.
	transactional map[string]sarama.SyncProducer
}

func main() {
	bootstrap, login := driver.Arguments()
	c := &client{
		bootstrap:     strings.Split(bootstrap, ","),
		login:         login,
		members:       map[string]*member{},
		transactional: map[string]sarama.SyncProducer{},
	}
	driver.Serve("sarama", "github.com/IBM/sarama", []string{"no timestamp", "broker-side assignment", "share groups"}, map[string]driver.Handler{
		"produce":        limited(c.produce),
		"produce_keyed":  limited(c.produceKeyed),
		"fetch":          c.fetch,
		"transact":       limited(c.transact),
		"offsets":        c.administered(c.offsets),
		"join":           c.join,
		"assignment":     c.assignment,
		"poll":           c.poll,
		"commit":         limited(c.commit),
		"leave":          limited(c.leave),
		"committed":      c.administered(c.committed),
		"create_topic":   c.administered(c.createTopic),
		"describe_topic": c.administered(c.describeTopic),
		"alter_topic":    c.administered(c.alterTopic),
		"add_partitions": c.administered(c.addPartitions),
		"delete_topic":   c.administered(c.deleteTopic),
		"list_topics":    c.administered(c.listTopics),
		"delete_records": c.administered(c.deleteRecords),
		"list_groups":    c.administered(c.listGroups),
		"describe_group": c.administered(c.describeGroup),
		"delete_group":   c.administered(c.deleteGroup),
	}, nameOf)
	for _, m := range c.members {
		_ = m.close()
	}
	if c.admin != nil {
		_ = c.admin.Close()
	}
}

// newConfig has the defaults, but for the version: the default one is that of
// years ago, and a broker's newer versions would go unused.
func (c *client) newConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	secure(config, c.login)
	return config
}

// administered connects for the first command that needs it: this client fails
// as it is made if the broker does not let it in.
func (c *client) administered(handler driver.Handler) driver.Handler {
	return limited(func(ctx context.Context, command *driver.Command) (any, error) {
		if err := c.connect(); err != nil {
			return nil, err
		}
		return handler(ctx, command)
	})
}

func (c *client) connect() error {
	if c.admin != nil {
		return nil
	}
	config := c.newConfig()
	// To ask about a topic is not to make it.
	config.Metadata.AllowAutoTopicCreation = false
	metadata, err := sarama.NewClient(c.bootstrap, config)
	if err != nil {
		return err
	}
	c.metadata = metadata
	c.admin, err = sarama.NewClusterAdminFromClient(c.metadata)
	return err
}

// limited ends the wait for a handler when its time is over; the calls of this
// client take no context.
func limited(handler driver.Handler) driver.Handler {
	type outcome struct {
		result any
		err    error
	}
	return func(ctx context.Context, command *driver.Command) (any, error) {
		done := make(chan outcome, 1)
		go func() {
			result, err := handler(ctx, command)
			done <- outcome{result, err}
		}()
		select {
		case o := <-done:
			return o.result, o.err
		case <-ctx.Done():
			return nil, driver.ErrTimedOut
		}
	}
}

func (c *client) produce(_ context.Context, command *driver.Command) (any, error) {
	config := c.newConfig()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[command.Codec]
	if command.Acks != "" {
		config.Producer.RequiredAcks = acks[command.Acks]
	}
	if command.Idempotent { // with what this client demands for it
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
	}
	messages := make([]*sarama.ProducerMessage, len(command.Records))
	for i, r := range command.Records {
		message := &sarama.ProducerMessage{
			Topic: command.Topic, Partition: r.Partition, Key: encoder(r.Key), Value: encoder(r.Value),
		}
		if r.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*r.Timestamp)
		}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
		}
		messages[i] = message
	}
	if err := c.send(config, messages); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(messages))
	for i, m := range messages {
		offsets[i] = m.Offset
	}
	return map[string]any{"offsets": offsets}, nil
}

// encoder gives null for nil, which the interface would hide.
func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func (c *client) produceKeyed(_ context.Context, command *driver.Command) (any, error) {
	messages := make([]*sarama.ProducerMessage, len(command.Keys))
	for i, key := range command.Keys {
		messages[i] = &sarama.ProducerMessage{Topic: command.Topic, Key: encoder(key), Value: encoder(key)}
	}
	if err := c.send(c.newConfig(), messages); err != nil {
		return nil, err
	}
	partitions := make([]int32, len(messages))
	for i, m := range messages {
		partitions[i] = m.Partition
	}
	return map[string]any{"partitions": partitions}, nil
}

// send fills in partition and offset of the messages.
func (c *client) send(config *sarama.Config, messages []*sarama.ProducerMessage) error {
	config.Producer.Return.Successes = true // a demand of the SyncProducer
	producer, err := sarama.NewSyncProducer(c.bootstrap, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	err = producer.SendMessages(messages)
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) && len(failed) > 0 {
		return failed[0]
	}
	return err
}

func (c *client) fetch(ctx context.Context, command *driver.Command) (any, error) {
	offset := command.Offset.Number
	switch command.Offset.Word {
	case "earliest":
		offset = sarama.OffsetOldest
	case "latest":
		offset = sarama.OffsetNewest
	}
	config := c.newConfig()
	config.Consumer.Return.Errors = true
	switch command.Isolation {
	case "committed":
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	case "uncommitted":
		config.Consumer.IsolationLevel = sarama.ReadUncommitted
	}
	if command.MaxBytes > 0 {
		config.Consumer.Fetch.MaxBytes = command.MaxBytes
	}
	if command.PartitionMaxBytes > 0 {
		config.Consumer.Fetch.Default = command.PartitionMaxBytes
	}
	if command.AnswerMaxBytes > 0 { // one for the whole program, and it carries out one command at a time
		defer func(before int32) { sarama.MaxResponseSize = before }(sarama.MaxResponseSize)
		sarama.MaxResponseSize = command.AnswerMaxBytes
	}
	consumer, err := sarama.NewConsumer(c.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	messages, failures := make(chan *sarama.ConsumerMessage), make(chan error)
	done := make(chan struct{})
	defer close(done)
	for _, number := range command.Fetched() {
		partition, err := consumer.ConsumePartition(command.Topic, number, offset)
		if err != nil {
			return nil, err
		}
		defer partition.AsyncClose()
		go forward(partition, messages, failures, done)
	}
	records := []driver.Record{}
	for len(records) < command.Count {
		select {
		case message := <-messages:
			records = append(records, toRecord(message, ""))
		case err := <-failures:
			return nil, err
		case <-ctx.Done():
			return nil, driver.ErrTimedOut
		}
	}
	return map[string]any{"records": records}, nil
}

// forward hands on what a partition's consumer has, until done.
func forward(from sarama.PartitionConsumer, messages chan<- *sarama.ConsumerMessage, failures chan<- error, done <-chan struct{}) {
	for {
		select {
		case message := <-from.Messages():
			select {
			case messages <- message:
			case <-done:
				return
			}
		case err := <-from.Errors():
			select {
			case failures <- err:
			case <-done:
			}
			return
		case <-done:
			return
		}
	}
}

func toRecord(m *sarama.ConsumerMessage, topic string) driver.Record {
	timestamp := int64(-1) // none
	if !m.Timestamp.IsZero() {
		timestamp = m.Timestamp.UnixMilli()
	}
	headers := make([]driver.Header, len(m.Headers))
	for i, h := range m.Headers {
		headers[i] = driver.Header{Name: string(h.Key), Value: h.Value}
	}
	return driver.Record{
		Topic: topic, Partition: m.Partition, Offset: m.Offset, Timestamp: &timestamp,
		Key: m.Key, Value: m.Value, Headers: headers,
	}
}

func (c *client) offsets(_ context.Context, command *driver.Command) (any, error) {
	at := command.At.Number
	switch command.At.Word {
	case "earliest":
		at = sarama.OffsetOldest
	case "latest":
		at = sarama.OffsetNewest
	}
	offset, err := c.metadata.GetOffset(command.Topic, command.Partition, at)
	return map[string]any{"offset": offset}, err
}

func (c *client) committed(_ context.Context, command *driver.Command) (any, error) {
	response, err := c.admin.ListConsumerGroupOffsets(command.Group, map[string][]int32{command.Topic: {command.Partition}})
	if err != nil {
		return nil, err
	}
	block := response.GetBlock(command.Topic, command.Partition)
	if block == nil {
		return nil, sarama.ErrIncompleteResponse
	}
	return map[string]any{"offset": block.Offset, "metadata": block.Metadata}, orNil(block.Err)
}

func (c *client) createTopic(_ context.Context, command *driver.Command) (any, error) {
	return driver.None{}, c.admin.CreateTopic(command.Topic, &sarama.TopicDetail{
		NumPartitions:     command.Partitions.Total,
		ReplicationFactor: -1, // as many replicas as the broker makes by default
		ConfigEntries:     command.Configs,
	}, false)
}

func (c *client) describeTopic(_ context.Context, command *driver.Command) (any, error) {
	topics, err := c.admin.DescribeTopics([]string{command.Topic})
	if err != nil {
		return nil, err
	}
	if len(topics) != 1 {
		return nil, sarama.ErrIncompleteResponse
	}
	if err := orNil(topics[0].Err); err != nil {
		return nil, err
	}
	entries, err := c.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: command.Topic})
	if err != nil {
		return nil, err
	}
	configs := map[string]string{}
	for _, entry := range entries {
		configs[entry.Name] = entry.Value
	}
	return map[string]any{"partitions": len(topics[0].Partitions), "configs": configs}, nil
}

func (c *client) alterTopic(_ context.Context, command *driver.Command) (any, error) {
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range command.Configs {
		entries[name] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value,
		}
	}
	return driver.None{}, c.admin.IncrementalAlterConfig(sarama.TopicResource, command.Topic, entries, false)
}

func (c *client) addPartitions(_ context.Context, command *driver.Command) (any, error) {
	return driver.None{}, c.admin.CreatePartitions(command.Topic, command.Partitions.Total, nil, false)
}

func (c *client) deleteTopic(_ context.Context, command *driver.Command) (any, error) {
	return driver.None{}, c.admin.DeleteTopic(command.Topic)
}

func (c *client) listTopics(_ context.Context, _ *driver.Command) (any, error) {
	topics, err := c.admin.ListTopics()
	// Not nil, which would be null, when there are none.
	names := slices.AppendSeq(make([]string, 0, len(topics)), maps.Keys(topics))
	slices.Sort(names)
	return map[string]any{"topics": names}, err
}

func (c *client) deleteRecords(_ context.Context, command *driver.Command) (any, error) {
	err := c.admin.DeleteRecords(command.Topic, map[int32]int64{command.Partition: command.BeforeOffset})
	if err != nil {
		return nil, err
	}
	// The client keeps the answer's offset to itself.
	start, err := c.metadata.GetOffset(command.Topic, command.Partition, sarama.OffsetOldest)
	return map[string]any{"log_start_offset": start}, err
}

func (c *client) listGroups(_ context.Context, _ *driver.Command) (any, error) {
	groups, err := c.admin.ListConsumerGroups()
	names := slices.Sorted(maps.Keys(groups))
	if names == nil {
		names = []string{}
	}
	return map[string]any{"groups": names}, err
}

func (c *client) describeGroup(_ context.Context, command *driver.Command) (any, error) {
	groups, err := c.admin.DescribeConsumerGroups([]string{command.Group})
	if err != nil {
		return nil, err
	}
	if len(groups) != 1 {
		return nil, sarama.ErrIncompleteResponse
	}
	group := groups[0]
	return map[string]any{"state": group.State, "members": len(group.Members)}, orNil(group.Err)
}

func (c *client) deleteGroup(_ context.Context, command *driver.Command) (any, error) {
	return driver.None{}, c.admin.DeleteConsumerGroup(command.Group)
}
