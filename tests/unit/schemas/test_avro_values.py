"""Values of Avro as bytes and as JSON: exact both ways, and bounded whatever the bytes say."""

from __future__ import annotations

import json
import math
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stele.schemas import avro
from stele.schemas.avro import reading
from stele.schemas.definitions import InvalidValue

from tests.support.avro_examples import parsed_schemas, schemas_with_values


def parse(schema: Any) -> avro.AvroSchema:
    return avro.parse(json.dumps(schema))


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(fields)],
    }


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


def logical(kind: str, name: str, **attributes: Any) -> Any:
    return {"type": kind, "logicalType": name, **attributes}


def fixed(size: int, **attributes: Any) -> Any:
    return {"type": "fixed", "name": "F", "size": size, **attributes}


def varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    encoded = b""
    while zigzag > 0x7F:
        encoded += bytes([zigzag & 0x7F | 0x80])
        zigzag >>= 7
    return encoded + bytes([zigzag])


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
LINKED = record("long", ["null", "R"])
CASES: list[tuple[Any, Any, bytes]] = [
    ("null", None, b""),
    ("boolean", True, b"\1"),
    ("int", -1, b"\1"),
    ("int", -64, b"\x7f"),
    ("int", 64, b"\x80\1"),
    ("int", -(2**31), b"\xff\xff\xff\xff\x0f"),
    ("long", 2**63 - 1, b"\xfe" + b"\xff" * 8 + b"\1"),
    ("long", -(2**63), b"\xff" * 9 + b"\1"),
    ("float", 1.5, b"\0\0\xc0\x3f"),
    ("double", -0.0, b"\0" * 7 + b"\x80"),
    ("double", "NaN", struct.pack("<d", math.nan)),
    ("float", "-Infinity", struct.pack("<f", -math.inf)),
    ("bytes", "AP8=", b"\4\0\xff"),
    ("string", "foo", b"\6foo"),
    ("string", "é\0", b"\6\xc3\xa9\0"),
    (ENUM, "B", b"\2"),
    (fixed(2), "AP8=", b"\0\xff"),
    (fixed(0), "", b""),
    (array("long"), [3, 27], b"\4\6\x36\0"),
    (array("long"), [], b"\0"),
    ({"type": "map", "values": "int"}, {"a": 1}, b"\2\2a\2\0"),
    (record("long", "string"), {"f0": 27, "f1": "foo"}, b"\x36\6foo"),
    (record(), {}, b""),
    (LINKED, {"f0": 1, "f1": {"f0": 2, "f1": None}}, b"\2\2\4\0"),
    (["null", "string"], None, b"\0"),
    (["null", "string"], "a", b"\2\2a"),
    (logical("int", "date"), "2026-11-30", varint(20787)),
    (logical("int", "date"), 2**31 - 1, varint(2**31 - 1)),
    (logical("int", "time-millis"), "10:00:00.123", varint(36_000_123)),
    (logical("long", "time-micros"), "10:00:00.000123", varint(36_000_000_123)),
    (logical("long", "timestamp-millis"), "2000-01-01T10:00:00Z", varint(946_720_800_000)),
    (logical("long", "timestamp-micros"), "2000-01-01T10:00:00Z", varint(946_720_800_000_000)),
    (logical("long", "timestamp-nanos"), "2000-01-01T10:00:00.000000001Z", varint(946_720_800 * 10**9 + 1)),
    (logical("long", "timestamp-millis"), 2**62, varint(2**62)),
    (logical("long", "local-timestamp-millis"), "2000-01-01T12:00:00", varint(946_728_000_000)),
    (
        logical("string", "uuid"),
        "0A9E2B4C-0000-4000-8000-000000000000",
        b"\x480A9E2B4C-0000-4000-8000-000000000000",
    ),
    (fixed(16, logicalType="uuid"), "00010203-0405-0607-0809-0a0b0c0d0e0f", bytes(range(16))),
    (fixed(12, logicalType="duration"), "P1M2DT0.003S", struct.pack("<III", 1, 2, 3)),
    (logical("bytes", "decimal", precision=4, scale=2), "12.30", b"\4\4\xce"),
    (logical("bytes", "decimal", precision=4, scale=2), "-0.01", b"\2\xff"),
    (logical("bytes", "decimal", precision=4), "0", b"\2\0"),
    (logical("bytes", "decimal", precision=4), "128", b"\4\0\x80"),
    (fixed(3, logicalType="decimal", precision=4, scale=1), "-1.0", b"\xff\xff\xf6"),
    # Logical types that are none: what is stored.
    (logical("bytes", "decimal", precision=2, scale=3), "AQ==", b"\2\1"),
    (logical("bytes", "decimal", precision=2, scale=-1), "AQ==", b"\2\1"),
    (logical("bytes", "decimal", precision="5", scale=2), "AQ==", b"\2\1"),
    (logical("bytes", "decimal", precision=0), "AQ==", b"\2\1"),
    (logical("bytes", "decimal"), "AQ==", b"\2\1"),
    (logical("bytes", "decimal", precision=100_000), "AQ==", b"\2\1"),
    (logical("int", "decimal", precision=2), 1, b"\2"),
    (fixed(1, logicalType="decimal", precision=3), "AQ==", b"\1"),
    (fixed(15, logicalType="uuid"), "AAAAAAAAAAAAAAAAAAAA", b"\0" * 15),
    (logical("int", "timestamp-millis"), 1, b"\2"),
    (logical("string", "date"), "a", b"\2a"),
    (logical("long", "no-such-type"), 1, b"\2"),
]


