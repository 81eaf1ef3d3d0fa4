"""Refuse group protocols that are not served.

Clients do not retry after the errors.

If ApiVersions lacks an API, clients assume that the broker is being upgraded, and retry
forever. UNSUPPORTED_VERSION, Apache Kafka's error for a group protocol that is turned
off, is fatal to all clients (ADR-0021).
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.streams_groups import (
    STREAMS_GROUP_DESCRIBE_API,
    STREAMS_GROUP_HEARTBEAT_API,
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

from .....work_budget import SMALL_VISIT, visited
from ...context import Context
from ...guards import groups as group_guards
from ...guards.rights import open_to_all
from ...served import Served

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


async def streams_group_describe(
    _context: Context, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=[
            DescribedGroup(
                error_code=_UNSUPPORTED,
                error_message=_NO_STREAMS_PROTOCOL,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                members=(),
            )
            async for group in visited(_once_each(request.group_ids), SMALL_VISIT)
        ]
    )


ROWS = (
    Served(STREAMS_GROUP_HEARTBEAT_API, streams_group_heartbeat, open_to_all()),
    Served(
        STREAMS_GROUP_DESCRIBE_API,
        streams_group_describe,
        group_guards.on_described_groups(StreamsGroupDescribeResponse, "group_ids"),
    ),
)
