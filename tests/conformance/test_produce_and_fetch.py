"""Records in, records out: what a producer and a reader without a group may count on."""

from __future__ import annotations

import os

import httpx
import pytest
from stele.testing import BrokerProcess
from stele.wire import record_batch
from stele.wire.compression import Compression
from stele.wire.record_batch import BatchHeader

from tests.conformance.clients import Client
from tests.conformance.driver import Acks, Driver, Record
from tests.conformance.support import MakeTopic, a_name, all_kinds, contents, now_ms, numbered, offsets
from tests.support.waiting import eventually

ACKS = [pytest.param(acks, marks=pytest.mark.capability(f"produce acks={acks}")) for acks in ("1", "all")]
CODECS = [
    pytest.param(codec, marks=pytest.mark.capability(codec)) for codec in ("gzip", "snappy", "lz4", "zstd")
]


ARRIVAL_TIMEOUT_S = 5.0


def batches_over_http(stele: BrokerProcess, topic: str, partition: int = 0) -> list[BatchHeader]:
    """The headers of what is stored, as it is stored."""
    answer = httpx.get(
        f"{stele.http_url}/v1/topics/{topic}/partitions/{partition}/records",
        params={"from": 0},
        headers={"accept": "application/octet-stream"},
    )
    answer.raise_for_status()
    return list(record_batch.iter_headers(answer.content))


def assert_told(told: list[int], expected: list[int]) -> None:
    """A client tells the offsets it was told, or (as -1) none."""
    assert told in (expected, [-1] * len(expected))


# ── produce ──


def assert_read_in_order(driver: Driver, topic: str, written: list[Record], *, partitions: int) -> None:
    for partition in range(partitions):
        expected = [record for record in written if record.partition == partition]
        read = driver.fetch(topic, partition=partition, count=len(expected))
        assert contents(read) == contents(expected)
        assert offsets(read) == list(range(len(expected)))
        assert driver.offset_at(topic, "latest", partition=partition) == len(expected)


