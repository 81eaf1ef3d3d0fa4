"""Encode live tails as server-sent events or NDJSON.

Events can be resumed by their ids.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.reading.decoded_bytes import UNCOUNTED_BYTES, DecodedReader
from ...broker.reading.fetch import is_large, size_of
from ...broker.topics import Topic
from ...errors import SteleError
from ...query.filters import Filter
from ...query.tail_reads import TailReads, TailSlice
from ...query.tailing import Pace, Tail
from ...work_budget import WorkBudget
from ..errors import problem_of
from .event_ids import PLAIN_PARTITIONS_MAX, event_id
from .form import RecordForm
from .json_records import encode

# A comment at this interval keeps proxies from closing an idle stream, and detects disconnected clients.
HEARTBEAT_S = 15.0
# Shortest interval between packed ids; a client that resumes gets the records since the last one again.
_ID_S = 1.0
# What a tail hands on at once: so much of a record is copied for each client, the rest is shared by all tails.
_PART_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Shown:
    """Selects the records of a tail, and sets how they are read and encoded."""

    wanted: Filter
    form: RecordForm
    # Maximum records per second; 0 means no limit.
    per_s_max: int
    reads: TailReads
    reader: DecodedReader
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED

    def tail(self, broker: Broker, topic: Topic, positions: dict[int, int], *, only: int | None) -> Tail:
        """Follow ``topic`` from ``positions`` on, which the tail advances."""
        is_scan = not self.wanted.is_empty
        return Tail(
            broker,
            topic.name,
            positions,
            topic_id=topic.topic_id,
            only=only,
            is_scan=is_scan,
            idle_s=HEARTBEAT_S,
            isolation=self.isolation,
            reads=self.reads,
            reader=self.reader,
        )

    async def texts(
        self, partition: int, piece: TailSlice, budget: WorkBudget
    ) -> list[tuple[RecordView, bytes | None]]:
        """Return the wanted records of a slice, encoded; None for one that is large.

        Tails that show records in the same way share the texts.
        """
        records = piece.records
        if len(records) == 1 and is_large(records[0]) and size_of(records[0]) > UNCOUNTED_BYTES:
            return [(record, None) for record in await self.wanted.matching(records, budget)]
        if not self.wanted.is_empty:
            records = await self.wanted.matching(records, budget)
            texts = await self._made(partition, records)
        elif self.form.may_decode(records):
            texts = await piece.texts_made(self.form, partial(self._made, partition, records))
        else:
            texts = piece.texts(self.form, partial(self._encoded, partition))
        return list(zip(records, texts, strict=True))

    async def _made(self, partition: int, records: list[RecordView]) -> list[bytes]:
        decoded = await self.form.decoded(records)
        if not decoded:
            return [self._encoded(partition, record) for record in records]
        return [
            encode(self.form.out(partition, record, part))
            for record, part in zip(records, decoded, strict=True)
        ]

    def _encoded(self, partition: int, record: RecordView) -> bytes:
        return encode(self.form.out(partition, record))


class _Ids:
    """The next event id, and whether it is due: per event, or per ``_ID_S`` if it is large."""

    def __init__(self, positions: dict[int, int], topic: Topic) -> None:
        self._topic_id = topic.topic_id
        self._seen = {partition: offset - 1 for partition, offset in positions.items() if offset}
        self._is_new = bool(self._seen)
        self._due_s = 0.0

    def saw(self, partition: int, offset: int) -> None:
        self._seen[partition] = offset
        self._is_new = True

    @property
    def is_late(self) -> bool:
        """True if records have been sent that no packed id covers yet."""
        return self._is_new and len(self._seen) > PLAIN_PARTITIONS_MAX

    def line(self) -> bytes:
        """Return the ``id`` field of an event, empty if it has not changed or is not due."""
        now_s = asyncio.get_running_loop().time()
        if not self._is_new or (self.is_late and now_s < self._due_s):
            return b""
        self._is_new, self._due_s = False, now_s + _ID_S
        return b"id: %s\n" % event_id(self._seen, self._topic_id)


async def events(
    broker: Broker, topic: Topic, positions: dict[int, int], *, only: int | None, shown: Shown
) -> AsyncGenerator[bytes]:
    """Yield server-sent events without end: records, errors, and numbers of skipped records."""
    loop = asyncio.get_running_loop()
    ids, budget = _Ids(positions, topic), WorkBudget()
    tail = shown.tail(broker, topic, positions, only=only)
    pace = Pace(tail, shown.per_s_max) if shown.per_s_max else None
    # With an id, so that a connection lost before the first event can be resumed, too.
    yield b": stele\n" + ids.line() + b"\n"
    sent_s = loop.time()
    async with aclosing(tail.records()) as steps:
        async for partition, piece in steps:
            block = bytearray()
            count = 0
            has_sent = False
            if isinstance(piece, SteleError):
                block += b"event: error\ndata: " + json.dumps(problem_of(piece)).encode() + b"\n\n"
            elif piece is not None:
                for record, text in await shown.texts(partition, piece, budget):
                    ids.saw(partition, record.offset)
                    block += ids.line() + b"data: "
                    count += 1
                    async for part in _parts(block, partition, record, text, shown.form):
                        yield part
                        has_sent = True
                    block += b"\n\n"
                ids.saw(partition, piece.records[-1].offset)
            elif line := ids.line():
                block += line + b"\n"
            # It must not outlive what is sent of it, for other tails do not wait for this one.
            del piece
            if not block and not has_sent and loop.time() - sent_s >= HEARTBEAT_S:
                block += ids.line() + b": nothing new\n\n"
            if block:
                yield bytes(block)
                has_sent = True
            if has_sent:
                sent_s = loop.time()
            if pace is not None and (skipped_by_partition := await pace.spend(count)):
                for skipped in skipped_by_partition:
                    ids.saw(skipped, positions[skipped] - 1)
                yield b'event: skipped\ndata: {"records":%d}\n\n' % sum(skipped_by_partition.values())
            tail.idle_s = _ID_S if ids.is_late else HEARTBEAT_S


async def _parts(
    block: bytearray, partition: int, record: RecordView, text: bytes | None, form: RecordForm
) -> AsyncGenerator[bytes]:
    """Add a small record to ``block``; yield the block and others in parts."""
    if text is not None and len(block) + len(text) <= _PART_BYTES:
        block += text
        return
    yield bytes(block)
    block.clear()
    if text is None:
        async for part in form.stream(partition, [record], end=b""):
            yield part
        return
    for start in range(0, len(text), _PART_BYTES):
        yield text[start : start + _PART_BYTES]


def data_of(shown: object) -> bytes:
    """Encode the ``data`` field, which ends an event; JSON has no line ends."""
    return b"data: %s\n\n" % encode(shown)


async def lines(
    broker: Broker, topic: Topic, positions: dict[int, int], *, shown: Shown
) -> AsyncGenerator[bytes]:
    """Yield records and errors as NDJSON, without end."""
    budget = WorkBudget()
    tail = shown.tail(broker, topic, positions, only=None)
    async with aclosing(tail.records()) as steps:
        async for partition, piece in steps:
            block = bytearray()
            if isinstance(piece, SteleError):
                block += encode({"error": problem_of(piece)}) + b"\n"
            elif piece is not None:
                for record, text in await shown.texts(partition, piece, budget):
                    async for part in _parts(block, partition, record, text, shown.form):
                        yield part
                    block += b"\n"
            del piece
            if block:
                yield bytes(block)
