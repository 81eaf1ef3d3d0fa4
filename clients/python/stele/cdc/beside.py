"""Reads the rows of tables beside the stream, and keeps the changes that the stream has of them meanwhile."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .errors import CdcError, Interrupted, Stopped
from .events import Table
from .options import CdcOptions
from .pgoutput import Begin
from .postgres import TableInfo
from .replication import Stream, copy_rows, snapshot_connection
from .spool import Spool

# Rows that are passed on together, and how many of these wait.
_BATCH_ROWS = 500
_BATCHES_MAX = 20


class Started(NamedTuple):
    """The rows that follow are of a table, at a snapshot which was exported at ``lsn``."""

    table: TableInfo
    lsn: int


class Ended(NamedTuple):
    table: TableInfo


class SnapshotReader(threading.Thread):
    """Reads tables at one snapshot, in a thread with connections of its own.

    PostgreSQL exports the snapshot when all open transactions have ended, and a copy waits for locks; the stream must
    not wait for either.
    """

    def __init__(self, options: CdcOptions, tables: Sequence[TableInfo]) -> None:
        super().__init__(daemon=True)
        self._options = options
        self._tables = tables
        self._queue: queue.Queue[Started | Ended | list[bytes] | Exception] = queue.Queue(_BATCHES_MAX)
        self._is_closed = False

    def take(self) -> Started | Ended | list[bytes] | None:
        """Return what comes next; None if nothing is there yet.

        Raises CdcError, Interrupted: the reader has ended with it.
        """
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item

    def close(self) -> None:
        """Let the thread end with the next row."""
        self._is_closed = True

    def run(self) -> None:
        try:
            self._read()
        except Stopped:
            pass
        except (CdcError, Interrupted) as error:
            self._put(error)

    def _read(self) -> None:
        exporting = Stream(self._options)
        try:
            lsn, snapshot = exporting.create_slot(temporary=True)
            with snapshot_connection(self._options.dsn, snapshot) as connection:
                # The transaction keeps the snapshot; the slot would only hold back WAL.
                exporting.close()
                for table in self._tables:
                    self._put(Started(table, lsn))
                    rows: list[bytes] = []

                    def add(line: bytes, rows: list[bytes] = rows) -> None:
                        rows.append(line)
                        if len(rows) >= _BATCH_ROWS:
                            self._put(rows.copy())
                            rows.clear()

                    copy_rows(connection, table, add)
                    self._put(rows)
                    self._put(Ended(table))
        finally:
            exporting.close()

    def _put(self, item: Started | Ended | list[bytes] | Exception) -> None:
        while not self._is_closed:
            try:
                self._queue.put(item, timeout=0.5)
            except queue.Full:
                continue
            return
        raise Stopped


class Deferred(NamedTuple):
    """A change of a table that is being copied; ``number`` is that of its first record."""

    transaction: Begin
    lsn: int
    number: int
    change: Any


class DeferredChanges:
    """Changes of one table in order, on disk if they are many.

    They need not survive a crash, because the table is copied again then.
    """

    def __init__(self, options: CdcOptions) -> None:
        self._spool = Spool(options.spool_dir)
        self._tables: list[Table] = []

    def append(self, table: Table, deferred: Deferred) -> None:
        """Raises OSError if the disk is full."""
        if not self._tables or self._tables[-1] is not table:
            self._tables.append(table)
        content = pickle.dumps((len(self._tables) - 1, deferred), pickle.HIGHEST_PROTOCOL)
        self._spool.append(deferred.lsn, content)

    def since(self, lsn: int) -> Iterator[tuple[Table, Deferred]]:
        """Yield the changes of transactions that were committed at ``lsn`` or later."""
        for _, content in self._spool.messages():
            # The file has no name; only this process has written to it.
            place, deferred = pickle.loads(content)  # noqa: S301
            if deferred.transaction.commit_lsn >= lsn:
                yield self._tables[place], deferred

    def close(self) -> None:
        self._spool.close()
