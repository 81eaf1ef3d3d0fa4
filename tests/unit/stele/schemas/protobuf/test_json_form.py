"""Protobuf messages as JSON: exact both ways, by Protobuf's own mapping where that is."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from hypothesis import example, given
from hypothesis import strategies as st
from stele.schemas import protobuf
from stele.schemas.definitions import InvalidValue
from stele.schemas.protobuf.schema import ProtobufSchema

from tests.support import protobuf_schemas


@cache
def schema_of(text: str) -> ProtobufSchema:
    return protobuf.parse(text)


def everything() -> ProtobufSchema:
    return schema_of(protobuf_schemas.PROTO3)


def of_field(declaration: str) -> ProtobufSchema:
    return schema_of(
        'syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";'
        ' import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";'
        f" message M {{ {declaration} }} enum E {{ A = 0; B = 1; }}"
    )


def message_of(schema: ProtobufSchema, data: bytes) -> Any:
    return GetMessageClass(schema.message()).FromString(data)


# ── random values ──

INT32, UINT32 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, (1 << 32) - 1)
INT64, UINT64 = st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 64) - 1)
TEXT = st.text(max_size=10)
LARGEST = (2 - 2**-23) * 2.0**127
FLOATS = st.floats(width=32, allow_nan=False) | st.sampled_from((LARGEST, -LARGEST))
DOUBLES = st.floats(allow_nan=False)
COLOURS = st.sampled_from([-1, 0, 1, 2, 1 << 30])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def messages(draw: st.DrawFn, depth: int = 0) -> Any:
    """Draw a message of the schema with everything, by way of Protobuf's own interface."""
    message: Any = GetMessageClass(everything().message())()
    inner: Any = GetMessageClass(
        everything().message((0, everything().indexes("shop.orders.Everything.Inner")[1]))
    )
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "int32_value": INT32, "int64_value": INT64, "uint32_value": UINT32, "uint64_value": UINT64,
        "sint32_value": INT32, "sint64_value": INT64, "fixed32_value": UINT32, "fixed64_value": UINT64,
        "sfixed32_value": INT32, "sfixed64_value": INT64, "float_value": FLOATS, "double_value": DOUBLES,
        "bool_value": st.booleans(), "string_value": TEXT, "bytes_value": st.binary(max_size=9), "colour": COLOURS,
        "maybe_int64": INT64, "maybe_string": TEXT, "maybe_colour": COLOURS,
        "choice_string": TEXT, "choice_bytes": st.binary(max_size=3), "choice_null": st.just(0),
    }  # fmt: skip
    for name in draw(st.sets(st.sampled_from(sorted(scalars)))):
        setattr(message, name, draw(scalars[name]))
    message.int32_list.extend(draw(st.lists(INT32, max_size=3)))
    message.double_list.extend(draw(st.lists(DOUBLES, max_size=3)))
    message.string_list.extend(draw(st.lists(TEXT, max_size=3)))
    message.colour_list.extend(draw(st.lists(COLOURS, max_size=3)))
    message.inner_list.extend(inner(name=name) for name in draw(st.lists(TEXT, max_size=2)))
    for name, keys, values in (
        ("by_string", TEXT, INT64),
        ("by_bool", st.booleans(), st.binary(max_size=3)),
        ("by_fixed32", UINT32, COLOURS),
    ):
        getattr(message, name).update(draw(st.dictionaries(keys, values, max_size=3)))
    for key, name in draw(st.dictionaries(INT64, TEXT, max_size=3)).items():
        message.by_int64[key].name = name
    for key, value in draw(st.dictionaries(TEXT, JSON_VALUES, max_size=2)).items():
        json_format.Parse(json.dumps(value), message.by_name[key])
    if draw(st.booleans()):
        json_format.Parse(json.dumps(draw(JSON_VALUES)), message.value)
        json_format.ParseDict(draw(st.dictionaries(TEXT, JSON_VALUES, max_size=3)), message.struct)
        json_format.Parse(json.dumps(draw(st.lists(JSON_VALUES, max_size=3))), message.list)
    if draw(st.booleans()):
        message.timestamp.seconds = draw(st.integers(-62135596800, 253402300799))
        message.timestamp.nanos = draw(st.integers(0, 999_999_999))
        seconds = draw(st.integers(-315576000000, 315576000000))
        nanos = draw(st.integers(0, 999_999_999))
        message.duration.seconds, message.duration.nanos = seconds, nanos if seconds >= 0 else -nanos
        message.mask.paths.extend(draw(st.lists(st.sampled_from(["a", "a_b.c", "x_y_z"]), max_size=3)))
        message.empty.SetInParent()
    if draw(st.booleans()):
        message.bool_wrapper.value = draw(st.booleans())
        message.int64_wrapper.value = draw(INT64)
        message.uint64_wrapper.value = draw(UINT64)
        message.double_wrapper.value = draw(DOUBLES)
        message.float_wrapper.value = draw(FLOATS)
        message.string_wrapper.value = draw(TEXT)
        message.bytes_wrapper.value = draw(st.binary(max_size=3))
        message.wrapper_list.add().value = draw(INT32)
    if depth < 2 and draw(st.booleans()):
        message.everything.CopyFrom(draw(messages(depth + 1)))
        kind = draw(st.sampled_from(["message", "special", "unknown"]))
        if kind == "message":
            message.any.Pack(inner(name=draw(TEXT)))
        elif kind == "special":
            message.any.Pack(message.timestamp)
        else:
            message.any.type_url, message.any.value = "example.com/un.known", draw(st.binary(max_size=5))
    return message


