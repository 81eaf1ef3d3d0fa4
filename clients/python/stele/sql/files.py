"""The files of tables, which the broker reads: this process has neither access to a bucket nor credentials."""

from __future__ import annotations

import threading

from ..wire import sql_frames as frames
from .link import Link
from .manifests import DataFile

PROTOCOL = "stele"
_LOCAL = "file://"
# Of one request, so that the broker holds no more of a file.
_READ_BYTES = 4 * 1024 * 1024


def is_local(file: DataFile) -> bool:
    return file.location.startswith(_LOCAL)


def path_of(file: DataFile) -> str:
    """Return by which path DuckDB opens a file: its own one, or one of ``broker_files``."""
    if is_local(file):
        return file.location.removeprefix(_LOCAL)
    return f"{PROTOCOL}://{file.location.partition('://')[2]}"


class BrokerFile:
    """A file of a table; each thread has its own position, because those of DuckDB share it."""

    def __init__(self, link: Link, table: int, file: DataFile) -> None:
        self._link = link
        self._table = table
        self._file = file
        self._at = threading.local()
        self.closed: bool = False

    def read(self, size: int = -1) -> bytes:
        start = self.tell()
        end = self._file.size if size < 0 else min(start + size, self._file.size)
        parts: list[bytes] = []
        for at in range(start, end, _READ_BYTES):
            question = frames.Read(self._table, self._file.location, at, min(at + _READ_BYTES, end))
            parts.append(self._link.ask(question, frames.Bytes).body)
        self._at.offset = max(start, end)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at.offset = offset + (0, self.tell(), self._file.size)[whence]
        return self._at.offset

    def tell(self) -> int:
        return getattr(self._at, "offset", 0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing: nothing is written."""

    def close(self) -> None:
        self.closed = True
