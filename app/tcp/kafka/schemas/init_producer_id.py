"""InitProducerId (api key 22): assigns an id to an idempotent producer."""

from __future__ import annotations

from stele.wire.schema import Int16, Int32, Int64, at, message

from ..api import Api


@message
class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = at("3+", default=-1)
    producer_epoch: Int16 = at("3+", default=-1)


@message
class InitProducerIdResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16


API = Api(
    key=22,
    name="InitProducerId",
    versions=(0, 5),
    flexible_since=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
