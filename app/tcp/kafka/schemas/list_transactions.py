"""ListTransactions (api key 66): lists transactional ids and states (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, Int64, at, message

from ..api import Api


@message
class ListTransactionsRequest:
    state_filters: Sequence[str]
    producer_id_filters: Sequence[Int64]
    duration_filter: Int64 = at("1+", default=-1)
    transactional_id_pattern: str | None = at("2+", default=None)


@message
class TransactionState:
    transactional_id: str
    producer_id: Int64
    transaction_state: str


@message
class ListTransactionsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[TransactionState]


API = Api(
    key=66,
    name="ListTransactions",
    versions=(0, 2),
    flexible_since=0,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
)
