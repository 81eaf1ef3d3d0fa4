// Package driver is the part of a conformance driver that does not depend on
// the Kafka client: the line protocol of tests/conformance/README.md. The Go
// drivers share it.
package driver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"time"
)

// HeartbeatInterval is that of all members: by its heartbeat a member learns of
// a rebalance, which the clients' default of 3 s would make slow.
const HeartbeatInterval = 500 * time.Millisecond

const (
	defaultTimeout        = 30 * time.Second
	defaultSessionTimeout = 6 * time.Second
	defaultPoll           = 500 * time.Millisecond
)

// Header is a record header; on the wire a pair, ["name", base64 or null].
type Header struct {
	Name  string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

func (h *Header) UnmarshalJSON(data []byte) error { return unpack(data, &h.Name, &h.Value) }

// Record is the RECORD of the protocol. A nil key or value is null, which is
// not the same as empty.
type Record struct {
	Topic     string   `json:"topic,omitempty"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`

	Deliveries int32 `json:"deliveries,omitempty"`
}

// Place is where a record is.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Outcome is on the wire ["topic", partition, offset, "accept"].
type Outcome struct {
	Place
	Kind string
}

func (o *Outcome) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&o.Topic, &o.Partition, &o.Offset, &o.Kind})
}

// TopicPartition is on the wire a pair, ["topic", partition].
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{tp.Topic, tp.Partition})
}

// Commit is on the wire ["topic", partition, offset, "metadata"].
type Commit struct {
	TopicPartition
	Offset   int64
	Metadata string
}

func (c *Commit) UnmarshalJSON(data []byte) error {
	return unpack(data, &c.Topic, &c.Partition, &c.Offset, &c.Metadata)
}

func unpack(data []byte, into ...any) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) > len(into) {
		return fmt.Errorf("%d elements where at most %d belong: %s", len(parts), len(into), data)
	}
	for i, part := range parts {
		if err := json.Unmarshal(part, into[i]); err != nil {
			return err
		}
	}
	return nil
}

// Position is an offset or a time, or one of the words "earliest" and "latest".
type Position struct {
	Word   string
	Number int64
}

func (p *Position) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &p.Word)
	}
	number, err := strconv.ParseInt(string(data), 10, 64)
	p.Number = number
	return err
}

// Partitions is how many there are to be, or which are meant.
type Partitions struct {
	Total   int32
	Numbers []int32
}

func (p *Partitions) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		return json.Unmarshal(data, &p.Numbers)
	}
	return json.Unmarshal(data, &p.Total)
}

// Command has the arguments of all operations; each uses its own.
type Command struct {
	ID json.RawMessage `json:"id"`
	Op string          `json:"op"`

	TimeoutMs        int64  `json:"timeout_ms"`
	SessionTimeoutMs int64  `json:"session_timeout_ms"`
	PollMs           *int64 `json:"poll_ms"`

	Topic      string             `json:"topic"`
	Topics     []string           `json:"topics"`
	Partition  int32              `json:"partition"`
	Partitions Partitions         `json:"partitions"`
	Configs    map[string]*string `json:"configs"`

	Acks       string   `json:"acks"`
	Idempotent bool     `json:"idempotent"`
	Codec      string   `json:"codec"`
	Records    []Record `json:"records"`
	Keys       [][]byte `json:"keys"`

	Offset       Position `json:"offset"`
	At           Position `json:"at"`
	BeforeOffset int64    `json:"before_offset"`
	Count        int      `json:"count"`

	MaxBytes          int32 `json:"max_bytes"`
	PartitionMaxBytes int32 `json:"partition_max_bytes"`
	AnswerMaxBytes    int32 `json:"answer_max_bytes"`

	Isolation       string `json:"isolation"`
	Producer        string `json:"producer"`
	TransactionalID string `json:"transactional_id"`
	Source          string `json:"source"`
	Begins          bool   `json:"begins"`
	End             string `json:"end"`

	Member     string   `json:"member"`
	Group      string   `json:"group"`
	InstanceID string   `json:"instance_id"`
	Protocol   string   `json:"protocol"`
	Start      string   `json:"start"`
	Offsets    []Commit `json:"offsets"`

	Outcomes []Outcome `json:"outcomes"`
}

// Fetched is the partitions that `fetch` reads, one or several.
func (c *Command) Fetched() []int32 {
	if c.Partitions.Numbers != nil {
		return c.Partitions.Numbers
	}
	return []int32{c.Partition}
}

func (c *Command) Timeout() time.Duration { return milliseconds(c.TimeoutMs, defaultTimeout) }

func (c *Command) SessionTimeout() time.Duration {
	return milliseconds(c.SessionTimeoutMs, defaultSessionTimeout)
}

// Poll is how long `assignment` goes on polling; unlike the limits it may be 0.
func (c *Command) Poll() time.Duration {
	if c.PollMs == nil {
		return defaultPoll
	}
	return time.Duration(*c.PollMs) * time.Millisecond
}

func milliseconds(ms int64, otherwise time.Duration) time.Duration {
	if ms <= 0 {
		return otherwise
	}
	return time.Duration(ms) * time.Millisecond
}

// Handler does one operation. Its context ends when the command's time is over.
type Handler func(context.Context, *Command) (any, error)

// None is the result of an operation that has nothing to tell.
type None struct{}

// Failure is an error with the name the tests look at.
type Failure struct {
	Name string
	Text string
}

func (f *Failure) Error() string { return f.Name + ": " + f.Text }

// ErrTimedOut is told when a wait reached its limit.
var ErrTimedOut = &Failure{"TIMED_OUT", "the time given was over"}

type greeting struct {
	Client      string   `json:"client"`
	Version     string   `json:"version"`
	Unsupported []string `json:"unsupported"`
}

type answer struct {
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
	Message string          `json:"message,omitempty"`
}

// Serve greets, then answers the commands of standard input until it ends.
// nameOf tells Kafka's name of an error, or "" where the client does not.
func Serve(client, module string, unsupported []string, handlers map[string]Handler, nameOf func(error) string) {
	out := json.NewEncoder(os.Stdout)
	reply := func(v any) {
		if err := out.Encode(v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if unsupported == nil {
		unsupported = []string{}
	}
	reply(greeting{client, versionOf(module), unsupported})

	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var command Command
		if err := in.Decode(&command); err == io.EOF {
			return
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "not a command:", err)
			os.Exit(1)
		}
		result, err := do(handlers, &command)
		if err == nil {
			reply(answer{ID: command.ID, Result: result})
			continue
		}
		reply(answer{ID: command.ID, Error: name(err, nameOf), Message: err.Error()})
	}
}

func do(handlers map[string]Handler, command *Command) (any, error) {
	handler, known := handlers[command.Op]
	if !known {
		return nil, &Failure{"UNKNOWN_OP", command.Op}
	}
	ctx, cancel := context.WithTimeout(context.Background(), command.Timeout())
	defer cancel()
	return handler(ctx, command)
}

func name(err error, nameOf func(error) string) string {
	if name := nameOf(err); name != "" {
		return name
	}
	var failure *Failure
	switch {
	case errors.As(err, &failure):
		return failure.Name
	case errors.Is(err, context.DeadlineExceeded):
		return ErrTimedOut.Name
	}
	return err.Error()
}

// versionOf finds the client's version in what the linker noted.
func versionOf(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version[len("v"):]
			}
		}
	}
	return "unknown"
}
