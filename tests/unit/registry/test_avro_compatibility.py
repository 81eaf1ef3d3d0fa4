"""Whether one Avro schema reads what another wrote: each rule of the specification, and in agreement with decoding."""

from __future__ import annotations

import json
from typing import Any

import pytest
from avro import compatibility as oracle
from avro import schema as oracle_schema
from hypothesis import assume, given
from hypothesis import strategies as st
from stele.schemas import avro
from stele.schemas.definitions import InvalidValue

from app.registry.compatibility import avro as compatibility
from tests.support.avro_examples import changed, parsed_schemas, schemas_with_values


def parse(schema: Any) -> avro.AvroSchema:
    return avro.parse(json.dumps(schema), registered=True)


def reasons(writer: Any, reader: Any) -> list[str]:
    return compatibility.incompatibilities(parse(reader), parse(writer))


def record(*fields: Any, name: str = "R", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def field(name: str, kind: Any = "int", **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **attributes}


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


def map_(items: Any) -> Any:
    return {"type": "map", "values": items}


def enum(*symbols: str, **attributes: Any) -> Any:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **attributes}


def fixed(size: int, name: str = "F", **attributes: Any) -> Any:
    return {"type": "fixed", "name": name, "size": size, **attributes}


def decimal(precision: int, scale: int, kind: str = "bytes") -> Any:
    return {"type": kind, "logicalType": "decimal", "precision": precision, "scale": scale}


TOO_LARGE = "/: the schemas have too many types, or types nested too deeply, to be compared"
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
READABLE: list[tuple[Any, Any]] = [
    *((kind, kind) for kind in PRIMITIVES),
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
    (array("int"), array("long")),
    (map_("string"), map_("bytes")),
    (enum("A"), enum("B", "A")),
    (enum("A", "B"), enum("A", default="A")),
    (enum("A"), {**enum("A"), "namespace": "n"}),
    (enum("A"), {**enum("A"), "name": "D", "aliases": ["E"]}),
    ({**enum("A"), "namespace": "n"}, {**enum("A"), "name": "n.D", "aliases": ["E"]}),
    (fixed(2), fixed(2, "n.F")),
    (fixed(2), fixed(2, "G", aliases=["F"])),
    ("int", ["null", "int"]),
    ("int", ["string", "double"]),
    (["int"], "long"),
    (["int", "long"], "double"),
    (["null", "int"], ["long", "null"]),
    ([fixed(2), fixed(4, "G")], [fixed(4, "G"), fixed(2)]),
    ([], "int"),
    (record(), record()),
    (record(field("a")), record()),
    (record(), record(field("a", default=1))),
    (record(field("a")), record(field("a", "long"), field("b", ["null", "int"], default=None))),
    (record(field("a"), field("b", "string")), record(field("b", "string"), field("a"))),
    (record(field("a")), record(field("b", aliases=["a"]))),
    (record(), record(name="n.R")),
    (record(name="n.R"), record(name="S", aliases=["n.R"])),
    (record(field("next", ["null", "R"])), record(field("next", ["null", "R"]), field("b", default=1))),
    (record(field("a", record(name="S"))), record(field("a", ["null", record(name="S")]))),
    (decimal(4, 2), decimal(4, 2)),
    (decimal(4, 2), decimal(5, 2)),
    (decimal(4, 2), "bytes"),
    ("bytes", decimal(4, 2)),
    ({"type": "long", "logicalType": "timestamp-millis"}, "long"),
]
UNREADABLE: list[tuple[Any, Any, list[str]]] = [
    ("long", "int", ["/"]),
    ("double", "float", ["/"]),
    ("float", "long", ["/"]),
    ("int", "string", ["/"]),
    ("string", "int", ["/"]),
    ("null", "int", ["/"]),
    ("boolean", "int", ["/"]),
    ("string", enum("A"), ["/"]),
    (enum("A"), "string", ["/"]),
    (fixed(2), "bytes", ["/"]),
    ("bytes", fixed(2), ["/"]),
    (array("int"), map_("int"), ["/"]),
    (array("string"), array("int"), ["/*"]),
    (map_(array("string")), map_(array("int")), ["/*/*"]),
    (enum("A", "B"), enum("A"), ["/"]),
    (enum("A"), {**enum("A"), "name": "D"}, ["/"]),
    (enum("A"), {**enum("A"), "name": "n.D", "aliases": ["E"]}, ["/"]),
    (enum("A", "B"), enum("A", default="B"), ["/"]),
    (fixed(2), fixed(3), ["/"]),
    (fixed(2), fixed(2, "G"), ["/"]),
    (["null", "int"], "int", ["/"]),
    (["null", "int", "string"], ["null", "long"], ["/"]),
    ("string", ["null", "int"], ["/"]),
    ("string", [], ["/"]),
    (record(), record(name="S"), ["/"]),
    (record(name="m.S", aliases=["R"]), record(), ["/"]),
    (record(), record(field("a")), ["/a"]),
    (record(), record(field("a", enum("A", default="A"))), ["/a"]),
    (record(), record(field("a"), field("b")), ["/a", "/b"]),
    (
        record(field("a", "string"), field("b", array("string"))),
        record(field("a"), field("b", array("int"))),
        ["/a", "/b/*"],
    ),
    (record(field("a"), field("b")), record(field("b", aliases=["a"])), ["/b"]),
    (
        record(field("a", ["null", record(field("x", "string"), name="S")])),
        record(field("a", ["null", record(field("x"), name="S")])),
        ["/a/x"],
    ),
    (record(field("next", ["null", "R"])), record(field("next", ["null", "R"]), field("b")), ["/b"]),
    (decimal(4, 2), decimal(4, 1), ["/"]),
    (decimal(4, 2), decimal(3, 2), ["/"]),
    (
        {**decimal(4, 2, "fixed"), "name": "F", "size": 4},
        {**decimal(4, 0, "fixed"), "name": "F", "size": 4},
        ["/"],
    ),
]


