"""JoinGroup (api key 11): joins a group, or joins it again in a rebalance."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, at, message

from ..api import Api


@message
class JoinGroupRequestProtocol:
    name: str
    metadata: bytes


@message
class JoinGroupRequest:
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = at("1+", default=-1)
    member_id: str
    group_instance_id: str | None = at("5+", default=None)
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    reason: str | None = at("8+", default=None)


@message
class JoinGroupResponseMember:
    member_id: str
    group_instance_id: str | None = at("5+", default=None)
    metadata: bytes


@message
class JoinGroupResponse:
    throttle_time_ms: Int32 = at("2+", default=0)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: str | None = at("7+", default=None)
    protocol_name: str | None = at(nullable="7+")
    leader: str
    skip_assignment: Bool = at("9+", default=False)
    member_id: str
    members: Sequence[JoinGroupResponseMember]


API = Api(
    key=11,
    name="JoinGroup",
    versions=(0, 9),
    flexible_since=6,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
)
