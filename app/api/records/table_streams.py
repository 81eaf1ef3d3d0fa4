"""Encode the table of a compacted topic as NDJSON or server-sent events.

Events go on with the changes of the table.

::

    event: start-of-snapshot      the client empties its table
    data: {"partitions":[0,1]}

    : reading                     the next records take a while

    data: {"partition":0,…}       a record of the table; no id

    event: end-of-snapshot
    id: 0:41,1:6                  from here on, Last-Event-ID resumes with the next change
    data: {"records":1,"positions":{"0":42,"1":7}}

    id: 0:42,1:6
    data: {"partition":0,…}       a change, as in any tail
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.topics import Topic
from ...errors import SteleError
from ...query.table import TableSnapshot
from ..errors import problem_of
from .event_ids import event_id
from .json_records import encode
from .tail_streams import Shown, data_of, events

# Records are sent in blocks: sending each alone would cost more than finding it.
_BLOCK_BYTES = 64 * 1024
# A comment, which clients skip.
_PROGRESS = b": reading\n\n"


async def table_lines(broker: Broker, snapshot: TableSnapshot, shown: Shown) -> AsyncGenerator[bytes]:
    """Yield records and errors as NDJSON, and progress while nothing else is there.

    The last line has the positions from which changes follow.
    """
    count, has_failed = 0, False
    block = bytearray()
    async with aclosing(snapshot.slices()) as slices:
        async for partition, records in slices:
            if isinstance(records, SteleError):
                has_failed = True
                block += encode({"error": problem_of(records)}) + b"\n"
            elif not records:
                # What is there goes out before the wait.
                yield bytes(block) or encode({"progress": {"partition": partition, "records": count}}) + b"\n"
                block.clear()
            else:
                count += len(records)
                async for piece in shown.form.stream(partition, records):
                    block += piece
                    if len(block) >= _BLOCK_BYTES:
                        yield bytes(block)
                        block.clear()
            if len(block) >= _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
    reason = (
        "stopped" if broker.is_closing and not snapshot.is_complete else "failed" if has_failed else "end"
    )
    positions = {str(partition): position for partition, position in snapshot.positions.items()}
    yield bytes(block) + encode({"end": {"reason": reason, "records": count, "positions": positions}}) + b"\n"


async def table_events(
    broker: Broker,
    topic: Topic,
    snapshot: TableSnapshot,
    *,
    only: int | None,
    shown: Shown,
    on_end: Callable[[], object],
) -> AsyncGenerator[bytes]:
    """Yield server-sent events without end: the table, its end, and every change after it.

    ``on_end`` is called at the end of the snapshot.
    """
    count = 0
    yield b"event: start-of-snapshot\n" + data_of({"partitions": snapshot.partitions})
    block = bytearray()
    async with aclosing(snapshot.slices()) as slices:
        async for partition, records in slices:
            if isinstance(records, SteleError):
                block += error_event(records)
            elif not records:
                yield bytes(block) or _PROGRESS
                block.clear()
            else:
                count += len(records)
                async for piece in shown.form.stream(partition, records, opening=_opening, end=b"\n\n"):
                    block += piece
                    if len(block) >= _BLOCK_BYTES:
                        yield bytes(block)
                        block.clear()
            if len(block) >= _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
    if not snapshot.is_complete:
        # The reason is the last event, or the broker closes; the client connects again and starts over.
        yield bytes(block)
        return
    on_end()
    seen = {partition: position - 1 for partition, position in snapshot.positions.items() if position}
    end = {"records": count, "positions": {str(name): at for name, at in snapshot.positions.items()}}
    block += b"event: end-of-snapshot\n"
    if seen:
        block += b"id: %s\n" % event_id(seen, topic.topic_id)
    yield bytes(block) + data_of(end)
    positions = dict(snapshot.positions)
    async with aclosing(events(broker, topic, positions, only=only, shown=shown)) as changes:
        async for change in changes:
            yield change


def _opening(_: RecordView) -> bytes:
    return b"data: {"


def error_event(error: SteleError) -> bytes:
    """Encode an event that reports ``error``."""
    return b"event: error\ndata: " + json.dumps(problem_of(error)).encode() + b"\n\n"