@pytest.mark.parametrize(("schema", "value", "data"), CASES)
def test_a_value_is_encoded_as_the_specification_says(schema: Any, value: Any, data: bytes) -> None:
    parsed = parse(schema)
    if parsed.root.kind == "bytes":
        # A payload has no length.
        data = data[1:]
    assert parsed.encode(value) == data
    assert parsed.decode(data) == value
    assert parsed.decode(memoryview(data)) == value
    parsed.check(data)


@given(schemas_with_values())
def test_every_value_comes_back(case: tuple[avro.AvroSchema, Any]) -> None:
    schema, value = case
    data = schema.encode(value)
    shown = schema.decode(data)
    assert schema.encode(shown) == data
    # A second time it is the same JSON, too; a float may be written with fewer digits at first.
    assert repr(schema.decode(schema.encode(shown))) == repr(shown)
    json.loads(json.dumps(shown, allow_nan=False))
    schema.check(data)


@given(schemas_with_values())
def test_the_form_in_which_a_value_is_shown_is_the_one_in_which_it_was_written(
    case: tuple[avro.AvroSchema, Any],
) -> None:
    """But for dates and times, which may be written as the integers that are stored, and for digits of a float."""
    schema, value = case
    if "logicalType" not in schema.canonical and '"float"' not in schema.canonical:
        assert schema.decode(schema.encode(value)) == value


# ── unions ──


@pytest.mark.parametrize(
    ("union", "value", "data"),
    [
        (["null", "int"], 1, b"\2\2"),
        (["int", "string", "null", array("int")], [1], b"\6\2\2\0"),
        (["string", record("int")], {"f0": 1}, b"\2\2"),
        (["string", {"type": "map", "values": "int"}], {"string": 1}, b"\2\2\x0cstring\2\0"),
        (["null", "double"], "NaN", b"\2" + struct.pack("<d", math.nan)),
        (["null", logical("long", "timestamp-millis")], "1970-01-01T00:00:00Z", b"\2\0"),
    ],
)
def test_a_union_is_plain_if_json_says_the_branch(union: Any, value: Any, data: bytes) -> None:
    schema = parse(union)
    assert schema.encode(value) == data
    assert schema.decode(data) == value


@pytest.mark.parametrize(
    ("union", "value", "data"),
    [
        (["null", "int", "long"], {"long": 1}, b"\4\2"),
        (["null", "int", "long"], None, b"\0"),
        (["float", "double"], {"float": 1.0}, b"\0\0\0\x80\x3f"),
        (["string", "bytes"], {"bytes": "YQ=="}, b"\2\2a"),
        (["string", ENUM], {"E": "A"}, b"\2\0"),
        # A double is a string if it is no number.
        (["double", "string"], {"double": 1.0}, b"\0" + struct.pack("<d", 1)),
        # A timestamp is a number if it has no text.
        (["double", logical("long", "timestamp-millis")], {"long": "1970-01-01T00:00:00Z"}, b"\2\0"),
        ([record(name="n.A"), record(name="n.B")], {"n.B": {}}, b"\2"),
        ([record(), {"type": "map", "values": "int"}], {"map": {"R": 1}}, b"\2\2\2R\2\0"),
    ],
)
def test_otherwise_its_values_are_named(union: Any, value: Any, data: bytes) -> None:
    schema = parse(union)
    assert schema.encode(value) == data
    assert schema.decode(data) == value


