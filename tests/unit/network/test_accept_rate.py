"""Connections may come at a rate, and at once as many as in one second."""

from __future__ import annotations

import pytest

from app.network.accept_rate import AcceptRate


def test_without_a_rate_nobody_waits() -> None:
    rate = AcceptRate(None)
    assert [rate.wait_s(0.0) for _ in range(10_000)] == [0.0] * 10_000


def test_connections_over_the_rate_wait_until_there_is_room_for_one() -> None:
    rate = AcceptRate(4.0)
    assert [rate.wait_s(10.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.25]
    assert rate.wait_s(10.125) == pytest.approx(0.125)
    assert [rate.wait_s(10.25), rate.wait_s(10.25)] == [0.0, 0.25]
    assert [rate.wait_s(1000.0) for _ in range(5)][-1] == 0.25, "silence earns no more than one second"


def test_a_rate_below_one_a_second_lets_one_in_at_a_time() -> None:
    rate = AcceptRate(0.5)
    assert [rate.wait_s(0.0), rate.wait_s(0.0), rate.wait_s(2.0)] == [0.0, 2.0, 0.0]


def test_a_connection_that_was_not_there_is_not_counted() -> None:
    rate = AcceptRate(1.0)
    assert rate.wait_s(0.0) == 0.0
    rate.give_back()
    assert rate.wait_s(0.0) == 0.0
