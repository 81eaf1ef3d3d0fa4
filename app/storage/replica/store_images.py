"""Consistent images of a store's SQLite file.

::

    thread of the store     … write │ begin │ write …      every earlier write is in the image, and no later one
    thread of the replica           image ──────────▶

A second connection holds a read transaction from ``begin`` on, which SQLite's WAL allows beside writes. What has changed
is found by comparison with the image before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

# A change of a page is written with its neighbours.
CHUNK_BYTES = 16 * 1024
_COMPARED_BYTES = 64 * CHUNK_BYTES
_BUSY_TIMEOUT_S = 10.0


class StoreImages:
    """The images of one file. Methods are called one at a time, and raise ``sqlite3.Error``."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._version = -1

    def begin(self) -> bool:
        """Hold what is stored now; in the thread that writes the file. False if it is as in the last image."""
        connection = self._connected()
        self._end(connection)
        connection.execute("BEGIN")
        # The first read is what takes the snapshot.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            self._end(connection)
            return False
        self._version = version
        return True

    def image(self) -> bytes:
        """Return the bytes of the file as of ``begin``; in any thread."""
        connection = self._connected()
        try:
            return connection.serialize()
        finally:
            self._end(connection)

    def forget(self) -> None:
        """Have the next ``begin`` return True: the last image was not used."""
        self._version = -1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path, check_same_thread=False, isolation_level=None, timeout=_BUSY_TIMEOUT_S
            )
            self._connection.execute("PRAGMA query_only = ON")
        return self._connection

    @staticmethod
    def _end(connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def changed_chunks(before: bytes, after: bytes) -> Iterator[int]:
    """Yield the numbers of the chunks of ``after`` that ``before`` has not; for threads."""
    old, new = memoryview(before), memoryview(after)
    for start in range(0, len(new), _COMPARED_BYTES):
        # The old one may be longer, whose last chunk is another one then.
        end = start + _COMPARED_BYTES
        if old[start:end] == new[start:end]:
            continue
        for at in range(start, min(end, len(new)), CHUNK_BYTES):
            if old[at : at + CHUNK_BYTES] != new[at : at + CHUNK_BYTES]:
                yield at // CHUNK_BYTES
