"""Reading the records of leases: committed ones, without markers and aborted transactions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from stele.wire import record_batch as rb

from ...broker.broker import Broker
from ...broker.reading.decoded_bytes import DecodedReader
from ...broker.reading.fetch import Fetched, PartitionFetch, records_from, records_in_turns, visible_bytes
from ...broker.reading.record_counts import DecodedLimit, count_records
from ...broker.reading.visible_batches import hidden_by, without_records
from ...errors import SteleError
from ...work_budget import WorkBudget
from ..base.consumer_protocol import AssignedPartition
from .lease import LeasedPartition


async def read_new(
    broker: Broker,
    positions: dict[AssignedPartition, int],
    *,
    max_records: int,
    max_bytes: int,
    is_decoded: bool = False,
    failures: Callable[[AssignedPartition, int], int],
) -> list[tuple[LeasedPartition, Fetched]]:
    """Read from ``positions`` as much as fits; the first partitions get the most.

    With ``is_decoded`` the bytes of batches count as they are decompressed.

    Where deliveries have failed before, each failure divides ``max_records`` by four, so that a
    record that cannot be handled is alone in the end. ``failures`` returns their number for a
    partition and an offset. Where there is no record after a position, because compaction
    removed them, their transaction was aborted, or markers are all there is, the position in
    ``positions`` moves to the end of what was read.

    Raises:
        CorruptLog: every partition with records starts with a corrupt batch.
    """
    fetched_parts = await broker.fetch(
        [
            PartitionFetch(
                topic=part.topic,
                partition=part.partition,
                offset=position,
                max_bytes=max_bytes,
                until_offset=position + max_records,
            )
            for part, position in positions.items()
        ],
        max_bytes=max_bytes,
    )
    read: list[tuple[LeasedPartition, Fetched]] = []
    failure: SteleError | None = None
    left, decoded = max_records, DecodedLimit(max_bytes) if is_decoded else None
    reader = broker.decoded.reader()
    for (part, position), fetched in zip(list(positions.items()), fetched_parts, strict=True):
        if fetched.error is not None:
            failure = failure or fetched.error
            continue
        try:
            failed = failures(part, position)
            piece = max(1, max_records >> min(2 * failed, 60))
            fetched, count, next_offset = await _first_records(
                broker, fetched, position, min(piece, left), reader, max_bytes=max_bytes, decoded=decoded
            )
        except SteleError as error:
            failure = failure or error
            continue
        if count:
            left -= count
            leased = LeasedPartition(
                topic=part.topic, partition=part.partition, offset=position, next_offset=next_offset
            )
            read.append((leased, await _visible(fetched)))
        else:
            positions[part] = next_offset
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
        topic=part.topic,
        partition=part.partition,
        offset=part.offset,
        max_bytes=max_bytes,
        until_offset=part.next_offset,
    )
    (fetched,) = await broker.fetch([request], max_bytes=max_bytes)
    if fetched.error is not None:
        raise fetched.error
    fetched, _, _ = await _first_records(
        broker, fetched, part.offset, 1, broker.decoded.reader(), max_bytes=max_bytes
    )
    end = 0
    for header in rb.iter_headers(fetched.batches):
        if header.base_offset >= part.next_offset:
            break
        end = header.position + header.size
    return await _visible(replace(fetched, batches=fetched.batches[:end]))


async def _first_records(
    broker: Broker,
    fetched: Fetched,
    offset: int,
    wanted: int,
    reader: DecodedReader,
    *,
    max_bytes: int,
    decoded: DecodedLimit | None = None,
) -> tuple[Fetched, int, int]:
    """Return the first read from ``offset`` on that shows records; ``fetched`` is the read from there.

    Also returns what ``_count_from`` does. Where compaction removed all records of a batch, a
    transaction was aborted or markers are all there is, a read shows none.
    """
    count, next_offset = await _count_from(fetched, offset, wanted, reader, decoded)
    while not count and next_offset > offset:
        offset = next_offset
        following = PartitionFetch(
            topic=fetched.topic, partition=fetched.partition, offset=offset, max_bytes=max_bytes
        )
        (more,) = await broker.fetch([following], max_bytes=max_bytes)
        if more.error is not None:
            raise more.error
        if not more.batches:
            break
        # What lies before it is no loss.
        begin = rb.read_header(more.batches).base_offset
        fetched = replace(more, holes_until=max(more.holes_until, begin))
        count, next_offset = await _count_from(fetched, offset, wanted, reader, decoded)
    return fetched, count, next_offset


async def _visible(fetched: Fetched) -> Fetched:
    """Return ``fetched`` without markers and aborted records, so that every listener may send it."""
    batches = await visible_bytes(fetched)
    return fetched if batches is fetched.batches else replace(fetched, batches=batches, aborted=())


async def leased_records(
    leased: LeasedPartition, fetched: Fetched, reader: DecodedReader
) -> AsyncGenerator[list[rb.RecordView]]:
    """Yield the records of a leased partition, some at a time.

    With pauses for the event loop, as ``records_in_turns``. Raises ``CorruptLog``.
    """
    async with aclosing(records_in_turns(fetched, leased.offset, reader)) as slices:
        async for records in slices:
            if records[-1].offset < leased.next_offset:
                yield records
            else:
                yield [record for record in records if record.offset < leased.next_offset]
                return


async def _count_from(
    fetched: Fetched, offset: int, wanted: int, reader: DecodedReader, decoded: DecodedLimit | None
) -> tuple[int, int]:
    """Count the records from ``offset`` on, up to ``wanted``.

    Only complete and valid batches count.

    Returns the number and the offset to continue from, which is after the hidden batches that
    follow the last record. Raises ``CorruptLog`` if the first batch is not valid.
    """
    position, count, next_offset = 0, 0, offset
    batches, is_hidden = fetched.batches, hidden_by(fetched)
    turn = WorkBudget()
    while position < len(batches):
        try:
            header = rb.read_header(batches, position)
            hides = is_hidden(header)
            if count >= wanted and not hides:
                break
            rb.check_batch(batches, position)
        except rb.CorruptBatchError:
            if not position:
                next(iter(records_from(fetched, offset)))
            break
        shown = without_records(header) if hides else header
        if decoded is not None and shown.record_count:
            fits = await decoded.fitting(fetched, shown)
            if not fits:
                break
            if fits < shown.record_count:
                # Nothing after it fits.
                wanted = min(wanted, count + fits)
        have, next_offset = await count_records(fetched, shown, next_offset, max(1, wanted - count), reader)
        count += have
        if next_offset < header.next_offset:
            # It has more records than are wanted.
            break
        position += header.size
        await turn.visit()
    return count, next_offset