@pytest.mark.parametrize(
    ("union", "value", "data"),
    [
        (["null", "string"], {"string": "a"}, b"\2\2a"),
        (["null", record("int", name="n.R")], {"n.R": {"f0": 1}}, b"\2\2"),
    ],
)
def test_a_plain_union_may_be_named_as_in_avros_own_json(union: Any, value: Any, data: bytes) -> None:
    assert parse(union).encode(value) == data


def test_but_not_where_the_name_is_a_field_or_a_key() -> None:
    holder = {
        "type": "record",
        "name": "string",
        "namespace": "n",
        "fields": [{"name": "string", "type": "int"}],
    }
    assert parse(["string", holder]).encode({"string": 1}) == b"\2\2"
    assert parse(["string", {"type": "map", "values": "int"}]).encode({"string": 1}) == b"\2\2\x0cstring\2\0"


def test_an_empty_union_has_no_values() -> None:
    assert "branch" in refused(parse([]).encode, None).reason
    assert "branch" in refused(parse([]).decode, b"\0").reason


# ── values that are refused ──


def refused(function: Callable[[Any], Any], value: Any) -> InvalidValue:
    with pytest.raises(InvalidValue) as raised:
        function(value)
    assert raised.value.reason
    return raised.value


PERSON: dict[str, Any] = {
    "type": "record",
    "name": "n.Person",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": "int"},
        {"name": "tags", "type": array("string"), "default": []},
        {"name": "a/b", "type": "int", "default": 0},
        {"name": "friend", "type": ["null", "Person"], "default": None},
        {"name": "scores", "type": {"type": "map", "values": ["int", "long"]}, "default": {}},
    ],
}


def person(**members: Any) -> dict[str, Any]:
    return {"name": "ann", "age": 5, **members}


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (None, ""),
        ([], ""),
        ({"name": "ann"}, "/age"),
        (person(age=None), "/age"),
        (person(age="5"), "/age"),
        (person(age=5.0), "/age"),
        (person(age=True), "/age"),
        (person(age=2**31), "/age"),
        (person(name=5), "/name"),
        (person(name="\ud800"), "/name"),
        (person(unknown=1), "/unknown"),
        (person(**{"x~y/z": 1}), "/x~0y~1z"),
        (person(**{"a/b": "1"}), "/a~1b"),
        (person(tags="a"), "/tags"),
        (person(tags=["a", None]), "/tags/1"),
        (person(friend={}), "/friend/name"),
        (person(friend=person(tags=[1])), "/friend/tags/0"),
        (person(friend={"n.Person": {}}), "/friend/n.Person/name"),
        (person(scores={"x": 1}), "/scores/x"),
        (person(scores={"x": {"int": "1"}}), "/scores/x/int"),
        (person(scores={"x": {"double": 1}}), "/scores/x"),
    ],
)
def test_what_the_schema_does_not_describe_is_refused_with_its_place(value: Any, pointer: str) -> None:
    schema = avro.parse(json.dumps(PERSON), registered=True)
    assert refused(schema.encode, value).pointer == pointer


def test_missing_fields_have_their_defaults() -> None:
    schema = avro.parse(json.dumps(PERSON), registered=True)
    complete = person(tags=[], friend=None, scores={}, **{"a/b": 0})
    assert schema.encode(person()) == schema.encode(complete)
    assert schema.decode(schema.encode(person())) == complete


