"""Protobuf schemas with everything that the language has, and a strategy for others."""

from __future__ import annotations

from hypothesis import strategies as st

PROTO3 = """
syntax = "proto3";
package shop.orders;

import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import public "google/type/money.proto";

option java_multiple_files = true;
option go_package = "example.com/shop;shop";

// A comment.
message Everything {
  int32 int32_value = 1;
  int64 int64_value = 2;
  uint32 uint32_value = 3;
  uint64 uint64_value = 4;
  sint32 sint32_value = 5;
  sint64 sint64_value = 6;
  fixed32 fixed32_value = 7;
  fixed64 fixed64_value = 8;
  sfixed32 sfixed32_value = 9;
  sfixed64 sfixed64_value = 10;
  float float_value = 11;
  double double_value = 12;
  bool bool_value = 13;
  string string_value = 14 [json_name = "text/value~"];
  bytes bytes_value = 15;
  Colour colour = 16;
  Everything everything = 17;
  optional int64 maybe_int64 = 18;
  optional string maybe_string = 19;
  optional Colour maybe_colour = 20;

  repeated int32 int32_list = 21;
  repeated double double_list = 22 [packed = false];
  repeated string string_list = 23;
  repeated Inner inner_list = 24;
  repeated Colour colour_list = 25;

  message Before {}
  map<string, int64> by_string = 31;
  map<int64, Inner> by_int64 = 32;
  message Between { message Deep { string name = 1; } }
  map<bool, bytes> by_bool = 33;
  map<fixed32, Colour> by_fixed32 = 34;
  map<string, google.protobuf.Value> by_name = 35;

  oneof choice {
    string choice_string = 41;
    Inner choice_inner = 42;
    bytes choice_bytes = 43;
    google.protobuf.NullValue choice_null = 44;
  }

  google.protobuf.Timestamp timestamp = 51;
  google.protobuf.Duration duration = 52;
  google.protobuf.FieldMask mask = 53;
  google.protobuf.Struct struct = 54;
  google.protobuf.Value value = 55;
  google.protobuf.ListValue list = 56;
  google.protobuf.Any any = 57;
  google.protobuf.Empty empty = 58;
  google.protobuf.BoolValue bool_wrapper = 59;
  google.protobuf.Int64Value int64_wrapper = 60;
  google.protobuf.UInt64Value uint64_wrapper = 61;
  google.protobuf.DoubleValue double_wrapper = 62;
  google.protobuf.FloatValue float_wrapper = 63;
  google.protobuf.StringValue string_wrapper = 64;
  google.protobuf.BytesValue bytes_wrapper = 65;
  repeated google.protobuf.Int32Value wrapper_list = 66;
  google.type.Money money = 67;

  message Inner {
    string name = 1;
    Between.Deep deep = 2;
    Colour colour = 3;
    enum Colour { NONE = 0; PALE = 1; }
  }

  reserved 100, 110 to 120, 1000 to max;
  reserved "old", "older";
}

enum Colour {
  option allow_alias = true;
  COLOUR_UNKNOWN = 0;
  RED = 1;
  ROUGE = 1 [deprecated = true];
  DARK = -1;
  reserved 7, 9 to max;
  reserved "BLUE";
}

message Everything2 {}

service Orders {
  option deprecated = true;
  rpc Get(Everything) returns (Everything2);
  rpc Follow(stream Everything.Inner) returns (stream google.protobuf.Empty) {
    option idempotency_level = NO_SIDE_EFFECTS;
  }
}
"""

PROTO2 = r"""
syntax = "proto2";
package old.fashioned;

message Everything {
  required string id = 1;
  optional int32 number = 2 [default = -42];
  optional string text = 3 [default = "a \"quoted\" \n line \\ ü"];
  optional bytes raw = 4 [default = "\001\377\"'x"];
  optional float ratio = 5 [default = inf];
  optional float tenth = 13 [default = 0.1];
  optional float whole = 14 [default = 16777216];
  optional double other = 6 [default = -1.5e+300];
  optional Kind kind = 7 [default = SECOND];
  optional bool flag = 8 [default = true];
  repeated group Result = 9 {
    required string url = 1;
    optional group Inner = 2 { optional int32 depth = 1; }
  }
  message Between { optional Result result = 1; }
  map<string, Between> parts = 10;
  oneof choice {
    int32 first = 11;
    group Second = 12 { optional string name = 1; }
  }
  enum Kind { FIRST = 5; SECOND = 2; THIRD = 9; }
  extensions 100 to 199;
  extensions 1000 to max [declaration = {
    number: 1000, full_name: ".old.fashioned.later", type: ".old.fashioned.Everything"
  }];
  extend Everything { optional Between within = 101; }
  message Set { option message_set_wire_format = true; extensions 4 to max; }
}

extend Everything {
  repeated int64 numbers = 150;
  optional string note = 152;
  optional group Extra = 151 { optional string note = 1; }
}
message Last { extend Set2 { optional Last member = 7; } optional int32 n = 1; }
message Set2 { extensions 1 to 10; }
"""

EDITIONS = """
edition = "2023";
package modern;
option features.field_presence = IMPLICIT;
option features.enum_type = CLOSED;

message Everything {
  int32 implicit = 1;
  string explicit = 2 [features.field_presence = EXPLICIT];
  string needed = 3 [features.field_presence = LEGACY_REQUIRED];
  Inner delimited = 4 [features.message_encoding = DELIMITED];
  repeated int32 spread = 5 [features.repeated_field_encoding = EXPANDED];
  Kind kind = 6 [features.field_presence = EXPLICIT];
  message Inner { string name = 1; }
  enum Kind { option features.enum_type = OPEN; ZERO = 0; ONE = 1; }
  reserved old, older;
}
enum Closed { A = 3; B = 1; }
"""

