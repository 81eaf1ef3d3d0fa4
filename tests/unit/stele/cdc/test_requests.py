"""Requests for tables, applied in order to those of the options."""

from __future__ import annotations

from stele.cdc.requests import applied
from stele.wire.cdc_requests import Request


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
