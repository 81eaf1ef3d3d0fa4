"""The embedded group store: one SQLite file, WAL, ``synchronous=FULL`` (ADR-0012).

Apart from the catalog's, so that no commit waits for a topic to be made. It has the tables of ``app.cluster.group_tables``
and those of transactions (``transactions``).

A commit is in the file when ``write`` returns: SQLite has synced its log. A
crash in the middle leaves the transaction out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

from ...errors import CoordinatorFenced, GroupStoreFailed
from ..database import SqlTransaction, insert
from ..group_store import PendingOffset, StoreChange, StoredGroups
from ..group_tables import PENDING_COLUMNS, GroupTables
from ..transaction_store import StoredAnswer, StoredTransactions, TransactionChange
from .file import SqliteFailed, SqliteFile, SqliteTransaction
from .group_migrations import MIGRATIONS
from .transactions import answer_ages, apply_change, stored_answer, stored_transactions

# One that takes the place of another gets the next number.
_INSERT_PENDING = insert("group_pending_offsets", PENDING_COLUMNS).replace("INSERT", "INSERT OR REPLACE", 1)


class SqliteGroupTables(GroupTables):
    drop_earlier = """
        DELETE FROM group_pending_offsets WHERE number IN (
            SELECT earlier.number FROM group_pending_offsets ended
            JOIN group_pending_offsets earlier USING (group_id, topic, part)
            WHERE ended.producer_id = %s AND ended.shard = %s AND earlier.number < ended.number)
    """

    def _insert_pending(self, pending: Sequence[PendingOffset]) -> None:
        self._sql.executemany(_INSERT_PENDING, [self._pending_row(offset) for offset in pending])

    def _drop_pending(self, keys: Sequence[tuple[str, str, int]]) -> None:
        self._sql.executemany(
            "DELETE FROM group_pending_offsets WHERE group_id = %s AND topic = %s AND part = %s", keys
        )

    def _delete_offsets(self, condition: LiteralString, values: Sequence[Any]) -> None:
        self._sql.execute(f"DELETE FROM group_offsets WHERE {condition}", values)

    def _delete_group(self, group_id: str | bytes) -> None:
        self._delete_rows(group_id, "groups")

    def _apply_transaction(self, change: TransactionChange) -> None:
        apply_change(self._sql, change)


def _current_epoch(sql: SqlTransaction) -> int:
    ((epoch,),) = sql.execute("SELECT epoch FROM coordinator")
    return epoch


class SqliteGroupStore:
    """Implements ``GroupStore``; calls come one at a time, from whichever thread."""

    def __init__(self, path: Path) -> None:
        """Touches nothing: ``open`` does."""
        self._path = path
        self._opened: SqliteFile | None = None
        self._epoch = 0

    def open(self) -> StoredGroups:
        try:
            with self._translated():
                self._opened = SqliteFile(self._path, MIGRATIONS)
            with self._transaction() as sql:
                # Read under the lock under which the epoch is taken, so no write comes in between.
                sql.execute("UPDATE coordinator SET epoch = epoch + 1")
                self._epoch = _current_epoch(sql)
                return SqliteGroupTables(sql).stored(self._epoch)
        except GroupStoreFailed:
            self.close()
            raise

    def transactions(self) -> StoredTransactions:
        with self._transaction() as sql:
            return stored_transactions(sql)

    def answer_ages(self) -> Sequence[tuple[str, int]]:
        with self._transaction() as sql:
            return answer_ages(sql)

    def answer(self, key: str) -> StoredAnswer | None:
        with self._transaction() as sql:
            return stored_answer(sql, key)

    def write(self, changes: Sequence[StoreChange]) -> None:
        with self._transaction() as sql:
            current = _current_epoch(sql)
            if current != self._epoch:
                raise CoordinatorFenced(epoch=self._epoch, current_epoch=current)
            SqliteGroupTables(sql).apply(changes)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @contextmanager
    def _transaction(self) -> Generator[SqliteTransaction]:
        assert self._opened is not None
        with self._translated(), self._opened.transaction() as sql:
            yield sql

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except SqliteFailed as error:
            raise GroupStoreFailed(self._path, str(error), is_full=error.is_full) from error
        except sqlite3.IntegrityError as error:
            raise GroupStoreFailed(self._path, str(error)) from error
