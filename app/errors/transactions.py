"""Errors of transactions."""

from __future__ import annotations

from .base import RequestError, SteleError, short


class TransactionError(RequestError):
    """The transactional id is in each message; None if the request did not have it."""

    def __init__(self, transactional_id: str | None, reason: str) -> None:
        super().__init__(
            reason if transactional_id is None else f"transactional id {short(transactional_id)!r}: {reason}"
        )
        self.transactional_id = transactional_id


class TransactionalIdNotFound(TransactionError):
    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id, "it is not known here; begin with it first, it may have expired")


class UnknownProducerMapping(TransactionError):
    """The transactional id is unknown, or belongs to another producer id."""

    def __init__(self, transactional_id: str, *, producer_id: int) -> None:
        super().__init__(
            transactional_id,
            f"it does not belong to producer {producer_id}; it may have expired: begin with it again",
        )
        self.producer_id = producer_id


class TransactionFenced(TransactionError):
    """A newer producer has the transactional id, or the broker ended the transaction."""

    def __init__(self, transactional_id: str, *, epoch: int, current_epoch: int) -> None:
        super().__init__(
            transactional_id,
            f"epoch {epoch} of its producer is over, epoch {current_epoch} is current: another producer with this "
            "id began, or the transaction took too long and was aborted; stop, or begin again",
        )
        self.epoch = epoch
        self.current_epoch = current_epoch


class InvalidTransactionState(TransactionError):
    """The state of the transaction does not allow the request; ``reason`` says which."""


class InvalidTransactionTimeout(TransactionError):
    def __init__(self, transactional_id: str, timeout_ms: int, *, limit: int) -> None:
        super().__init__(
            transactional_id,
            f"its timeout is {timeout_ms} ms; it must be 1 to {limit} ms "
            "(STELE_TRANSACTION_MAX_TIMEOUT_MS on the broker)",
        )
        self.timeout_ms = timeout_ms
        self.limit = limit


class TooManyTransactionalIds(TransactionError):
    def __init__(self, transactional_id: str, *, limit: int) -> None:
        super().__init__(
            transactional_id,
            f"it cannot be used: the broker has reached its limit of {limit} transactional ids; use fewer, lower "
            "transactional_id_expiration_ms, or raise transactional_ids_max of the broker",
        )
        self.limit = limit


class TransactionAbortable(TransactionError):
    """The producer must abort this transaction, and may then go on (KIP-890)."""

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(transactional_id, f"{reason}; abort the transaction, then try it again")
        self.reason = reason


class ConcurrentTransactions(SteleError):
    """The transaction before this one, or another request of it, has not ended yet."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"transactional id {short(transactional_id)!r}: an earlier request of it is not finished yet; try again"
        )
        self.transactional_id = transactional_id


class IdempotencyKeyReused(RequestError):
    """A request with this idempotency key was committed, and its body was another one."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"idempotency key {short(key)!r} belongs to a committed request with another body; repeat a request "
            "with the same bytes, and choose a new key for each new request"
        )
        self.key = key


class IdempotencyKeyInUse(SteleError):
    """The first request with this idempotency key has not ended yet."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"a request with idempotency key {short(key)!r} is still running; try again to get its answer"
        )
        self.key = key


class OperationNotAttempted(SteleError):
    """Another part of the same request was refused, so this one was not tried."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was not tried, because another part of the request was refused")
        self.what = what


class UnstableOffset(SteleError):
    """A transaction that is still open has committed an offset of this partition."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(
            f"the committed offset of {topic}-{partition} may be replaced by a transaction that is still open; "
            "try again after it has ended"
        )
        self.topic = topic
        self.partition = partition
