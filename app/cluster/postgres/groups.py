"""The PostgreSQL store of one shard of the shared groups (ADR-0047, ADR-0053).

Only the broker with the lease on the shard writes. Every transaction locks the row of the lease and compares its epoch:
a broker that lost the lease cannot write, and its successor begins to read when the last write is over.

Transactional ids and their answers belong to no shard: ``transactions`` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, LiteralString, TypeVar
from uuid import UUID

from ...errors import CoordinatorFenced, CoordinatorNotAvailable, InvalidRequest
from ...postgres.connector import Connection, PostgresUnavailable
from ...postgres.session import PostgresSession
from ..group_shards import lease_of_shard
from ..group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteTopicOffsets,
    PendingOffset,
    StoreChange,
    StoredGroups,
)
from ..group_tables import GroupTables
from ..transaction_store import StoredAnswer, StoredTransactions, TransactionChange
from .database import PostgresTransaction
from .group_deletions import Deletion, delete_group_record, delete_offsets, deletions, forget_deletions
from .pending_offsets import (
    DROP_EARLIER,
    drop_pending_offsets,
    ended_producers,
    insert_pending_offsets,
    lock_ongoing,
)

_T = TypeVar("_T")


class PostgresGroupTables(GroupTables):
    drop_earlier = DROP_EARLIER

    def __init__(self, connection: Connection, shard: int = 0) -> None:
        super().__init__(PostgresTransaction(connection), shard)
        self.connection = connection
        self._ongoing: set[tuple[int, int]] = set()

    def apply(self, changes: Sequence[StoreChange]) -> None:
        self._ongoing = lock_ongoing(self.connection, changes)
        super().apply(changes)
        if any(isinstance(change, DeleteGroup | DeleteOffset | DeleteTopicOffsets) for change in changes):
            forget_deletions(self.connection, self.shard)

    def _insert_pending(self, pending: Sequence[PendingOffset]) -> None:
        rows = [
            self._pending_row(offset)
            for offset in pending
            if (offset.producer_id, offset.producer_epoch) in self._ongoing
        ]
        insert_pending_offsets(self.connection, rows)

    def _drop_pending(self, keys: Sequence[tuple[str, str, int]]) -> None:
        drop_pending_offsets(self.connection, keys)

    def _delete_offsets(self, condition: LiteralString, values: Sequence[Any]) -> None:
        delete_offsets(self.connection, condition, values)

    def _delete_group(self, group_id: str | bytes) -> None:
        delete_group_record(self.connection, group_id)

    def _apply_transaction(self, change: TransactionChange) -> None:
        raise InvalidRequest("shared storage does not support this yet; use a broker with storage=embedded")


class PostgresGroupStore:
    """Implements ``GroupStore`` for the holder of the lease on a shard; ``take`` comes before ``open``.

    The session is the caller's, who closes it; several shards may share it.
    """

    def __init__(self, session: PostgresSession, *, shard: int, incarnation: UUID) -> None:
        self._session = session
        self._shard = shard
        self._lease = lease_of_shard(shard)
        self._incarnation = incarnation
        self._epoch = 0

    def take(self, epoch: int) -> None:
        """Note the epoch of the lease that this broker has."""
        self._epoch = epoch

    def _run(self, work: Callable[[PostgresGroupTables], _T]) -> _T:
        epoch = self._epoch

        def fenced(connection: Connection) -> _T:
            row = connection.execute(
                "SELECT epoch, incarnation FROM leases WHERE name = %s FOR KEY SHARE", (self._lease,)
            ).fetchone()
            if row is None or (row[0], row[1]) != (epoch, self._incarnation):
                raise CoordinatorFenced(epoch=epoch, current_epoch=0 if row is None else row[0])
            return work(PostgresGroupTables(connection, self._shard))

        try:
            return self._session.run(fenced)
        except PostgresUnavailable as error:
            raise CoordinatorNotAvailable(str(error)) from error

    def open(self) -> StoredGroups:
        def work(tables: PostgresGroupTables) -> StoredGroups:
            forget_deletions(tables.connection, self._shard)
            return tables.stored(self._epoch)

        return self._run(work)

    def transactions(self) -> StoredTransactions:
        return StoredTransactions(transactions=(), outcomes=())

    def answer_ages(self) -> Sequence[tuple[str, int]]:
        return ()

    def answer(self, key: str) -> StoredAnswer | None:
        return None

    def write(self, changes: Sequence[StoreChange]) -> None:
        self._run(lambda tables: tables.apply(changes))

    def deletions(self) -> Sequence[Deletion]:
        """Return the deletions of the last day, the oldest first."""
        return self._run(lambda tables: deletions(tables.connection, self._shard))

    def ended_producers(self, producers: Sequence[tuple[int, int]]) -> Sequence[tuple[int, bool]]:
        """See ``app.groups.ended_elsewhere``."""
        return self._run(lambda tables: ended_producers(tables.connection, producers, self._shard))

    def close(self) -> None:
        """Leave the session open: other shards may use it."""
