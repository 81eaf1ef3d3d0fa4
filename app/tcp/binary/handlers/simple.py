"""CONSUME and FLUSH of ADR-0009.

PRODUCE arrives in runs, which the connection appends together.
"""

from __future__ import annotations

from contextlib import aclosing

from stele.wire import messages as m
from stele.wire.record_batch import RecordView

from ....broker.reading.fetch import PartitionFetch, end_of, records_in_turns
from ....errors import InvalidRequest, SteleError
from ....storage.engine import OFFSET_MAX
from ...response_queue import Buffers
from .context import BinaryListener

# CONSUME responses are bounded by a batch size in messages; this bounds them in bytes.
CONSUME_BYTES_MAX = 4 * 1024 * 1024
_CONSUME_FIRST_READ_BYTES = 64 * 1024
# What one request reads at most, most of which hidden batches may take.
_CONSUME_READ_BYTES_MAX = 64 * 1024 * 1024


async def consume(listener: BinaryListener, request: m.ConsumeRequest) -> Buffers:
    """Answer with up to ``batch_size`` messages of partition 0; a tombstone is a message of no bytes.

    Only committed records are returned. There may be none although the next offset is past the requested one.
    """
    if request.batch_size < 1:
        raise InvalidRequest(f"batch size is {request.batch_size}; ask for at least one message")
    reader = listener.broker.decoded.reader()
    frame_bytes_max = listener.broker.settings.frame_bytes_max
    messages: list[tuple[int, bytes]] = []
    offset, size, read_bytes = request.offset, 0, 0
    wanted_bytes = _CONSUME_FIRST_READ_BYTES
    bytes_max = listener.broker.unread.bytes_of_fetch(CONSUME_BYTES_MAX)
    while len(messages) < request.batch_size and size < bytes_max and read_bytes < _CONSUME_READ_BYTES_MAX:
        (fetched,) = await listener.broker.fetch(
            [
                PartitionFetch(
                    topic=request.topic,
                    partition=0,
                    offset=offset,
                    max_bytes=wanted_bytes,
                    # After that, some of what was read is hidden.
                    until_offset=OFFSET_MAX if read_bytes else offset + request.batch_size,
                )
            ],
            max_bytes=bytes_max,
        )
        if fetched.error is not None:
            # What was read before the corrupt range is served first.
            if messages:
                break
            raise fetched.error
        if not fetched.batches:
            break
        read_bytes += len(fetched.batches)
        try:
            async with aclosing(records_in_turns(fetched, offset, reader)) as slices:
                async for records in slices:
                    if not messages:
                        _check_fits(records[0], request.topic, frame_bytes_max)
                    offset, size = _take(records, messages, offset, size, request.batch_size, bytes_max)
                    if len(messages) >= request.batch_size or size >= bytes_max:
                        break
                else:
                    # The last batch may be hidden, or compaction may have removed its last records.
                    offset = end_of(fetched, offset)
        except SteleError:
            if not messages:
                raise
            break
        wanted_bytes = bytes_max - size
    return m.ConsumeResponse(next_offset=offset, messages=messages).encode()


def _check_fits(record: RecordView, topic: str, frame_bytes_max: int) -> None:
    """Raises ``InvalidRequest``."""
    size = len(record.value or b"")
    if size > frame_bytes_max:
        raise InvalidRequest(
            f"the record at offset {record.offset} of {topic}-0 has {size} bytes, more than frame_bytes_max "
            f"({frame_bytes_max}); read its batch with FETCH, or read it over HTTP"
        )


def _take(
    records: list[RecordView],
    messages: list[tuple[int, bytes]],
    offset: int,
    size: int,
    batch_size: int,
    bytes_max: int,
) -> tuple[int, int]:
    """Add ``records`` to ``messages`` up to the limits; returns the next offset and the bytes so far."""
    for record in records:
        data = record.value or b""
        if messages and size + len(data) > bytes_max:
            return offset, bytes_max
        messages.append((record.offset, data))
        offset, size = record.offset + 1, size + len(data)
        if len(messages) >= batch_size:
            break
    return offset, size


async def flush(listener: BinaryListener, request: m.FlushRequest) -> Buffers:
    await listener.broker.flush()
    return m.FlushResponse().encode()