@pytest.mark.parametrize("acks", ACKS)
def test_every_record_arrives_once_and_in_order(driver: Driver, make_topic: MakeTopic, acks: Acks) -> None:
    topic = make_topic(partitions=2)
    records = numbered(60, partitions=2)

    told = driver.produce(topic, records, acks=acks)

    assert_told(told, [n // 2 for n in range(60)])
    assert_read_in_order(driver, topic, records, partitions=2)


@pytest.mark.capability("produce acks=0")
def test_records_sent_without_waiting_arrive_in_order(driver: Driver, make_topic: MakeTopic) -> None:
    records = numbered(60, partitions=2)

    def all_arrive() -> bool:
        topic = make_topic(partitions=2)
        driver.produce(topic, records, acks="0")
        try:
            eventually(
                lambda: all(driver.offset_at(topic, "latest", partition=n) == 30 for n in (0, 1)),
                "all records have arrived",
                timeout_s=ARRIVAL_TIMEOUT_S,
            )
        except pytest.fail.Exception:
            return False
        assert_read_in_order(driver, topic, records, partitions=2)
        return True

    # A client may close its connection before the broker has read all of it, as kcat does, and nobody is told.
    eventually(all_arrive, "nothing was lost in one of several tries")


@pytest.mark.capability("produce acks=all")
def test_a_record_is_read_as_it_was_written(driver: Driver, topic: str) -> None:
    records = all_kinds(driver)

    driver.produce(topic, records)
    read = driver.fetch(topic, count=len(records))

    assert contents(read) == contents(records)
    if driver.offers("setting timestamps"):
        assert [r.timestamp for r in read] == [r.timestamp for r in records]


@pytest.mark.capability("produce acks=all")
def test_a_record_without_a_timestamp_gets_that_of_its_sending(driver: Driver, topic: str) -> None:
    before_ms = now_ms()
    driver.produce(topic, [Record(value=b"now")])
    after_ms = now_ms()

    (record,) = driver.fetch(topic, count=1)

    assert record.timestamp is not None
    assert before_ms <= record.timestamp <= after_ms


@pytest.mark.capability("idempotent")
def test_an_idempotent_producer_leaves_no_hole_and_no_double(driver: Driver, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    for part in range(3):
        told = driver.produce(topic, numbered(100, partitions=2, start=100 * part), idempotent=True)
        assert_told(told, [50 * part + n // 2 for n in range(100)])

    for partition in (0, 1):
        read = driver.fetch(topic, partition=partition, count=150)
        assert contents(read) == contents(numbered(300, partitions=2)[partition::2])


@pytest.mark.capability("idempotent")
def test_an_idempotent_producer_has_its_identity_in_its_batches(
    stele: BrokerProcess, driver: Driver, topic: str
) -> None:
    driver.produce(topic, numbered(10), idempotent=True)
    driver.produce(topic, numbered(10), idempotent=True)

    first, *_, last = batches_over_http(stele, topic)
    assert first.producer_id >= 0
    assert last.producer_id >= 0
    assert first.base_sequence == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_comes_back_whole(
    driver: Driver, reference: Driver, topic: str, codec: str
) -> None:
    records = [Record(key=b"%d" % n, value=b"the same words again and again, " * 20) for n in range(200)]

    told = driver.produce(topic, records, codec=codec)

    assert_told(told, list(range(200)))
    assert contents(driver.fetch(topic, count=200)) == contents(records)
    # From the middle of a batch: the broker sends the whole of it, and the client leaves out its beginning.
    assert contents(driver.fetch(topic, offset=150, count=50)) == contents(records[150:])
    # What it compressed, another library must be able to read, and the other way round.
    assert contents(reference.fetch(topic, count=200)) == contents(records)
    reference.produce(topic, records, codec=codec)
    assert contents(driver.fetch(topic, offset=200, count=200)) == contents(records)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_stays_compressed_as_its_producer_made_it(
    stele: BrokerProcess, driver: Driver, topic: str, codec: str
) -> None:
    records = [Record(value=b"the same words again and again, " * 20) for _ in range(200)]
    driver.produce(topic, records, codec=codec)

    stored = batches_over_http(stele, topic)

    assert {batch.compression for batch in stored} == {Compression[codec.upper()]}
    assert sum(batch.size for batch in stored) < sum(len(r.value or b"") for r in records) / 5


@pytest.mark.capability("partitioner")
def test_a_key_goes_where_the_client_always_puts_it(
    driver: Driver, client: Client, reference: Driver, make_topic: MakeTopic
) -> None:
    partitions = 6
    topic = make_topic(partitions=partitions)
    keys = [f"key {n}".encode() for n in range(60)]

    told = driver.produce_keyed(topic, keys)

    assert told == [client.partitioner(key, partitions) for key in keys]
    for partition in range(partitions):
        expected = [key for key, place in zip(keys, told, strict=True) if place == partition]
        read = reference.fetch(topic, partition=partition, count=len(expected))
        assert [record.key for record in read] == expected
    # The same key goes to the same place from a producer that knows nothing of the first.
    assert driver.produce_keyed(topic, keys[:10]) == told[:10]


@pytest.mark.capability("auto-create")
def test_a_topic_is_made_by_the_first_record_that_is_sent_to_it(driver: Driver) -> None:
    topic = a_name("made-by-producing")

    told = driver.produce(topic, numbered(3))

    assert_told(told, [0, 1, 2])
    assert contents(driver.fetch(topic, count=3)) == contents(numbered(3))


# ── fetch ──


@pytest.mark.capability("fetch")
@pytest.mark.parametrize("offset", [0, 1, 41, 99])
def test_a_fetch_begins_at_its_offset_wherever_that_is_in_a_batch(
    driver: Driver, reference: Driver, topic: str, offset: int
) -> None:
    reference.produce(topic, numbered(100))

    read = driver.fetch(topic, offset=offset, count=100 - offset)

    assert offsets(read) == list(range(offset, 100))
    assert contents(read) == contents(numbered(100)[offset:])


@pytest.mark.capability("fetch")
def test_a_fetch_from_the_latest_offset_waits_for_what_comes(
    driver: Driver, reference: Driver, topic: str
) -> None:
    reference.produce(topic, numbered(5))
    waiting = driver.begin("fetch", topic=topic, partition=0, offset="latest", count=1)

    # When it has found its place only the client knows, so there is something new for it until it has met it.
    def has_met_something() -> bool:
        reference.produce(topic, [Record(value=b"new")])
        return waiting.is_answered()

    eventually(has_met_something, "the fetch has a record")

    (record,) = waiting.result()["records"]
    assert record["offset"] >= 5


@pytest.mark.capability("fetch")
def test_large_records_come_back_whole(driver: Driver, reference: Driver, topic: str) -> None:
    # More than a default fetch of one partition holds (1 MiB), each less than a producer may send.
    records = [Record(value=os.urandom(700_000)) for _ in range(4)]
    for record in records:
        reference.produce(topic, [record])

    assert contents(driver.fetch(topic, count=4)) == contents(records)


@pytest.mark.capability("offsets by time")
def test_a_time_finds_the_first_record_at_or_after_it(driver: Driver, reference: Driver, topic: str) -> None:
    first_ms = now_ms() - 60_000
    records = [Record(value=b"%d" % n, timestamp=first_ms + 1000 * n) for n in range(5)]
    reference.produce(topic, records[:3])
    reference.produce(topic, records[3:])

    found = {
        at: driver.offset_at(topic, at)
        for at in (
            first_ms - 1,
            first_ms,
            first_ms + 1,
            first_ms + 2000,
            first_ms + 3000,
            first_ms + 4000,
            first_ms + 4001,
        )
    }

    assert list(found.values()) == [0, 0, 1, 2, 3, 4, -1]


@pytest.mark.capability("offsets by time")
def test_earliest_is_the_log_start_and_latest_the_log_end(
    driver: Driver, reference: Driver, topic: str
) -> None:
    assert (driver.offset_at(topic, "earliest"), driver.offset_at(topic, "latest")) == (0, 0)
    assert driver.offset_at(topic, now_ms()) == -1

    reference.produce(topic, numbered(7))

    assert (driver.offset_at(topic, "earliest"), driver.offset_at(topic, "latest")) == (0, 7)
