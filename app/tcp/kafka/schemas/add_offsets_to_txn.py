"""AddOffsetsToTxn (api key 25): adds a group's offsets to a transaction.

KIP-98.
"""

from __future__ import annotations

from stele.wire.schema import Int16, Int32, Int64, message

from ..api import Api


@message
class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16


API = Api(
    key=25,
    name="AddOffsetsToTxn",
    versions=(0, 4),
    flexible_since=3,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
)
