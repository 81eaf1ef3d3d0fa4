"""Schemas of Avro are parsed as by Avro for Java, and two texts of one schema are equal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from stele.schemas import avro
from stele.schemas.avro import parsing
from stele.schemas.definitions import InvalidSchema, ParsedSchema

from tests.support.avro_examples import parsed_schemas


def parse(schema: Any, **options: Any) -> avro.AvroSchema:
    return avro.parse(json.dumps(schema), **options)


def canonical(schema: Any) -> Any:
    return json.loads(parse(schema).canonical)


def record(*fields: Any, name: str = "R", **attributes: Any) -> dict[str, Any]:
    listed = [{"name": f"f{index}", "type": field} for index, field in enumerate(fields)]
    return {"type": "record", "name": name, "fields": listed, **attributes}


def refusal(text: str, **options: Any) -> str:
    with pytest.raises(InvalidSchema) as raised:
        avro.parse(text, **options)
    return raised.value.reason


# ── texts ──


def test_it_is_a_parsed_schema() -> None:
    schema: ParsedSchema = parse("string")
    assert schema.type == "AVRO"


@pytest.mark.parametrize("kind", ["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
def test_a_primitive_type_has_two_texts_and_one_canonical_text(kind: str) -> None:
    assert parse(kind).canonical == parse({"type": kind}).canonical == f'"{kind}"'


def test_the_canonical_text_is_compact_and_has_the_attributes_in_one_order() -> None:
    schema = avro.parse(
        """ {"fields": [ {"doc": "é", "default": 1.0, "aliases": ["b"], "order": "ignore", "x": null,
        "type": "double", "name": "a"} ], "aliases": ["Old"], "custom": {"b": 1, "a": 2}, "doc": "d",
        "namespace": "n", "name": "R", "type": "record"} """
    )
    assert schema.canonical == (
        '{"type":"record","name":"R","namespace":"n","doc":"d","fields":[{"name":"a","type":"double","doc":"é",'
        '"default":1.0,"order":"ignore","aliases":["b"],"x":null}],"custom":{"b":1,"a":2},"aliases":["Old"]}'
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "int", "default": []},
        {"type": "map", "values": ["null", "string"]},
        {"type": "enum", "name": "E", "doc": "d", "symbols": ["A"], "default": "A", "aliases": ["F"]},
        {"type": "fixed", "name": "F", "size": 16},
        {"type": "error", "name": "Err", "fields": []},
        {"type": "string", "avro.java.string": "String"},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "int", "logicalType": "unknown", "n": 2**70},
        ["null", "string", {"type": "array", "items": "string"}],
        [],
    ],
)
def test_what_a_schema_says_is_kept(schema: Any) -> None:
    assert canonical(schema) == schema


def test_the_order_of_fields_symbols_and_branches_counts() -> None:
    assert parse(record("int", "long")).canonical != parse(record("long", "int")).canonical
    assert parse(["null", "int"]).canonical != parse(["int", "null"]).canonical
    assert parse(["null", "int"]).normalized() != parse(["int", "null"]).normalized()


def test_documentation_aliases_and_defaults_count() -> None:
    texts = {
        parse(schema).canonical
        for schema in (record(), record(doc="d"), record(aliases=["S"]), record(name="S"), record(x=1))
    }
    assert len(texts) == 5


def test_what_is_ascending_or_empty_is_not_written() -> None:
    field: dict[str, Any] = {"name": "a", "type": "int", "order": "ascending", "aliases": []}
    schema: dict[str, Any] = {"type": "record", "name": "R", "fields": [field], "aliases": []}
    assert canonical(schema) == {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    field["order"] = "DESCENDING"
    assert canonical(schema)["fields"][0]["order"] == "descending"


# ── names ──


def test_a_full_name_is_split_and_the_namespace_beside_it_ignored() -> None:
    schema = record(name="a.b.R", namespace="ignored")
    assert canonical(schema) == record(name="R", namespace="a.b")
    assert parse(schema).full_name == "a.b.R"


def test_only_named_types_have_a_full_name() -> None:
    assert parse({"type": "enum", "name": "E", "namespace": "n", "symbols": []}).full_name == "n.E"
    assert parse(["null", record()]).full_name is None
    assert parse("string").full_name is None


def test_types_within_inherit_the_namespace() -> None:
    inner = {"type": "fixed", "name": "F", "size": 1}
    schema = record(
        inner, "F", "n.F", {**inner, "namespace": "m"}, "m.F", {**inner, "namespace": ""}, name="n.R"
    )
    assert [field["type"] for field in canonical(schema)["fields"]] == [
        inner,
        "F",
        "F",
        {**inner, "namespace": "m"},
        "m.F",
        {**inner, "namespace": ""},
    ]


def test_a_name_that_the_namespace_lacks_is_looked_for_without_it() -> None:
    schema = [{"type": "fixed", "name": "F", "size": 1}, record("F", name="n.R")]
    fixed, user = parse(schema).root.branches
    assert user.fields[0].type is fixed
    assert canonical(schema)[1]["fields"][0]["type"] == "F"


def test_a_name_like_a_kind_of_type_is_written_in_full() -> None:
    inner = {"type": "fixed", "name": "array", "size": 1}
    assert canonical(record(inner, "n.array", name="n.R"))["fields"][1]["type"] == "n.array"


def test_aliases_are_relative_to_the_namespace_of_their_type() -> None:
    schema = parse(record(name="n.R", aliases=["S", "n.T", "m.U", ".V"]))
    assert schema.root.aliases == ["n.S", "n.T", "m.U", "V"]
    assert json.loads(schema.canonical)["aliases"] == ["S", "T", "m.U", ".V"]


def test_a_name_in_an_object_is_the_type_of_that_name() -> None:
    assert (
        canonical(record({"type": "fixed", "name": "F", "size": 1}, {"type": "F"}))["fields"][1]["type"]
        == "F"
    )


def test_a_type_may_be_repeated_where_it_is_used_again() -> None:
    inner = record("int", name="n.S")
    assert canonical(record(inner, dict(inner), name="n.R"))["fields"][1]["type"] == "S"
    assert "in different ways" in refusal(json.dumps(record(inner, record("long", name="n.S"))))
    assert "within itself" in refusal(json.dumps(record(record(name="R"))))


def test_a_type_may_use_itself() -> None:
    schema = parse(record("int", ["null", "R"]))
    assert schema.root.fields[1].type.branches[1] is schema.root
    assert json.loads(schema.canonical) == record("int", ["null", "R"])


# ── references ──


def test_names_of_references_are_known_and_not_written() -> None:
    references = {
        "country.avsc": json.dumps(record("string", name="n.Country")),
        "address.avsc": json.dumps(record("Country", name="n.Address")),
    }
    schema = parse(record("Address", "Country", name="n.Person"), references=references)
    assert json.loads(schema.canonical) == record("Address", "Country", name="Person", namespace="n")
    assert schema.encode({"f0": {"f0": {"f0": "a"}}, "f1": {"f0": "b"}}) == b"\2a\2b"
    assert parse("n.Address", references=references).full_name == "n.Address"
    assert json.loads(parse(["n.Address", "n.Country"], references=references).canonical) == [
        "n.Address",
        "n.Country",
    ]


def test_what_is_wrong_with_a_reference_is_said_with_its_name() -> None:
    assert refusal('"string"', references={"country.avsc": "{"}).startswith("the reference country.avsc: ")
    assert "n.Address" in refusal('"n.Address"')


# ── normalized texts ──


def test_the_normalized_text_has_full_names_and_sorted_attributes() -> None:
    short = {
        "type": "record",
        "name": "R",
        "namespace": "n",
        "b": 1,
        "a": {"y": 1, "x": 2},
        "aliases": ["T", "S"],
        "fields": [
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 1}, "q": 1, "p": 2},
            {"name": "g", "type": "F", "default": "a", "order": "ascending"},
        ],
    }
    long = {
        "aliases": ["n.S", "n.T"],
        "a": {"x": 2, "y": 1},
        "b": 1,
        "fields": [
            {"p": 2, "q": 1, "name": "f", "type": {"size": 1, "type": "fixed", "name": "n.F"}},
            {"name": "g", "type": "n.F", "default": "a"},
        ],
        "name": "n.R",
        "type": "record",
    }
    assert parse(short).canonical != parse(long).canonical
    assert parse(short).normalized() == parse(long).normalized()
    assert '"name":"n.R"' in parse(short).normalized()


def test_a_scale_of_zero_is_none() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4}
    assert parse(decimal).normalized() == parse({**decimal, "scale": 0}).normalized()
    assert parse(decimal).normalized() != parse({**decimal, "scale": 1}).normalized()


@given(parsed_schemas())
def test_each_text_is_a_schema_with_the_same_texts(schema: avro.AvroSchema) -> None:
    again = avro.parse(schema.canonical)
    assert again.canonical == schema.canonical
    assert again.normalized() == schema.normalized()
    normalized = avro.parse(schema.normalized())
    assert normalized.normalized() == schema.normalized()
    assert normalized.canonical == schema.canonical


# ── defaults ──


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("null", None),
        ("boolean", False),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 1),
        ("double", 1.5),
        ("double", "NaN"),
        ("bytes", "\u00ff\u0000"),
        ("string", "é"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0000"),
        ({"type": "array", "items": "int"}, [1, 2]),
        ({"type": "map", "values": "int"}, {"a": 1}),
        (record("int", name="S"), {"f0": 1}),
        ({**record(name="S"), "fields": [{"name": "a", "type": "int", "default": 1}]}, {}),
        (["null", "string"], None),
        (["null", "string"], "a"),
        (["string", "null"], None),
        ({"type": "long", "logicalType": "timestamp-millis"}, 0),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "\u0001"),
    ],
)
def test_defaults_of_the_type_are_accepted(type_: Any, default: Any) -> None:
    schema = record("int")
    schema["fields"].append({"name": "d", "type": type_, "default": default})
    assert canonical(schema)["fields"][1]["default"] == default


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("null", 0),
        ("boolean", 0),
        ("boolean", "true"),
        ("int", 2**31),
        ("int", 1.0),
        ("int", True),
        ("int", "1"),
        ("long", 2**63),
        ("float", "1.0"),
        ("float", 1e300),
        ("bytes", "\u0100"),
        ("bytes", []),
        ("string", None),
        ("string", 1),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ({"type": "array", "items": "int"}, None),
        ({"type": "array", "items": "int"}, ["1"]),
        ({"type": "map", "values": "int"}, {"a": "1"}),
        (record("int", name="S"), {}),
        (record("int", name="S"), {"f0": 1, "f1": 2}),
        (["null", "int"], "a"),
        (["int", "null"], "null"),
    ],
)
def test_defaults_of_another_type_are_refused(type_: Any, default: Any) -> None:
    schema = record("int")
    schema["fields"].append({"name": "d", "type": type_, "default": default})
    assert "the default of field d is invalid" in refusal(json.dumps(schema))
    # Registries have such schemas: their values are read.
    assert canonical_registered(schema) == schema


def canonical_registered(schema: Any) -> Any:
    return json.loads(parse(schema, registered=True).canonical)


# ── what is no schema ──


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("string", "not JSON"),
        ('"string" "string"', "not JSON"),
        ('{"type":"int","x":NaN}', "NaN"),
        ('{"type":"int","x":1e999}', "none of JSON"),
        ('{"type":"int","x":"\\ud800"}', "not JSON"),
        ("[" * 100_000, "nested"),
        ('{"type":"int","x":' + "1" * 5_000 + "}", "not JSON"),
        ("1", "a type is a string"),
        ("null", "a type is a string"),
        ("{}", '"type"'),
        ('{"type":["null"]}', '"type"'),
        ('{"type":{"type":"string"}}', '"type"'),
        ('"strng"', "no type"),
        ('{"type":"strng"}', "no type"),
        ('["null","null"]', "two branches null"),
        ('["int",{"type":"int","logicalType":"date"}]', "two branches int"),
        ('["null",["int"]]', "union directly within"),
        ('[{"type":"array","items":"int"},{"type":"array","items":"long"}]', "two branches array"),
        ('{"type":"array"}', '"items"'),
        ('{"type":"map","items":"int"}', '"values"'),
        ('{"type":"enum","name":"E"}', '"symbols"'),
        ('{"type":"enum","name":"E","symbols":["a-b"]}', "symbol"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "twice"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "default"),
        ('{"type":"fixed","name":"F"}', '"size"'),
        ('{"type":"fixed","name":"F","size":-1}', '"size"'),
        ('{"type":"fixed","name":"F","size":true}', '"size"'),
        ('{"type":"fixed","name":"F","size":2147483648}', '"size"'),
        ('{"type":"record","name":"R"}', '"fields"'),
        ('{"type":"record","fields":[]}', "name"),
        ('{"type":"record","name":"","fields":[]}', "name"),
        ('{"type":"record","name":"int","fields":[]}', "name"),
        ('{"type":"record","name":"1a","fields":[]}', "name"),
        ('{"type":"record","name":"a..b","fields":[]}', "name"),
        ('{"type":"record","name":"R","namespace":"a-b","fields":[]}', "name"),
        ('{"type":"record","name":"R\\n","fields":[]}', "name"),
        ('{"type":"record","name":"R","aliases":"S","fields":[]}', '"aliases"'),
        ('{"type":"record","name":"R","fields":["a"]}', "field is an object"),
        ('{"type":"record","name":"R","fields":[{"name":"a"}]}', "field a"),
        ('{"type":"record","name":"R","fields":[{"name":"a b","type":"int"}]}', "field"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"up"}]}', '"order"'),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "two fields a",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"S"}]}',
            'R: field a: there is no type "S"',
        ),
    ],
)
def test_other_texts_are_refused_with_the_reason(text: str, reason: str) -> None:
    assert reason in refusal(text)


@pytest.mark.parametrize(
    "schema",
    [
        record("string", name="compliant-name-test", namespace="a-b"),
        {"type": "record", "name": "R", "fields": [{"name": "test-field", "type": "string"}]},
        {"type": "enum", "name": "E", "symbols": ["a-b", "1"]},
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "B"},
    ],
)
def test_names_and_symbols_of_registered_schemas_are_not_checked(schema: Any) -> None:
    assert refusal(json.dumps(schema))
    assert canonical_registered(schema) == schema


# ── bounds ──


def nested(depth: int) -> Any:
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_the_size_of_the_text_is_bounded() -> None:
    assert "characters" in refusal(json.dumps({"type": "int", "doc": "a" * parsing.TEXT_CHARACTERS_MAX}))


def test_the_depth_of_types_is_bounded() -> None:
    assert parse(nested(parsing.DEPTH_MAX)).encode([]) == b"\0"
    assert "deep" in refusal(json.dumps(nested(parsing.DEPTH_MAX + 1)))


def test_the_number_of_names_is_bounded() -> None:
    fixed = [{"type": "fixed", "name": f"F{index}", "size": 1} for index in range(parsing.NAMES_MAX + 1)]
    assert "named types" in refusal(json.dumps(record(*fixed)))
    parse(record(*fixed[2:]))


def test_the_number_of_branches_is_bounded() -> None:
    fixed = [{"type": "fixed", "name": f"F{index}", "size": 1} for index in range(parsing.BRANCHES_MAX + 1)]
    assert "branches" in refusal(json.dumps(fixed))


def test_defaults_that_grow_with_each_record_are_bounded() -> None:
    """A record whose two fields are records of the one before, all by default: 2^60 values in a short text."""
    schemas: list[Any] = [
        {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int", "default": 1}]}
    ]
    for index in range(1, 60):
        fields: list[Any] = [{"name": name, "type": f"R{index - 1}", "default": {}} for name in ("a", "b")]
        schemas.append({"type": "record", "name": f"R{index}", "fields": fields})
    assert "the default of field" in refusal(json.dumps(schemas))


def test_a_default_without_end_is_refused() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"R","default":{}}]}'
    assert "nested too deeply" in refusal(text)


def test_a_chain_of_thousands_of_records_is_parsed_and_used() -> None:
    """Each record has one of the record before, and is not defined within it."""
    schemas: list[Any] = [record("int", name="R0")]
    schemas += [record(f"R{index - 1}", name=f"R{index}") for index in range(1, 900)]
    schema = parse(schemas)
    assert schema.encode({"R0": {"f0": 1}}) == b"\0\2"
    assert schema.decode(b"\0\2") == {"R0": {"f0": 1}}
    assert avro.parse(schema.normalized()).canonical == schema.canonical
