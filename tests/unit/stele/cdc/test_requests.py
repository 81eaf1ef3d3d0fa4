"""Requests for tables, applied in order to those of the options."""

from __future__ import annotations

import pytest
from stele.cdc.errors import CdcError
from stele.cdc.requests import Request, applied, check_condition


def test_requests_add_and_drop_in_order_and_names_stay_as_they_were_given() -> None:
    requests = [
        Request("add", "public.b"),
        Request("drop", "public.a"),
        Request("add", "shop.c"),
        Request("drop", "shop.c"),
        Request("add", "public.orders"),
    ]
    assert applied(("a", "orders"), requests) == (("orders", "public.b"), ("public.b",))
    assert applied(("a",), []) == (("a",), ())
    assert applied(("a",), [Request("drop", "public.a"), Request("add", "public.a")]) == (("public.a",), ())


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
    with pytest.raises(CdcError, match="condition"):
        check_condition(condition)
