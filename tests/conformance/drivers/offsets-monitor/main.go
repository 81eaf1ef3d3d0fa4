// Reads __consumer_offsets as kminion does: franz-go's consumer over all partitions from the start, and the
// decoders that kmsg generates from Kafka's schemas. Ends at the end that the topic had when it began, and
// writes what it has learned as one JSON object.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const topic = "__consumer_offsets"

type learned struct {
	Partitions int               `json:"partitions"`
	Internal   bool              `json:"internal"`
	Commits    map[string]int64  `json:"commits"`
	Groups     map[string]string `json:"groups"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	found, err := read(ctx, os.Args[1])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(ctx context.Context, bootstrap string) (*learned, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := &learned{Commits: map[string]int64{}, Groups: map[string]string{}}
	ends, err := found.ends(ctx, client)
	if err != nil {
		return nil, err
	}
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		for _, record := range fetches.Records() {
			if err := found.note(record); err != nil {
				return nil, err
			}
			if end, waits := ends[record.Partition]; waits && record.Offset >= end-1 {
				delete(ends, record.Partition)
			}
		}
	}
	return found, nil
}

// ends gives the end offset of each partition that is not empty.
func (found *learned) ends(ctx context.Context, client *kgo.Client) (map[int32]int64, error) {
	asked := kmsg.NewPtrMetadataRequest()
	name := kmsg.NewMetadataRequestTopic()
	name.Topic = kmsg.StringPtr(topic)
	asked.Topics = append(asked.Topics, name)
	metadata, err := asked.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	found.Partitions, found.Internal = len(metadata.Topics[0].Partitions), metadata.Topics[0].IsInternal
	first, err := found.list(ctx, client, -2)
	if err != nil {
		return nil, err
	}
	ends, err := found.list(ctx, client, -1)
	for partition, end := range ends {
		if end == first[partition] {
			delete(ends, partition)
		}
	}
	return ends, err
}

func (found *learned) list(ctx context.Context, client *kgo.Client, at int64) (map[int32]int64, error) {
	asked := kmsg.NewPtrListOffsetsRequest()
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = topic
	for partition := range found.Partitions {
		one := kmsg.NewListOffsetsRequestTopicPartition()
		one.Partition, one.Timestamp = int32(partition), at
		wanted.Partitions = append(wanted.Partitions, one)
	}
	asked.Topics = append(asked.Topics, wanted)
	answer, err := asked.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for _, one := range answer.Topics[0].Partitions {
		if err := kerr.ErrorForCode(one.ErrorCode); kerr.IsRetriable(err) && ctx.Err() == nil {
			// The client asks for the leaders again.
			return found.list(ctx, client, at)
		} else if err != nil {
			return nil, fmt.Errorf("the end of partition %d: %w", one.Partition, err)
		}
		offsets[one.Partition] = one.Offset
	}
	return offsets, nil
}

func (found *learned) note(record *kgo.Record) error {
	switch version := binary.BigEndian.Uint16(record.Key); version {
	case 0, 1:
		key, value := kmsg.NewOffsetCommitKey(), kmsg.NewOffsetCommitValue()
		if err := key.ReadFrom(record.Key); err != nil {
			return fmt.Errorf("key of a commit: %w", err)
		}
		name := fmt.Sprintf("%s/%s/%d", key.Group, key.Topic, key.Partition)
		if record.Value == nil {
			delete(found.Commits, name)
			return nil
		}
		if err := value.ReadFrom(record.Value); err != nil {
			return fmt.Errorf("commit of %s: %w", name, err)
		}
		found.Commits[name] = value.Offset
	case 2:
		key, value := kmsg.NewGroupMetadataKey(), kmsg.NewGroupMetadataValue()
		if err := key.ReadFrom(record.Key); err != nil {
			return fmt.Errorf("key of a group: %w", err)
		}
		if record.Value == nil {
			delete(found.Groups, key.Group)
			return nil
		}
		if err := value.ReadFrom(record.Value); err != nil {
			return fmt.Errorf("group %s: %w", key.Group, err)
		}
		said := fmt.Sprintf("%s generation %d", value.ProtocolType, value.Generation)
		for _, member := range value.Members {
			said += fmt.Sprintf(" %s %d", member.ClientID, len(member.Assignment))
		}
		found.Groups[key.Group] = said
	default:
		return fmt.Errorf("key version %d", version)
	}
	return nil
}
