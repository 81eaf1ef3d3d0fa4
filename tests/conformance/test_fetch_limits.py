"""The limits of a fetch (KIP-74): the first partition that has data may exceed them by one batch, no other may."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest
from stele.wire.record_batch import HEADER_BYTES

from tests.conformance.driver import Driver, Record
from tests.conformance.support import MakeTopic

PARTITIONS = 3
# A record without key and headers: its own length, what precedes the value, and the number of headers.
VALUE_BYTES = 10_000
BATCH_BYTES = HEADER_BYTES + 3 + 7 + VALUE_BYTES + 1
# Beside its batches an answer has a header, and some bytes for each partition.
ANSWER_OVERHEAD_BYTES = 512


def write_batches(
    reference: Driver, topic: str, *, per_partition: int, value_bytes: int
) -> dict[int, list[bytes]]:
    """Each record a batch of its own; the values of each partition."""
    values: dict[int, list[bytes]] = {
        partition: [os.urandom(value_bytes) for _ in range(per_partition)] for partition in range(PARTITIONS)
    }
    for number in range(per_partition):
        records = [Record(value=values[partition][number], partition=partition) for partition in values]
        reference.produce(topic, records)
    return values


def by_partition(records: list[Record]) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record.value)
    return dict(found)


@pytest.mark.capability("fetch limits")
def test_large_batches_of_several_partitions_come_one_at_a_time(
    driver: Driver, reference: Driver, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    values = write_batches(reference, topic, per_partition=3, value_bytes=900_000)
    limit = 1_000_000

    # A client that bounds its answers too cannot read one with two of these batches, however often it asks.
    read = driver.fetch_all(
        topic,
        partitions=PARTITIONS,
        count=3 * PARTITIONS,
        max_bytes=limit,
        partition_max_bytes=limit,
        answer_max_bytes=limit + ANSWER_OVERHEAD_BYTES,
    )

    assert by_partition(read) == values


@pytest.mark.capability("fetch limits")
@pytest.mark.parametrize(
    "limit", [BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 2 * BATCH_BYTES - 1, 2 * BATCH_BYTES]
)
def test_a_limit_of_a_fetch_around_the_boundary_of_a_batch_leaves_nothing_out(
    driver: Driver, reference: Driver, make_topic: MakeTopic, limit: int
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    values = write_batches(reference, topic, per_partition=4, value_bytes=VALUE_BYTES)

    read = driver.fetch_all(topic, partitions=PARTITIONS, count=4 * PARTITIONS, max_bytes=limit)

    assert by_partition(read) == values


@pytest.mark.capability("fetch limits")
@pytest.mark.parametrize("limit", [1, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 2 * BATCH_BYTES])
def test_a_limit_of_a_partition_around_the_boundary_of_a_batch_leaves_nothing_out(
    driver: Driver, reference: Driver, make_topic: MakeTopic, limit: int
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    values = write_batches(reference, topic, per_partition=4, value_bytes=VALUE_BYTES)

    read = driver.fetch_all(topic, partitions=PARTITIONS, count=4 * PARTITIONS, partition_max_bytes=limit)

    assert by_partition(read) == values
