"""Encode live tails as server-sent events or NDJSON.

Events can be resumed by their ids.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import RecordView

from ..broker.broker import Broker
from ..errors import SteleError
from ..query.filters import Filter
from ..query.tailing import Pace, Tail
from ..work_budget import WorkBudget
from .errors import problem_of
from .event_ids import PLAIN_PARTITIONS_MAX, event_id
from .record_json import RecordOut, encode, encode_lines

# A comment at this interval keeps proxies from closing an idle stream, and detects disconnected clients.
HEARTBEAT_S = 15.0
# Shortest interval between packed ids; a client that resumes gets the records since the last one again.
_ID_S = 1.0


@dataclass(frozen=True, slots=True)
class Shown:
    """Which records of a tail are sent, and how they are encoded."""

    wanted: Filter
    show: Callable[[int, RecordView], RecordOut]
    # Maximum records per second; 0 means no limit.
    per_s_max: int
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED

    def tail(self, broker: Broker, topic: str, positions: dict[int, int], *, only: int | None) -> Tail:
        """Follow ``topic`` from ``positions`` on, which the tail advances."""
        is_scan = not self.wanted.is_empty
        return Tail(
            broker,
            topic,
            positions,
            only=only,
            is_scan=is_scan,
            idle_s=HEARTBEAT_S,
            isolation=self.isolation,
        )


class _Ids:
    """The next event id, and whether it is due.

    Per event, or per ``_ID_S`` if it is large.
    """

    def __init__(self, positions: dict[int, int]) -> None:
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
        return b"id: %s\n" % event_id(self._seen)


async def events(
    broker: Broker, topic: str, positions: dict[int, int], *, only: int | None, shown: Shown
) -> AsyncGenerator[bytes]:
    """Yield server-sent events without end.

    Records, errors, and numbers of skipped records.
    """
    loop = asyncio.get_running_loop()
    ids, budget = _Ids(positions), WorkBudget()
    tail = shown.tail(broker, topic, positions, only=only)
    pace = Pace(tail, shown.per_s_max) if shown.per_s_max else None
    # With an id, so that a connection lost before the first event can be resumed, too.
    yield b": stele\n" + ids.line() + b"\n"
    sent_s = loop.time()
    async with aclosing(tail.records()) as steps:
        async for partition, records in steps:
            block = bytearray()
            count = 0
            if isinstance(records, SteleError):
                block += b"event: error\ndata: " + json.dumps(problem_of(records)).encode() + b"\n\n"
            elif records:
                for record in await shown.wanted.matching(records, budget):
                    ids.saw(partition, record.offset)
                    block += ids.line() + data_of(shown.show(partition, record))
                    count += 1
                ids.saw(partition, records[-1].offset)
            elif line := ids.line():
                block += line + b"\n"
            if not block and loop.time() - sent_s >= HEARTBEAT_S:
                block += ids.line() + b": nothing new\n\n"
            if block:
                yield bytes(block)
                sent_s = loop.time()
            if pace is not None and (skipped_by_partition := await pace.spend(count)):
                for skipped in skipped_by_partition:
                    ids.saw(skipped, positions[skipped] - 1)
                yield b'event: skipped\ndata: {"records":%d}\n\n' % sum(skipped_by_partition.values())
            tail.idle_s = _ID_S if ids.is_late else HEARTBEAT_S


def data_of(shown: object) -> bytes:
    """Encode the ``data`` field, which ends an event."""
    # A value shown as JSON may contain newlines, which would end the field.
    return b"data: %s\n\n" % encode(shown).replace(b"\n", b"\ndata: ")


async def lines(
    broker: Broker, topic: str, positions: dict[int, int], *, shown: Shown
) -> AsyncGenerator[bytes]:
    """Yield records and errors as NDJSON, without end."""
    budget = WorkBudget()
    tail = shown.tail(broker, topic, positions, only=None)
    async with aclosing(tail.records()) as steps:
        async for partition, records in steps:
            if isinstance(records, SteleError):
                yield encode({"error": problem_of(records)}) + b"\n"
            elif matching := await shown.wanted.matching(records, budget):
                yield encode_lines([shown.show(partition, record) for record in matching])
