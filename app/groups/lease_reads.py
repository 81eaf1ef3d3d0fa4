"""Reading the records of leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from stele.wire import record_batch as rb

from ..broker.broker import Broker
from ..broker.fetch import Fetched, PartitionFetch, records_from
from ..errors import SteleError
from .consumer_protocol import AssignedPartition
from .lease import LeasedPartition


async def read_new(
    broker: Broker,
    positions: Mapping[AssignedPartition, int],
    *,
    max_records: int,
    max_bytes: int,
    failures: Callable[[AssignedPartition, int], int],
) -> list[tuple[LeasedPartition, Fetched]]:
    """Read from ``positions`` as much as fits; the first partitions get the most.

    Where deliveries have failed before, each failure divides ``max_records`` by four, so that a
    record that cannot be handled is alone in the end. ``failures`` returns their number for a
    partition and an offset.

    Raises:
        CorruptLog: every partition with records starts with a corrupt batch.
    """
    fetched_parts = await broker.fetch(
        [
            PartitionFetch(topic=part.topic, partition=part.partition, offset=position, max_bytes=max_bytes)
            for part, position in positions.items()
        ],
        max_bytes=max_bytes,
    )
    read: list[tuple[LeasedPartition, Fetched]] = []
    failure: SteleError | None = None
    left = max_records
    for (part, position), fetched in zip(positions.items(), fetched_parts, strict=True):
        if fetched.error is not None:
            failure = failure or fetched.error
            continue
        try:
            failed = failures(part, position)
            piece = max(1, max_records >> min(2 * failed, 60))
            # Where the log was compacted, the first record may be far after the position.
            first = max(position, _first_offset(fetched, position))
            next_offset = min(_end_of(fetched, position), first + min(piece, left))
        except SteleError as error:
            failure = failure or error
            continue
        if next_offset > position:
            left -= next_offset - first
            leased = LeasedPartition(
                topic=part.topic, partition=part.partition, offset=position, next_offset=next_offset
            )
            read.append((leased, fetched))
        if left <= 0:
            break
    if not read and failure is not None:
        raise failure
    return read


async def read_again(broker: Broker, part: LeasedPartition) -> Fetched:
    """Read the batches of a leased partition again.

    Batches written after them are cut off, because the answer has to hold all partitions of
    the lease.
    """
    max_bytes = broker.settings.fetch_bytes_max
    request = PartitionFetch(
        topic=part.topic, partition=part.partition, offset=part.offset, max_bytes=max_bytes
    )
    (fetched,) = await broker.fetch([request], max_bytes=max_bytes)
    if fetched.error is not None:
        raise fetched.error
    end = 0
    for header in rb.iter_headers(fetched.batches):
        if header.base_offset >= part.next_offset:
            break
        end = header.position + header.size
    return replace(fetched, batches=fetched.batches[:end])


def leased_records(leased: LeasedPartition, fetched: Fetched) -> Iterable[list[rb.RecordView]]:
    """Yield the records of a leased partition, some at a time. Raises ``CorruptLog``."""
    for records in records_from(fetched, leased.offset):
        if records[-1].offset < leased.next_offset:
            yield records
        else:
            yield [record for record in records if record.offset < leased.next_offset]
            return


def _first_offset(fetched: Fetched, offset: int) -> int:
    """Return the base offset of the first batch, ``offset`` if there is none."""
    try:
        return rb.read_header(fetched.batches).base_offset
    except rb.CorruptBatchError:
        return offset


def _end_of(fetched: Fetched, offset: int) -> int:
    """Return the offset after the last complete, valid batch.

    Raises ``CorruptLog`` if the first batch is not valid.
    """
    position, end = 0, offset
    batches = fetched.batches
    while position < len(batches):
        try:
            header = rb.check_batch(batches, position)
        except rb.CorruptBatchError:
            if not position:
                next(iter(records_from(fetched, offset)))
            break
        position += header.size
        end = header.next_offset
    return end