@given(messages())
def test_bytes_to_json_to_bytes_is_exact(message: Any) -> None:
    data = message.SerializeToString(deterministic=True)
    value = everything().decode(data)
    # It goes through the text of JSON, as it does over HTTP.
    assert everything().encode(json.loads(json.dumps(value, allow_nan=False))) == data


@given(messages())
def test_json_to_bytes_to_json_is_exact(message: Any) -> None:
    value = everything().decode(message.SerializeToString())
    assert everything().decode(everything().encode(value)) == value


@given(messages())
def test_protobufs_own_reader_and_writer_of_json_agree(message: Any) -> None:
    if message.any.type_url.startswith("example.com") or "example.com" in str(message.everything):
        return
    pool = everything().file.pool
    data = message.SerializeToString(deterministic=True)
    value = everything().decode(data)
    theirs = GetMessageClass(everything().message())()
    json_format.ParseDict(value, theirs, descriptor_pool=pool)
    assert theirs.SerializeToString(deterministic=True) == data
    assert everything().encode(json_format.MessageToDict(message, descriptor_pool=pool)) == data
    names = json_format.MessageToDict(message, descriptor_pool=pool, preserving_proto_field_name=True)
    assert everything().encode(names) == data


@given(st.binary(max_size=200))
@example(b"\xff" * 20)
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for schema in (everything(), schema_of(protobuf_schemas.PROTO2), schema_of(protobuf_schemas.EDITIONS)):
        try:
            value = schema.decode(data)
        except InvalidValue:
            continue
        assert schema.decode(schema.encode(value)) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([field.json_name for field in everything().message().fields])
                | st.sampled_from(["name", "@type", "value", "1", "true"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=10,
    )
)
def test_any_json_is_encoded_or_refused(value: Any) -> None:
    try:
        data = everything().encode(value)
    except InvalidValue:
        return
    everything().decode(data)


# ── single forms ──


