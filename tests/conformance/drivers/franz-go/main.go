// The conformance driver for franz-go: kgo to produce and consume, kadm for
// administration.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"stele/conformance/driver"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

type client struct {
	// Of every client: the broker, and how to log in.
	options []kgo.Opt
	admin   *kadm.Client
	members map[string]*member
	shares  map[string]*shareMember
	// Transactional producers by the tests' names of them.
	transactional map[string]*kgo.Client
}

func main() {
	bootstrap, login := driver.Arguments()
	c := &client{
		options:       append(security(login), kgo.SeedBrokers(strings.Split(bootstrap, ",")...)),
		members:       map[string]*member{},
		shares:        map[string]*shareMember{},
		transactional: map[string]*kgo.Client{},
	}
	admin, err := c.open(
		// kadm answers from metadata up to this old (5 s by default), and would
		// not see what another client has just made or taken away.
		kgo.MetadataMinAge(10 * time.Millisecond),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer admin.Close()
	c.admin = kadm.NewClient(admin)
	driver.Serve("franz-go", "github.com/twmb/franz-go", nil, map[string]driver.Handler{
		"produce":        c.produce,
		"produce_keyed":  c.produceKeyed,
		"fetch":          c.fetch,
		"transact":       c.transact,
		"offsets":        c.offsets,
		"join":           c.join,
		"assignment":     c.assignment,
		"poll":           c.poll,
		"commit":         c.commit,
		"leave":          c.leave,
		"share":          c.share,
		"take":           c.take,
		"settle":         c.settle,
		"unshare":        c.unshare,
		"committed":      c.committed,
		"create_topic":   c.createTopic,
		"describe_topic": c.describeTopic,
		"alter_topic":    c.alterTopic,
		"add_partitions": c.addPartitions,
		"delete_topic":   c.deleteTopic,
		"list_topics":    c.listTopics,
		"delete_records": c.deleteRecords,
		"list_groups":    c.listGroups,
		"describe_group": c.describeGroup,
		"delete_group":   c.deleteGroup,
	}, nameOf)
	for _, m := range c.shares {
		m.client.Close()
	}
	for _, m := range c.members {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_ = m.close(ctx)
		cancel()
	}
}

func nameOf(err error) string {
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return kafka.Message
	}
	return ""
}

func (c *client) open(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, c.options...)...)
}

func (c *client) produce(ctx context.Context, command *driver.Command) (any, error) {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[command.Codec]),
		// Off unless asked for, and without it a topic that is missing stays missing.
		kgo.AllowAutoTopicCreation(),
	}
	if !command.Idempotent { // the default of this client, with acks=all
		options = append(options, kgo.DisableIdempotentWrite())
		if command.Acks != "" {
			options = append(options, kgo.RequiredAcks(acks[command.Acks]))
		}
	}
	records := make([]*kgo.Record, len(command.Records))
	for i, r := range command.Records {
		records[i] = &kgo.Record{Topic: command.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
		if r.Timestamp != nil {
			records[i].Timestamp = time.UnixMilli(*r.Timestamp)
		}
		for _, h := range r.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
	}
	if err := c.send(ctx, records, options...); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for i, r := range records {
		offsets[i] = r.Offset
	}
	return map[string]any{"offsets": offsets}, nil
}

func (c *client) produceKeyed(ctx context.Context, command *driver.Command) (any, error) {
	records := make([]*kgo.Record, len(command.Keys))
	for i, key := range command.Keys {
		records[i] = &kgo.Record{Topic: command.Topic, Key: key, Value: key}
	}
	if err := c.send(ctx, records, kgo.AllowAutoTopicCreation()); err != nil {
		return nil, err
	}
	partitions := make([]int32, len(records))
	for i, r := range records {
		partitions[i] = r.Partition
	}
	return map[string]any{"partitions": partitions}, nil
}

// send fills in partition and offset of the records.
func (c *client) send(ctx context.Context, records []*kgo.Record, options ...kgo.Opt) error {
	producer, err := c.open(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func (c *client) fetch(ctx context.Context, command *driver.Command) (any, error) {
	offset := kgo.NewOffset()
	switch command.Offset.Word {
	case "earliest":
		offset = offset.AtStart()
	case "latest":
		offset = offset.AtEnd()
	default:
		offset = offset.At(command.Offset.Number)
	}
	offsets := map[int32]kgo.Offset{}
	for _, partition := range command.Fetched() {
		offsets[partition] = offset
	}
	options := []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{command.Topic: offsets}),
		// An offset that is not there is to be an error, not the start of the log.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
	if command.MaxBytes > 0 {
		options = append(options, kgo.FetchMaxBytes(command.MaxBytes))
	}
	if command.PartitionMaxBytes > 0 {
		options = append(options, kgo.FetchMaxPartitionBytes(command.PartitionMaxBytes))
	}
	if command.AnswerMaxBytes > 0 {
		options = append(options, kgo.BrokerMaxReadBytes(command.AnswerMaxBytes))
	}
	switch command.Isolation {
	case "committed":
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	case "uncommitted":
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadUncommitted()))
	}
	consumer, err := c.open(options...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	records := []driver.Record{}
	for len(records) < command.Count {
		fetches := consumer.PollRecords(ctx, command.Count-len(records))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, toRecord(r, "")) })
	}
	return map[string]any{"records": records}, nil
}