def test_the_message_says_how_to_name_a_branch() -> None:
    assert '{"int": …}' in refused(parse(["null", "int", "long"]).encode, 1).reason


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", 0),
        ("boolean", 1),
        ("boolean", "true"),
        ("long", 2**63),
        ("long", 10**1_000),
        ("long", 1e3),
        ("float", 1e39),
        ("float", 2**200),
        ("double", 10**400),
        ("double", "nan"),
        ("double", True),
        ("bytes", "a"),
        ("bytes", "YQ"),
        ("bytes", 1),
        ("string", None),
        (fixed(2), "YQ=="),
        (ENUM, "C"),
        (ENUM, 0),
        (array("int"), {}),
        ({"type": "map", "values": "int"}, []),
        ({"type": "map", "values": "int"}, {"\ud800": 1}),
        (logical("int", "date"), "2026-02-29"),
        (logical("int", "date"), 2**31),
        (logical("int", "time-millis"), "10:00:00.1234"),
        (logical("long", "timestamp-nanos"), "3000-01-01T00:00:00Z"),
        (logical("long", "timestamp-millis"), "2000-01-01"),
        (logical("string", "uuid"), "a"),
        (fixed(16, logicalType="uuid"), "AAAAAAAAAAAAAAAAAAAAAA=="),
        (fixed(12, logicalType="duration"), "P1Y"),
        (logical("bytes", "decimal", precision=4, scale=2), "123.00"),
        (logical("bytes", "decimal", precision=4, scale=2), "1.234"),
        (logical("bytes", "decimal", precision=4, scale=2), 12.3),
        (logical("bytes", "decimal", precision=4, scale=2), "1" * 100_000),
    ],
)
def test_values_of_another_type_are_refused(schema: Any, value: Any) -> None:
    assert refused(parse(schema).encode, value).pointer == ""


# ── bytes that are refused ──


@pytest.mark.parametrize(
    ("schema", "data", "pointer"),
    [
        pytest.param("null", b"\0", "", id="bytes after null"),
        pytest.param("int", b"", "", id="nothing"),
        pytest.param("int", b"\0\0", "", id="more than one"),
        pytest.param("int", b"\x80", "", id="half a number"),
        pytest.param("int", b"\x80\x80\x80\x80\x10", "", id="33 bits"),
        pytest.param("long", b"\x80" * 9 + b"\2", "", id="65 bits"),
        pytest.param("long", b"\x80" * 11 + b"\0", "", id="more than 10 bytes"),
        pytest.param("boolean", b"\2", "", id="boolean 2"),
        pytest.param("float", b"\0\0\0", "", id="half a float"),
        pytest.param("double", b"\0" * 9, "", id="more than a double"),
        pytest.param("string", b"\2", "", id="no character"),
        pytest.param("string", b"\1", "", id="length -1"),
        pytest.param("string", varint(2**62), "", id="length 2^62"),
        pytest.param("string", b"\2\xff", "", id="not UTF-8"),
        pytest.param("string", b"\6\xed\xa0\x80", "", id="surrogate"),
        pytest.param(array("bytes"), b"\2\4a", "/0", id="half of bytes"),
        pytest.param(fixed(2), b"a", "", id="half of fixed"),
        pytest.param(ENUM, b"\4", "", id="symbol 2"),
        pytest.param(ENUM, b"\1", "", id="symbol -1"),
        pytest.param(["null", "int"], b"\4", "", id="branch 2"),
        pytest.param(["null", "int"], b"\1", "", id="branch -1"),
        pytest.param(["int", "long"], b"\2\x80", "/long", id="half of a branch"),
        pytest.param(array("int"), b"\2\2", "", id="no end"),
        pytest.param(array("int"), b"\4\2", "/1", id="one item of two"),
        pytest.param(array("int"), varint(2**60) + b"\2\2\0", "", id="2^60 items"),
        pytest.param(array("int"), b"\1\4\2\2\0", "", id="block of another size"),
        pytest.param({"type": "map", "values": "string"}, b"\2\2a\2\xff\0", "/a", id="value of a map"),
        pytest.param({"type": "map", "values": "int"}, b"\2\2\xff\2\0", "", id="key of a map"),
        pytest.param(record("int", record("int", "string", name="S")), b"\2\2\2\xff", "/f1/f1", id="field"),
        pytest.param(logical("string", "uuid"), b"\2a", "", id="no UUID"),
        pytest.param(logical("bytes", "decimal", precision=2), b"", "", id="decimal of no bytes"),
        pytest.param(logical("bytes", "decimal", precision=2), b"\x64", "", id="decimal 100"),
    ],
)
def test_bytes_that_are_no_value_are_refused_with_the_place(schema: Any, data: bytes, pointer: str) -> None:
    parsed = parse(schema)
    assert refused(parsed.decode, data).pointer == pointer
    # The names of branches are of the JSON form, which a check does not make.
    assert refused(parsed.check, data).pointer == pointer.removesuffix("/long")


