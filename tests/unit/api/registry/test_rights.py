"""The names by which access rules know subjects and contexts."""

from __future__ import annotations

import pytest

from app.api.registry.rights import name_of, name_of_context


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("orders-value", "orders-value"),
        (":.:orders-value", "orders-value"),
        (":.eu:orders-value", ":.eu:orders-value"),
        (":.eu:", ":.eu:"),
        ("a:.:b", "a:.:b"),
    ],
)
def test_a_subject_has_one_name(subject: str, name: str) -> None:
    assert name_of(subject) == name


def test_the_name_of_a_context_begins_those_of_its_subjects() -> None:
    for context in (".eu", "eu"):
        assert name_of_context(context) == ":.eu:"
        assert name_of(":.eu:orders").startswith(name_of_context(context))
