"""JSON Schemas drawn by hypothesis, and values that tell some of them apart."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from stele.schemas.definitions import InvalidSchema, InvalidValue
from stele.schemas.json_schema import JsonSchema, parse
from stele.schemas.json_schema.values import is_array, is_object

SCALARS: list[Any] = [None, False, True, 0, 1, 2, 3, -1, 1.5, 2.0, 4, "", "a", "ab", "b", "abc"]
INNER: list[Any] = [None, 1, 1.5, "a", "abc", [], {}, {"a": 1}, [1]]
# Every schema that the search makes tells some of them apart.
VALUES: list[Any] = [
    *SCALARS,
    *([*items] for length in range(3) for items in itertools.product(INNER, repeat=length)),
    [1, 1, 1],
    [1, "a", None],
    *({"a": value} for value in INNER),
    *({"b": value} for value in INNER),
    *({"ab": value} for value in INNER),
    *({"a": value, "b": other} for value in INNER for other in INNER),
    {"a": {"a": {"a": 1}}},
    {"a": {"a": {"a": "a"}}},
    {"a": [{"a": [1]}]},
    {"a": 1, "b": "a", "c": None},
]

NEWEST = "https://json-schema.org/draft/2020-12/schema"
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
NAMES = st.sampled_from(["a", "b", "ab"])
PATTERNS = st.sampled_from(["^a", "b", "a*", "^.$"])
LIMITS = st.integers(0, 3)
REFERENCES = st.sampled_from([{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B"}])


def words(**strategies: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=strategies)


LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    REFERENCES,
    TYPES.map(lambda name: {"type": name}),
    st.lists(TYPES, min_size=1, max_size=3, unique=True).map(lambda names: {"type": names}),
    st.lists(st.sampled_from(SCALARS + INNER), min_size=1, max_size=3).map(lambda values: {"enum": values}),
    words(type=st.just("string"), minLength=LIMITS, maxLength=LIMITS, pattern=PATTERNS),
    words(
        type=st.sampled_from(["integer", "number"]),
        minimum=LIMITS,
        maximum=LIMITS,
        exclusiveMinimum=st.sampled_from([-1, 0, 0.5, 1]),
        exclusiveMaximum=st.sampled_from([2, 2.5, 4]),
        multipleOf=st.sampled_from([0.5, 1, 1.5, 2]),
    ),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        words(
            type=st.just("object"),
            properties=st.dictionaries(NAMES, inner, max_size=2),
            patternProperties=st.dictionaries(PATTERNS, inner, max_size=1),
            additionalProperties=st.one_of(st.just(False), inner),
            required=st.lists(NAMES, max_size=2, unique=True),
            minProperties=LIMITS,
            maxProperties=LIMITS,
            propertyNames=words(minLength=LIMITS, maxLength=LIMITS, pattern=PATTERNS),
            dependencies=st.dictionaries(NAMES, st.one_of(st.lists(NAMES, max_size=1), inner), max_size=1),
        ),
        words(
            type=st.just("array"),
            items=st.one_of(inner, some),
            additionalItems=inner,
            minItems=LIMITS,
            maxItems=LIMITS,
            uniqueItems=st.booleans(),
            contains=inner,
        ),
        words(
            prefixItems=some,
            items=inner,
            contains=inner,
            minContains=LIMITS,
            maxContains=LIMITS,
            dependentSchemas=st.dictionaries(NAMES, inner, max_size=1),
            dependentRequired=st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
        ),
        words(
            allOf=some,
            anyOf=some,
            properties=st.dictionaries(NAMES, inner, max_size=2),
            prefixItems=some,
            unevaluatedProperties=inner,
            unevaluatedItems=inner,
        ),
        words(allOf=some, anyOf=some, oneOf=some),
        words(oneOf=some),
        st.tuples(inner, inner).map(lambda pair: {"allOf": list(pair)}),
        inner.map(lambda schema: {"not": schema}),
        words(**{"if": inner, "then": inner, "else": inner}),
    )


SCHEMAS = st.recursive(LEAVES, larger, max_leaves=6)
DEFINITIONS = st.fixed_dictionaries({"A": SCHEMAS, "B": SCHEMAS})


def places(schema: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all objects of a document, of which most are schemas."""
    inner: Any = schema.items() if is_object(schema) else enumerate(schema) if is_array(schema) else ()
    return [path] * is_object(schema) + [place for key, each in inner for place in places(each, (*path, key))]


@st.composite
def changes(draw: Any, schema: dict[str, Any]) -> Any:
    """A schema that differs a little."""
    document: dict[str, Any] = copy.deepcopy(schema)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(places(document)))
        parent: Any = {"": document}
        for key in ("", *place)[:-1]:
            parent = parent[key]
        last = ("", *place)[-1]
        target = parent[last]
        kind = draw(st.sampled_from(["remove", "replace", "alternative", "part", "add"]))
        if kind == "remove" and target:
            del target[draw(st.sampled_from(sorted(target)))]
        elif kind == "add":
            added = draw(SCHEMAS)
            target.update(added if isinstance(added, dict) else {})
        elif kind != "remove" and place:
            other = draw(SCHEMAS)
            parent[last] = {
                "replace": other,
                "alternative": {"anyOf": [target, other]},
                "part": {"allOf": [target, other]},
            }[kind]
    return without_tuples(document) if document.get("$schema") == NEWEST else document


@st.composite
def documents(draw: Any) -> dict[str, Any]:
    document = {"allOf": [draw(SCHEMAS)], "definitions": draw(DEFINITIONS)}
    # Each leaves out words of the other.
    draft = draw(st.sampled_from(["http://json-schema.org/draft-07/schema", NEWEST]))
    return {"$schema": draft, **(without_tuples(document) if draft == NEWEST else document)}


def without_tuples(schema: Any) -> Any:
    """The schema without lists in ``items``, which the newest draft does not have."""
    if is_array(schema):
        return [without_tuples(each) for each in schema]
    if not is_object(schema):
        return schema
    return {
        word: without_tuples(each)
        for word, each in schema.items()
        if word != "items" or not isinstance(each, list)
    }


@st.composite
def pairs(draw: Any) -> tuple[Any, Any]:
    writer = draw(documents())
    return writer, draw(st.one_of(changes(writer), changes(writer), documents()))


def read(schema: Any) -> JsonSchema:
    try:
        return parse(json.dumps(schema))
    except InvalidSchema:
        # It refers to itself without end, or a change has made nonsense of it.
        assume(False)
        raise


def accepted(schema: JsonSchema, value: Any) -> bool:
    try:
        schema.encode(value)
    except InvalidValue:
        return False
    return True