EXACT: list[tuple[str, Any]] = [
    ("int64 x = 1;", 9223372036854775807),
    ("uint64 x = 1;", 18446744073709551615),
    ("sint64 x = 1;", -9223372036854775808),
    ("double x = 1;", "NaN"),
    ("double x = 1;", "-Infinity"),
    ("double x = 1;", 1e-323),
    ("double x = 1;", -0.0),
    ("float x = 1;", 0.1),
    ("float x = 1;", LARGEST),
    ("float x = 1;", 1e-45),
    ("float x = 1;", 16777216.0),
    ("float x = 1;", "Infinity"),
    ("bytes x = 1;", "AP8="),
    ("E x = 1;", "B"),
    ("E x = 1;", 7),
    ("optional int32 x = 1;", 0),
    ("optional E x = 1;", "A"),
    ("repeated E x = 1;", ["A", "B", 7]),
    ("map<int64, string> x = 1;", {"-1": "a", "2": "b"}),
    ("map<bool, E> x = 1;", {"false": "A", "true": "B"}),
    ("map<string, M> x = 1;", {"": {}, "a/b": {"x": {"c": {}}}}),
    ("google.protobuf.Timestamp x = 1;", "0001-01-01T00:00:00Z"),
    ("google.protobuf.Timestamp x = 1;", "9999-12-31T23:59:59.999999999Z"),
    ("google.protobuf.StringValue x = 1;", ""),
    ("google.protobuf.Int64Value x = 1;", 1 << 60),
    ("repeated google.protobuf.BoolValue x = 1;", [True, False]),
    ("google.protobuf.Value x = 1;", None),
    ("google.protobuf.Value x = 1;", [1, 1.5, "1", True, None, {"a": []}, 1e300, -0.0]),
    ("repeated google.protobuf.Value x = 1;", [None, 1, []]),
    ("map<string, google.protobuf.Value> x = 1;", {"a": None}),
    ("google.protobuf.Struct x = 1;", {"a": {"b": None}}),
    ("oneof o { google.protobuf.NullValue x = 1; int32 y = 2; }", None),
    ("google.protobuf.Any x = 1;", {}),
    ("google.protobuf.Any x = 1;", {"@type": "a/M", "x": {"@type": "a/M"}}),
    (
        "google.protobuf.Any x = 1;",
        {"@type": "a/google.protobuf.Timestamp", "value": "1970-01-01T00:00:00Z"},
    ),
    ("google.protobuf.Any x = 1;", {"@type": "a/google.protobuf.Value", "value": None}),
    ("google.protobuf.Any x = 1;", {"@type": "example.com/unknown", "value": "AAE="}),
]


@pytest.mark.parametrize(("declaration", "value"), EXACT)
def test_a_value_comes_back_as_it_is(declaration: str, value: Any) -> None:
    schema = of_field(declaration)
    decoded = schema.decode(schema.encode({"x": value}))
    assert decoded == {"x": value}
    assert json.dumps(decoded) == json.dumps({"x": value})


