"""The error codes of transactions, as the version of a request can express them.

Clients treat a code that they do not know as fatal, or as unknown and to be retried (KIP-588, KIP-890).
"""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode

from ....errors import SteleError
from ..context import error_code_unless_closing

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 22, 24, 25, 26, 28

# The first version of each API that knows PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH). Those
# that are not here always say INVALID_PRODUCER_EPOCH.
_PRODUCER_FENCED_SINCE = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS: 2, ADD_OFFSETS: 2, END: 2}
# The first that knows TRANSACTION_ABORTABLE (before: INVALID_TXN_STATE).
_ABORTABLE_SINCE = {
    PRODUCE: 11,
    INIT_PRODUCER_ID: 5,
    ADD_PARTITIONS: 5,
    ADD_OFFSETS: 4,
    END: 4,
    COMMIT_OFFSETS: 4,
}
# Since then producers retry CONCURRENT_TRANSACTIONS; before, NOT_ENOUGH_REPLICAS.
_CONCURRENT_SINCE = {PRODUCE: 12}


def transaction_error_code(error: SteleError, api_key: int, version: int) -> ErrorCode:
    closing = ErrorCode.NOT_LEADER_OR_FOLLOWER if api_key == PRODUCE else ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = error_code_unless_closing(error, closing)
    if code is ErrorCode.PRODUCER_FENCED and version < _PRODUCER_FENCED_SINCE.get(api_key, 1 << 15):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE[api_key]:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _CONCURRENT_SINCE.get(api_key, 0):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
