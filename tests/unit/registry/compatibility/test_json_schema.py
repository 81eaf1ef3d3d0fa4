"""What of one JSON Schema can be read with another: a table of changes, and searches for values that refute it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stele.schemas.json_schema import parse

from app.registry.compatibility.json_schema import incompatibilities

OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED: dict[str, Any] = {**OPEN, "additionalProperties": False}
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
NULL = {"type": "null"}
CAT = {
    "type": "object",
    "properties": {"kind": {"const": "cat"}, "lives": INTEGER},
    "required": ["kind"],
}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "name": STRING}, "required": ["kind"]}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
TREE = {
    "type": "object",
    "properties": {"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#"}}},
}


def changed(schema: dict[str, Any], **words: Any) -> dict[str, Any]:
    return {**schema, **words}


def with_property(schema: dict[str, Any], name: str, value: Any, **words: Any) -> dict[str, Any]:
    return {**schema, "properties": {**schema.get("properties", {}), name: value}, **words}


def problems(writer: Any, reader: Any, **references: str) -> list[str]:
    texts = json.dumps(reader), json.dumps(writer)
    return incompatibilities(*(parse(text, references) for text in texts))


# Each: the writer's schema and the reader's, which accepts all that the writer's does.
CAN_BE_READ: dict[str, tuple[Any, Any]] = {
    "the same": (OPEN, OPEN),
    "other words about it": (changed(OPEN, title="A"), changed(OPEN, title="B", description="of b")),
    "anything by true": (OPEN, True),
    "anything by the empty schema": (STRING, {}),
    "nothing by anything": (False, STRING),
    "nothing by nothing": ({"not": {}}, False),
    "an integer by number": (INTEGER, NUMBER),
    "one type by several": (STRING, {"type": ["string", "null"]}),
    "a list of one type by the type": ({"type": ["string"]}, STRING),
    # ── limits ──
    "a longer maxLength": (changed(STRING, maxLength=3), changed(STRING, maxLength=5)),
    "no more pattern": (changed(STRING, pattern="a+"), STRING),
    "the same pattern": (changed(STRING, pattern="a+"), changed(STRING, pattern="a+", minLength=0)),
    "a lower minimum": (changed(NUMBER, minimum=2), changed(NUMBER, minimum=1.5)),
    "an exclusive limit by an inclusive one": (
        changed(NUMBER, exclusiveMaximum=5),
        changed(NUMBER, maximum=5),
    ),
    "an exclusive limit of integers": (changed(INTEGER, minimum=1), changed(INTEGER, exclusiveMinimum=0)),
    "an inclusive limit of integers": (changed(INTEGER, exclusiveMaximum=10), changed(INTEGER, maximum=9)),
    "an exclusive limit of draft 4": (
        changed(NUMBER, **{"$schema": DRAFT_4}, maximum=5, exclusiveMaximum=True),
        changed(NUMBER, exclusiveMaximum=5),
    ),
    "a factor of the factor": (changed(NUMBER, multipleOf=10), changed(NUMBER, multipleOf=2)),
    "a factor of the factor, with a fraction": (
        changed(NUMBER, multipleOf=3.3),
        changed(NUMBER, multipleOf=1.1),
    ),
    "integers are multiples of one": (INTEGER, changed(NUMBER, multipleOf=1)),
    "limits of what it never is": (STRING, {"maximum": 3, "minItems": 2, "required": ["a"]}),
    # ── values ──
    "more values": ({"enum": ["A", "B"]}, {"enum": ["C", "B", "A"]}),
    "more values, which are no strings": (
        {"enum": [1, None, {"a": [1]}]},
        {"enum": [{"a": [1]}, None, 1, 2]},
    ),
    "the same number": ({"const": 1.0}, {"enum": [1]}),
    "values by their type": ({"enum": ["red"]}, STRING),
    "values by their pattern": ({"enum": ["red", "green"]}, changed(STRING, pattern="r", maxLength=5)),
    "a constant by alternatives": ({"const": "red"}, {"oneOf": [{"const": "red"}, {"const": "blue"}]}),
    "alternatives of constants by values": (
        {"oneOf": [{"const": "red"}, {"const": "blue"}]},
        {"enum": ["red", "blue"]},
    ),
    "booleans by both values": ({"type": "boolean"}, {"enum": [True, False]}),
    # ── properties ──
    "an optional property added to a closed object": (CLOSED, with_property(CLOSED, "b", STRING)),
    "a required property with a default added to a closed object": (
        CLOSED,
        with_property(CLOSED, "b", changed(STRING, default=""), required=["b"]),
    ),
    "a property that accepts all added to an open object": (OPEN, with_property(OPEN, "b", {"title": "B"})),
    "a property removed from an open object": (with_property(OPEN, "b", STRING), OPEN),
    "a closed object opened": (CLOSED, OPEN),
    "another property of an object that was closed": (
        CLOSED,
        {"type": "object", "properties": {"b": STRING}},
    ),
    "a forbidden property allowed": (with_property(OPEN, "b", False), with_property(OPEN, "b", STRING)),
    "a forbidden property removed": (with_property(CLOSED, "b", False), CLOSED),
    "a property no longer required": (changed(OPEN, required=["a"]), OPEN),
    "a property with a default became required": (
        with_property(OPEN, "b", STRING),
        with_property(OPEN, "b", changed(STRING, default="x"), required=["b"]),
    ),
    "a property that a pattern covered": (
        changed(CLOSED, patternProperties={"^i_": INTEGER}),
        with_property(CLOSED, "i_1", NUMBER, patternProperties={"^i_": INTEGER}),
    ),
    "a property that additionalProperties covered": (
        changed(OPEN, additionalProperties=STRING),
        with_property(OPEN, "b", STRING, additionalProperties=STRING),
    ),
    "a removed property that a pattern covers": (
        with_property(CLOSED, "i_1", INTEGER),
        changed(CLOSED, patternProperties={"^i_": NUMBER}),
    ),
    "a removed property that additionalProperties covers": (
        with_property(CLOSED, "b", STRING),
        changed(OPEN, additionalProperties={"type": ["string", "null"]}),
    ),
    "additional properties by their pattern": (
        {"type": "object", "additionalProperties": INTEGER},
        {"type": "object", "patternProperties": {"^a": NUMBER}},
    ),
    "fewer properties are enough": (changed(OPEN, minProperties=2), changed(OPEN, minProperties=1)),
    "a required property is one": (changed(OPEN, required=["a"]), changed(OPEN, minProperties=1)),
    "names that are all allowed": (CLOSED, changed(CLOSED, propertyNames={"maxLength": 1})),
    "names that match any text": (OPEN, changed(OPEN, propertyNames={"pattern": "a*"})),
    "the same rule for names": (
        changed(OPEN, propertyNames={"maxLength": 3}),
        changed(OPEN, propertyNames={"maxLength": 5}),
    ),
    "a dependency fewer": (
        changed(OPEN, dependencies={"a": ["b"], "b": ["c", "d"]}),
        changed(OPEN, dependencies={"b": ["d"]}),
    ),
    "a dependency on what is required": (
        changed(OPEN, required=["b"]),
        changed(OPEN, dependencies={"a": ["b"]}),
    ),
    "a dependency of another draft": (
        changed(OPEN, dependencies={"a": {"required": ["b"]}}),
        changed(OPEN, **{"$schema": DRAFT_2019}, dependentSchemas={"a": {"minProperties": 1}}),
    ),
    "a dependency on what never is": (CLOSED, changed(CLOSED, dependencies={"b": ["c"]})),
    "a closed object of parts": (
        {"$schema": DRAFT_2020, "allOf": [OPEN], "properties": {"b": STRING}, "unevaluatedProperties": False},
        {
            "$schema": DRAFT_2020,
            "allOf": [with_property(OPEN, "c", STRING)],
            "properties": {"b": STRING},
            "unevaluatedProperties": False,
        },
    ),
    # ── arrays ──
    "items of a wider type": ({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}),
    "a closed tuple opened": (
        {"type": "array", "items": [INTEGER, STRING], "additionalItems": False},
        {"type": "array", "items": [INTEGER]},
    ),
    "a tuple longer than the limit": (
        {"type": "array", "items": [INTEGER], "maxItems": 1},
        {"type": "array", "items": [INTEGER, STRING]},
    ),
    "an item added to a closed tuple": (
        {"type": "array", "items": [INTEGER], "additionalItems": False},
        {"type": "array", "items": [INTEGER, STRING], "additionalItems": False},
    ),
    "an item that additionalItems covered": (
        {"type": "array", "items": [INTEGER], "additionalItems": STRING},
        {"type": "array", "items": [INTEGER, STRING], "additionalItems": {"type": ["string", "null"]}},
    ),
    "a tuple of another draft": (
        {"type": "array", "items": [INTEGER], "additionalItems": STRING},
        {"$schema": DRAFT_2020, "type": "array", "prefixItems": [NUMBER], "items": STRING},
    ),
    "a closed tuple by a list": (
        {"type": "array", "items": [INTEGER, INTEGER], "additionalItems": False},
        {"type": "array", "items": INTEGER},
    ),
    "a wider contains": (
        {"type": "array", "contains": INTEGER},
        {"type": "array", "contains": NUMBER},
    ),
    "a contains that asks for nothing": (
        {"type": "array"},
        {"$schema": DRAFT_2020, "type": "array", "contains": NUMBER, "minContains": 0},
    ),
    "equal items again": ({"type": "array", "uniqueItems": True}, {"type": "array"}),
    # ── alternatives ──
    "an alternative by one of several": (STRING, {"oneOf": [NUMBER, STRING]}),
    "one alternative by its schema": ({"oneOf": [STRING]}, STRING),
    "a schema by one alternative": (STRING, {"allOf": [STRING]}),
    "an alternative more": ({"oneOf": [STRING]}, {"oneOf": [INTEGER, STRING]}),
    "alternatives in another order": ({"oneOf": [CAT, DOG]}, {"oneOf": [DOG, CAT]}),
    "an alternative of a union of objects more": ({"oneOf": [CAT]}, {"oneOf": [DOG, CAT]}),
    "alternatives of objects without a mark": (
        {"oneOf": [OPEN]},
        {"oneOf": [{"type": "object", "properties": {"b": STRING}}, OPEN]},
    ),
    "one of to any of": ({"oneOf": [STRING, NULL]}, {"anyOf": [NULL, STRING, INTEGER]}),
    "all of to any of": ({"allOf": [STRING, {"minLength": 2}]}, {"anyOf": [STRING, INTEGER]}),
    "all of in another order": (
        {"allOf": [STRING, {"enum": ["red"]}]},
        {"allOf": [{"enum": ["red", "blue"]}, STRING]},
    ),
    "a part less": ({"allOf": [STRING, {"maxLength": 5}]}, {"allOf": [STRING]}),
    "parts by one schema": ({"allOf": [STRING, {"maxLength": 5}]}, changed(STRING, maxLength=5)),
    "contradictory parts by anything": ({"allOf": [STRING, NUMBER]}, {"enum": ["red"]}),
    "types by alternatives": ({"type": ["string", "null"]}, {"anyOf": [NULL, STRING]}),
    "alternatives by types": ({"anyOf": [NULL, INTEGER]}, {"type": ["number", "null"]}),
    "number by alternatives": (NUMBER, {"anyOf": [INTEGER, NUMBER]}),
    "two unions, one by one": (
        {"allOf": [{"anyOf": [STRING, NULL]}, {"anyOf": [STRING, INTEGER]}]},
        STRING,
    ),
    "less is excluded": ({"not": NUMBER}, {"not": INTEGER}),
    "what was excluded by its type": ({"not": {"type": "string"}}, {"not": {"enum": ["a", "b"]}}),
    "an alternative that overlaps with an excluded one": (
        {"oneOf": [changed(STRING, maxLength=3), changed(STRING, minLength=2)]},
        {"oneOf": [changed(STRING, minLength=2), changed(STRING, maxLength=3), NULL]},
    ),
    "the same condition": (
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": OPEN},
        {"if": {"required": ["a"]}, "then": {"minProperties": 1}, "else": {"type": "object"}},
    ),
    "a condition that is never met": (STRING, {"if": NUMBER, "then": {"minimum": 3}}),
    "a condition no more": ({"if": NUMBER, "then": {"minimum": 3}}, {}),
    # ── references ──
    "moved to a definition": (
        {"type": "array", "items": changed(INTEGER, minimum=0)},
        {"type": "array", "items": {"$ref": "#/$defs/size"}, "$defs": {"size": changed(INTEGER, minimum=0)}},
    ),
    "moved from a definition": (
        {"$ref": "#/definitions/text", "definitions": {"text": STRING}},
        STRING,
    ),
    "a recursive schema by itself": (TREE, changed(TREE, title="Tree")),
    "a recursive schema by a wider one": (TREE, with_property(TREE, "value", NUMBER)),
    "a recursive schema by one that unrolls it": (
        TREE,
        with_property(TREE, "children", {"type": "array", "items": with_property(TREE, "value", NUMBER)}),
    ),
    "a recursive schema of draft 2019-09": (
        {"$schema": DRAFT_2019, "$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}},
        {"$schema": DRAFT_2020, "$dynamicAnchor": "it", "properties": {"a": {"$dynamicRef": "#it"}}},
    ),
}


@pytest.mark.parametrize("change", CAN_BE_READ)
def test_what_the_reader_accepts_too_can_be_read(change: str) -> None:
    writer, reader = CAN_BE_READ[change]

    assert problems(writer, reader) == []


# Each: the writer's schema, the reader's, and how the problem begins.
CANNOT_BE_READ: dict[str, tuple[Any, Any, str]] = {
    "anything by nothing": (True, False, "#: nothing is accepted"),
    "anything by a type": (
        {},
        {"type": "object"},
        "#: array or boolean or null or number or string is no longer",
    ),
    "another type": (OPEN, {"type": "array"}, "#: object is no longer accepted"),
    "number by integer": (NUMBER, INTEGER, "#: number is no longer accepted"),
    "several types by one": ({"type": ["string", "null"]}, STRING, "#: null is no longer accepted"),
    "a type within a property": (
        OPEN,
        with_property(OPEN, "a", STRING),
        "#/properties/a: integer is no longer",
    ),
    "a name in a pointer": (
        {"properties": {"a/b~": STRING}},
        {"properties": {"a/b~": NULL}},
        "#/properties/a~1b~0: string is no longer accepted",
    ),
    # ── limits ──
    "a longer minLength": (
        changed(STRING, minLength=3),
        changed(STRING, minLength=4),
        "#/minLength: 4 is more",
    ),
    "a shorter maxLength": (STRING, changed(STRING, maxLength=4), "#/maxLength: 4 is less"),
    "a new pattern": (STRING, changed(STRING, pattern="a*"), "#/pattern: the writer's schema does not have"),
    "another pattern": (changed(STRING, pattern="a*"), changed(STRING, pattern="a+"), "#/pattern: "),
    "a higher minimum": (changed(NUMBER, minimum=1), changed(NUMBER, minimum=2), "#/minimum: 2 is more"),
    "an inclusive limit by an exclusive one": (
        changed(NUMBER, maximum=5),
        changed(NUMBER, exclusiveMaximum=5),
        "#/exclusiveMaximum: 5 is less",
    ),
    "a limit of integers by a lower one": (
        changed(INTEGER, exclusiveMaximum=10),
        changed(INTEGER, maximum=8.5),
        "#/maximum: 8.5 is less",
    ),
    "a new factor": (
        NUMBER,
        changed(NUMBER, multipleOf=2),
        "#/multipleOf: numbers that are no multiples of 2",
    ),
    "a multiple of the factor": (
        changed(NUMBER, multipleOf=2),
        changed(NUMBER, multipleOf=4),
        "#/multipleOf",
    ),
    "a limit only of some alternatives": (
        {"anyOf": [changed(STRING, maxLength=2), changed(STRING, maxLength=4)]},
        changed(STRING, maxLength=3),
        "#/maxLength: 3 is less",
    ),
    # ── values ──
    "fewer values": ({"enum": ["A", "B"]}, {"enum": ["B"]}, '#: the value "A" is no longer accepted'),
    "fewer values, which are no strings": (
        {"enum": [1, {"a": 2}]},
        {"enum": [1]},
        '#: the value {"a": 2} is no',
    ),
    "another constant": ({"const": "red"}, {"const": "blue"}, '#: the value "red" is no longer accepted'),
    "a boolean is no number": ({"enum": [True]}, {"enum": [1]}, "#: the value true is no longer accepted"),
    "a type by values": (STRING, {"enum": ["a"]}, "#/enum: the values are limited"),
    "values of another type": ({"enum": ["A"]}, INTEGER, "#: string is no longer accepted"),
    "booleans by one of them": (
        {"type": "boolean"},
        {"const": True},
        "#: the value false is no longer accepted",
    ),
    # ── properties ──
    "a property added to an open object": (
        OPEN,
        with_property(OPEN, "b", STRING),
        '#/properties/b: the property "b" was added to an open object',
    ),
    "a property removed from a closed object": (
        with_property(CLOSED, "b", STRING),
        CLOSED,
        '#/additionalProperties: the property "b" is no longer accepted',
    ),
    "an open object closed": (
        OPEN,
        CLOSED,
        "#/additionalProperties: other properties are no longer accepted",
    ),
    "a required property added": (
        CLOSED,
        with_property(CLOSED, "b", STRING, required=["b"]),
        '#/required: the property "b" became required',
    ),
    "a property became required": (
        OPEN,
        changed(OPEN, required=["a"]),
        '#/required: the property "a" became',
    ),
    "a required property that has no schema": (
        changed(OPEN, required=["a"]),
        changed(OPEN, required=["b"]),
        '#/required: the property "b" became',
    ),
    "a required property with a default added to an open object": (
        OPEN,
        with_property(OPEN, "b", changed(STRING, default=""), required=["b"]),
        '#/properties/b: the property "b" was added to an open object',
    ),
    "a property that additionalProperties did not cover": (
        changed(OPEN, additionalProperties=STRING),
        with_property(OPEN, "b", NUMBER, additionalProperties=STRING),
        "#/properties/b: string is no longer accepted",
    ),
    "a removed property that a pattern does not cover": (
        with_property(CLOSED, "i_1", STRING),
        changed(CLOSED, patternProperties={"^i_": INTEGER}),
        "#/patternProperties/^i_: string is no longer accepted",
    ),
    "a new pattern of names": (
        OPEN,
        changed(OPEN, patternProperties={"^a": INTEGER}),
        "#/patternProperties/^a: ",
    ),
    "narrower additional properties": (
        OPEN,
        changed(OPEN, additionalProperties=NUMBER),
        "#/additionalProperties: ",
    ),
    "properties only of a pattern": (
        {"type": "object", "patternProperties": {"^a*": {}}},
        CLOSED,
        "",
    ),
    "another schema of a pattern": (
        {"type": "object", "patternProperties": {"^a": INTEGER}},
        {"type": "object", "patternProperties": {"^a": STRING}},
        "#/patternProperties/^a: integer is no longer accepted",
    ),
    "more properties are needed": (OPEN, changed(OPEN, minProperties=1), "#/minProperties: 1 is more"),
    "names are limited": (
        OPEN,
        changed(OPEN, propertyNames={"maxLength": 3}),
        "#/propertyNames: names that it",
    ),
    "a name is refused": (CLOSED, changed(CLOSED, propertyNames={"minLength": 2}), "#/propertyNames: "),
    "a new dependency": (
        OPEN,
        changed(OPEN, dependencies={"a": ["b"]}),
        '#/dependentRequired: objects with "a"',
    ),
    "another dependency": (
        changed(OPEN, dependencies={"a": {"required": ["b"]}}),
        changed(OPEN, dependencies={"a": {"required": ["c"]}}),
        '#/dependencies/a/required: the property "c" became required',
    ),
    "an object of parts became smaller": (
        {"$schema": DRAFT_2020, "allOf": [with_property(OPEN, "c", STRING)], "unevaluatedProperties": False},
        {"$schema": DRAFT_2020, "allOf": [OPEN], "unevaluatedProperties": False},
        '#/unevaluatedProperties: the property "c" is no longer accepted',
    ),
    # ── arrays ──
    "items of a narrower type": (
        {"type": "array", "items": NUMBER},
        {"type": "array", "items": INTEGER},
        "#/items: number is no longer accepted",
    ),
    "items limited": ({"type": "array"}, {"type": "array", "items": STRING}, "#/items: "),
    "an item added to an open tuple": (
        {"type": "array", "items": [INTEGER]},
        {"type": "array", "items": [INTEGER, INTEGER]},
        "#/items/1: item 1 was added to an open array",
    ),
    "an open tuple closed": (
        {"type": "array", "items": [INTEGER]},
        {"type": "array", "items": [INTEGER], "additionalItems": False},
        "#/additionalItems: nothing is accepted any longer",
    ),
    "an open tuple by a list": (
        {"type": "array", "items": [INTEGER]},
        {"type": "array", "items": INTEGER},
        "#/items: ",
    ),
    "a list by a tuple": (
        {"type": "array", "items": INTEGER},
        {"type": "array", "items": [INTEGER]},
        "#/prefixItems: a list does not become a tuple",
    ),
    "unique items": (
        {"type": "array"},
        {"type": "array", "uniqueItems": True},
        "#/uniqueItems: items that are equal",
    ),
    "a new contains": ({"type": "array"}, {"type": "array", "contains": STRING}, "#/contains: "),
    # ── alternatives ──
    "an alternative less": (
        {"oneOf": [STRING, INTEGER]},
        {"oneOf": [STRING]},
        "#/oneOf/0: integer is no longer",
    ),
    "an alternative changed": (
        {"oneOf": [CAT, DOG]},
        {"oneOf": [CAT, with_property(DOG, "name", INTEGER)]},
        "#/oneOf: no alternative accepts all that was object",
    ),
    "a part more": (
        {"allOf": [STRING]},
        {"allOf": [STRING, {"maxLength": 3}]},
        "#/allOf/1/maxLength: 3 is less",
    ),
    "one of to all of": (
        {"oneOf": [STRING]},
        {"allOf": [NUMBER, STRING]},
        "#/allOf/0: string is no longer accepted",
    ),
    "two alternatives accept it": (
        INTEGER,
        {"oneOf": [INTEGER, NUMBER]},
        "#/oneOf: more than one alternative",
    ),
    "two alternatives accept some": (
        NUMBER,
        {"oneOf": [NUMBER, INTEGER]},
        "#/oneOf: more than one alternative",
    ),
    "more is excluded": ({"not": INTEGER}, {"not": NUMBER}, "#/not: it may be what"),
    "a new condition": (
        OPEN,
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        '#/then/required: the property "b"',
    ),
    "another else": (
        {"if": NULL, "else": STRING},
        {"if": NULL, "else": NUMBER},
        "#/else: ",
    ),
    # ── references ──
    "another definition": (
        {"items": {"$ref": "#/definitions/a"}, "definitions": {"a": STRING}},
        {"items": {"$ref": "#/definitions/a"}, "definitions": {"a": NUMBER}},
        "#/definitions/a: string is no longer accepted",
    ),
    "a recursive schema by a narrower one": (
        with_property(TREE, "value", NUMBER),
        TREE,
        "#/properties/value: number is no longer accepted",
    ),
    "a recursive schema by a finite one": (
        TREE,
        with_property(TREE, "children", {"type": "array", "maxItems": 0}),
        "#/properties/children/maxItems: 0 is less",
    ),
    "a default does not help what excludes": (
        {"not": with_property(OPEN, "a", changed(INTEGER, default=0), required=["a"])},
        {"not": OPEN},
        "#/not: ",
    ),
}


@pytest.mark.parametrize("change", CANNOT_BE_READ)
def test_what_the_reader_may_refuse_is_a_problem_at_its_place(change: str) -> None:
    writer, reader, expected = CANNOT_BE_READ[change]

    found = problems(writer, reader)

    assert found
    assert found[0].startswith(expected)


# Each: the writer's schema, the reader's, and the place of the problem that is left if the policy is LENIENT.
LENIENT: dict[str, tuple[Any, Any, str | None]] = {
    "added to an open object": (OPEN, with_property(OPEN, "b", STRING), None),
    "added to an object that says that it is open": (
        changed(OPEN, additionalProperties=True),
        with_property(OPEN, "b", STRING),
        None,
    ),
    "removed from a closed object": (with_property(CLOSED, "b", STRING), CLOSED, None),
    "closed": (OPEN, CLOSED, None),
    "deeper": (changed(TREE), with_property(TREE, "label", STRING), None),
    "others become strings": (OPEN, changed(OPEN, additionalProperties=STRING), None),
    "added as required": (
        OPEN,
        with_property(OPEN, "b", STRING, required=["b"]),
        "#/required: ",
    ),
    "of another type": (OPEN, with_property(OPEN, "a", STRING), "#/properties/a: "),
    "refused by name": (
        with_property(OPEN, "b", STRING),
        with_property(OPEN, "b", False),
        "#/properties/b: ",
    ),
    "refused by pattern": (
        with_property(OPEN, "b", STRING),
        changed(OPEN, patternProperties={"^b": False}),
        "#/patternProperties/^b: ",
    ),
    "added where others are strings": (
        changed(OPEN, additionalProperties=STRING),
        with_property(OPEN, "b", INTEGER),
        "#/properties/b: ",
    ),
    "named in a map": ({"type": "object"}, OPEN, "#/properties/a: "),
    "within not": ({"not": CLOSED}, {"not": OPEN}, "#/not: "),
}


@pytest.mark.parametrize("change", LENIENT)
def test_by_the_policy_lenient_optional_properties_come_and_go(change: str) -> None:
    writer, reader, place = LENIENT[change]

    found = incompatibilities(parse(json.dumps(reader)), parse(json.dumps(writer)), is_lenient=True)

    assert [problem[: len(place or "")] for problem in found] == ([] if place is None else [place])
    assert problems(writer, reader)


def test_a_problem_behind_a_cycle_is_not_masked_by_what_was_assumed_on_it() -> None:
    # T0 and T1 refer to T2, which refers to T0; what is assumed of T0 within T0 must not be true of it elsewhere.
    def schema(first: str, second: str) -> dict[str, Any]:
        def record(kind: str, target: str) -> dict[str, Any]:
            reference = {"oneOf": [{"$ref": f"#/definitions/{target}"}]}
            return {"type": "object", "properties": {"id": {"type": kind}, "next": reference}}

        definitions = {"T0": record(first, "T2"), "T1": record(second, "T2"), "T2": record("integer", "T0")}
        union = {"oneOf": [{"$ref": "#/definitions/T0"}, {"$ref": "#/definitions/T1"}]}
        return {"type": "object", "definitions": definitions, "properties": {"root": union}}

    assert problems(schema("integer", "boolean"), schema("boolean", "number"))
    assert problems(schema("integer", "boolean"), schema("number", "boolean")) == []


def test_a_union_of_many_records_that_refer_to_it_is_compared_in_bounds() -> None:
    names = [f"Kind{number}" for number in range(12)]
    union = {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}

    def schema(kind: str) -> dict[str, Any]:
        properties = {"kind": {}, "id": STRING, "left": union, "right": union}
        definitions: dict[str, Any] = {
            name: {
                "type": "object",
                "required": ["kind"],
                "properties": {**properties, "kind": {"const": name}},
            }
            for name in names
        }
        definitions["Kind7"]["properties"]["id"] = {"type": kind}
        return {"definitions": definitions, "properties": {"product": union}}

    assert problems(schema("string"), changed(schema("string"), minProperties=0)) == []
    assert problems(schema("string"), schema("number"))


def test_a_reference_to_another_schema_is_followed() -> None:
    reader = {"properties": {"place": {"$ref": "place.json"}}}

    assert problems({"properties": {"place": INTEGER}}, reader, **{"place.json": '{"type": "number"}'}) == []
    assert problems({"properties": {"place": NUMBER}}, reader, **{"place.json": '{"type": "integer"}'}) == [
        "place.json#: number is no longer accepted"
    ]


def test_all_problems_of_an_object_are_reported_and_long_lists_end() -> None:
    writer = {"properties": {f"p{number:03}": INTEGER for number in range(200)}}
    reader = {"properties": {f"p{number:03}": STRING for number in range(200)}}

    found = problems(writer, reader)

    assert found[:2] == [f"#/properties/p00{number}: integer is no longer accepted" for number in range(2)]
    assert len(found) == 50


def test_values_of_a_schema_are_cut_in_messages() -> None:
    (found,) = problems({"enum": ["x" * 10_000]}, {"enum": ["y"]})

    assert len(found) < 200


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(
            {
                "allOf": [
                    {"anyOf": [{"properties": {f"p{i}{j}": STRING}} for j in range(12)]} for i in range(12)
                ]
            },
            id="alternatives that multiply",
        ),
        pytest.param(
            {
                "allOf": [{"$ref": "#/definitions/0"}],
                "definitions": {
                    str(i): {"properties": {"a": {"$ref": f"#/definitions/{i + 1}"}}} for i in range(2_000)
                }
                | {"2000": STRING},
            },
            id="a long chain of definitions",
        ),
        pytest.param({"enum": list(range(20_000))}, id="very many values"),
        pytest.param({"properties": {f"p{i}": INTEGER for i in range(5_000)}}, id="very many properties"),
        pytest.param(
            {
                "properties": {f"p{i}": INTEGER for i in range(1_000)},
                "patternProperties": {f"^p{i}": INTEGER for i in range(100)},
            },
            id="very many patterns",
        ),
    ],
)
def test_hostile_schemas_are_compared_in_bounds(schema: dict[str, Any]) -> None:
    assert problems(schema, changed(schema, minLength=2, minItems=1, minimum=1))
