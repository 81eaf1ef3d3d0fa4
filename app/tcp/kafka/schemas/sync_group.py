"""SyncGroup (api key 14): distributes the assignment of the leader to the members."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, at, message

from ..api import Api


@message
class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes


@message
class SyncGroupRequest:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = at("3+", default=None)
    protocol_type: str | None = at("5+", default=None)
    protocol_name: str | None = at("5+", default=None)
    assignments: Sequence[SyncGroupRequestAssignment]


@message
class SyncGroupResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16
    protocol_type: str | None = at("5+", default=None)
    protocol_name: str | None = at("5+", default=None)
    assignment: bytes


API = Api(
    key=14,
    name="SyncGroup",
    versions=(0, 5),
    flexible_since=4,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
)
