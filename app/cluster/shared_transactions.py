"""The interface of the transactions that brokers share (ADR-0055).

A call is one transaction of the database, at any broker, so no coordinator remembers anything. Times are those of the
database's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

from .transaction_store import StoredAnswer, TransactionRecord

T = TypeVar("T")

# A partition, by the id of its topic.
PartitionKey: TypeAlias = tuple[UUID, int]


class EndOfTransaction(NamedTuple):
    """A transaction that ends: that of a producer with ``epoch``.

    Its markers have ``marker_epoch``.
    """

    producer_id: int
    epoch: int
    marker_epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionUpdate(Generic[T]):
    """The changes of a request, and its response.

    ``records`` are stored. The transactions of ``ends`` get their markers, and their pending offsets their
    outcome. ``answer`` is that of a request with an idempotency key, which expires after ``answer_kept_ms``.
    """

    result: T
    records: Sequence[TransactionRecord] = ()
    ends: Sequence[EndOfTransaction] = ()
    answer: StoredAnswer | None = None
    answer_kept_ms: int = 0


# Gets the records of the locked ids that exist, and the time in ms since the Unix epoch. It may be called
# several times, in a thread.
Decide: TypeAlias = Callable[[Mapping[str, TransactionRecord], int], TransactionUpdate[T]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated(Generic[T]):
    """``partitions`` have markers now. ``has_offsets``: a group has offsets to settle.

    ``history`` is the epoch of the history of the metadata in which that was stored.
    """

    result: T
    history: int
    partitions: Sequence[PartitionKey]
    has_offsets: bool


class OpenInLog(NamedTuple):
    """A transaction that is open in a log.

    Without an id only an operator can end it.
    """

    partition: PartitionKey
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTransactionCounts:
    ids: int
    open: int
    oldest_ms: int


class SharedTransactionStore(Protocol):
    """All transactional ids of a cluster.

    Every call may raise ``CoordinatorNotAvailable``: the database cannot be reached; it may have had effect.
    """

    async def update(self, ids: Collection[str], decide: Decide[T]) -> Updated[T]:
        """Lock transactional ids, and do what ``decide`` says.

        Raises:
            IdempotencyKeyInUse: the key of the answer has one; nothing was changed.
            SteleError: what ``decide`` raises; nothing was changed.
        """
        ...

    async def records(self) -> list[TransactionRecord]:
        """Return all transactional ids, sorted."""
        ...

    async def record(self, transactional_id: str) -> TransactionRecord | None: ...

    async def open_in_logs(
        self, *, partition: PartitionKey | None = None, producer_id: int | None = None
    ) -> list[OpenInLog]:
        """Return what is open in one log or in all, for one producer or for all.

        The oldest of a log comes first.
        """
        ...

    async def overdue(self, ids_max: int) -> list[str]:
        """Return ids whose transaction has been open for longer than its timeout.

        The oldest comes first.
        """
        ...

    async def expire(self, unused_ms: int, answers_kept_ms: int, answers_max: int) -> int:
        """Forget ids unused for that long, and surplus answers.

        Answers are surplus if they are too old or too many. Return the number of ids. One call expires at most 1,000 of
        each; the rest expire with the next call.
        """
        ...

    async def counts(self) -> SharedTransactionCounts: ...

    async def answer(self, key: str, kept_ms: int) -> StoredAnswer | None:
        """Return the answer of an idempotency key that is not too old."""
        ...
