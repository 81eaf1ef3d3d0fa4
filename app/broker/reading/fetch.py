"""Batches of a fetch, turned into records.

Hidden batches (``visible_batches``) have no records here: neither control batches, nor those of
aborted transactions in a read with READ_COMMITTED. Their headers are among the others, so a
reader that continues after the last header moves past them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from stele.wire import record_batch as rb

from ...errors import CorruptLog
from ...storage.engine import PartitionFetch, PartitionRead
from ...work_budget import RECORDS_PER_TURN, TURN_BYTES, WorkBudget
from .decoded_bytes import UNCOUNTED_BYTES, DecodedReader
from .large_batches import LARGE_BATCH_BYTES, record_of
from .visible_batches import brings_all, end_of, hidden_by, read_bound, visible_bytes, without_records

__all__ = [
    "Fetched",
    "OpenRecord",
    "PartitionFetch",
    "batch_in_turns",
    "batches_from",
    "brings_all",
    "bytes_of",
    "end_of",
    "is_large",
    "needs_more",
    "read_bound",
    "record_at",
    "records_from",
    "records_in_turns",
    "size_of",
    "visible_bytes",
]

# A fetch returns what the engine returned; nothing is copied in between.
Fetched = PartitionRead

LARGE_BYTES = 64 * 1024
# Decoding alone is a tenth of what is done with a record that is wanted.
_SKIPPED_PER_TURN = 1024
# A compressed batch that is larger, or may become larger than ``UNCOUNTED_BYTES``, is unpacked in a thread.
_THREAD_BYTES = 16 * 1024


def bytes_of(reads: Sequence[Fetched]) -> int:
    """Return the size of all batches of ``reads``."""
    # A generator takes longer than the few reads of most fetches.
    size = 0
    for read in reads:
        size += len(read.batches)
    return size


def needs_more(requests: Sequence[PartitionFetch], reads: Sequence[Fetched], min_bytes: int) -> bool:
    """Return whether a fetch of at least ``min_bytes`` has to wait for records.

    It has not if there is an error, or if its limits were reached: whole batches need not add up to ``min_bytes``.
    """
    if bytes_of(reads) >= min_bytes:
        return False
    for read, request in zip(reads, requests, strict=True):
        if read.error is not None or not brings_all(read, request.offset):
            return False
    return True


def records_from(fetched: Fetched, offset: int) -> Iterator[list[rb.RecordView]]:
    """Yield the records at or after ``offset``, ``RECORDS_PER_TURN`` at a time.

    The caller can yield to the event loop in between.

    Raises:
        CorruptLog: a batch does not pass its CRC, does not parse, or does not
            follow the one before it; what was yielded before is good.
    """
    for header in batches_from(fetched, offset):
        if not header.record_count:
            continue
        try:
            for records in rb.decode_slices(fetched.batches, header, RECORDS_PER_TURN):
                if wanted := _at_or_after(records, offset):
                    yield wanted
        except rb.CorruptBatchError as error:
            raise _corrupt(fetched, header.position, max(offset, header.base_offset), error.reason) from error


async def records_in_turns(
    fetched: Fetched, offset: int, reader: DecodedReader
) -> AsyncGenerator[list[rb.RecordView]]:
    """Yield what ``records_from`` does, with pauses for the event loop.

    No content of a batch can block the loop.
    """
    turn = WorkBudget()
    for header in batches_from(fetched, offset):
        async with aclosing(batch_in_turns(fetched, header, offset, turn, reader)) as slices:
            async for records in slices:
                yield records


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """One record, and the room that is held for it until ``close``."""

    record: rb.RecordView
    _slices: AsyncGenerator[list[rb.RecordView]] | None = None

    @property
    def is_large(self) -> bool:
        """Whether room is held: the record is to be sent in pieces, and then closed."""
        return self._slices is not None

    async def close(self) -> None:
        """Give the room back."""
        if self._slices is not None:
            await self._slices.aclose()


async def record_at(fetched: Fetched, offset: int, reader: DecodedReader) -> OpenRecord | None:
    """Return the record at ``offset``, with which ``fetched`` begins.

    None if there is none. Raises ``CorruptLog``, ``ReadMemoryFull``.
    """
    slices = records_in_turns(fetched, offset, reader)
    records = await anext(slices, None)
    if records is not None and records[0].offset == offset:
        record = records[0]
        del records
        if is_large(record):
            return OpenRecord(record, slices)
        await slices.aclose()
        return OpenRecord(record)
    await slices.aclose()
    return None


async def batch_in_turns(
    fetched: Fetched, header: rb.BatchHeader, offset: int, turn: WorkBudget, reader: DecodedReader
) -> AsyncGenerator[list[rb.RecordView]]:
    """Yield the records of one batch of ``batches_from`` at or after ``offset``.

    No list is empty, and a large record is alone in its list. A large compressed batch is unpacked in a thread, once
    ``reader`` has room for it; the room is given back when the generator ends, so the records should not be kept for
    longer.

    Raises ``CorruptLog``, ``ReadMemoryFull``.
    """
    if not header.record_count:
        # There may be any number of them in a row.
        await turn.visit()
        return
    batches, inner = fetched.batches, header
    plain_size = header.size if header.size > UNCOUNTED_BYTES or header.compression else 0
    if header.compression:
        plain_size = rb.plain_size_max(batches, header)
    held_bytes = 0
    try:
        if plain_size > UNCOUNTED_BYTES:
            what = f"the batch at offset {header.base_offset} of {fetched.topic}-{fetched.partition}"
            await reader.hold(plain_size, what)
            held_bytes = plain_size
        if header.compression and (header.size > _THREAD_BYTES or held_bytes):
            batches = await asyncio.to_thread(rb.plain_batch, batches, header)
            inner = rb.read_header(batches)
        if inner.size > LARGE_BATCH_BYTES and inner.record_count == 1:
            record = await record_of(batches, inner)
            if record is not None:
                del batches
                if record.offset >= offset:
                    yield [record]
                return
        record_bytes = inner.size // max(header.record_count, 1)
        per_turn = max(1, min(RECORDS_PER_TURN, TURN_BYTES // max(record_bytes, 1)))
        slices = rb.decode_slices(batches, inner, per_turn)
        if header.record_count == 1:
            # The record is a copy: the batch need not be kept beside it.
            slices = iter(list(slices))
        del batches
        for records in slices:
            size, count = record_bytes * len(records), len(records)
            wanted = _at_or_after(records, offset)
            if wanted and held_bytes and len(wanted) > 1:
                for part in _large_alone(wanted):
                    yield part
                    await turn.spend(size // count * len(part), len(part))
            elif wanted:
                yield wanted
                await turn.spend(size, count)
            else:
                await turn.spend(size, count * RECORDS_PER_TURN / _SKIPPED_PER_TURN)
    except rb.CorruptBatchError as error:
        raise _corrupt(fetched, header.position, max(offset, header.base_offset), error.reason) from error
    finally:
        if held_bytes:
            reader.release(held_bytes)


def size_of(record: rb.RecordView) -> int:
    """Return the bytes of the key, the value and the headers of a record."""
    size = len(record.value or b"") + len(record.key or b"")
    for name, content in record.headers:
        size += len(name) + len(content or b"")
    return size


def is_large(record: rb.RecordView) -> bool:
    """Return whether a record is handled in pieces.

    As one text, it would take ten times its bytes.
    """
    return size_of(record) > LARGE_BYTES


def _large_alone(records: list[rb.RecordView]) -> Iterator[list[rb.RecordView]]:
    """Split ``records``, so that each large one is alone."""
    start = 0
    for index, record in enumerate(records):
        if is_large(record):
            if start < index:
                yield records[start:index]
            yield [record]
            start = index + 1
    if start < len(records):
        yield records[start:] if start else records


def batches_from(fetched: Fetched, offset: int, *, is_checked: bool = False) -> Iterator[rb.BatchHeader]:
    """Yield the headers of the batches, from the one with ``offset`` on.

    Each batch follows the previous one. Where the log was compacted, there may be holes between
    them. The header of a hidden batch has record count 0. If all batches are known to pass their CRC, it
    ``is_checked``.

    Raises:
        CorruptLog: one does not, or does not pass its CRC.
    """
    position, expected = 0, -1
    batches, is_hidden = fetched.batches, hidden_by(fetched)
    header_at = rb.read_header if is_checked else rb.check_batch
    while position < len(batches):
        try:
            header = header_at(batches, position)
            base_offset = header.base_offset
            follows = base_offset == expected if expected >= 0 else base_offset <= offset
            is_after_hole = max(offset, expected) < base_offset <= fetched.holes_until
            if not (follows or is_after_hole) or header.last_offset < offset:
                raise rb.CorruptBatchError(f"base offset is {header.base_offset}", position=position)
        except rb.CorruptBatchError as error:
            raise _corrupt(fetched, position, max(offset, expected), error.reason) from error
        yield without_records(header) if is_hidden(header) else header
        expected = header.next_offset
        position += header.size


def _at_or_after(records: list[rb.RecordView], offset: int) -> list[rb.RecordView]:
    if records[0].offset >= offset:
        return records
    return [record for record in records if record.offset >= offset] if records[-1].offset >= offset else []


def _corrupt(fetched: Fetched, position: int, offset: int, reason: str) -> CorruptLog:
    next_offset = offset + 1
    try:
        header = rb.read_header(fetched.batches, position)
        # Its count may be what is damaged: believe it only if the next batch agrees.
        following = position + header.size
        if following + rb.HEADER_BYTES <= len(fetched.batches):
            next_offset = max(next_offset, rb.read_header(fetched.batches, following).base_offset)
        elif header.base_offset <= offset <= header.last_offset:
            next_offset = min(header.next_offset, max(next_offset, fetched.high_watermark))
    except rb.CorruptBatchError:
        pass
    origin = fetched.origin
    return CorruptLog(
        path=Path(f"{fetched.topic}-{fetched.partition}") if origin is None else origin.path,
        position=position if origin is None else origin.position + position,
        offset=offset,
        next_offset=next_offset,
        reason=reason,
    )
