"""Appends that wait for their object, and how they are packed into one.

A broker has one buffer for all partitions. A *rotation* takes what is in it and packs it into one
object: the appends of each partition follow each other, in the order of the calls. Bytes count as
buffered until the rotation has ended, with or without success, so that a slow store or a slow
database cannot fill the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c
from stele.wire.control_record import MarkerType
from stele.wire.record_batch import NO_TIMESTAMP, BatchHeader

from ..engine import AppendTicket
from ..transactional_produce import TransactionalProduce
from .log import SharedLog
from .meta import ExpectedEnd, PartitionId, RunWrite, TransactionClaim
from .runs.object_format import NO_OFFSET, Buffer, ObjectRun, SequenceExtent, footer_bytes, header_bytes

# What an append takes besides its batches: its headers, its ticket, its part of the footer.
_APPEND_OVERHEAD_BYTES = 512


@dataclass(slots=True, kw_only=True)
class QueuedAppend:
    """One append that waits for its commit.

    ``position`` is that of its first batch in the object, once it is packed. ``future`` ends when the
    append is committed, or with the error that prevents it. ``is_abort``: it is the marker of an abort. ``copies`` has the
    type of the marker in each batch of a mirror (None: none); they are stored at the offsets that they have, if the log
    ends at ``expected_end``.
    """

    log: SharedLog
    batches: Buffer
    headers: list[BatchHeader]
    ticket: AppendTicket
    future: asyncio.Future[None]
    log_append_time_ms: int
    needs_state: bool = False
    is_abort: bool = False
    transaction: TransactionalProduce | None = None
    expected_end: int | None = None
    copies: Sequence[MarkerType | None] | None = None
    position: int = -1

    @property
    def offset_count(self) -> int:
        return sum(header.last_offset_delta + 1 for header in self.headers)

    @property
    def size(self) -> int:
        return len(self.batches)

    @property
    def buffered_bytes(self) -> int:
        return len(self.batches) + _APPEND_OVERHEAD_BYTES


class PackedObject(NamedTuple):
    data: bytes
    runs: list[ObjectRun]


@dataclass(slots=True)
class Rotation:
    """The appends of one object, by partition.

    ``number`` counts the rotations of a broker, from 0.
    """

    number: int
    by_log: dict[SharedLog, list[QueuedAppend]] = field(default_factory=dict[SharedLog, list[QueuedAppend]])
    buffered_bytes: int = 0

    @property
    def appends(self) -> list[QueuedAppend]:
        return [append for appends in self.by_log.values() for append in appends]

    def pack(self) -> PackedObject:
        """Return the object; afterwards every append knows its position."""
        parts: list[Buffer] = [header_bytes()]
        position = len(parts[0])
        runs: list[ObjectRun] = []
        for log, appends in self.by_log.items():
            start = position
            for append in appends:
                append.position = position
                parts.append(append.batches)
                position += append.size
            written = [(append.batches, append.headers) for append in appends]
            are_copies = all(append.copies is not None for append in appends)
            runs.append(object_run(log.partition_id, written, start, position - start, are_copies=are_copies))
        parts.append(footer_bytes(runs))
        return PackedObject(b"".join(parts), runs)


def object_run(
    partition_id: PartitionId,
    written: Sequence[tuple[Buffer, Sequence[BatchHeader]]],
    position: int,
    length: int,
    *,
    are_copies: bool = False,
) -> ObjectRun:
    """Return what the footer of an object says of the batches of one partition.

    With ``are_copies`` they have their own offsets, and so it needs to say nothing of their producers.
    """
    crc, offsets, newest_ms = 0, 0, NO_TIMESTAMP
    base_offset = written[0][1][0].base_offset if are_copies else NO_OFFSET
    sequences: list[SequenceExtent] = []
    for batches, headers in written:
        crc = crc32c.crc32c(batches, crc)
        for header in headers:
            if header.has_producer_id and not are_copies:
                sequences.append(
                    SequenceExtent(
                        offsets,
                        header.producer_id,
                        header.producer_epoch,
                        header.base_sequence,
                        header.last_offset_delta + 1,
                    )
                )
            offsets = (
                header.next_offset - base_offset if are_copies else offsets + header.last_offset_delta + 1
            )
            newest_ms = max(newest_ms, header.max_timestamp)
    return ObjectRun(
        topic_id=partition_id.topic_id,
        partition=partition_id.partition,
        position=position,
        length=length,
        offset_count=offsets,
        max_timestamp_ms=newest_ms,
        crc=crc,
        base_offset=base_offset,
        sequences=tuple(sequences),
    )


def run_write(log: SharedLog, appends: Sequence[QueuedAppend]) -> RunWrite:
    """Return appends that follow each other in an object, as the metadata commit them."""
    headers: list[BatchHeader] = []
    aborts: set[int] = set()
    needs_state: set[int] = set()
    claims: dict[int, TransactionClaim] = {}
    expected_ends: dict[int, ExpectedEnd] = {}
    copies: dict[int, MarkerType | None] = {}
    for append in appends:
        # A batch of a producer, and so a marker, comes alone; so does that of a conditional append.
        if append.is_abort:
            aborts.add(len(headers))
        if append.needs_state:
            needs_state.add(len(headers))
        if append.transaction is not None:
            claims[len(headers)] = TransactionClaim(append.transaction, log.topic_partition)
        if append.expected_end is not None:
            expected_ends[len(headers)] = ExpectedEnd(append.expected_end, log.topic_partition)
        for at, marker in enumerate(append.copies or ()):
            # None is stored if the one before was refused, or the hole between them would be taken for one of the source.
            copies[len(headers) + at] = marker
            if at:
                expected_ends[len(headers) + at] = ExpectedEnd(
                    append.headers[at - 1].next_offset, log.topic_partition
                )
        headers += append.headers
    return RunWrite(
        log_id=log.log_id,
        position=appends[0].position,
        headers=headers,
        aborts=frozenset(aborts),
        needs_state=frozenset(needs_state),
        claims=claims,
        expected_ends=expected_ends,
        copies=copies,
    )


class WriteBuffer:
    """The appends since the last rotation, and the count of uncommitted bytes."""

    def __init__(self, *, object_bytes: int, buffered_bytes_max: int) -> None:
        self._object_bytes = object_bytes
        self._buffered_bytes_max = buffered_bytes_max
        self._next_number = 0
        self._rotation: Rotation | None = None
        # Of all rotations that have not ended, and of the one that is being filled.
        self.buffered_bytes = 0

    def has_room(self, size: int) -> bool:
        """Return whether an append of ``size`` bytes is within the bound.

        A single append always is when nothing is buffered, so that none is refused for good.
        """
        return not self.buffered_bytes or self.buffered_bytes + size <= self._buffered_bytes_max

    def add(self, append: QueuedAppend) -> None:
        """Add an append; the caller has checked ``has_room``."""
        if self._rotation is None:
            self._rotation = Rotation(self._next_number)
            self._next_number += 1
        self._rotation.by_log.setdefault(append.log, []).append(append)
        self._rotation.buffered_bytes += append.buffered_bytes
        self.buffered_bytes += append.buffered_bytes

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was added since the last rotation."""
        return self._rotation is None

    @property
    def is_full(self) -> bool:
        """Return whether the object being filled is large enough to be written."""
        return self._rotation is not None and self._rotation.buffered_bytes >= self._object_bytes

    def take(self) -> Rotation | None:
        """Return what was added since the last rotation; None if that is nothing."""
        rotation, self._rotation = self._rotation, None
        return rotation

    def release(self, rotation: Rotation) -> None:
        """Note that a rotation has ended."""
        self.buffered_bytes -= rotation.buffered_bytes
