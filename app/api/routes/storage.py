"""Serve the segments of a partition, and a check of their bytes.

The broker may append meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...broker.topics import Topic
from ...errors import BrokerClosing
from ...storage.disk_views import SegmentState
from ..encoded_slash import EncodedSlashRoute
from ..errors import HttpError
from ..openapi import storage as openapi
from ..records.record_json import encode
from ..requests import path_integer
from ..state import api_state, broker_of

router = APIRouter(tags=["storage"], route_class=EncodedSlashRoute)

_JSON = "application/json"


def _answer(document: object) -> Response:
    return Response(encode(document), media_type=_JSON)


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/segments",
    openapi_extra=openapi.SEGMENTS,
    summary="List segments",
)
async def list_segments(request: Request) -> Response:
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
    topic = broker.topic(request.path_params["topic"])
    partition = path_integer(request, "partition")
    states = await broker.storage.segments(topic.name, partition)
    compaction = broker.storage.partition_compaction(topic.name, partition)
    return _answer(
        {
            "topic": topic.name,
            "partition": partition,
            "storage": topic.config.storage,
            "retention_ms": topic.config.retention_ms,
            "retention_bytes": topic.config.retention_bytes,
            "cleanup_policy": topic.config.cleanup_policy,
            "dirty_ratio": compaction and compaction.dirty_ratio,
            "cleaner": compaction and compaction.cleaner,
            "size_bytes": sum(segment.size_bytes for segment in states),
            "segments": _described(topic, states),
            "verified": state.verifications.last(topic.name, partition),
        }
    )


def _described(topic: Topic, states: list[SegmentState]) -> list[dict[str, Any]]:
    config = topic.config
    described: list[dict[str, Any]] = []
    left = sum(segment.size_bytes for segment in states)
    # Retention deletes segments in order, so a segment waits for those before it; one without times never expires.
    newest: int | None = 0
    for segment in states:
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


@router.post(
    "/v1/topics/{topic}/partitions/{partition}/verify",
    openapi_extra=openapi.VERIFY,
    summary="Verify a partition",
)
async def verify_partition(request: Request) -> Response:
    """Read every batch and index of a partition, and check CRCs and offsets.

    The broker keeps serving meanwhile.

    One check runs at a time; another request gets 429. The check ends when the client disconnects.
    """
    state = api_state(request)
    broker = broker_of(request)
    topic = broker.topic(request.path_params["topic"]).name
    partition = path_integer(request, "partition")
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
    return _answer(document)


async def _leave(request: Request, stopping: threading.Event) -> None:
    """Set ``stopping`` when the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stopping.set()
