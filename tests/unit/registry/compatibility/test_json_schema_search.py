"""A search for values that refute "can be read": accepted by the writer's schema and refused by the reader's."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from app.registry.compatibility.json_schema import find_problems, incompatibilities
from tests.support.json_schemas import VALUES, accepted, documents, pairs, read


@given(pairs())
@settings(max_examples=150)
def test_no_value_refutes_that_data_can_be_read(pair: tuple[Any, Any]) -> None:
    writer, reader = map(read, pair)
    # Without the two exceptions, in which a value may be refused.
    if not find_problems(reader.root, writer.root, "exactly any"):
        refuting = [value for value in VALUES if accepted(writer, value) and not accepted(reader, value)]
        assert not refuting


@given(pairs())
def test_the_exceptions_only_add_to_what_can_be_read(pair: tuple[Any, Any]) -> None:
    writer, reader = map(read, pair)
    if not find_problems(reader.root, writer.root, "exactly any"):
        assert incompatibilities(reader, writer) == []


@given(documents())
def test_every_schema_reads_its_own_data(document: Any) -> None:
    schema = read(document)
    # In other words, so that it is not enough that the texts are equal.
    same = read({**document, "allOf": [*document["allOf"], {"minProperties": 0}]})

    assert incompatibilities(schema, schema) == []
    assert incompatibilities(same, schema) == []
