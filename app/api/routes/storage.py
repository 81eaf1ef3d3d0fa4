"""Segments of a partition, and a check of their bytes while the broker runs."""

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
from ..record_json import encode
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
async def segments(request: Request) -> Response:
    """The files of a partition, the oldest first, and when retention will delete them.

    `expires_at` is when its newest record and all before it are past `retention.ms`; `is_over_size` says that `retention.bytes` asks
    for its deletion now. `verified` is the last check of the partition since the broker began, or null.
    """
    state = api_state(request)
    broker = state.broker
    topic = broker.topic(request.path_params["topic"])
    partition = path_integer(request, "partition")
    found = await broker.segments(topic.name, partition)
    return _answer(
        {
            "topic": topic.name,
            "partition": partition,
            "storage": topic.config.storage,
            "retention_ms": topic.config.retention_ms,
            "retention_bytes": topic.config.retention_bytes,
            "size_bytes": sum(segment.size_bytes for segment in found),
            "segments": _described(topic, found),
            "verified": state.verifications.last(topic.name, partition),
        }
    )


def _described(topic: Topic, found: list[SegmentState]) -> list[dict[str, Any]]:
    config = topic.config
    described: list[dict[str, Any]] = []
    left = sum(segment.size_bytes for segment in found)
    # Segments go in their order, so none before those ahead of it; one without times stays for good.
    newest: int | None = 0
    for segment in found:
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
    summary="Check the bytes of a partition",
)
async def verify(request: Request) -> Response:
    """Read every batch and index of a partition and check CRCs and offsets; the broker goes on meanwhile.

    One check runs at a time (429 otherwise). When the client goes away the check ends.
    """
    state = api_state(request)
    broker = broker_of(request)
    topic = broker.topic(request.path_params["topic"]).name
    partition = path_integer(request, "partition")
    broker.log_state(topic, partition)
    verifications = state.verifications
    if verifications.is_running:
        raise HttpError(429, f"{verifications.running} is being checked; try again when that has ended")
    stopping = threading.Event()
    leaving = asyncio.create_task(_leave(request, stopping))
    try:
        document = await verifications.run(
            broker, topic, partition, lambda: stopping.is_set() or broker.is_closing
        )
    finally:
        # A thread does not end with the task that waits for it.
        stopping.set()
        leaving.cancel()
    if document is None:
        # Heard if the broker is closing, and not if the client has gone.
        raise BrokerClosing
    return _answer(document)


async def _leave(request: Request, stopping: threading.Event) -> None:
    """Set ``stopping`` when the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stopping.set()