def test_blocks_may_be_many_and_say_their_size() -> None:
    schema = parse(array("int"))
    assert schema.decode(b"\2\2" + b"\1\2\4" + b"\0") == [1, 2]
    assert schema.decode(b"\3\4\2\4\0") == [1, 2]
    assert parse({"type": "map", "values": "int"}).decode(b"\1\6\2a\2\2\2b\4\0") == {"a": 1, "b": 2}


def test_a_map_has_the_last_value_of_a_key() -> None:
    assert parse({"type": "map", "values": "int"}).decode(b"\4\2a\2\2a\4\0") == {"a": 2}


def test_numbers_may_be_longer_than_needed() -> None:
    assert parse("int").decode(b"\x82\x80\0") == 1


BOMBS: list[Any] = [
    pytest.param(array("null"), varint(2**40) + b"\0", id="2^40 nulls"),
    pytest.param(array("null"), varint(-(2**63)) + b"\0\0", id="2^63 nulls in a block with a size"),
    pytest.param(array("null"), varint(50_000) * 3 + b"\0", id="nulls in several blocks"),
    pytest.param(array(record()), varint(2**40) + b"\0", id="records without fields"),
    pytest.param(array(fixed(0)), varint(2**40) + b"\0", id="fixed of no bytes"),
    pytest.param(
        array(array("null")), varint(3) + varint(50_000) + b"\0" + varint(60_000) + b"\0", id="within arrays"
    ),
    pytest.param(
        array(record("boolean", *["null"] * 1_000)), varint(4_000) + b"\1" * 4_000 + b"\0", id="wide records"
    ),
]


@pytest.mark.parametrize(("schema", "data"), BOMBS)
def test_values_that_take_no_bytes_are_counted(schema: Any, data: bytes) -> None:
    parsed = parse(schema)
    refused(parsed.decode, data)
    refused(parsed.check, data)


def test_records_of_records_that_double_each_time_are_counted() -> None:
    schemas: list[Any] = [record("null", "null", name="R0")]
    schemas += [record(f"R{index}", f"R{index}", name=f"R{index + 1}") for index in range(60)]
    refused(parse(schemas).decode, varint(60))


def test_a_megabyte_of_small_values_is_no_bomb() -> None:
    assert len(parse(array("boolean")).decode(varint(10**6) + b"\1" * 10**6 + b"\0")) == 10**6
    assert len(parse(array(record("boolean"))).decode(varint(10**5) + b"\1" * 10**5 + b"\0")) == 10**5


def linked(length: int) -> tuple[dict[str, Any], bytes]:
    value: dict[str, Any] = {"f0": 0, "f1": None}
    for _ in range(length - 1):
        value = {"f0": 0, "f1": value}
    return value, b"\0\2" * (length - 1) + b"\0\0"


def test_a_list_of_records_is_as_long_as_the_depth_allows() -> None:
    schema = parse(LINKED)
    value, data = linked(reading.DEPTH_MAX + 1)
    assert schema.encode(value) == data
    assert schema.decode(data) == value
    value, data = linked(reading.DEPTH_MAX + 2)
    assert "deep" in refused(schema.encode, value).reason
    assert "deep" in refused(schema.decode, data).reason


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        pytest.param(LINKED, b"\0\2" * 1_000_000, id="records"),
        pytest.param(record(array("R")), b"\2" * 1_000_000, id="arrays"),
        pytest.param(record({"type": "map", "values": "R"}), b"\2\0" * 1_000_000, id="maps"),
        pytest.param(record(["null", record("R", name="S")]), b"\2" * 1_000_000, id="unions"),
        pytest.param(record("null", [record(name="S"), "R"]), b"\2" * 1_000_000, id="tags"),
    ],
)
def test_a_megabyte_of_depth_is_refused_in_any_thread(schema: Any, data: bytes) -> None:
    parsed = parse(schema)
    reasons: list[str] = []
    thread = threading.Thread(target=lambda: reasons.append(refused(parsed.decode, data).reason))
    thread.start()
    thread.join()
    assert "deep" in reasons[0]
    assert "deep" in refused(parsed.check, data).reason


