"""What one task writes, against a real broker and without Spark: attempts that end anywhere, and are repeated."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess
from stele.errors import InvalidRequestError

pytest.importorskip("pyspark", reason="pip install 'stele-broker[spark]'")
from stele.spark.fetching import DataLossError
from stele.spark.options import Use, WriteOptions
from stele.spark.parsing import parse_write_options
from stele.spark.rows import SinkRow
from stele.spark.sending import Identity, TopicWriter

NOW_MS = 1_795_000_000_000
PARTITIONS = 3


class Stopped(Exception):
    """Stands for the end of a process: nothing is flushed."""


@pytest.fixture(params=["tcp", "http"])
def options(request: pytest.FixtureRequest, broker: BrokerProcess) -> WriteOptions:
    url = broker.binary_url if request.param == "tcp" else broker.http_url
    return parse_write_options({"url": url}, Use.STREAM_WRITE)


def rows(topic: str, count: int) -> list[SinkRow]:
    """Some with keys, some that are equal to others, some large, so that batches end here and there."""
    return [
        SinkRow(
            topic,
            None,
            NOW_MS,
            b"k%d" % (i % 7) if i % 2 else None,
            b"v%d" % (i // 3) + b"x" * (i % 5 * 4000),
            [("h", b"%d" % (i % 3)), ("n", None)] if i % 4 == 0 else [],
        )
        for i in range(count)
    ]


def attempt(
    options: WriteOptions, identity: Identity, given: Iterable[SinkRow], *, stop_after: int | None = None
) -> TopicWriter:
    with TopicWriter(options, identity, task_partition=1) as writer:
        try:
            for index, row in enumerate(given):
                if index == stop_after:
                    raise Stopped
                writer.add(row, match_timestamp=False)
            writer.flush()
        except Stopped:
            pass
    return writer


def contents(client: Client, topic: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for partition in range(PARTITIONS):
        offset = 0
        while records := client.fetch(topic, partition, offset).records:
            found += [(r.key or b"", r.value, r.headers) for r in records]
            offset = records[-1].offset + 1
    return sorted(found)  # pyright: ignore[reportArgumentType]


def expected(given: list[SinkRow]) -> list[tuple[object, ...]]:
    return sorted((r.key or b"", r.value, tuple(r.headers)) for r in given)


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(6))
def test_attempts_that_end_anywhere_leave_each_row_once_whatever_the_order_of_the_next(
    options: WriteOptions, client: Client, topic: str, seed: int
) -> None:
    client.create_topic(topic, partitions=PARTITIONS)
    chance = random.Random(seed)
    identity = Identity(name=topic, version=seed)
    given = rows(topic, 900)
    for _ in range(3):
        attempt(options, identity, given, stop_after=chance.randrange(len(given)))
        # Others write in between: their records are not taken for this task's.
        client.produce_many(f"{topic}-noise", [b"noise"])
        chance.shuffle(given)
    last = attempt(options, identity, given)
    assert contents(client, topic) == expected(given), f"seed {seed}"
    assert (last.written + last.repeated, last.strays) == (len(given), 0)
    again = attempt(options, identity, given)
    assert (again.written, again.repeated) == (0, len(given))


def test_records_of_others_between_those_of_the_task_are_stepped_over(
    options: WriteOptions, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=1)
    identity = Identity(name=topic, version=0)
    first, second = rows(topic, 2)
    attempt(options, identity, [first])
    client.produce_many(topic, [NewRecord(b"other") for _ in range(500)])
    attempt(options, identity, [first, second])
    attempt(options, identity, [second, first])
    assert [r.value for r in client.fetch(topic, 0, 0).records if r.value != b"other"] == [
        first.value,
        second.value,
    ]


def test_an_open_transaction_of_another_program_hides_no_rows_of_the_task(
    options: WriteOptions, broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=1)
    identity = Identity(name=topic, version=0)
    given = rows(topic, 10)
    with Client(broker.http_url) as other, other.transaction(topic) as open_transaction:
        open_transaction.produce(topic, b"other")
        attempt(options, identity, given[:7])
        again = attempt(options, identity, given)
        assert (again.written, again.repeated) == (3, 7)
    found = [r.value for r in client.fetch(topic, 0, 0).records if r.value != b"other"]
    assert found == [row.value for row in given]


def test_a_newer_version_is_new_and_an_older_one_is_refused(
    options: WriteOptions, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=PARTITIONS)
    given = rows(topic, 10)
    attempt(options, Identity(name=topic, version=1), given)
    attempt(options, Identity(name=topic, version=2), given)
    assert contents(client, topic) == expected([*given, *given])
    with pytest.raises(InvalidRequestError, match=r"version 1 of producer .* is older than version 2"):
        attempt(options, Identity(name=topic, version=1), given)


def test_a_task_holds_no_more_rows_for_many_partitions_than_for_one(
    options: WriteOptions, client: Client, topic: str
) -> None:
    """Batches that are not full are sent when all of them together reach the limit."""
    topics = [f"{topic}-{number}" for number in range(4)]
    for name in topics:
        client.create_topic(name, partitions=10)
    rows_of_all = [
        SinkRow(name, partition, NOW_MS, None, b"%d" % number + b"x" * 100_000, [])
        for number in range(8)
        for name in topics
        for partition in range(10)
    ]

    def stored() -> int:
        return sum(client.list_offset(name, partition) or 0 for name in topics for partition in range(10))

    with TopicWriter(options, Identity(name=topic, version=0), task_partition=0) as writer:
        for index, row in enumerate(rows_of_all):
            writer.add(row, match_timestamp=False)
            if not index % 40:
                assert (index + 1 - stored()) * 100_000 <= 20 * 1024 * 1024
        writer.flush()
    assert stored() == len(rows_of_all)


def test_rows_that_do_not_come_again_are_counted(options: WriteOptions, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=PARTITIONS)
    given = rows(topic, 10)
    attempt(options, Identity(name=topic, version=1), given)
    assert attempt(options, Identity(name=topic, version=1), given[:7]).strays == 3


@pytest.mark.one_broker("shared storage has no topics in memory")
def test_stored_rows_that_were_deleted_since_are_an_error(
    options: WriteOptions, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=1, configs={"stele.storage": "memory", "stele.memory.records": 5})
    given = rows(topic, 10)
    attempt(options, Identity(name=topic, version=1), given)
    client.produce_many(topic, [b"other"] * 9)
    with pytest.raises(DataLossError, match=r"10 records of this task were stored .* only \d+ of them"):
        attempt(options, Identity(name=topic, version=1), given)


def test_identity_survives_a_restart_of_the_broker(broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=PARTITIONS)
    options = parse_write_options({"url": broker.binary_url}, Use.STREAM_WRITE)
    given = rows(topic, 300)
    attempt(options, Identity(name=topic, version=9), given, stop_after=280)
    broker.kill()
    broker.start()
    attempt(options, Identity(name=topic, version=9), given)
    assert contents(client, topic) == expected(given)
