"""JSON Schemas are read within bounds, and values are refused with a place and a reason."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from stele.schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from stele.schemas.json_schema import JsonSchema, parse
from stele.schemas.json_schema.documents import DEPTH_MAX, TEXT_CHARACTERS_MAX

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}


def schema(words: Any, **references: Any) -> JsonSchema:
    return parse(json.dumps(words), {name: json.dumps(each) for name, each in references.items()})


def refused(words: Any, value: Any) -> tuple[str, str]:
    with pytest.raises(InvalidValue) as caught:
        schema(words).check(json.dumps(value).encode())
    return caught.value.pointer, caught.value.reason


def why_no_schema(text: str, **references: str) -> str:
    with pytest.raises(InvalidSchema) as caught:
        parse(text, references)
    return caught.value.reason


def accepts(words: Any, *values: Any) -> list[bool]:
    parsed = schema(words)
    answers: list[bool] = []
    for value in values:
        try:
            parsed.check(json.dumps(value).encode())
            answers.append(True)
        except InvalidValue:
            answers.append(False)
    return answers


# ── schemas ──


def test_it_is_a_parsed_schema() -> None:
    parsed: ParsedSchema = schema({"title": "Order", "type": "object"})

    assert (parsed.type, parsed.full_name) == ("JSON", "Order")


@pytest.mark.parametrize("words", [{"type": "object"}, {"title": ""}, {"$id": "order.json"}, True])
def test_a_schema_without_a_title_has_no_name(words: Any) -> None:
    assert schema(words).full_name is None


def test_the_canonical_text_keeps_the_order_of_names_and_the_normalized_one_does_not() -> None:
    parsed = parse('{ "type":"string",\n "maxLength" : 10, "enum": ["ä", 1.50, 12345678901234567890]}')

    assert parsed.canonical == '{"type":"string","maxLength":10,"enum":["ä",1.5,12345678901234567890]}'
    assert parsed.normalized() == '{"enum":["ä",1.5,12345678901234567890],"maxLength":10,"type":"string"}'


@pytest.mark.parametrize("value", [True, False])
def test_true_and_false_are_schemas(value: bool) -> None:
    assert accepts(value, 1, None, {}) == [value] * 3
    assert schema(value).canonical == json.dumps(value)


OF_DRAFTS: list[tuple[int, Any, Any, Any]] = [
    (4, {"maximum": 3, "exclusiveMaximum": True}, 2, 3),
    (4, {"dependencies": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
    (6, {"exclusiveMaximum": 3}, 2, 3),
    (6, {"const": 1}, 1.0, 2),
    (6, {"items": [{"type": "null"}], "additionalItems": False}, [None], [None, 1]),
    (7, {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}}, "ab", 3),
    (7, {"dependencies": {"a": {"required": ["b"]}}}, {"a": 1, "b": 1}, {"a": 1}),
    (2019, {"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
    (2019, {"contains": {"type": "null"}, "minContains": 2}, [None, None], [None]),
    (2019, {"$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}, "type": "object"}, {"a": {}}, {"a": 1}),
    (2020, {"prefixItems": [{"type": "null"}], "items": False}, [None], [None, 1]),
    (2020, {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}, "type": "array"}, [[]], [1]),
    (2020, {"properties": {"a": True}, "unevaluatedProperties": False}, {"a": 1}, {"b": 1}),
    (2020, {"$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": {"type": "string"}}}, "ab", "abc"),
]  # fmt: skip


@pytest.mark.parametrize(("draft", "words", "accepted", "not_accepted"), OF_DRAFTS)
def test_each_draft_is_read_by_its_own_rules(
    draft: int, words: Any, accepted: Any, not_accepted: Any
) -> None:
    assert accepts({"$schema": DRAFTS[draft], **words}, accepted, not_accepted) == [True, False]


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        (4, {"const": 1}),
        (6, {"if": True, "then": False}),
        (7, {"dependentRequired": {"a": ["b"]}}),
        (7, {"$ref": "#/definitions/a", "maxProperties": 0, "definitions": {"a": {}}}),
        (2019, {"prefixItems": [False]}),
        (2020, {"dependencies": {"a": ["b"]}}),
        (2020, {"items": True, "additionalItems": False}),
        (2020, {"format": "date", "unknown": {"$ref": "nowhere"}}),
        (7, {"format": "date", "contentEncoding": "base64"}),
    ],
)
def test_what_a_draft_does_not_know_has_no_effect(draft: int, words: Any) -> None:
    values = 2, {"a": 1}, [1], "no date"
    assert accepts({"$schema": DRAFTS[draft], **words}, *values) == [True] * len(values)


@pytest.mark.parametrize(
    "uri",
    [
        "https://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://example.com/unknown",
        "no uri at all",
    ],
)
def test_an_unknown_schema_of_schemas_is_read_as_draft_7(uri: str) -> None:
    assert accepts({"$schema": uri, "items": [False]}, [], [1]) == [True, False]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"type": "strin"}, '#/type: it is none of "array", "boolean"'),
        ({"properties": {"a/b": {"minLength": -1}}}, "#/properties/a~1b/minLength: it is less than 0"),
        ({"items": {"enum": 1}}, "#/items/enum: it is an integer, not array"),
        ({"required": "a"}, "#/required: it is a string, not array"),
        ([], "#: a schema is an object, true or false"),
        ("string", "#: a schema is an object, true or false"),
        ({"$schema": DRAFTS[4], "properties": {"a": True}}, "#/properties/a: it is a boolean, not object"),
        ({"pattern": "(a"}, "#/pattern: "),
        ({"properties": {"a": {"pattern": "a{1000}{1000}{1000}"}}}, "#/properties/a/pattern: "),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(words: Any, expected: str) -> None:
    assert why_no_schema(json.dumps(words)).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "it is not JSON: Expecting value in line 1, column 1"),
        ("{", "it is not JSON: "),
        ('{"type": "string"} trailing', "it is not JSON: Extra data in line 1"),
        ('{"type": "string", "type": "null"}', "the name 'type' stands twice in an object"),
        ('{"maximum": NaN}', "NaN is no number of JSON"),
        ('{"maximum": 1e400}', "a number exceeds a double"),
        (f'{{"maximum": {"9" * 500}}}', "an integer has more than 400 digits"),
        (f'{{"maximum": {"9" * 5_000}}}', "an integer has more than 400 digits"),
        ('{"title": "\\ud800"}', "it has half of a surrogate pair"),
        ("[" * 100_000, "it has more than 100 levels"),
        ('{"not":' * 101 + "{}" + "}" * 101, "it has more than 100 levels"),
        (json.dumps({"title": "x" * TEXT_CHARACTERS_MAX}), "characters are more than"),
    ],
)
def test_a_text_beyond_the_bounds_is_refused(text: str, expected: str) -> None:
    assert expected in why_no_schema(text)


def test_a_schema_of_the_greatest_depth_is_read() -> None:
    depth = DEPTH_MAX - 2
    assert accepts(json.loads('{"not":' * depth + '{"type":"null"}' + "}" * depth), None) == [depth % 2 == 0]


# ── references ──


def test_a_reference_is_found_by_its_name_and_relative_to_the_id() -> None:
    text = {"type": "string"}
    by_name = {"properties": {"a": {"$ref": "text.json"}}}
    by_url = {"$id": "http://example.com/order.json", **by_name}

    for words, name in (
        (by_name, "text.json"),
        (by_url, "text.json"),
        (by_url, "http://example.com/text.json"),
    ):
        parsed = parse(json.dumps(words), {name: json.dumps(text)})
        parsed.check(b'{"a": "b"}')
        with pytest.raises(InvalidValue):
            parsed.check(b'{"a": 1}')


def test_a_reference_may_lead_into_a_document_and_on_to_others() -> None:
    parsed = parse(
        '{"$ref": "order.json#/definitions/line"}',
        {
            "order.json": '{"definitions": {"line": {"items": {"$ref": "common.json#amount"}}}}',
            "common.json": '{"definitions": {"amount": {"$id": "#amount", "minimum": 0}}}',
        },
    )

    parsed.check(b"[1]")
    with pytest.raises(InvalidValue) as caught:
        parsed.check(b"[-1]")
    assert (caught.value.pointer, caught.value.reason) == ("/0", "it is less than 0")


def test_documents_of_several_drafts_are_read_by_their_own() -> None:
    parsed = parse(
        json.dumps({"$schema": DRAFTS[2020], "prefixItems": [{"$ref": "a"}]}),
        {"a": json.dumps({"$schema": DRAFTS[4], "maximum": 3, "exclusiveMaximum": True})},
    )

    parsed.check(b"[2]")
    with pytest.raises(InvalidValue):
        parsed.check(b"[3]")


@pytest.mark.parametrize(
    "words",
    [
        {"components": {"a": {"type": "null"}}, "$ref": "#/components/a"},
        {"properties": {"a~/b": {"type": "null"}}, "allOf": [{"$ref": "#/properties/a~0~1b"}]},
        {"properties": {"a b": {"type": "null"}}, "allOf": [{"$ref": "#/properties/a%20b"}]},
        {"$schema": DRAFTS[2020], "$ref": "#it", "$defs": {"a": {"$anchor": "it", "type": "null"}}},
        {"$schema": DRAFTS[2020], "$ref": "a.json", "$defs": {"a": {"$id": "a.json", "type": "null"}}},
        {"$schema": DRAFTS[2020], "$id": "urn:a", "$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
        {"allOf": [{"type": "null"}, {"$ref": "#/allOf/0"}]},
    ],
)
def test_a_reference_leads_to_any_place_of_the_document(words: Any) -> None:
    assert accepts(words, None, 1) == [True, False]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("own", [7, 2020])
def test_a_reference_may_mean_a_meta_schema(draft: int, own: int) -> None:
    """confluentinc/schema-registry #4382."""
    words = {"$schema": DRAFTS[own], "$id": "http://a.b/c", "properties": {"s": {"$ref": DRAFTS[draft]}}}
    deep: Any = {"properties": {"a": {"not": {"maxLength": 3}}}}
    schema(words).check(json.dumps({"s": deep}).encode())
    deep["properties"]["a"]["not"]["maxLength"] = -3
    assert refused(words, {"s": deep}) == ("/s/properties/a/not/maxLength", "it is less than 0")
    length = {"$ref": "http://json-schema.org/draft-07/schema#/definitions/nonNegativeInteger"}
    assert refused(length, -1) == ("", "it is less than 0")