@pytest.mark.parametrize(
    ("declaration", "value", "same"),
    [
        ("int64 x = 1;", "42", 42),
        ("int64 x = 1;", 42.0, 42),
        ("int32 x = 1;", 1e3, 1000),
        ("double x = 1;", 1, 1.0),
        ("double x = 1;", "1.5e3", 1500.0),
        ("float x = 1;", 0.1000000001, 0.1),
        ("bytes x = 1;", "AP8", "AP8="),
        ("bytes x = 1;", "-_-_", "+/+/"),
        ("E x = 1;", 1, "B"),
        ("google.protobuf.Timestamp x = 1;", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z"),
        ("google.protobuf.Timestamp x = 1;", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.500Z"),
        ("google.protobuf.Int64Value x = 1;", "7", 7),
    ],
)
def test_other_spellings_of_a_value_are_read(declaration: str, value: Any, same: Any) -> None:
    schema = of_field(declaration)
    assert schema.decode(schema.encode({"x": value})) == {"x": same}


@pytest.mark.parametrize(
    "declaration", ["int32 x = 1;", "string x = 1;", "E x = 1;", "repeated int32 x = 1;", "M x = 1;"]
)
def test_null_and_a_default_without_presence_are_left_out(declaration: str) -> None:
    schema = of_field(declaration)
    assert schema.encode({"x": None}) == b""
    assert (
        of_field("int32 x = 1; string y = 2;").decode(
            of_field("int32 x = 1; string y = 2;").encode({"x": 0, "y": ""})
        )
        == {}
    )


def test_a_field_is_read_by_either_of_its_names() -> None:
    schema = of_field('int32 some_field = 1; int32 other = 2 [json_name = "@o"];')
    assert schema.encode({"someField": 1, "@o": 2}) == schema.encode({"some_field": 1, "other": 2})
    assert schema.decode(b"\x08\x01\x10\x02") == {"someField": 1, "@o": 2}


def test_the_name_in_json_of_one_field_may_be_the_name_of_another() -> None:
    schema = of_field('int32 a = 1 [json_name = "b"]; int32 b = 2 [json_name = "c"];')
    value = {"b": 1, "c": 2}
    assert schema.decode(schema.encode(value)) == value
    assert schema.encode(value) == schema.encode({"a": 1, "c": 2}) == b"\x08\x01\x10\x02"


def test_groups_extensions_and_required_fields_of_proto2() -> None:
    schema = schema_of(protobuf_schemas.PROTO2)
    value = {
        "id": "1",
        "result": [{"url": "u", "inner": {"depth": 3}}],
        "second": {"name": "n"},
        "[old.fashioned.Everything.within]": {"result": {"url": "v"}},
        "[old.fashioned.numbers]": [1, 2],
        "[old.fashioned.note]": "an extension that is no message",
        "[old.fashioned.extra]": {"note": "x"},
    }
    assert schema.decode(schema.encode(value)) == value
    refused_values: list[tuple[str, Any]] = [("/id", {}), ("/result/0/url", {"id": "1", "result": [{}]})]
    for pointer, bad in refused_values:
        with pytest.raises(InvalidValue, match="a required field is missing") as refused:
            schema.encode(bad)
        assert refused.value.pointer == pointer
    with pytest.raises(InvalidValue, match="required"):
        schema.decode(b"")
    with pytest.raises(InvalidValue, match="required"):
        schema.check(b"")
    with pytest.raises(InvalidValue, match="no such field"):
        schema.encode({"id": "1", "[old.fashioned.Last.member]": 1})
    # A closed enum has no other numbers; in bytes they are unknown fields.
    with pytest.raises(InvalidValue) as refused:
        schema.encode({"id": "1", "kind": 7})
    assert refused.value.pointer == "/kind"
    assert schema.decode(schema.encode({"id": "1"}) + b"\x38\x07") == {"id": "1"}


def test_presence_and_delimited_messages_of_editions() -> None:
    schema = schema_of(protobuf_schemas.EDITIONS)
    value = {"explicit": "", "needed": "", "delimited": {"name": "x"}, "kind": "ZERO", "spread": [0]}
    assert schema.decode(schema.encode({**value, "implicit": 0})) == value


def test_fields_that_have_the_names_of_methods_are_fields() -> None:
    names = (
        "ListFields", "SerializeToString", "MergeFromString", "IsInitialized", "SetInParent", "DESCRIPTOR", "Extensions",
        "FindInitializationErrors", "from", "self", "__class__", "__init__", "FromString", "add", "items", "CopyFrom",
    )  # fmt: skip
    schema = of_field("".join(f"M {name} = {number};" for number, name in enumerate(names, 1)))
    value: dict[str, Any] = {field.json_name: {} for field in schema.message().fields}
    assert schema.decode(schema.encode(value)) == value


def test_a_type_that_calls_itself_googles_is_an_ordinary_message() -> None:
    for reference in ("evil.proto", "google/protobuf/evil.proto", "google/protobuf/x/any.proto"):
        schema = protobuf.parse(
            f'syntax = "proto3"; import "{reference}"; message M {{ google.protobuf.Timestamp t = 1; }}',
            {
                reference: 'syntax = "proto3"; package google.protobuf; message Timestamp { string seconds = 1; }'
            },
        )
        value = {"t": {"seconds": "x"}}
        assert schema.decode(schema.encode(value)) == value


def test_fields_that_the_schema_does_not_have_are_left_out_and_pass_the_check() -> None:
    schema = of_field("int32 x = 1;")
    data = b"\x08\x01\x92\x3f\x03abc"
    assert schema.decode(data) == {"x": 1}
    schema.check(data)


# ── what is refused ──


REFUSED: list[tuple[str, Any, str]] = [
    ("int32 x = 1;", [], ""),
    ("int32 x = 1;", "text", ""),
    ("int32 x = 1;", None, ""),
    ("int32 x = 1;", {"y": 1}, "/y"),
    ("int32 x = 1;", {1: 1}, "/1"),
    ("int32 x = 1;", {"[x": 1}, "/[x"),
    ("int32 x = 1;", {"[]": 1}, "/[]"),
    ("int32 x = 1;", {"x": 1 << 31}, "/x"),
    ("int32 x = 1;", {"x": 1.5}, "/x"),
    ("int32 x = 1;", {"x": True}, "/x"),
    ("int32 x = 1;", {"x": "1.0"}, "/x"),
    ("int32 x = 1;", {"x": " 1"}, "/x"),
    ("uint64 x = 1;", {"x": -1}, "/x"),
    ("uint64 x = 1;", {"x": float("inf")}, "/x"),
    ("bool x = 1;", {"x": 1}, "/x"),
    ("bool x = 1;", {"x": "true"}, "/x"),
    ("string x = 1;", {"x": 1}, "/x"),
    ("string x = 1;", {"x": "\ud800"}, "/x"),
    ("map<string, int32> x = 1;", {"x": {"\ud800": 1}}, "/x/\ud800"),
    ("bytes x = 1;", {"x": "A"}, "/x"),
    ("bytes x = 1;", {"x": "A*=="}, "/x"),
    ("bytes x = 1;", {"x": [1]}, "/x"),
    ("float x = 1;", {"x": 3.5e38}, "/x"),
    ("float x = 1;", {"x": "3.5e38"}, "/x"),
    ("double x = 1;", {"x": 10**400}, "/x"),
    ("double x = 1;", {"x": "infinity"}, "/x"),
    ("double x = 1;", {"x": False}, "/x"),
    ("E x = 1;", {"x": "C"}, "/x"),
    ("E x = 1;", {"x": 1 << 31}, "/x"),
    ("E x = 1;", {"x": True}, "/x"),
    ("repeated int32 x = 1;", {"x": {}}, "/x"),
    ("repeated int32 x = 1;", {"x": [1, "a"]}, "/x/1"),
    ("repeated int32 x = 1;", {"x": [None]}, "/x/0"),
    ("repeated M x = 1;", {"x": [{}, {"x": [{"y": 1}]}]}, "/x/1/x/0/y"),
    ("repeated M x = 1;", {"x": [None]}, "/x/0"),
    ("map<string, M> x = 1;", {"x": {"a/b~": {"x": 1}}}, "/x/a~1b~0/x"),
    ("map<string, int32> x = 1;", {"x": [1]}, "/x"),
    ("map<int32, int32> x = 1;", {"x": {"01": 1}}, "/x/01"),
    ("map<int32, int32> x = 1;", {"x": {1: 1}}, "/x/1"),
    ("map<bool, int32> x = 1;", {"x": {"True": 1}}, "/x/True"),
    ("M x = 1;", {"x": []}, "/x"),
    ("int32 a_b = 1;", {"a_b": 1, "aB": 1}, "/aB"),
    ("oneof o { int32 a = 1; int32 b = 2; }", {"a": 0, "b": 0}, "/b"),
    ("google.protobuf.Timestamp x = 1;", {"x": "yesterday"}, "/x"),
    ("google.protobuf.Timestamp x = 1;", {"x": 1}, "/x"),
    ("google.protobuf.Timestamp x = 1;", {"x": "10000-01-01T00:00:00Z"}, "/x"),
    ("google.protobuf.Value x = 1;", {"x": (1 << 53) + 1}, "/x"),
    ("google.protobuf.Value x = 1;", {"x": 10**400}, "/x"),
    ("google.protobuf.Value x = 1;", {"x": [{"a": float("nan")}]}, "/x/0/a"),
    ("google.protobuf.Struct x = 1;", {"x": []}, "/x"),
    ("google.protobuf.Struct x = 1;", {"x": {1: 1}}, "/x/1"),
    ("google.protobuf.BoolValue x = 1;", {"x": 1}, "/x"),
    ("google.protobuf.Any x = 1;", {"x": 1}, "/x"),
    ("google.protobuf.Any x = 1;", {"x": {"value": "AA=="}}, "/x/@type"),
    ("google.protobuf.Any x = 1;", {"x": {"@type": "unknown"}}, "/x"),
    ("google.protobuf.Any x = 1;", {"x": {"@type": "unknown", "value": 1}}, "/x/value"),
    ("google.protobuf.Any x = 1;", {"x": {"@type": "a/M", "x": 1}}, "/x/x"),
    (
        "google.protobuf.Any x = 1;",
        {"x": {"@type": "a/google.protobuf.Value", "value": 10**400}},
        "/x/value",
    ),
]


@pytest.mark.parametrize(("declaration", "value", "pointer"), REFUSED)
def test_what_the_schema_does_not_describe_is_refused_with_its_place(
    declaration: str, value: Any, pointer: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        of_field(declaration).encode(value)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize(
    ("declaration", "data"),
    [
        ("int32 x = 1;", b"\x08"),
        ("string x = 1;", b"\x0a\x01\xff"),
        ("M x = 1;", b"\x0a\x05a"),
        ("map<string, string> x = 1;", b"\x0a\x03\x0a\x01\xff"),
        ("M x = 1;", b"\x0a\x00" * 0 + b"\x0b" * 200),
    ],
)
def test_bytes_that_are_no_message_are_refused(declaration: str, data: bytes) -> None:
    schema = of_field(declaration)
    for call in (schema.decode, schema.check):
        with pytest.raises(InvalidValue):
            call(data)


def test_text_of_proto2_that_is_no_utf_8_has_no_json_form() -> None:
    schema = schema_of("message M { optional string x = 1; map<string, int32> y = 2; }")
    for data in (b"\x0a\x01\xff", b"\x12\x03\x0a\x01\xff\x12\x03\x0a\x01a"):
        with pytest.raises(InvalidValue, match="no JSON form"):
            schema.decode(data)


def test_a_timestamp_without_a_text_has_no_json_form() -> None:
    schema = of_field("google.protobuf.Timestamp x = 1;")
    data = message_of(schema, b"")
    data.x.seconds = 1 << 60
    with pytest.raises(InvalidValue, match="no JSON form"):
        schema.decode(data.SerializeToString())
    schema.check(data.SerializeToString())


@pytest.mark.parametrize("depth", [101, 10_000])
def test_json_that_is_too_deep_is_refused(depth: int) -> None:
    value: Any = {}
    for _ in range(depth):
        value = {"x": value}
    for declaration in ("M x = 1;", "google.protobuf.Struct x = 1;", "google.protobuf.Value x = 1;"):
        with pytest.raises(InvalidValue, match="deeper"):
            of_field(declaration).encode(value)


def test_the_deepest_json_that_is_encoded_can_be_decoded() -> None:
    schema = of_field("M x = 1;")
    value: Any = {}
    for _ in range(90):
        value = {"x": value}
    assert schema.decode(schema.encode(value)) == value


def test_an_any_in_an_any_without_end_is_refused() -> None:
    schema = of_field("google.protobuf.Any x = 1;")
    message = message_of(schema, b"")
    data = b""
    for _ in range(2000):
        message.x.type_url, message.x.value = "a/M", data
        data = message.SerializeToString()
    with pytest.raises(InvalidValue):
        schema.decode(data)


def test_what_a_value_or_an_any_holds_may_have_no_json_form() -> None:
    schema = of_field("google.protobuf.Value x = 1; google.protobuf.Any y = 2;")
    message = message_of(schema, b"")
    message.x.SetInParent()
    assert schema.decode(message.SerializeToString()) == {"x": None}
    message.x.number_value = math.nan
    with pytest.raises(InvalidValue, match="no NaN"):
        schema.decode(message.SerializeToString())
    message.x.bool_value = True
    message.y.type_url, message.y.value = "a/M", b"\xff"
    with pytest.raises(InvalidValue, match="no bytes of a M"):
        schema.decode(message.SerializeToString())


def test_a_float_that_is_nan_is_one_in_a_list_and_in_a_map() -> None:
    schema = of_field("repeated float x = 1; map<string, double> y = 2;")
    value = {"x": ["NaN", "Infinity"], "y": {"a": "-Infinity"}}
    assert schema.decode(schema.encode(value)) == value
    assert math.isnan(message_of(schema, schema.encode(value)).x[0])
