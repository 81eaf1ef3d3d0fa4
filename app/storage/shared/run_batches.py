"""Batches out of the bytes of a run: checked, and with their offsets written in.

The functions are pure. ``cut`` walks whole batches from the start of the bytes, so a reader gives it bytes
that begin at a batch.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import crc32c
from stele.wire import record_batch as rb

from .object_format import Buffer
from .shared_log import LEADER_EPOCH
from .sparse_index import SparseIndexBuilder

_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_LAST_DELTA_AT = 23
_INT = struct.Struct(">i")
_UINT = struct.Struct(">I")


class CorruptRunError(ValueError):
    """The bytes of a run differ from those that were written; ``position`` is where the batch begins."""

    def __init__(self, reason: str, *, position: int) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class Cut(NamedTuple):
    """``batches`` are whole; ``next_offset`` is that of the batch at ``position``, where the walk stopped.

    ``needed_bytes`` of the batch there are needed to go on; 0 if the walk stopped because of the limit.
    """

    batches: bytearray
    next_offset: int
    position: int
    needed_bytes: int


def cut(data: Buffer, base_offset: int, *, from_offset: int, max_bytes: int, at_least_one: bool) -> Cut:
    """Return the batches that end at or after ``from_offset``, within ``max_bytes``, with their offsets.

    ``data`` begins with the batch of ``base_offset``. With ``at_least_one`` the first batch may be larger.

    Raises:
        CorruptRunError: a batch is damaged.
    """
    batches = bytearray()
    position, end = 0, len(data)
    while position < end:
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
            rb.assign_offsets(batches, start, base_offset, LEADER_EPOCH)
        position += size
        base_offset = next_offset
    return Cut(batches, base_offset, position, rb.HEADER_BYTES)


def index_run(run: bytearray, base_offset: int) -> tuple[bytes, int]:
    """Check a whole run, write the offsets into it, and return its sparse index and its next offset.

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
        rb.assign_offsets(run, position, offset, LEADER_EPOCH)
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


def _check_crc(data: Buffer, position: int, size: int) -> None:
    (expected,) = _UINT.unpack_from(data, position + _CRC_AT)
    actual = crc32c.crc32c(memoryview(data)[position + rb.CRC_START : position + size])
    if actual != expected:
        raise CorruptRunError(
            f"CRC-32C is {actual:#010x}, the batch says {expected:#010x}", position=position
        )