@pytest.mark.parametrize(("writer", "reader"), READABLE)
def test_these_can_be_read(writer: Any, reader: Any) -> None:
    assert reasons(writer, reader) == []


@pytest.mark.parametrize(("writer", "reader", "places"), UNREADABLE)
def test_these_cannot_and_the_places_are_said(writer: Any, reader: Any, places: list[str]) -> None:
    assert [reason.partition(": ")[0] for reason in reasons(writer, reader)] == places


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        ("string", "int", "/: string is not read as int"),
        (record(), record(field("a")), "/a: the writer has no such field, and it has no default"),
        (enum("A", "B", "C"), enum("B"), "/: the enum E lacks the symbols A, C and has no default"),
        ("string", ["null", "int"], "/: string is not read as any branch of the union of null, int"),
        (fixed(2), fixed(3), "/: F has 2 bytes for the writer and 3 for the reader"),
        (
            record(name="n.R"),
            record(name="n.S"),
            "/: the record n.R is not read as n.S, which has no alias for it",
        ),
        (
            decimal(4, 2),
            decimal(4, 3),
            "/: a decimal of 4 digits, 2 of them after the point, is not read as one of 4 digits, "
            "3 of them after the point",
        ),
        (
            record(field("a"), field("b")),
            record(field("b", aliases=["a"])),
            "/b: the field can be read from several fields of the writer: b, a",
        ),
    ],
)
def test_the_reason_is_said(writer: Any, reader: Any, reason: str) -> None:
    assert reasons(writer, reader) == [reason]


def test_a_pair_that_relied_on_one_that_failed_is_compared_again() -> None:
    """Reading B relies on A, which its use of itself assumes to be readable until the field x is seen."""
    b = record(field("back", ["null", "A"]), name="B")
    writer = record(
        field("first", ["null", record(field("b", b), field("x", "string"), name="A")]), field("second", "B")
    )
    reader_a = record(field("b", b), field("x", "int"), name="A")
    # What A is not read as, another branch of the reader's union reads.
    other = record(field("x", "string"), name="n.A")
    reader = record(field("first", ["null", reader_a, other]), field("second", "B"))
    assert [reason.partition(": ")[0] for reason in reasons(writer, reader)] == ["/second/back/x"]


# ── in agreement with others ──


@given(schemas_with_values(), st.data())
def test_what_cannot_be_decoded_is_incompatible(
    case: tuple[avro.AvroSchema, Any], data: st.DataObject
) -> None:
    writer, value = case
    reader = changed(writer, data)
    reason = ""
    try:
        writer.decode(writer.encode(value), reader)
    except InvalidValue as error:
        reason = error.reason
    # Whether bytes can be read as a string, only the bytes say.
    assert not reason or "UTF-8" in reason or compatibility.incompatibilities(reader, writer)


@given(parsed_schemas())
def test_a_schema_reads_itself(schema: avro.AvroSchema) -> None:
    assert compatibility.incompatibilities(schema, schema) == []
    assert compatibility.incompatibilities(schema, avro.parse(schema.canonical)) == []


@given(parsed_schemas(), st.data())
def test_the_check_of_the_package_avro_agrees(writer: avro.AvroSchema, data: st.DataObject) -> None:
    reader = changed(writer, data)
    try:
        expected = oracle.ReaderWriterCompatibilityChecker().get_compatibility(
            oracle_schema.parse(reader.canonical), oracle_schema.parse(writer.canonical)
        )
    except Exception:  # noqa: BLE001 - it does not know an empty union, nor a type that is repeated
        assume(False)
        return
    compatible = expected.compatibility is oracle.SchemaCompatibilityType.compatible
    assert (compatibility.incompatibilities(reader, writer) == []) == compatible


# ── bounds ──


def test_the_number_of_reasons_is_bounded() -> None:
    assert (
        len(reasons(record(), record(*(field(f"f{index}") for index in range(10_000)))))
        == compatibility.REASONS_MAX
    )


def test_the_number_of_comparisons_is_bounded() -> None:
    writer = [record(name=f"n{index}.R") for index in range(1_000)]
    reader = [record(field("a", "string"), name=f"m{index}.R") for index in range(1_000)]
    assert reasons(writer, reader) == [TOO_LARGE]


def test_a_chain_of_hundreds_of_records_within_records_is_not_compared() -> None:
    chain: list[Any] = [record(name="R0")]
    chain += [record(field("a", f"R{index - 1}"), name=f"R{index}") for index in range(1, 900)]
    references = {"chain": json.dumps(chain)}
    one, other = avro.parse('"R899"', references), avro.parse('"R899"', references)
    assert compatibility.incompatibilities(one, other) == [TOO_LARGE]
