"""Who is let in: a listener's own limit, the limit of open files, and how often refusals are logged."""

from __future__ import annotations

import logging

import pytest

from app.network.admission import Admission, open_files_for_connections


def admission(
    *,
    connections_max: int = 2,
    open_files_max: int = 1000,
    per_address_max: int | None = None,
    clock: list[float] | None = None,
) -> Admission:
    now = clock or [0.0]
    return Admission(
        "toy",
        connections_max=connections_max,
        open_files_max=open_files_max,
        per_address_max=per_address_max,
        clock_s=lambda: now[0],
    )


def test_a_listener_lets_in_as_many_as_its_limit() -> None:
    listener = admission(connections_max=2)
    assert [listener.admit("p", 5) is None for _ in range(4)] == [True, True, False, False]
    assert listener.refused == 2
    listener.leave("p")
    assert listener.admit("p", 5) is None


def test_an_address_has_a_limit_of_its_own() -> None:
    listener = admission(connections_max=10, per_address_max=2)
    assert [listener.admit("a", 5) is None for _ in range(3)] == [True, True, False]
    assert listener.admit("b", 5) is None
    listener.leave("a")
    assert listener.admit("a", 5) is None
    refusal = listener.admit("a", 5)
    assert refusal is not None
    assert "connections_per_address_max" in refusal


def test_connections_are_refused_before_the_logs_run_out_of_files() -> None:
    listener = admission(connections_max=10_000, open_files_max=100)
    # Files 0 to 9 are in other use.
    open_files = 10
    while listener.admit("p", open_files) is None:
        open_files += 1
    assert open_files == 100
    assert listener.admit("p", 100) is not None
    assert listener.admit("p", 99) is None, "one that has gone makes room"


def test_few_refused_connections_stay_where_files_are_scarce() -> None:
    listener = admission(connections_max=0, open_files_max=100)
    refused = [number for number in range(10, 164) if listener.admit("p", number) is not None]
    assert [number for number in refused if not listener.may_stay(number)] == list(range(116, 164))


@pytest.mark.parametrize(
    ("limit", "for_connections"), [(1024, 896), (20_000, 17_500), (256, 192), (64, 1), (10, 1)]
)
def test_the_logs_keep_a_share_of_the_open_files(limit: int, for_connections: int) -> None:
    assert open_files_for_connections(limit) == for_connections


def test_refusals_are_logged_every_ten_seconds_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    clock = [100.0]
    listener = admission(connections_max=1, clock=clock)
    listener.admit("10.0.0.6", 5)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            listener.admit("10.0.0.7", 5)
        clock[0] += 10
        listener.admit("10.0.0.8", 5)
    assert [record.getMessage() for record in caplog.records] == [
        "toy: refused 1 connections, the last from 10.0.0.7, with 1 open: "
        "too many connections; close one, or raise connections_max",
        "toy: refused 50 connections, the last from 10.0.0.8, with 1 open: "
        "too many connections; close one, or raise connections_max",
    ]