def test_properties_with_the_names_of_keywords_are_properties() -> None:
    words = {
        "properties": {"$ref": {"type": "null"}, "$id": {"type": "null"}, "definitions": {"type": "null"}}
    }

    assert accepts(words, {"$ref": None}, {"$id": 1}, {"definitions": 1}) == [True, False, False]


WITHOUT_A_TARGET: list[tuple[Any, str]] = [
    ({"items": {"$ref": "other.json"}}, '#/items: there is nothing under "other.json"'),
    ({"$ref": "#/definitions/a"}, '#: there is nothing under "#/definitions/a"'),
    ({"$ref": "#/allOf/1", "allOf": [{}]}, '#: there is nothing under "#/allOf/1"'),
    ({"$ref": "#/title", "title": "A"}, "#/title: a schema is an object, true or false"),
    ({"$ref": "#"}, "#: the schema refers to itself without end"),
    ({"anyOf": [{"not": {"$ref": "#"}}]}, "#: the schema refers to itself without end"),
    (
        {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}},
        "refers to itself without end",
    ),
    ({"$ref": "http://[broken"}, 'there is nothing under "http://[broken"'),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), WITHOUT_A_TARGET)
def test_a_reference_to_nothing_or_without_end_is_refused(words: Any, expected: str) -> None:
    assert expected in why_no_schema(json.dumps(words))


