// A driver of franz-go's schema registry client and serde: the commands are in tests/conformance/README.md.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
)

const mainFile = "main.proto"

type command struct {
	ID        int             `json:"id"`
	Op        string          `json:"op"`
	Subject   string          `json:"subject"`
	Schema    sr.Schema       `json:"schema"`
	SchemaID  int             `json:"schema_id"`
	Value     json.RawMessage `json:"value"`
	Data      []byte          `json:"data"`
	Level     string          `json:"level"`
	Permanent bool            `json:"permanent"`
}

// What the serde knows a value by; its content is JSON.
type document struct{ json.RawMessage }

type driver struct{ *sr.Client }

func (d driver) do(ctx context.Context, c *command) (any, error) {
	switch c.Op {
	case "register":
		made, err := d.CreateSchema(ctx, c.Subject, c.Schema)
		return made.ID, err
	case "lookup":
		found, err := d.LookupSchema(ctx, c.Subject, c.Schema)
		return []int{found.ID, found.Version}, err
	case "versions":
		return d.SubjectVersions(ctx, c.Subject)
	case "check":
		result, err := d.CheckCompatibility(ctx, c.Subject, -1, c.Schema)
		return result.Is, err
	case "set_level":
		var level sr.CompatibilityLevel
		if err := level.UnmarshalText([]byte(c.Level)); err != nil {
			return nil, err
		}
		result := d.SetCompatibility(ctx, sr.SetCompatibility{Level: level}, c.Subject)[0]
		return result.Level, result.Err
	case "delete":
		how := sr.SoftDelete
		if c.Permanent {
			how = sr.HardDelete
		}
		return d.DeleteSubject(ctx, c.Subject, how)
	case "encode":
		serde, err := d.serde(ctx, c.SchemaID)
		if err != nil {
			return nil, err
		}
		return serde.Encode(document{c.Value})
	case "decode":
		id, _, err := new(sr.Serde).DecodeID(c.Data)
		if err != nil {
			return nil, err
		}
		serde, err := d.serde(ctx, id)
		if err != nil {
			return nil, err
		}
		var value document
		err = serde.Decode(c.Data, &value)
		return value.RawMessage, err
	}
	return nil, fmt.Errorf("unknown op %s", c.Op)
}

// serde knows one schema, which it loads by its id with all that it refers to.
func (d driver) serde(ctx context.Context, id int) (*sr.Serde, error) {
	schema, err := d.SchemaByID(ctx, id)
	if err != nil {
		return nil, err
	}
	var referenced []named
	if err := d.load(ctx, schema.References, &referenced); err != nil {
		return nil, err
	}
	var options []sr.EncodingOpt
	switch schema.Type {
	case sr.TypeAvro:
		options, err = ofAvro(schema.Schema, referenced)
	case sr.TypeProtobuf:
		options, err = ofProtobuf(ctx, schema.Schema, referenced)
	case sr.TypeJSON:
		options = []sr.EncodingOpt{sr.EncodeFn(encodeJSON), sr.DecodeFn(decodeJSON)}
	}
	serde := sr.NewSerde()
	serde.Register(id, document{}, options...)
	return serde, err
}

type named struct{ name, text string }

func (d driver) load(ctx context.Context, references []sr.SchemaReference, into *[]named) error {
	for _, reference := range references {
		found, err := d.SchemaByVersion(ctx, reference.Subject, reference.Version)
		if err != nil {
			return err
		}
		if err := d.load(ctx, found.References, into); err != nil {
			return err
		}
		*into = append(*into, named{reference.Name, found.Schema.Schema})
	}
	return nil
}

func encodeJSON(value any) ([]byte, error) { return value.(document).RawMessage, nil }

func decodeJSON(data []byte, into any) error {
	into.(*document).RawMessage = bytes.Clone(data)
	return nil
}

func ofAvro(text string, referenced []named) ([]sr.EncodingOpt, error) {
	cache := new(avro.SchemaCache)
	for _, other := range referenced {
		if _, err := avro.ParseWithCache(other.text, "", cache); err != nil {
			return nil, err
		}
	}
	schema, err := avro.ParseWithCache(text, "", cache)
	encode := func(value any) ([]byte, error) {
		var fields map[string]any
		decoder := json.NewDecoder(bytes.NewReader(value.(document).RawMessage))
		decoder.UseNumber()
		if err := decoder.Decode(&fields); err != nil {
			return nil, err
		}
		return avro.Marshal(schema, ofNumbers(fields))
	}
	decode := func(data []byte, into any) error {
		var fields any
		if err := avro.Unmarshal(schema, data, &fields); err != nil {
			return err
		}
		text, err := json.Marshal(fields)
		into.(*document).RawMessage = text
		return err
	}
	return []sr.EncodingOpt{sr.EncodeFn(encode), sr.DecodeFn(decode)}, err
}

// ofNumbers makes integers of the numbers that are written so: Avro tells them from fractions.
func ofNumbers(value any) any {
	switch value := value.(type) {
	case json.Number:
		if number, err := value.Int64(); err == nil {
			return int(number)
		}
		number, _ := value.Float64()
		return number
	case map[string]any:
		for name := range value {
			value[name] = ofNumbers(value[name])
		}
	case []any:
		for index := range value {
			value[index] = ofNumbers(value[index])
		}
	}
	return value
}

// ofProtobuf reads the first message of the file.
func ofProtobuf(ctx context.Context, text string, referenced []named) ([]sr.EncodingOpt, error) {
	files := map[string]string{mainFile: text}
	for _, other := range referenced {
		files[other.name] = other.text
	}
	resolver := &protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(resolver)}
	compiled, err := compiler.Compile(ctx, mainFile)
	if err != nil {
		return nil, err
	}
	message := compiled[0].Messages().Get(0)
	encode := func(value any) ([]byte, error) {
		made := dynamicpb.NewMessage(message)
		if err := protojson.Unmarshal(value.(document).RawMessage, made); err != nil {
			return nil, err
		}
		return proto.Marshal(made)
	}
	decode := func(data []byte, into any) error {
		made := dynamicpb.NewMessage(message)
		if err := proto.Unmarshal(data, made); err != nil {
			return err
		}
		text, err := protojson.Marshal(made)
		into.(*document).RawMessage = text
		return err
	}
	return []sr.EncodingOpt{sr.EncodeFn(encode), sr.DecodeFn(decode), sr.Index(0)}, nil
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == "github.com/twmb/franz-go/pkg/sr" {
				return dependency.Version[len("v"):]
			}
		}
	}
	return "unknown"
}

func main() {
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(bufio.NewReader(os.Stdin))
	_ = out.Encode(map[string]any{"client": "franz-go sr", "version": version(), "unsupported": []string{}})
	for {
		var c command
		if err := in.Decode(&c); err == io.EOF {
			return
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "not a command:", err)
			os.Exit(1)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		result, err := driver{client}.do(ctx, &c)
		cancel()
		answer := map[string]any{"id": c.ID, "result": result}
		if err != nil {
			var refused *sr.ResponseError
			answer = map[string]any{"id": c.ID, "error": "CLIENT", "message": err.Error()}
			if errors.As(err, &refused) {
				answer["error"] = strconv.Itoa(refused.ErrorCode)
			}
		}
		_ = out.Encode(answer)
	}
}
