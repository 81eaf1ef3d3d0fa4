"""Refuse group protocols that are not served.

Clients do not retry after the errors.

If ApiVersions lacks an API, clients assume that the broker is being upgraded, and retry
forever. UNSUPPORTED_VERSION, Apache Kafka's error for a group protocol that is turned
off, is fatal to all clients (ADR-0021).
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode

from ..schemas import share_group_describe as share_schema
from ..schemas import streams_group_describe as streams_schema
from ..schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ..schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ..schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from ..schemas.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ..schemas.share_fetch import ShareFetchRequest, ShareFetchResponse
from ..schemas.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ..schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ..schemas.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ..schemas.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from .context import Context

_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
_NO_SHARE_GROUPS = "this broker does not serve share groups; use a consumer group"
_NO_STREAMS_PROTOCOL = "this broker does not serve group.protocol=streams; use group.protocol=classic"
_NO_HEARTBEAT_MS = 0


def _once_each(groups: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(groups))


# ── share groups (KIP-932) ──


def share_group_heartbeat(
    _context: Context, _request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=_UNSUPPORTED,
        error_message=_NO_SHARE_GROUPS,
        member_epoch=0,
        heartbeat_interval_ms=_NO_HEARTBEAT_MS,
    )


def share_group_describe(_context: Context, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[
            share_schema.DescribedGroup(
                error_code=_UNSUPPORTED,
                error_message=_NO_SHARE_GROUPS,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
            for group in _once_each(request.group_ids)
        ]
    )


def share_fetch(_context: Context, _request: ShareFetchRequest) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=_UNSUPPORTED,
        error_message=_NO_SHARE_GROUPS,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )


def share_acknowledge(_context: Context, _request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        error_code=_UNSUPPORTED, error_message=_NO_SHARE_GROUPS, responses=(), node_endpoints=()
    )


def describe_share_group_offsets(
    _context: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id=group, topics=(), error_code=_UNSUPPORTED, error_message=_NO_SHARE_GROUPS
            )
            for group in _once_each([group.group_id for group in request.groups])
        ]
    )


def alter_share_group_offsets(
    _context: Context, _request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(
        error_code=_UNSUPPORTED, error_message=_NO_SHARE_GROUPS, responses=()
    )


def delete_share_group_offsets(
    _context: Context, _request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(
        error_code=_UNSUPPORTED, error_message=_NO_SHARE_GROUPS, responses=()
    )


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
