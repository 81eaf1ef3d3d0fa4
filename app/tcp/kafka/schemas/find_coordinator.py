"""FindCoordinator (api key 10): finds the broker that coordinates a group."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int8, Int16, Int32, at, message

from ..api import Api


@message
class FindCoordinatorRequest:
    key: str = at("0-3", default="")
    key_type: Int8 = at("1+", default=0)
    coordinator_keys: Sequence[str] = at("4+", default=())


@message
class Coordinator:
    key: str = at("4+", default="")
    node_id: Int32 = at("4+", default=0)
    host: str = at("4+", default="")
    port: Int32 = at("4+", default=0)
    error_code: Int16 = at("4+", default=0)
    error_message: str | None = at("4+", default="")


@message
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16 = at("0-3", default=0)
    error_message: str | None = at("1-3", default="")
    node_id: Int32 = at("0-3", default=0)
    host: str = at("0-3", default="")
    port: Int32 = at("0-3", default=0)
    coordinators: Sequence[Coordinator] = at("4+", default=())


API = Api(
    key=10,
    name="FindCoordinator",
    versions=(0, 6),
    flexible_since=3,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
)