@given(parsed_schemas(), st.binary(max_size=64))
@example(parse(array("null")), varint(2**40))
def test_any_bytes_are_a_value_or_refused(schema: avro.AvroSchema, data: bytes) -> None:
    try:
        value = schema.decode(data)
    except InvalidValue:
        with pytest.raises(InvalidValue):
            schema.check(data)
        return
    schema.check(data)
    assert repr(schema.decode(schema.encode(value))) == repr(value)


@given(st.data(), schemas_with_values())
def test_a_value_with_a_byte_changed_added_or_removed_is_another_or_refused(
    draws: st.DataObject, case: tuple[avro.AvroSchema, Any]
) -> None:
    schema, value = case
    data = bytearray(schema.encode(value))
    if data:
        place = draws.draw(st.integers(0, len(data) - 1))
        match draws.draw(st.sampled_from(["change", "remove", "cut", "add"])):
            case "change":
                data[place] = draws.draw(st.integers(0, 255))
            case "remove":
                del data[place]
            case "cut":
                del data[place:]
            case _:
                data.insert(place, draws.draw(st.integers(0, 255)))
    try:
        shown = schema.decode(bytes(data))
    except InvalidValue:
        refused(schema.check, bytes(data))
        return
    schema.check(bytes(data))
    assert repr(schema.decode(schema.encode(shown))) == repr(shown)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(parsed_schemas(), JSON)
def test_any_json_is_a_value_or_refused(schema: avro.AvroSchema, value: Any) -> None:
    try:
        data = schema.encode(value)
    except InvalidValue:
        return
    schema.check(data)


# ── another reader ──


