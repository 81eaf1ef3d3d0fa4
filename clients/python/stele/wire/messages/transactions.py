"""Messages of transactions: begin, write, end (ADR-0035), commit several as one (ADR-0037)."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Bool, Int16, Int32, Int64, frozen_message
from .base import Request, Response, message
from .frame_types import MessageType
from .produce import ProduceBatchRequest, ProduceBatchResponse


@message(MessageType.INIT_TRANSACTIONS_REQUEST)
class InitTransactionsRequest(Request):
    """Begin with a transactional id: fence earlier producers with it, abort what they left open.

    A transaction that is open for longer than ``timeout_ms`` is aborted.
    """

    transactional_id: str
    timeout_ms: Int32


@message(MessageType.INIT_TRANSACTIONS_RESPONSE)
class InitTransactionsResponse(Response):
    producer_id: Int64
    producer_epoch: Int16


@message(MessageType.INIT_UNLESS_OPEN_REQUEST)
class InitUnlessOpenRequest(InitTransactionsRequest):
    """Begin as ``InitTransactionsRequest``, but with an error if a transaction is open with the id."""


@message(MessageType.INIT_UNLESS_OPEN_RESPONSE)
class InitUnlessOpenResponse(InitTransactionsResponse):
    """As the response to ``InitTransactionsRequest``."""


@message(MessageType.TRANSACTIONAL_PRODUCE_REQUEST)
class TransactionalProduceRequest(ProduceBatchRequest):
    """Append transactional batches; the first begins the transaction, and each adds its partition."""

    transactional_id: str


@message(MessageType.TRANSACTIONAL_PRODUCE_RESPONSE)
class TransactionalProduceResponse(ProduceBatchResponse):
    """As the response to a produce."""


@message(MessageType.END_TRANSACTION_REQUEST)
class EndTransactionRequest(Request):
    """Commit or abort the transaction.

    A repetition has the same effect as one request.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    is_commit: Bool


@message(MessageType.END_TRANSACTION_RESPONSE)
class EndTransactionResponse(Response):
    """The producer id and epoch of the next transaction, whose sequences begin at 0."""

    producer_id: Int64
    producer_epoch: Int16


@frozen_message
class OpenTransaction:
    """A transaction to commit, and the producer that wrote it."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16


@message(MessageType.COMMIT_TRANSACTIONS_REQUEST)
class CommitTransactionsRequest(Request):
    """Commit several transactions, all or none of them.

    Other open transactions whose ids start with ``abandoned_prefix`` are aborted in the same step.
    """

    transactions: Sequence[OpenTransaction]
    abandoned_prefix: str | None = None


@message(MessageType.COMMIT_TRANSACTIONS_RESPONSE)
class CommitTransactionsResponse(Response):
    """All are committed, and readers see them."""
