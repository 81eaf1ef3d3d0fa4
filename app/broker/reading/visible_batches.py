"""Selects the batches that are visible to a reader.

Two kinds of batches are hidden. *Control batches*, which hold markers, are hidden from every
reader. With READ_COMMITTED so are the batches of aborted transactions: a batch has one producer,
so it is hidden as a whole, and its records are never decoded::

    offset      10      12     14   15      18
    batch      [A   ]  [B  ]  [ab] [A   ]  [co]     A: producer 7, aborted from 10 to 14
    hidden      ----           --           --      ab, co: markers

A hidden batch still takes its offsets. Readers of headers see it as a batch without records, and
readers of bytes get a *placeholder* for it: a batch of 61 bytes with the same offsets and no
records, as compaction leaves them. So every reader moves past it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import crc32c
from stele.wire import record_batch as rb

from ...storage.cleaning.transactions import AbortedBatches
from ...storage.engine import PartitionRead
from ...work_budget import pause

_CONTROL = 0x20
_INT32_MAX = 2**31 - 1
# Finding the next batch takes about 0.2 µs, and checking one 5 µs.
_BATCHES_PER_TURN, _CHECKED_PER_TURN = 1024, 128


def read_bound(read: PartitionRead) -> int:
    """Return the offset before which ``read`` could return batches.

    The last stable offset with READ_COMMITTED, otherwise the high watermark.
    """
    return read.high_watermark if read.aborted is None else read.last_stable_offset


def end_of(read: PartitionRead, offset: int) -> int:
    """Return the offset after ``read``, which began at ``offset``.

    A reader continues from there.

    That after the last batch, whether or not its records are visible. Only that one is parsed: a read may have
    thousands.
    """
    batches = read.batches
    with suppress(rb.CorruptBatchError):
        last = rb.read_header(batches, max(0, rb.last_position(batches)))
        return max(offset, last.next_offset)
    position = 0
    while position < len(batches):
        try:
            header = rb.read_header(batches, position)
        except rb.CorruptBatchError:
            break
        offset, position = max(offset, header.next_offset), position + header.size
    return offset


def brings_all(read: PartitionRead, offset: int) -> bool:
    """Return whether ``read`` has everything from ``offset`` to its bound.

    False if its limits were reached.
    """
    return end_of(read, offset) >= read_bound(read)


def hidden_by(read: PartitionRead) -> Callable[[rb.BatchHeader], bool]:
    """Return a function that says whether a batch of ``read`` is hidden."""
    if not read.aborted:
        return _is_control
    aborted = AbortedBatches(read.aborted)
    return lambda header: header.is_control or header in aborted


def without_records(header: rb.BatchHeader) -> rb.BatchHeader:
    """Return ``header`` as that of a batch without records, at the same position."""
    return replace(header, record_count=0)


async def visible_bytes(read: PartitionRead) -> bytes | bytearray:
    """Return the batches of ``read``, with a placeholder per run of hidden ones.

    They are returned uncopied if none is hidden. A batch that does not pass its CRC stays as it
    is, so that the reader reports it; a batch is hidden only if it does.
    """
    batches = read.batches
    if not read.aborted and not await _has_control(batches):
        return batches
    is_hidden = hidden_by(read)
    parts: list[bytes | memoryview] = []
    view = memoryview(batches)
    position = copied = count = 0
    # The first and last headers of the run of hidden batches that ends at ``position``.
    run: tuple[rb.BatchHeader, rb.BatchHeader] | None = None
    while position < len(batches):
        try:
            header = rb.read_header(batches, position)
            if hides := is_hidden(header):
                rb.check_batch(batches, position)
        except rb.CorruptBatchError:
            break
        if hides and run is not None and _continues(run, header):
            run = run[0], header
        else:
            if run is not None:
                parts.append(_placeholder(*run))
                copied, run = position, None
            if hides:
                parts.append(view[copied:position])
                run = header, header
        position += header.size
        if run is not None:
            copied = position
        count += 1
        if count % _CHECKED_PER_TURN == 0:
            await pause()
    if run is not None:
        parts.append(_placeholder(*run))
    parts.append(view[copied:])
    return b"".join(parts)


async def _has_control(batches: bytes | bytearray) -> bool:
    position = count = 0
    while position + rb.HEADER_BYTES <= len(batches):
        # The low byte of the attributes.
        if batches[position + 22] & _CONTROL:
            return True
        position += rb.LOG_OVERHEAD_BYTES + int.from_bytes(batches[position + 8 : position + 12], "big")
        count += 1
        if count % _BATCHES_PER_TURN == 0:
            await pause()
    return False


def _continues(run: tuple[rb.BatchHeader, rb.BatchHeader], header: rb.BatchHeader) -> bool:
    """Return whether one placeholder can stand for ``run`` and the batch after it."""
    first, last = run
    return header.base_offset == last.next_offset and header.last_offset - first.base_offset <= _INT32_MAX


def _placeholder(first: rb.BatchHeader, last: rb.BatchHeader) -> bytes:
    """Return a batch without records for the offsets from ``first`` to ``last``."""
    batch = bytearray(
        rb.HEADER.pack(
            first.base_offset,
            rb.HEADER_BYTES - rb.LOG_OVERHEAD_BYTES,
            first.partition_leader_epoch,
            rb.MAGIC,
            0,
            0,
            last.last_offset - first.base_offset,
            rb.NO_TIMESTAMP,
            rb.NO_TIMESTAMP,
            rb.NO_PRODUCER_ID,
            -1,
            -1,
            0,
        )
    )
    struct.pack_into(">I", batch, 17, crc32c.crc32c(memoryview(batch)[rb.CRC_START :]))
    return bytes(batch)


def _is_control(header: rb.BatchHeader) -> bool:
    return header.is_control
