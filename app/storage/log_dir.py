"""A data directory's disk: the threads that wait for it, and its failure.

The first failed write or sync stops the whole directory (ADR-0003): a kernel may
drop the dirty pages after reporting the error once, so a second try would lie. A
full disk is no failure: it can be waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..errors import LogDirFailed, StorageError, StorageFull
from .files import DISK_FULL, Files

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class LogDir:
    """``failure`` is set once, by the first error of the disk, and never cleared."""

    def __init__(self, files: Files, path: Path, *, threads: int) -> None:
        self.files = files
        self.path = path
        self.failure: LogDirFailed | None = None
        self.threads = files.threads(threads)
        self._on_failure: list[Callable[[LogDirFailed], object]] = []

    def on_failure(self, observer: Callable[[LogDirFailed], object]) -> None:
        """Have ``observer`` called when the directory stops."""
        self._on_failure.append(observer)

    async def in_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Run ``work`` where it may wait for the disk."""
        return await self.threads.run(work, *arguments)

    def refuse(self, path: Path, error: OSError) -> StorageError:
        """Return the error to raise for ``error``.

        A full disk may get space again; any other error stops the directory.
        """
        if error.errno in DISK_FULL:
            return StorageFull(path, error)
        return self.fail(path, error)

    def fail(self, path: Path, error: OSError) -> LogDirFailed:
        """Stop the directory because of ``error``."""
        failure = LogDirFailed(path, error.strerror or str(error))
        if self.failure is None:
            self.failure = failure
            logger.critical("%s", failure)
            for observer in self._on_failure:
                observer(failure)
        return failure
