"""Heartbeat (api key 12): keeps a member in its group, and reports rebalances."""

from __future__ import annotations

from stele.wire.schema import Int16, Int32, at, message

from ..api import Api


@message
class HeartbeatRequest:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = at("3+", default=None)


@message
class HeartbeatResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16


API = Api(
    key=12,
    name="Heartbeat",
    versions=(0, 4),
    flexible_since=4,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
)
