"""LeaveGroup (api key 13): removes members from a group at once."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, at, message

from ..api import Api


@message
class MemberIdentity:
    member_id: str = at("3+", default="")
    group_instance_id: str | None = at("3+", default=None)
    reason: str | None = at("5+", default=None)


@message
class LeaveGroupRequest:
    group_id: str
    member_id: str = at("0-2", default="")
    members: Sequence[MemberIdentity] = at("3+", default=())


@message
class MemberResponse:
    member_id: str = at("3+", default="")
    group_instance_id: str | None = at("3+", default="")
    error_code: Int16 = at("3+", default=0)


@message
class LeaveGroupResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16
    members: Sequence[MemberResponse] = at("3+", default=())


API = Api(
    key=13,
    name="LeaveGroup",
    versions=(0, 5),
    flexible_since=4,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
)
