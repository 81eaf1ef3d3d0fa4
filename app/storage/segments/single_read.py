"""Find whole batches and read them, with one read of the file.

The search of ``reader`` reads headers first and the batches afterwards. On the event loop most reads need
less: the offset index says where to begin, the bytes that the reader may have are read from there, and the batches
are found in them. The result is the same. Whatever is unusual (holes, corrupt ranges, batches that do not fit, a
batch larger than the limit, bytes that are not in memory) is left to the search.
"""

from __future__ import annotations

from stele.wire import record_batch as rb

from .segment import Segment

# Base offset, batch length, leader epoch, magic, CRC, attributes, last offset delta.
_HEAD = rb.HEADER
_LENGTH_MIN = rb.HEADER_BYTES - rb.LOG_OVERHEAD_BYTES
# Of the batches before the one that is wanted, and of the one after the last, whose header is looked at.
_LOOKED_AT_MAX = 16 * 1024

# A batch's base offset, the offset after it, and the position after it.
_Batch = tuple[int, int, int]


def read_at_once(
    segment: Segment, offset: int, max_bytes: int, *, end_offset: int
) -> tuple[int, bytes | bytearray] | None:
    """Return what ``reader.extent_from`` finds, as its position and bytes.

    None if it must be searched for. For the event loop; raises ``OSError``.
    """
    if segment.may_have_holes or segment.corrupt_ranges:
        return None
    indexes = segment.indexes
    index = indexes.offsets(segment.size)
    last_offset, last_position = segment.last_append
    if offset >= last_offset:
        start = last_position
    else:
        start, after = index.positions_around(offset - segment.base_offset)
        if after - start > _LOOKED_AT_MAX // 2 and offset > segment.base_offset:
            # Batches are large, and each has an entry of its last offset. So this one most likely has the later entry.
            start = after
    left = segment.size - start
    looked_at = min(2 * indexes.interval_bytes, _LOOKED_AT_MAX) + rb.HEADER_BYTES
    buffer = segment.file().read_at_nowait(start, min(left, max_bytes + looked_at))
    if buffer is None:
        return None
    found = _batch_with(buffer, offset, -1 if start else segment.base_offset)
    if found is None:
        return None
    first, (base_offset, next_offset, end) = found
    if end - first > max_bytes or end > len(buffer) or base_offset >= end_offset:
        return None
    # The next header confirms that this batch really includes the offset.
    if end == left:
        if next_offset != segment.next_offset:
            return None
    else:
        following = _batch_at(buffer, end)
        if following is None or following[0] != next_offset or following[2] > left:
            return None
    limit, first_end = first + max_bytes, end
    end = left
    if limit < left:
        end = max(first_end, index.position_before(start + limit) - start)
        if end < limit - indexes.interval_bytes:
            end = _boundary_before(buffer, end, limit, left)
    if end_offset < segment.next_offset:
        position = index.position_for(end_offset - segment.base_offset) - start
        end = min(end, _position_of(buffer, max(position, first), end, end_offset))
    if not first_end <= end <= len(buffer):
        return None
    return start + first, _cut(buffer, first, end)


def _batch_at(buffer: bytes | bytearray, position: int) -> _Batch | None:
    """Return the batch at ``position``.

    None if its header is not complete or not valid.
    """
    if position + rb.HEADER_BYTES > len(buffer):
        return None
    header = _HEAD.unpack_from(buffer, position)
    base_offset, length, last_delta = header[0], header[1], header[6]
    # An empty batch is one that compaction left.
    if header[3] != rb.MAGIC or length < _LENGTH_MIN or base_offset < 0 or last_delta < 0 or header[12] <= 0:
        return None
    return base_offset, base_offset + last_delta + 1, position + rb.LOG_OVERHEAD_BYTES + length


def _batch_with(buffer: bytes | bytearray, offset: int, expected: int) -> tuple[int, _Batch] | None:
    """Return the batch with ``offset`` and its position.

    ``expected`` is the first offset of ``buffer``, -1 if unknown.
    """
    position = 0
    while (batch := _batch_at(buffer, position)) is not None:
        base_offset, next_offset, end = batch
        if base_offset > offset or (expected >= 0 and base_offset != expected):
            return None
        if next_offset > offset:
            return position, batch
        position, expected = end, next_offset
    return None


def _boundary_before(buffer: bytes | bytearray, position: int, limit: int, left: int) -> int:
    """Return the last boundary up to ``limit``; -1 if it cannot be seen.

    ``position`` is a boundary, and the segment ends at ``left``.
    """
    expected = -1
    while (batch := _batch_at(buffer, position)) is not None:
        if batch[2] > left or (expected >= 0 and batch[0] != expected):
            return -1
        if batch[2] > limit:
            return position
        position, expected = batch[2], batch[1]
    return -1


def _position_of(buffer: bytes | bytearray, position: int, end: int, offset: int) -> int:
    """Return where the first batch at or after ``offset`` begins.

    ``end`` if there is none before it, -1 if it cannot be seen. ``position`` is a boundary.
    """
    expected = -1
    while position < end:
        batch = _batch_at(buffer, position)
        if batch is None or (expected >= 0 and batch[0] != expected):
            return -1
        if batch[0] >= offset:
            return position
        position, expected = batch[2], batch[1]
    return end


def _cut(buffer: bytes | bytearray, start: int, end: int) -> bytes | bytearray:
    if isinstance(buffer, bytes):
        return buffer[start:end]
    # Neither copies the rest.
    del buffer[end:]
    del buffer[:start]
    return buffer
