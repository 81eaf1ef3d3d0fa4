"""EndTxn (api key 26): commits or aborts a transaction (KIP-98)."""

from __future__ import annotations

from stele.wire.schema import Bool, Int16, Int32, Int64, at, message

from ..api import Api


@message
class EndTxnRequest:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message
class EndTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = at("5+", default=-1)
    producer_epoch: Int16 = at("5+", default=-1)


API = Api(
    key=26,
    name="EndTxn",
    versions=(0, 5),
    flexible_since=3,
    request=EndTxnRequest,
    response=EndTxnResponse,
)
