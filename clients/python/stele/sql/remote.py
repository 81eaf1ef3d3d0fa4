"""Files in a bucket as DuckDB asks for them: a file system of fsspec, which is imported for nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem

from .files import PROTOCOL, BrokerFile
from .link import Link
from .manifests import DataFile

_CHANGED = datetime(1970, 1, 1, tzinfo=UTC)


def broker_files(link: Link, files: dict[str, tuple[int, DataFile]]) -> Any:
    """Return the files of a statement, by their paths, as a file system of fsspec, whose types are not known."""
    return _BrokerFiles(link, files)


class _BrokerFiles(AbstractFileSystem):
    protocol: Any = PROTOCOL
    cachable = False

    def __init__(self, link: Link, files: dict[str, tuple[int, DataFile]]) -> None:
        super().__init__()
        self._link = link
        self._files = files

    def open(self, path: str, mode: str = "rb", **_: Any) -> BrokerFile:  # pyright: ignore[reportIncompatibleMethodOverride]
        table, file = self._find(path)
        return BrokerFile(self._link, table, file)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._find(path)[1].size, "type": "file"}

    def glob(self, path: str, **_: Any) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return [path] if self.exists(path) else []

    def exists(self, path: str, **_: Any) -> bool:
        return self._name(path) in self._files

    def modified(self, path: str) -> datetime:
        """Return a time: files of tables never change."""
        return _CHANGED

    def _find(self, path: str) -> tuple[int, DataFile]:
        try:
            return self._files[self._name(path)]
        except KeyError:
            raise FileNotFoundError(path) from None

    @staticmethod
    def _name(path: str) -> str:
        return path if path.startswith(f"{PROTOCOL}://") else f"{PROTOCOL}://{path}"
