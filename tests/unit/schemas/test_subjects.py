"""Names of subjects are those of Confluent's strategies."""

from __future__ import annotations

import pytest
from stele.schemas.subjects import Strategy, subject_name


@pytest.mark.parametrize(
    ("strategy", "is_key", "name"),
    [
        ("topic", False, "orders-value"),
        ("topic", True, "orders-key"),
        ("record", False, "shop.Order"),
        ("record", True, "shop.Order"),
        ("topic-record", False, "orders-shop.Order"),
        ("topic-record", True, "orders-shop.Order"),
    ],
)
def test_the_name_of_a_subject(strategy: Strategy, is_key: bool, name: str) -> None:
    assert subject_name(strategy, "orders", "shop.Order", is_key=is_key) == name


def test_a_schema_without_a_name_has_a_subject_of_its_topic_only() -> None:
    assert subject_name("topic", "t", None, is_key=False) == "t-value"
    for strategy in ("record", "topic-record"):
        with pytest.raises(ValueError, match=f"'{strategy}'"):
            subject_name(strategy, "t", None, is_key=False)