def test_a_problem_in_a_reference_has_its_name() -> None:
    assert why_no_schema("{}", a='{"type": 1}').startswith("a#/type: ")
    assert why_no_schema("{}", a="{").startswith("a: it is not JSON")


@pytest.mark.parametrize(
    "uri", ["http://{}/a.json", "https://{}/a.json", "file:///etc/hostname", "/etc/hostname"]
)
def test_nothing_is_read_from_the_network_or_a_file(uri: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        server.setblocking(False)
        uri = uri.format(f"{host}:{port}")
        assert "there is nothing under" in why_no_schema(json.dumps({"items": {"$ref": uri}}))
        for words in {"$schema": uri}, {"$id": uri}, {"unknown": {"$ref": uri}}:
            parse(json.dumps(words)).check(b"1")
        with pytest.raises(BlockingIOError):
            server.accept()


# ── values ──


REFUSED: list[tuple[Any, Any, str, str]] = [
    ({"type": "string"}, 1, "", "it is an integer, not string"),
    ({"type": ["string", "null"]}, [], "", "it is an array, not null or string"),
    ({"type": "integer"}, 1.5, "", "it is a number, not integer"),
    ({"properties": {"a": {"items": {"maximum": 3}}}}, {"a": [1, 9]}, "/a/1", "it is more than 3"),
    ({"properties": {"a/~": False}}, {"a/~": 1}, "/a~1~0", "nothing is accepted here"),
    ({"required": ["a"]}, {}, "", 'the property "a" is missing'),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1, "b": 2}, "/b", "the schema does not have this property"),
    ({"additionalItems": False, "items": [{}]}, [1, 2], "/1", "the schema does not have this item"),
    ({"enum": ["red", 1]}, "blue", "", 'it is none of "red", 1'),
    ({"const": {"a": 1}}, 1, "", 'it is not {"a": 1}'),
    ({"pattern": "^a"}, "b", "", 'it does not match the pattern "^a"'),
    ({"minLength": 3}, "ä", "", "it is shorter than 3 characters"),
    ({"maxItems": 1}, [1, 2], "", "it has more than 1 items"),
    ({"multipleOf": 0.1}, 0.25, "", "it is no multiple of 0.1"),
    ({"uniqueItems": True}, [1, 1.0], "", "an item stands twice in it"),
    ({"not": {"type": "null"}}, None, "", "it is what 'not' excludes"),
    ({"oneOf": [{}, {"type": "null"}]}, None, "", "more than one alternative of 'oneOf' accepts it"),
    ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 1, "", "no alternative of 'anyOf' accepts it"),
    ({"anyOf": [{"type": "null"}, {"properties": {"a": {"type": "string"}}, "type": "object"}]}, {"a": 1}, "/a", "it is an integer, not string"),
    ({"contains": {"type": "null"}}, [1], "", "'contains' accepts fewer of its items than it must"),
    ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, "/abc", "'propertyNames' refuses the name of this property"),
    ({"dependencies": {"a": ["b"]}}, {"a": 1}, "", 'the property "b" is missing'),
]  # fmt: skip


