"""UnregisterBroker (api key 64): removes a broker that is gone for good (KIP-500)."""

from __future__ import annotations

from stele.wire.schema import Int16, Int32, message

from ..api import Api


@message
class UnregisterBrokerRequest:
    broker_id: Int32


@message
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None


API = Api(
    key=64,
    name="UnregisterBroker",
    versions=(0, 0),
    flexible_since=0,
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
)
