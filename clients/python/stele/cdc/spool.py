"""Transactions that PostgreSQL sends before they commit, kept on disk until it is known whether they do."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct(">QI")
# Smaller ones never touch the disk.
_MEMORY_BYTES = 1024 * 1024


class Spool:
    """One open transaction: its messages as they came. Nothing of it need outlive a crash: PostgreSQL sends it again."""

    def __init__(self, directory: Path | None) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - it lives as long as this
            _MEMORY_BYTES, dir=None if directory is None else str(directory), prefix="stele-cdc-"
        )
        self._aborted: set[int] = set()
        self.bytes = 0

    def append(self, lsn: int, message: bytes) -> None:
        """Raises OSError when the disk is full."""
        self._file.write(_HEAD.pack(lsn, len(message)))
        self._file.write(message)
        self.bytes += _HEAD.size + len(message)

    def abort(self, xid: int) -> None:
        """A subtransaction is rolled back: what it has changed so far does not count."""
        self._aborted.add(xid)

    def is_aborted(self, xid: int | None) -> bool:
        return xid in self._aborted

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """LSN and message, in the order they came."""
        self._file.seek(0)
        while head := self._file.read(_HEAD.size):
            lsn, size = _HEAD.unpack(head)
            yield lsn, self._file.read(size)

    def close(self) -> None:
        self._file.close()
