"""What a fetch asks for and what it gets; and batches turned into records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stele.wire import record_batch as rb

from ..errors import CorruptLog, SteleError


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFetch:
    """Ask one partition for batches from ``offset`` on, about ``max_bytes`` of them."""

    topic: str
    partition: int
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Whole batches, verbatim; the first may begin before the offset that was asked for.

    ``path`` and ``position`` say where they lie, for the report of a corruption.
    """

    topic: str
    partition: int
    error: SteleError | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    batches: bytes | bytearray = b""
    path: Path | None = None
    position: int = 0


# Records decoded in one turn of a loop, some 10 µs of work.
RECORDS_PER_TURN = 64


def records_from(fetched: Fetched, offset: int) -> Iterator[list[rb.RecordView]]:
    """The records at or after ``offset``, ``RECORDS_PER_TURN`` at a time, so that the caller can yield in between.

    Control batches are left out.

    Raises:
        CorruptLog: a batch does not pass its CRC, does not parse, or does not
            follow the one before it; what was yielded before is good.
    """
    position, expected = 0, -1
    batches = fetched.batches
    while position < len(batches):
        try:
            header = rb.check_batch(batches, position)
            follows = header.base_offset == expected if expected >= 0 else header.base_offset <= offset
            if not follows or header.last_offset < offset:
                raise rb.CorruptBatchError(f"base offset is {header.base_offset}", position=position)
            if not header.is_control:
                for records in rb.decode_slices(batches, header, RECORDS_PER_TURN):
                    if records[0].offset >= offset:
                        yield records
                    elif records[-1].offset >= offset:
                        yield [record for record in records if record.offset >= offset]
        except rb.CorruptBatchError as error:
            raise _corrupt(fetched, position, max(offset, expected), error.reason) from error
        expected = header.next_offset
        position += header.size


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
    return CorruptLog(
        path=fetched.path or Path(f"{fetched.topic}-{fetched.partition}"),
        position=fetched.position + position,
        offset=offset,
        next_offset=next_offset,
        reason=reason,
    )
