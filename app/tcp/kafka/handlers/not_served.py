"""Refuse group protocols that are not served.

Clients do not retry after the errors.

If ApiVersions lacks an API, clients assume that the broker is being upgraded, and retry
forever. UNSUPPORTED_VERSION, Apache Kafka's error for a group protocol that is turned
off, is fatal to all clients (ADR-0021).
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode

from ..schemas import streams_group_describe as streams_schema
from ..schemas.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ..schemas.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from .context import Context

_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
_NO_STREAMS_PROTOCOL = "this broker does not serve group.protocol=streams; use group.protocol=classic"
_NO_HEARTBEAT_MS = 0


def _once_each(groups: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(groups))


# ── groups of the protocol "streams" (KIP-1071) ──


def streams_group_heartbeat(
    _context: Context, _request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(
        error_code=_UNSUPPORTED,
        error_message=_NO_STREAMS_PROTOCOL,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=_NO_HEARTBEAT_MS,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=(),
        endpoint_information_epoch=0,
    )


def streams_group_describe(
    _context: Context, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=[
            streams_schema.DescribedGroup(
                error_code=_UNSUPPORTED,
                error_message=_NO_STREAMS_PROTOCOL,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                members=(),
            )
            for group in _once_each(request.group_ids)
        ]
    )
