"""Storage of transactions that PostgreSQL streams before they commit."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct(">QI")
# Smaller transactions stay in memory.
_MEMORY_BYTES = 1024 * 1024


class Spool:
    """Messages of an open transaction, on disk if they are large.

    They need not survive a crash, because PostgreSQL sends them again.
    """

    def __init__(self, directory: Path | None) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed with this object
            _MEMORY_BYTES, dir=None if directory is None else str(directory), prefix="stele-cdc-"
        )
        self._aborted: set[int] = set()
        self.bytes: int = 0

    def append(self, lsn: int, message: bytes) -> None:
        """Append a message. Raises OSError if the disk is full."""
        self._file.write(_HEAD.pack(lsn, len(message)))
        self._file.write(message)
        self.bytes += _HEAD.size + len(message)

    def abort(self, xid: int) -> None:
        """Note that a subtransaction was rolled back, so that its changes are dropped."""
        self._aborted.add(xid)

    @property
    def has_aborted(self) -> bool:
        """Whether any subtransaction was rolled back."""
        return bool(self._aborted)

    def is_aborted(self, xid: int | None) -> bool:
        return xid in self._aborted

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield LSNs and messages in the order received."""
        self._file.seek(0)
        while head := self._file.read(_HEAD.size):
            lsn, size = _HEAD.unpack(head)
            yield lsn, self._file.read(size)

    def close(self) -> None:
        self._file.close()
