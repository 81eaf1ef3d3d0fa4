"""Errors of transactions in the codes that each version of a request knows (KIP-588, KIP-890)."""

from __future__ import annotations

import pytest
from stele.wire.error_codes import ErrorCode as E

from app.errors import (
    BrokerClosing,
    ConcurrentTransactions,
    SteleError,
    TransactionAbortable,
    TransactionFenced,
    UnknownTopic,
)
from app.tcp.kafka.apis import SERVED
from app.tcp.kafka.handlers.transaction_errors import transaction_error_code

FENCED = TransactionFenced("t", epoch=1, current_epoch=2)
ABORTABLE = TransactionAbortable("t", "no")
CONCURRENT = ConcurrentTransactions("t")


@pytest.mark.parametrize(
    ("error", "key", "since", "before", "after"),
    [
        (FENCED, 0, None, E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED),
        (FENCED, 22, 4, E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED),
        (FENCED, 24, 2, E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED),
        (FENCED, 25, 2, E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED),
        (FENCED, 26, 2, E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED),
        (FENCED, 28, None, E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED),
        (ABORTABLE, 0, 11, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE),
        (ABORTABLE, 22, 5, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE),
        (ABORTABLE, 24, 5, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE),
        (ABORTABLE, 25, 4, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE),
        (ABORTABLE, 26, 4, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE),
        (ABORTABLE, 28, 4, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE),
        (CONCURRENT, 0, 12, E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS),
        *((CONCURRENT, key, 0, E.NONE, E.CONCURRENT_TRANSACTIONS) for key in (22, 24, 25, 26, 28)),
        *((UnknownTopic("t"), key, 0, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION) for key in (0, 24, 28)),
        # Clients would give up at BROKER_NOT_AVAILABLE.
        (BrokerClosing(), 0, 0, E.NONE, E.NOT_LEADER_OR_FOLLOWER),
        *((BrokerClosing(), key, 0, E.NONE, E.COORDINATOR_NOT_AVAILABLE) for key in (22, 24, 25, 26, 28)),
    ],
)
def test_a_version_gets_only_codes_that_it_knows(
    error: SteleError, key: int, since: int | None, before: E, after: E
) -> None:
    first, last = SERVED[key].api.versions
    codes = {version: transaction_error_code(error, key, version) for version in range(first, last + 1)}
    assert codes == {
        version: before if since is None or version < since else after for version in range(first, last + 1)
    }