@pytest.mark.parametrize(("words", "value", "pointer", "reason"), REFUSED)
def test_a_value_is_refused_with_its_place_and_a_reason(
    words: Any, value: Any, pointer: str, reason: str
) -> None:
    assert refused(words, value) == (pointer, reason)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "it is not JSON: "),
        (b"{", "it is not JSON: "),
        (b"\xff", "it is not JSON: "),
        (b'"\xff"', "it is not JSON: "),
        (b"1e400", "it is not JSON: "),
        (b"NaN", "it is not JSON: "),
        (b"[" * 100_000, "levels"),
    ],
)
def test_bytes_that_are_no_json_are_refused(data: bytes, expected: str) -> None:
    for parsed in schema(True), schema({"items": {"$ref": "#"}}):
        for read in parsed.check, parsed.decode:
            with pytest.raises(InvalidValue) as caught:
                read(data)
            assert expected in caught.value.reason


def test_messages_hold_nothing_of_the_value_and_are_bounded() -> None:
    secret = "secret" * 100_000
    words = {
        "properties": {
            "a": {"type": "integer"},
            "b": {"pattern": "x"},
            "c": {"enum": [1]},
            "d": {"maxLength": 1},
        },
        "additionalProperties": False,
    }
    for name in "abcd":
        pointer, reason = refused(words, {name: secret})
        assert pointer == f"/{name}"
        assert len(reason) < 200
        assert "secret" not in reason
    pointer, reason = refused(words, {secret: 1})
    assert len(pointer) < 400
    assert "secret" not in reason


