"""Scan the batches of a ``.log`` file, and find the next after corrupt bytes.

A scan does not stop at the first bad byte: it yields the corrupt range and
continues with the next whole batch whose CRC matches. ``recovery.unclean_start`` decides what to
do about a corrupt range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import crc32c
from stele.wire import record_batch as rb

# One read of a scan; a batch larger than this is read on its own.
WINDOW_BYTES = 4 * 1024 * 1024
# No batch is larger: the bound of max.message.bytes.
BATCH_BYTES_MAX = 64 * 1024 * 1024


class ReadableFile(Protocol):
    """The interface of a file that a scan reads."""

    def size(self) -> int: ...
    def read_at(self, position: int, size: int) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptRange:
    """Bytes ``[position, end_position)`` that hold no valid batch.

    ``offset`` is the first offset that cannot be read and ``next_offset`` the
    first one after the range; at the end of a file both are equal. ``is_blank``: from
    ``position`` to the end of the file there are only zeros, which is space that was
    allocated ahead of records (``space_ahead``), or bytes that never reached the disk.
    """

    position: int
    end_position: int
    offset: int
    next_offset: int
    reason: str
    is_blank: bool = False


def scan_batches(
    file: ReadableFile,
    *,
    expected_offset: int,
    position: int = 0,
    end: int | None = None,
    may_have_holes: bool = False,
) -> Iterator[rb.BatchHeader | CorruptRange]:
    """Yield every checked batch from ``position`` to ``end``, and corrupt ranges.

    ``expected_offset`` is the base offset that must stand at ``position``. Offsets
    have no holes, so a batch with another base offset is corrupt too, unless the
    log was compacted (``may_have_holes``): then it may have a later one, and fewer
    records than offsets.
    """
    end = file.size() if end is None else end
    window, window_start = b"", position
    while position < end:
        if position + rb.HEADER_BYTES > window_start + len(window):
            window, window_start = file.read_at(position, min(WINDOW_BYTES, end - position)), position
        at = position - window_start
        try:
            header = rb.read_header(window, at)
            if position + header.size > end:
                raise rb.TruncatedBatchError("the batch is cut short by the end of the file")
            if at + header.size > len(window):
                window, at = file.read_at(position, max(header.size, min(WINDOW_BYTES, end - position))), 0
                window_start = position
            header = rb.check_batch(window, at)
            if not follows(header, expected_offset, may_have_holes=may_have_holes):
                raise rb.CorruptBatchError(f"base offset is {header.base_offset}, expected {expected_offset}")
            if not _has_its_count(header, may_have_holes=may_have_holes):
                raise rb.CorruptBatchError("record count and last offset delta do not agree")
        except rb.CorruptBatchError as error:
            next_batch = _next_batch(file, position, end, expected_offset, may_have_holes=may_have_holes)
            next_position, next_offset = next_batch or (end, expected_offset)
            yield CorruptRange(
                position=position,
                end_position=next_position,
                offset=expected_offset,
                next_offset=next_offset,
                reason=error.reason,
                is_blank=next_batch is None and _is_blank(file, position, end),
            )
            position, expected_offset = next_position, next_offset
            continue
        header.position = position
        yield header
        position += header.size
        expected_offset = header.next_offset


def follows(header: rb.BatchHeader, expected_offset: int, *, may_have_holes: bool) -> bool:
    """Return whether a batch may come where ``expected_offset`` is the next offset."""
    if may_have_holes:
        return header.base_offset >= expected_offset
    return header.base_offset == expected_offset


def _has_its_count(header: rb.BatchHeader, *, may_have_holes: bool) -> bool:
    if may_have_holes:
        return 0 <= header.record_count <= header.last_offset_delta + 1
    return header.last_offset_delta == header.record_count - 1


def _is_blank(file: ReadableFile, position: int, end: int) -> bool:
    """Return whether there are only zeros from ``position`` to ``end``, or nothing."""
    while position < end:
        data = file.read_at(position, min(WINDOW_BYTES, end - position))
        if not data or data.count(0) != len(data):
            return False
        position += len(data)
    return True


def _next_batch(
    file: ReadableFile, position: int, end: int, expected_offset: int, *, may_have_holes: bool
) -> tuple[int, int] | None:
    """Return ``(position, base offset)`` of the next batch, if there is one.

    ``position`` is that of a corrupt batch.

    Values may hold batches of other logs, so the first bytes that look like a batch
    need not be a batch of this log. The length in the corrupt header says where the
    batch ended. If the length itself is wrong, the CRC tells, because it does not cover
    the length: it matches the bytes up to the end of the batch.
    """
    raw = file.read_at(position, min(rb.HEADER_BYTES, end - position))
    if len(raw) < rb.HEADER_BYTES:
        return None
    search = _Search(file, expected_offset, may_have_holes)
    base_offset, batch_length, _, magic, crc_expected = rb.HEADER.unpack(raw)[:5]
    claimed_end = position + rb.LOG_OVERHEAD_BYTES + batch_length
    if claimed_end > position + rb.HEADER_BYTES:
        at_claimed_end = next(_valid_batches(search, claimed_end, claimed_end + 1, end), None)
        if at_claimed_end is not None:
            return at_claimed_end
    first: tuple[int, int] | None = None
    crc, crc_end = 0, position + rb.CRC_START
    stop = min(end, position + BATCH_BYTES_MAX)
    for candidate in _valid_batches(search, position + rb.HEADER_BYTES, stop, end):
        first = first or candidate
        crc = crc32c.crc32c(file.read_at(crc_end, candidate[0] - crc_end), crc)
        crc_end = candidate[0]
        if crc == crc_expected:
            return candidate
    is_expected = base_offset >= expected_offset if may_have_holes else base_offset == expected_offset
    # A corrupt length may be negative.
    claims_rest = claimed_end > position + rb.HEADER_BYTES and _is_blank(file, claimed_end, end)
    if is_expected and magic == rb.MAGIC and claims_rest:
        # This is the last batch, torn, perhaps with space after it: what looks like batches is inside it.
        return None
    return first


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for the next batch of a log after a corrupt range."""

    file: ReadableFile
    expected_offset: int
    may_have_holes: bool


def _valid_batches(search: _Search, position: int, stop: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield ``(position, base offset)`` of apparent batches that start before a stop.

    The stop is ``stop``.
    """
    file = search.file
    while position < stop and position + rb.HEADER_BYTES <= end:
        window = file.read_at(position, min(WINDOW_BYTES, end - position))
        at = window.find(b"\x02", 16)
        while at != -1 and position + at - 16 < stop:
            start = at - 16
            if len(window) - start < rb.HEADER_BYTES:
                break
            if _is_valid(search, window, start, position + start, end):
                yield position + start, int.from_bytes(window[start : start + 8], "big")
            at = window.find(b"\x02", at + 1)
        # Windows overlap by a header, so that no batch is missed at the border.
        position += max(1, len(window) - rb.HEADER_BYTES + 1)


def _is_valid(search: _Search, window: bytes, at: int, position: int, end: int) -> bool:
    try:
        header = rb.read_header(window, at)
        # A corrupt range costs at least one offset, and not absurdly many.
        if not 0 < header.base_offset - search.expected_offset < 2**31 or position + header.size > end:
            return False
        rb.check_batch(search.file.read_at(position, header.size))
    except rb.CorruptBatchError:
        return False
    return _has_its_count(header, may_have_holes=search.may_have_holes)
