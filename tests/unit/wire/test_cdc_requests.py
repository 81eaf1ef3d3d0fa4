"""Requests to a connector: names in full, one record per table, and conditions that stay where they are put."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from stele.wire.cdc_requests import (
    CONDITION_BYTES_MAX,
    TABLES_MAX,
    Action,
    Request,
    check_condition,
    encode,
)


def test_a_request_has_a_record_per_table() -> None:
    records = encode("copy", ["orders", "shop.items", "public.orders"], where="id > 7")
    decoded = {name: msgspec.json.decode(record, type=Request) for name, record in records.items()}
    assert decoded == {name: Request("copy", name, "id > 7") for name in ("public.orders", "shop.items")}


@pytest.mark.parametrize(
    ("action", "tables", "where", "reason"),
    [
        ("add", [], "", "1 to 100 tables, not 0"),
        ("add", ["t"] * (TABLES_MAX + 1), "", "not 101"),
        ("drop", ["t"], "true", "only copy takes a condition"),
        ("copy", ["t"], "x" * (CONDITION_BYTES_MAX + 1), "may have 4096 bytes"),
        ("copy", ["t"], "(", "parentheses"),
        ("add", [""], "", "must be SCHEMA.TABLE"),
        ("add", [".t"], "", "must be SCHEMA.TABLE"),
        ("add", ["ä" * 32], "", "must be SCHEMA.TABLE"),
        ("add", ["a\0b"], "", "must be SCHEMA.TABLE"),
    ],
)
def test_a_request_that_no_connector_could_follow_is_refused(
    action: Action, tables: list[Any], where: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        encode(action, tables, where=where)


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "price > 100 AND (name = 'it''s; -- $1 (' OR \"a )b\" IS NULL)",
        "id IN (SELECT id FROM other WHERE (a - 1) / 2 > 0)",
    ],
)
def test_a_condition_may_be_any_expression(condition: str) -> None:
    check_condition(condition)


@pytest.mark.parametrize(
    "condition",
    [
        "true)) TO PROGRAM 'id' --",
        "true) OR (true",
        "true; DROP TABLE t",
        "true /* ",
        "(true",
        "name = 'open",
        'name = "open',
        "$$a$$ = ''",
        "name = E'\\'') TO PROGRAM ''",
    ],
)
def test_a_condition_that_could_end_the_query_is_refused(condition: str) -> None:
    with pytest.raises(ValueError, match="condition"):
        check_condition(condition)