func toRecord(r *kgo.Record, topic string) driver.Record {
	timestamp := r.Timestamp.UnixMilli()
	headers := make([]driver.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = driver.Header{Name: h.Key, Value: h.Value}
	}
	return driver.Record{
		Topic: topic, Partition: r.Partition, Offset: r.Offset, Timestamp: &timestamp,
		Key: r.Key, Value: r.Value, Headers: headers,
	}
}

func (c *client) offsets(ctx context.Context, command *driver.Command) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	switch command.At.Word {
	case "earliest":
		listed, err = c.admin.ListStartOffsets(ctx, command.Topic)
	case "latest":
		listed, err = c.admin.ListEndOffsets(ctx, command.Topic)
	default:
		listed, err = c.admin.ListOffsetsAfterMilli(ctx, command.At.Number, command.Topic)
	}
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	found, ok := listed.Lookup(command.Topic, command.Partition)
	if !ok {
		return nil, kerr.UnknownTopicOrPartition
	}
	// kadm gives the end where nothing is at or after the time; the end has no time.
	if command.At.Word == "" && found.Timestamp < 0 {
		found.Offset = -1
	}
	return map[string]any{"offset": found.Offset}, nil
}

func (c *client) committed(ctx context.Context, command *driver.Command) (any, error) {
	fetched, err := c.admin.FetchOffsetsForTopics(ctx, command.Group, command.Topic)
	if err != nil {
		return nil, err
	}
	offset, ok := fetched.Lookup(command.Topic, command.Partition)
	if !ok {
		return nil, kerr.UnknownTopicOrPartition
	}
	return map[string]any{"offset": offset.At, "metadata": offset.Metadata}, offset.Err
}

func (c *client) createTopic(ctx context.Context, command *driver.Command) (any, error) {
	// -1: as many replicas as the broker makes by default.
	_, err := c.admin.CreateTopic(ctx, command.Partitions.Total, -1, command.Configs, command.Topic)
	return driver.None{}, err
}

func (c *client) describeTopic(ctx context.Context, command *driver.Command) (any, error) {
	topics, err := c.admin.ListTopics(ctx, command.Topic)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return nil, err
	}
	resources, err := c.admin.DescribeTopicConfigs(ctx, command.Topic)
	if err != nil {
		return nil, err
	}
	resource, err := resources.On(command.Topic, func(r *kadm.ResourceConfig) error { return r.Err })
	if err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for _, config := range resource.Configs {
		configs[config.Key] = config.Value
	}
	return map[string]any{"partitions": len(topics[command.Topic].Partitions), "configs": configs}, nil
}

func (c *client) alterTopic(ctx context.Context, command *driver.Command) (any, error) {
	var alterations []kadm.AlterConfig
	for name, value := range command.Configs {
		alterations = append(alterations, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	responses, err := c.admin.AlterTopicConfigs(ctx, alterations, command.Topic)
	if err == nil {
		_, err = responses.On(command.Topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	return driver.None{}, err
}

func (c *client) addPartitions(ctx context.Context, command *driver.Command) (any, error) {
	responses, err := c.admin.UpdatePartitions(ctx, int(command.Partitions.Total), command.Topic)
	if err == nil {
		err = responses.Error()
	}
	return driver.None{}, err
}

func (c *client) deleteTopic(ctx context.Context, command *driver.Command) (any, error) {
	_, err := c.admin.DeleteTopic(ctx, command.Topic)
	return driver.None{}, err
}

func (c *client) listTopics(ctx context.Context, _ *driver.Command) (any, error) {
	topics, err := c.admin.ListTopics(ctx)
	return map[string]any{"topics": topics.Names()}, err
}

func (c *client) deleteRecords(ctx context.Context, command *driver.Command) (any, error) {
	var offsets kadm.Offsets
	offsets.AddOffset(command.Topic, command.Partition, command.BeforeOffset, -1)
	responses, err := c.admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return nil, err
	}
	response, err := responses.On(command.Topic, command.Partition, func(r *kadm.DeleteRecordsResponse) error { return r.Err })
	return map[string]any{"log_start_offset": response.LowWatermark}, err
}

func (c *client) listGroups(ctx context.Context, _ *driver.Command) (any, error) {
	groups, err := c.admin.ListGroups(ctx)
	return map[string]any{"groups": groups.Groups()}, err
}

func (c *client) describeGroup(ctx context.Context, command *driver.Command) (any, error) {
	groups, err := c.admin.DescribeGroups(ctx, command.Group)
	if err == nil {
		err = groups.Error()
	}
	if err != nil {
		return nil, err
	}
	group := groups[command.Group]
	return map[string]any{"state": group.State, "members": len(group.Members)}, nil
}

func (c *client) deleteGroup(ctx context.Context, command *driver.Command) (any, error) {
	_, err := c.admin.DeleteGroup(ctx, command.Group)
	return driver.None{}, err
}

func sorted(pairs []driver.TopicPartition) []driver.TopicPartition {
	slices.SortFunc(pairs, func(a, b driver.TopicPartition) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition - b.Partition)
	})
	return pairs
}