JSON_VALUES: list[Any] = [None, True, 0, -1.5, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, -(2**70), 10**30, 1e308, 5e-324, "ä\0\n😀", [], {"": [{}]}, {"ä/~": None}]  # fmt: skip


@pytest.mark.parametrize("value", JSON_VALUES)
def test_values_are_the_same_after_a_round_trip(value: Any) -> None:
    parsed = schema(True)

    data = parsed.encode(value)

    assert data == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() or isinstance(
        value, float | str
    )
    assert parsed.decode(data) == value
    assert parsed.decode(memoryview(data)) == value
    assert type(parsed.decode(data)) is type(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, object(), b"bytes", {1, 2}, "\ud800"])
def test_what_is_no_json_value_is_not_encoded(value: Any) -> None:
    for parsed in schema(True), schema({"type": ["number", "object", "string", "array"]}):
        with pytest.raises(InvalidValue):
            parsed.encode(value)


def test_large_numbers_are_compared_exactly() -> None:
    assert accepts({"maximum": 2**63}, 2**63, 2**63 + 1) == [True, False]
    assert accepts({"minimum": 10**30}, 10**30, 10**30 - 1) == [True, False]
    assert accepts({"type": "integer"}, 10**30, 1e20) == [True, True]
    assert accepts({"enum": [2**53 + 1]}, 2**53, 2**53 + 1) == [False, True]


def test_of_names_that_stand_twice_the_last_one_counts() -> None:
    parsed = schema({"properties": {"a": {"type": "integer"}}})

    assert parsed.decode(b'{"a": "b", "a": 1}') == {"a": 1}


# ── bounds of time ──


def test_a_pattern_takes_linear_time() -> None:
    assert accepts({"pattern": "^(a+)+$"}, "a" * 50_000, "a" * 50_000 + "b") == [True, False]


def test_a_pattern_with_lookaround_takes_a_bounded_number_of_steps() -> None:
    assert accepts({"pattern": "^(?!b)a+$"}, "aaa", "baa") == [True, False]
    assert accepts({"pattern": r"^(?=(a+)+$)(a+)+\1c$"}, "a" * 10_000) == [False]
    assert refused({"pattern": "^(?!b)"}, "a" * 20_000)[1].endswith("are matched in up to 16384 bytes")
    many = {"allOf": [{"pattern": "^(?!a)"}] * 10}
    assert why_no_schema(json.dumps(many)) == "#: the patterns that apply to one text are too large"


def test_schemas_that_multiply_are_refused() -> None:
    definitions = {str(i): {"allOf": [{"$ref": f"#/definitions/{i + 1}"}] * 2} for i in range(40)}

    text = json.dumps({"$ref": "#/definitions/0", "definitions": {**definitions, "40": {"type": "null"}}})

    assert "more than 10000 schemas apply to one value" in why_no_schema(text)


def test_schemas_that_apply_each_other_in_a_long_chain_are_refused() -> None:
    definitions = {str(i): {"$ref": f"#/definitions/{i + 1}"} for i in range(500)}
    text = json.dumps({"$ref": "#/definitions/0", "definitions": {**definitions, "500": {"type": "null"}}})

    assert "more than 100 schemas apply each other" in why_no_schema(text)


def test_the_same_pattern_for_one_text_again_and_again_is_refused() -> None:
    assert "are too large" in why_no_schema(json.dumps({"allOf": [{"pattern": "[ab]*a[ab]{300}c"}] * 100}))


@pytest.mark.parametrize("depth", [10, 100, 250])
def test_alternatives_that_refer_to_each_other_take_no_time_that_doubles_per_level(depth: int) -> None:
    again = {"properties": {"a": {"$ref": "#"}}, "type": "object"}
    parsed = schema({"anyOf": [again, {**again, "required": ["a"]}, {"oneOf": [again, {"type": "null"}]}]})
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}

    with pytest.raises(InvalidValue):
        parsed.check(json.dumps(value).encode())
