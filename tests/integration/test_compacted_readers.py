"""Every reader makes progress across the holes of a compacted partition, and all of them see the same records."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from stele import Client, NewRecord
from stele.testing import BrokerProcess, run_broker

from app.storage.inspection.dump_and_verify import Verified, verify

from .test_compaction import CONFIGS, KEYS, SETTINGS, TOPIC, await_clean, produce_until_cleaned, records_of

RECORDS = f"/v1/topics/{TOPIC}/partitions/0/records"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compacted")


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[BrokerProcess]:
    """A broker whose topic was compacted, and is compacted no more: its records stay as they are."""
    with run_broker(data_dir, environment=SETTINGS) as broker:
        with Client(broker.binary_url) as client:
            client.create_topic(TOPIC, configs=CONFIGS)
            for number in range(40):
                # Written once, between records that are replaced: what stays has holes around it.
                keys = [b"user-%d" % (key % KEYS) for key in range(30)]
                keys.insert((number + 15) % 30, b"user-once-%d" % number)
                client.produce_many(TOPIC, [NewRecord(value=b"v" * 60, key=key) for key in keys])
        produce_until_cleaned(broker, data_dir, {}, random.Random(7), "lz4")
        await_clean(broker, data_dir)
        assert broker.stop() == 0
    with run_broker(data_dir, environment={"STELE_LOG_CLEANER_ENABLE": "false"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def expected(broker: BrokerProcess) -> list[int]:
    """The offsets that librdkafka reads; there are holes before the first and between them."""
    offsets = [offset for offset, _, _ in records_of(broker)]
    assert offsets[0] > 0, "a hole at the beginning"
    assert any(after > before + 1 for before, after in pairwise(offsets)), "holes"
    return offsets


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        yield http


@pytest.mark.every(3)
@pytest.mark.parametrize("limit", [1, 7, 10_000])
def test_json_pages(http: httpx.Client, expected: list[int], limit: int) -> None:
    offsets: list[int] = []
    offset = 0
    while True:
        page = http.get(RECORDS, params={"from": offset, "limit": limit}).raise_for_status().json()
        if not page["records"]:
            break
        offsets += [record["offset"] for record in page["records"]]
        assert page["next_offset"] > offset, page
        offset = page["next_offset"]
    assert offsets == expected


def test_an_event_stream_and_its_resumption_in_a_hole(http: httpx.Client, expected: list[int]) -> None:
    def told(count: int, **headers: str) -> list[int]:
        offsets: list[int] = []
        accept = {"accept": "text/event-stream", **headers}
        with http.stream("GET", RECORDS, params={"from": "earliest"}, headers=accept) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    offsets.append(json.loads(line.removeprefix("data: "))["offset"])
                    if len(offsets) == count:
                        break
        return offsets

    assert told(len(expected)) == expected
    hole = next(before for before, after in pairwise(expected) if after > before + 1)
    after = [offset for offset in expected if offset > hole]
    assert told(len(after), **{"last-event-id": f"0:{hole}"}) == after


def read_offsets_of(stream: bytes) -> list[int]:
    library: Any = pa
    return list(library.ipc.open_stream(stream).read_all().column("offset").to_pylist())


def test_arrow(http: httpx.Client, expected: list[int]) -> None:
    offsets: list[int] = []
    offset = 0
    while True:
        answer = http.get(
            RECORDS, params={"from": offset}, headers={"accept": "application/vnd.apache.arrow.stream"}
        ).raise_for_status()
        page = read_offsets_of(answer.content)
        if not page:
            break
        offsets += page
        offset = offsets[-1] + 1
    assert offsets == expected


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_search(http: httpx.Client, expected: list[int], order: str) -> None:
    answer = http.get(
        f"/v1/topics/{TOPIC}/search", params={"key": "user-", "order": order, "limit": 10_000}
    ).raise_for_status()
    lines = [json.loads(line) for line in answer.text.splitlines()]
    offsets = [line["record"]["offset"] for line in lines if "record" in line]
    assert sorted(offsets) == expected
    assert lines[-1]["end"]["errors"] == []


def test_leases(http: httpx.Client, expected: list[int]) -> None:
    offsets: list[int] = []
    while True:
        answer = http.post(
            "/v1/groups/leased/poll", json={"topics": [TOPIC], "max_records": 9, "from": "earliest"}
        )
        polled = answer.raise_for_status().json()
        if not polled["records"]:
            break
        offsets += [record["offset"] for record in polled["records"]]
        http.post("/v1/groups/leased/ack", json={"lease": polled["lease"]}).raise_for_status()
    assert offsets == expected
    assert http.get("/v1/groups/leased").raise_for_status().json()["lag"] == 0


def test_simple_consume(broker: BrokerProcess, expected: list[int]) -> None:
    offsets: list[int] = []
    offset = 0
    with Client(broker.binary_url) as client:
        while True:
            messages, offset = client.simple_consume(TOPIC, offset, 13)
            if not messages:
                break
            offsets += [offset for offset, _ in messages]
    assert offsets == expected


@pytest.mark.long
def test_a_read_from_any_offset_finds_the_next_record(
    broker: BrokerProcess, http: httpx.Client, expected: list[int]
) -> None:
    with Client(broker.binary_url) as client:
        # Each record, and the hole before it: its beginning, its middle and its end.
        cases = {
            (offset, following)
            for before, following in pairwise([-1, *expected])
            for offset in (before + 1, (before + following) // 2, following - 1, following)
            if offset > before
        }
        for offset, following in sorted(cases):
            page = http.get(RECORDS, params={"from": offset, "limit": 1}).raise_for_status().json()
            assert page["records"][0]["offset"] == following
            messages, _ = client.simple_consume(TOPIC, offset, 1)
            assert messages[0][0] == following


@pytest.mark.parametrize("scheme", ["stele", "http"])
def test_the_client_library(broker: BrokerProcess, expected: list[int], scheme: str) -> None:
    url = broker.binary_url if scheme == "stele" else broker.http_url
    with Client(url) as client:
        offsets: list[int] = []
        offset, end = 0, client.list_offset(TOPIC)
        assert end is not None
        while offset < end:
            fetched = client.fetch(TOPIC, offset=offset)
            offsets += [record.offset for record in fetched.records]
            assert fetched.next_offset > offset
            offset = fetched.next_offset
        assert offsets == expected
        consumed: list[int] = []
        with client.group(f"followers-{scheme}", TOPIC, max_records=11) as group:
            for batch in group:
                with batch:
                    consumed += [record.offset for record in batch.records]
                if len(consumed) >= len(expected):
                    break
        assert consumed == expected


def test_verify_finds_nothing_wrong(data_dir: Path, broker: BrokerProcess, http: httpx.Client) -> None:
    reports: list[Verified] = []
    assert broker.stop() == 0
    try:
        assert verify(data_dir, report=reports.append) == 0, [report.problems for report in reports]
    finally:
        broker.start()
