"""Three implementations of JSON Schema accept the same values: the validator, the evaluation, and another library."""

from __future__ import annotations

from typing import Any

import jsonschema
from hypothesis import given
from stele.schemas.json_schema.evaluation import Budget, Evaluation
from stele.schemas.json_schema.patterns import Patterns

from tests.support.json_schemas import NEWEST, VALUES, accepted, documents, read


@given(documents())
def test_the_validator_and_the_evaluation_accept_the_same_values(document: Any) -> None:
    schema = read(document)
    evaluation = Evaluation(Budget(10_000_000), Patterns())

    for value in VALUES:
        refusal = evaluation.refusal(schema.root, value)
        assert accepted(schema, value) == (refusal is None), value


@given(documents())
def test_another_library_accepts_the_same_values(document: Any) -> None:
    schema = read(document)
    # It reads the document as it is, by the rules of its draft.
    other: Any = (
        jsonschema.Draft202012Validator if document["$schema"] == NEWEST else jsonschema.Draft7Validator
    )
    validator = other(document)

    for value in VALUES[::5]:
        try:
            expected = validator.is_valid(value)
        except TypeError:
            # It cannot count `items` that are true or false where it looks for `additionalItems`.
            continue
        assert accepted(schema, value) == expected, value
