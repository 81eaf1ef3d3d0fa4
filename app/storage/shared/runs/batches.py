"""Batches out of the bytes of a run: checked, and with their offsets written in.

The functions are pure. ``cut`` walks whole batches from the start of the bytes, so a reader gives it bytes
that begin at a batch.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import NamedTuple

import crc32c
from stele.wire import record_batch as rb

from ...recovery.checkpoint import LeaderEpochs
from .object_format import Buffer
from .sparse_index import SparseIndexBuilder

_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_LAST_DELTA_AT = 23
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_UINT = struct.Struct(">I")
# In the bytes of objects: readers get the epoch that the metadata name.
_NO_EPOCH = -1


class CorruptRunError(ValueError):
    """The bytes of a run differ from those that were written; ``position`` is where the batch begins."""

    def __init__(self, reason: str, *, position: int) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class Cut(NamedTuple):
    """``batches`` are whole; ``next_offset`` is that of the batch at ``position``, where the walk stopped.

    ``needed_bytes`` of the batch there are needed to go on; 0 if the walk stopped because of the limit.
    ``empty`` is the last batch without records that was left out, if nothing but such batches was found.
    """

    batches: bytearray
    next_offset: int
    position: int
    needed_bytes: int
    empty: bytes = b""


def cut(
    data: Buffer,
    base_offset: int,
    *,
    from_offset: int,
    end_offset: int | None = None,
    max_bytes: int,
    at_least_one: bool,
    epochs: LeaderEpochs,
) -> Cut:
    """Return the batches from ``from_offset`` on within ``max_bytes``.

    They have their offsets and leader epochs. None begins at or after ``end_offset``.

    ``data`` begins with the batch of ``base_offset``. With ``at_least_one`` the first batch may be larger.

    Raises:
        CorruptRunError: a batch is damaged.
    """
    batches = bytearray()
    position, end = 0, len(data)
    while position < end:
        if end_offset is not None and base_offset >= end_offset:
            return Cut(batches, base_offset, position, 0)
        if end - position < rb.HEADER_BYTES:
            return Cut(batches, base_offset, position, rb.HEADER_BYTES)
        size, next_offset = _measure(data, position, base_offset)
        if next_offset > from_offset:
            if len(batches) + size > max_bytes and (batches or not at_least_one):
                return Cut(batches, base_offset, position, 0)
            if position + size > end:
                return Cut(batches, base_offset, position, size)
            _check_crc(data, position, size)
            start = len(batches)
            batches += memoryview(data)[position : position + size]
            rb.assign_offsets(batches, start, base_offset, epochs.epoch_at(base_offset))
        position += size
        base_offset = next_offset
    return Cut(batches, base_offset, position, rb.HEADER_BYTES)


def cut_cleaned(
    data: Buffer,
    base_offset: int,
    *,
    from_offset: int,
    end_offset: int | None = None,
    max_bytes: int,
    at_least_one: bool,
    skip_empty: bool,
    epochs: LeaderEpochs,
) -> Cut:
    """Return batches as ``cut`` does, from a run of compaction or of copies: there may be holes.

    ``base_offset`` is that of the first batch, or before it. With ``skip_empty`` batches without records are left
    out before the first that has some, because some clients do not advance past an answer of empty batches.

    Raises:
        CorruptRunError: a batch is damaged, or offsets do not ascend.
    """
    batches, empty = bytearray(), b""
    position, end = 0, len(data)
    while position < end:
        if end - position < rb.HEADER_BYTES:
            return Cut(batches, base_offset, position, rb.HEADER_BYTES, empty)
        size, first_offset, next_offset = _measure_cleaned(data, position, base_offset)
        if end_offset is not None and first_offset >= end_offset:
            return Cut(batches, base_offset, position, 0, empty)
        if next_offset > from_offset:
            if len(batches) + size > max_bytes and (batches or not at_least_one):
                return Cut(batches, base_offset, position, 0, empty)
            if position + size > end:
                return Cut(batches, base_offset, position, size, empty)
            _check_crc(data, position, size)
            if skip_empty and not batches and not rb.read_header(data, position).record_count:
                empty = bytes(memoryview(data)[position : position + size])
            else:
                empty = b""
                start = len(batches)
                batches += memoryview(data)[position : position + size]
                rb.assign_offsets(batches, start, first_offset, epochs.epoch_at(first_offset))
        position += size
        base_offset = next_offset
    return Cut(batches, base_offset, position, rb.HEADER_BYTES, empty)


def batches_of(
    run: bytearray, base_offset: int, *, is_cleaned: bool
) -> Generator[tuple[bytes, rb.BatchHeader]]:
    """Yield every batch of a whole run, checked, with its offsets; ``header.position`` is 0.

    Raises:
        CorruptRunError: a batch is damaged or cut short, or offsets do not ascend.
    """
    position = 0
    while position < len(run):
        if len(run) - position < rb.HEADER_BYTES:
            raise CorruptRunError("the run ends inside a batch header", position=position)
        if is_cleaned:
            size, first_offset, next_offset = _measure_cleaned(run, position, base_offset)
        else:
            first_offset = base_offset
            size, next_offset = _measure(run, position, base_offset)
        if position + size > len(run):
            raise CorruptRunError("the run ends inside a batch", position=position)
        _check_crc(run, position, size)
        if not is_cleaned:
            rb.assign_offsets(run, position, first_offset, _NO_EPOCH)
        batch = bytes(memoryview(run)[position : position + size])
        try:
            header = rb.read_header(batch)
        except rb.CorruptBatchError as error:
            raise CorruptRunError(error.reason, position=position) from error
        yield batch, header
        position += size
        base_offset = next_offset


def index_run(run: bytearray, base_offset: int) -> tuple[bytes, int]:
    """Check a run, write offsets into it, and return sparse index and next offset.

    Raises:
        CorruptRunError: a batch is damaged or cut short.
    """
    builder = SparseIndexBuilder()
    position, offset = 0, base_offset
    while position < len(run):
        if len(run) - position < rb.HEADER_BYTES:
            raise CorruptRunError("the run ends inside a batch header", position=position)
        size, next_offset = _measure(run, position, offset)
        if position + size > len(run):
            raise CorruptRunError("the run ends inside a batch", position=position)
        _check_crc(run, position, size)
        rb.assign_offsets(run, position, offset, _NO_EPOCH)
        builder.add(offset - base_offset, position)
        position += size
        offset = next_offset
    return builder.build(), offset


def _measure(data: Buffer, position: int, base_offset: int) -> tuple[int, int]:
    """Return the size of a batch and the offset after it."""
    (length,) = _INT.unpack_from(data, position + _LENGTH_AT)
    (last_delta,) = _INT.unpack_from(data, position + _LAST_DELTA_AT)
    if data[position + _MAGIC_AT] != rb.MAGIC or last_delta < 0:
        raise CorruptRunError("no batch begins here", position=position)
    if length < rb.HEADER_BYTES - rb.LOG_OVERHEAD_BYTES:
        raise CorruptRunError(f"the batch length is {length}", position=position)
    return length + rb.LOG_OVERHEAD_BYTES, base_offset + last_delta + 1


def _measure_cleaned(data: Buffer, position: int, base_offset: int) -> tuple[int, int, int]:
    """Return the size of a batch, its first offset and the offset after it."""
    (first_offset,) = _LONG.unpack_from(data, position)
    if first_offset < base_offset:
        raise CorruptRunError(f"base offset is {first_offset}, after {base_offset - 1}", position=position)
    size, next_offset = _measure(data, position, first_offset)
    return size, first_offset, next_offset


def _check_crc(data: Buffer, position: int, size: int) -> None:
    (expected,) = _UINT.unpack_from(data, position + _CRC_AT)
    actual = crc32c.crc32c(memoryview(data)[position + rb.CRC_START : position + size])
    if actual != expected:
        raise CorruptRunError(
            f"CRC-32C is {actual:#010x}, the batch says {expected:#010x}", position=position
        )