OPTIONS = """
syntax = "proto3";
package rules;
import "google/protobuf/descriptor.proto";
import "confluent/meta.proto";

message Rule {
  string pattern = 1;
  repeated int32 sizes = 2;
  map<string, Level> levels = 3;
  Rule next = 4;
  bytes raw = 5;
  double limit = 6;
}
enum Level { NONE = 0; HIGH = 1; }

extend google.protobuf.FileOptions { Rule file_rule = 50000; }
extend google.protobuf.MessageOptions { repeated string tags = 50001; Level level = 50002; }
extend google.protobuf.FieldOptions {
  Rule rule = 50003;
  bytes raw = 50004;
  double limit = 50005;
  float small = 50006;
  uint64 big = 50007;
  bool on = 50008;
}
extend google.protobuf.OneofOptions { Rule one = 50009; }
extend google.protobuf.EnumOptions { Rule many = 50010; }
extend google.protobuf.EnumValueOptions { string label = 50011; }
extend google.protobuf.ServiceOptions { string owner = 50012; }
extend google.protobuf.MethodOptions { Rule call = 50013; }
extend google.protobuf.ExtensionRangeOptions { string range_name = 50014; }

option (file_rule).pattern = "x";
option (file_rule).next.pattern = "y";

message Ruled {
  option (tags) = "b";
  option (tags) = "a";
  option (level) = HIGH;
  option (confluent.message_meta).doc = "A 'ruled' \\"message\\"";
  option deprecated = true;
  string name = 1 [(rule) = {pattern: "^\\\\d+$" sizes: [3, 1] levels {key: "k" value: HIGH} raw: "\\377"},
    (raw) = "\\001\\377", (limit) = -inf, (small) = 0.1, (big) = 18446744073709551615, (on) = true,
    (confluent.field_meta) = {tags: ["PII"], params: [{key: "a", value: "b"}]}, deprecated = true];
  double nan = 2 [(limit) = nan];
  oneof choice {
    option (one).limit = 1e100;
    int32 a = 3;
  }
}
enum Named {
  option (many) = {next {next {pattern: "deep"}}};
  ZERO = 0 [(label) = "zero"];
}
service Served {
  option (owner) = "me";
  rpc Call(Ruled) returns (Ruled) { option (call).sizes = 1; option (call).sizes = 2; }
}
"""

ALL = {"proto3": PROTO3, "proto2": PROTO2, "editions": EDITIONS, "options": OPTIONS}

_SCALARS = (
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"),
    *("float", "double", "bool", "string", "bytes"),
)
# Names that hide others, that are words of the language, and that are methods of Python's messages.
_NAMES = st.sampled_from(["a", "b", "A", "B", "C", "pkg", "string", "message", "ListFields", "stream", "map"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw the text of a schema in proto3, with messages inside messages and names that hide each other."""
    package = draw(st.sampled_from(["", "pkg", "A", "a.A", "pkg.pkg"]))
    paths: list[str] = []
    lines: list[str] = []

    def names_of(scope: str, most: int) -> list[str]:
        return draw(st.lists(_NAMES, max_size=most, unique=True)) or ["A"]

    tree: dict[str, list[str]] = {}

    def plan(scope: str, depth: int) -> None:
        tree[scope] = names_of(scope, 3) if depth < 3 else []
        for name in tree[scope]:
            path = f"{scope}.{name}" if scope else name
            paths.append(path)
            plan(path, depth + 1)

    plan("", 0)

    def write(scope: str, indent: str) -> None:
        for name in tree[scope]:
            path = f"{scope}.{name}" if scope else name
            lines.append(f"{indent}message {name} {{")
            inner = draw(st.integers(0, 4))
            number = 0
            taken = set(tree[path])
            parts: list[str] = []
            for _ in range(inner):
                field = draw(_NAMES)
                if field in taken:
                    continue
                taken.add(field)
                number += draw(st.integers(1, 3))
                kind = draw(st.sampled_from(["scalar", "message", "map", "oneof"]))
                target = "." + ".".join(filter(None, [package, draw(st.sampled_from(paths))]))
                if kind == "scalar":
                    label = draw(st.sampled_from(["", "repeated ", "optional "]))
                    parts.append(f"{label}{draw(st.sampled_from(_SCALARS))} {field} = {number};")
                elif kind == "message":
                    parts.append(f"{draw(st.sampled_from(['', 'repeated ']))}{target} {field} = {number};")
                elif kind == "map":
                    entry = "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
                    if entry not in taken:
                        taken.add(entry)
                        parts.append(f"map<string, {target}> {field} = {number};")
                else:
                    parts.append(f"oneof {field}_choice {{ {target} {field} = {number}; }}")
            parts = draw(st.permutations(parts))
            cut = draw(st.integers(0, len(parts)))
            lines.extend(f"{indent}  {part}" for part in parts[:cut])
            write(path, indent + "  ")
            lines.extend(f"{indent}  {part}" for part in parts[cut:])
            lines.append(f"{indent}}}")

    write("", "")
    head = f"package {package};\n" if package else ""
    return f'syntax = "proto3";\n{head}' + "\n".join(lines) + "\n"