def read(writer: Any, reader: Any, value: Any) -> Any:
    written = parse(writer)
    return written.decode(written.encode(value), parse(reader))


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", 1, 1),
        ("int", "float", 2**24 + 1, 2.0**24),
        ("int", "double", 1, 1.0),
        ("long", "float", 2**62 + 1, 4.611686e18),
        ("long", "double", 2**53 + 1, 2.0**53),
        ("float", "double", 0.5, 0.5),
        ("float", "double", "NaN", "NaN"),
        ("string", "bytes", "é", "w6k="),
        ("bytes", "string", "w6k=", "é"),
        ("long", logical("long", "timestamp-millis"), 0, "1970-01-01T00:00:00Z"),
        (logical("long", "timestamp-millis"), "long", "1970-01-01T00:00:00Z", 0),
        (
            logical("int", "date"),
            logical("long", "timestamp-millis"),
            "1970-01-02",
            "1970-01-01T00:00:00.001Z",
        ),
        ("bytes", logical("bytes", "decimal", precision=4, scale=2), "AQ==", "0.01"),
        (array("int"), array("double"), [1], [1.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"a": 1}, {"a": 1}),
        ("int", ["null", "int"], 1, 1),
        ("int", ["string", "long", "int", "null"], 1, {"int": 1}),
        ("int", ["string", "long", "null"], 1, 1),
        (["null", "int"], "int", 1, 1),
        (["null", "int"], ["string", "double", "null"], 1, {"double": 1.0}),
        (["null", "int"], ["string", "double", "null"], None, None),
        (["int", "long"], "long", {"int": 1}, 1),
        (ENUM, {**ENUM, "symbols": ["B", "A", "C"]}, "A", "A"),
        (ENUM, {**ENUM, "symbols": ["A", "X"], "default": "X"}, "B", "X"),
        (ENUM, {**ENUM, "name": "n.E"}, "B", "B"),
        (ENUM, {**ENUM, "name": "D", "aliases": ["E"]}, "B", "B"),
        (fixed(2), {**fixed(2), "name": "n.F"}, "AP8=", "AP8="),
    ],
)
def test_what_one_schema_wrote_another_reads(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    assert repr(read(writer, reader, value)) == repr(expected)


def fields(*listed: dict[str, Any], name: str = "R", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(listed), **attributes}


def test_fields_are_found_by_name_and_have_the_order_of_the_reader() -> None:
    writer = fields(
        *({"name": name, "type": kind} for name, kind in (("a", "int"), ("b", "string"), ("c", "int")))
    )
    reader = fields({"name": "c", "type": "long"}, {"name": "a", "type": "double"})
    value = read(writer, reader, {"a": 1, "b": "x", "c": 2})
    assert list(value.items()) == [("c", 2), ("a", 1.0)]


def test_a_field_that_was_renamed_is_found_by_its_alias() -> None:
    writer = fields({"name": "old", "type": "int"})
    assert read(writer, fields({"name": "new", "type": "int", "aliases": ["x", "old"]}), {"old": 1}) == {
        "new": 1
    }


def test_a_record_that_was_renamed_is_found_by_its_alias() -> None:
    writer = [fields(name="n.A"), fields({"name": "b", "type": "int"}, name="n.B")]
    reader = [fields({"name": "b", "type": "int", "default": 7}, name="m.C", aliases=["n.A", "n.B"])]
    assert read(writer, reader, {"n.A": {}}) == {"b": 7}
    assert read(writer, reader, {"n.B": {"b": 1}}) == {"b": 1}


def test_a_field_that_was_not_written_has_its_default_and_not_that_of_another_value() -> None:
    defaults: list[tuple[Any, Any, Any]] = [
        (["null", "string"], None, None),
        ("bytes", "\u00ff", "/w=="),
        (logical("long", "timestamp-millis"), 0, "1970-01-01T00:00:00Z"),
        (["int", "long"], 1, {"int": 1}),
        (array("int"), [1], [1]),
        (record("int", name="S"), {"f0": 1}, {"f0": 1}),
    ]
    listed = [
        {"name": f"d{i}", "type": kind, "default": default} for i, (kind, default, _) in enumerate(defaults)
    ]
    expected = {f"d{i}": shown for i, (_, _, shown) in enumerate(defaults)}
    writer, reader = parse(array(fields())), parse(array(fields(*listed)))
    first, second = writer.decode(b"\4\0", reader)
    assert first == second == expected
    first["d4"].append(2)
    assert second == expected
    assert writer.decode(b"\2\0", reader) == [expected]


def test_a_list_of_records_is_read_as_one_with_more_fields() -> None:
    reader = fields(
        {"name": "f1", "type": ["null", "R"]},
        {"name": "new", "type": "int", "default": 1},
        {"name": "f0", "type": "double"},
    )
    value, _ = linked(3)
    assert read(LINKED, reader, value) == {
        "f1": {"f1": {"f1": None, "new": 1, "f0": 0.0}, "new": 1, "f0": 0.0},
        "new": 1,
        "f0": 0.0,
    }


@pytest.mark.parametrize(
    ("writer", "reader", "value", "pointer"),
    [
        ("string", "int", "a", ""),
        ("long", "int", 1, ""),
        ("bytes", "string", "/w==", ""),
        (["null", "int"], "int", None, ""),
        (["null", "string"], ["null", "int"], "a", ""),
        (ENUM, {**ENUM, "symbols": ["A"]}, "B", ""),
        (ENUM, {**ENUM, "name": "D"}, "A", ""),
        (fixed(2), fixed(3), "AP8=", ""),
        (fixed(2), {**fixed(2), "name": "G"}, "AP8=", ""),
        (record("int"), record("int", name="S"), {"f0": 1}, ""),
        (record("int"), record("int", "int"), {"f0": 1}, "/f1"),
        (record(array("string")), record(array("int")), {"f0": ["a"]}, "/f0/0"),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            logical("bytes", "decimal", precision=4, scale=3),
            "1.00",
            "",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_place(
    writer: Any, reader: Any, value: Any, pointer: str
) -> None:
    written = parse(writer)
    data = written.encode(value)
    assert refused(lambda bytes_: written.decode(bytes_, parse(reader)), data).pointer == pointer


def test_only_what_was_written_must_be_readable() -> None:
    assert read(["null", "string"], ["null", "int"], None) is None
    assert read(ENUM, {**ENUM, "symbols": ["A"]}, "A") == "A"
    assert read(array("string"), array("int"), []) == []


@given(schemas_with_values())
def test_a_schema_reads_its_own_values_as_another_schema_with_the_same_text(
    case: tuple[avro.AvroSchema, Any],
) -> None:
    schema, value = case
    data = schema.encode(value)
    assert repr(schema.decode(data, avro.parse(schema.canonical))) == repr(schema.decode(data))


def test_the_functions_for_many_readers_are_not_kept() -> None:
    writer = parse("int")
    for index in range(100):
        assert writer.decode(b"\2", parse({"type": "long", "x": index})) == 1
    assert len(writer._resolving) <= 32
