"""Serve the segments of a partition, and a check of their bytes.

The broker may append meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TypedDict

from starlette.requests import Request

from ...broker.topics import Topic
from ...errors import BrokerClosing
from ...monitor.verifications import VerificationJson
from ...storage.disk_views import SegmentState
from ...work_budget import visited
from ..errors import HttpError
from ..parameters import PARTITION, TOPIC
from ..records.json_types import InPartition
from ..routing import Routes
from ..state import api_state, broker_of

route = Routes("storage")


class Segment(TypedDict):
    base_offset: int
    next_offset: int
    file: str
    size_bytes: int
    index_bytes: int
    created_at: int
    max_timestamp: int | None
    is_sealed: bool
    is_synced: bool
    expires_at: int | None
    is_over_size: bool
    corrupt_ranges: list[str]


class SegmentList(InPartition):
    storage: str
    retention_ms: int
    retention_bytes: int
    cleanup_policy: str
    dirty_ratio: float | None
    cleaner: str | None
    size_bytes: int
    segments: list[Segment]
    verified: VerificationJson | None


_VERIFIED_EXAMPLE = (
    '{"topic":"orders","partition":0,"is_good":true,"at":1763664000000,"took_ms":35,"segments":1,"batches":12,'
    '"records":42,"size_bytes":8192,"problem_count":0,"problems":[]}'
)
_SEGMENTS_EXAMPLE = (
    '{"topic":"orders","partition":0,"storage":"disk","retention_ms":604800000,"retention_bytes":-1,'
    '"cleanup_policy":"delete","dirty_ratio":null,"cleaner":null,"size_bytes":8192,"segments":[{"base_offset":0,'
    '"next_offset":42,"file":"00000000000000000000.log","size_bytes":8192,"index_bytes":0,'
    '"created_at":1763664000000,"max_timestamp":1763664009000,"is_sealed":false,"is_synced":true,'
    '"expires_at":1764268809000,"is_over_size":false,"corrupt_ranges":[]}],"verified":'
    + _VERIFIED_EXAMPLE
    + "}"
)


@route(
    "GET /v1/topics/{topic}/partitions/{partition}/segments",
    "List segments",
    example=_SEGMENTS_EXAMPLE,
    errors=(400, 404, 503),
)
async def list_segments(request: Request) -> SegmentList:
    """List the segments of a partition, oldest first.

    Each has the time at which retention will delete it.

    `expires_at` is the time at which the newest record of the segment, and all records before it, exceed
    `retention.ms`. `dirty_ratio` is the part of a compacted partition that is new since its last pass, from 0 to 1,
    and `cleaner` what compaction does about it: `off`, `running`, `failed`, `due` or `idle`. Both are null if the topic
    is not compacted. `is_over_size` is true if `retention.bytes` requires the deletion now. `verified` is the last check
    of the partition since the broker started, or null.
    """
    state = api_state(request)
    broker = state.broker
    topic = broker.topic(TOPIC.read(request))
    partition = PARTITION.number(request)
    states = await broker.storage.segments(topic.name, partition)
    compaction = broker.storage.partition_compaction(topic.name, partition)
    return {
        "topic": topic.name,
        "partition": partition,
        "storage": topic.config.storage,
        "retention_ms": topic.config.retention_ms,
        "retention_bytes": topic.config.retention_bytes,
        "cleanup_policy": topic.config.cleanup_policy,
        "dirty_ratio": compaction and compaction.dirty_ratio,
        "cleaner": compaction and compaction.cleaner,
        "size_bytes": sum(segment.size_bytes for segment in states),
        "segments": await _described(topic, states),
        "verified": state.verifications.last(topic.name, partition),
    }


async def _described(topic: Topic, states: list[SegmentState]) -> list[Segment]:
    config = topic.config
    described: list[Segment] = []
    left = sum(segment.size_bytes for segment in states)
    # Retention deletes segments in order, so a segment waits for those before it; one without times never expires.
    newest: int | None = 0
    async for segment in visited(states):
        left -= segment.size_bytes
        is_over = segment.is_sealed and 0 <= config.retention_bytes <= left
        if newest is not None:
            newest = max(newest, segment.max_timestamp) if segment.max_timestamp >= 0 else None
        expires_at = None if newest is None or config.retention_ms < 0 else newest + config.retention_ms
        described.append(
            {
                "base_offset": segment.base_offset,
                "next_offset": segment.next_offset,
                "file": segment.path.name,
                "size_bytes": segment.size_bytes,
                "index_bytes": segment.index_bytes,
                "created_at": segment.created_ms,
                "max_timestamp": segment.max_timestamp if segment.max_timestamp >= 0 else None,
                "is_sealed": segment.is_sealed,
                "is_synced": segment.is_synced,
                "expires_at": expires_at,
                "is_over_size": is_over,
                "corrupt_ranges": segment.corrupt_ranges,
            }
        )
    return described


@route(
    "POST /v1/topics/{topic}/partitions/{partition}/verify",
    "Verify a partition",
    example=_VERIFIED_EXAMPLE,
    errors=(400, 404, 429, 503),
)
async def verify_partition(request: Request) -> VerificationJson:
    """Read every batch and index of a partition, and check CRCs and offsets.

    The broker keeps serving meanwhile.

    One check runs at a time; another request gets 429. The check ends when the client disconnects.
    """
    state = api_state(request)
    broker = broker_of(request)
    topic = broker.topic(TOPIC.read(request)).name
    partition = PARTITION.number(request)
    broker.log_state(topic, partition)
    verifications = state.verifications
    if verifications.is_running:
        raise HttpError(
            429, f"partition {verifications.running} is being verified; try again when that check has ended"
        )
    stopping = threading.Event()
    leaving = asyncio.create_task(_leave(request, stopping))
    try:
        document = await verifications.run(
            broker, topic, partition, lambda: stopping.is_set() or broker.is_closing
        )
    finally:
        # Cancelling this task does not stop the thread.
        stopping.set()
        leaving.cancel()
    if document is None:
        # A client that is still connected gets this while the broker closes.
        raise BrokerClosing
    return document


async def _leave(request: Request, stopping: threading.Event) -> None:
    """Set ``stopping`` when the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stopping.set()
