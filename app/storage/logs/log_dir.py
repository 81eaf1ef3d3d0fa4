"""A data directory's disk: the threads that wait for it, and its failure.

The first failed sync stops the whole directory (ADR-0003): a kernel may drop the
dirty pages after reporting the error once, so a second try would lie. So does a
broken disk. A full disk is no failure, nor is a limit that was reached (open files,
memory, the length of a name): the call had no effect, so only its request is refused.

=======================================  ======================  ==================
error                                    of a sync               of any other call
=======================================  ======================  ==================
ENOSPC, EDQUOT, EFBIG                    ``LogDirFailed``        ``StorageFull``
EMFILE, ENFILE, ENOMEM, ENAMETOOLONG,    ``LogDirFailed``        ``StorageLimitReached``
EMLINK
all others (EIO, EROFS, ENODEV, …)       ``LogDirFailed``        ``LogDirFailed``
=======================================  ======================  ==================
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from ...errors import LogDirFailed, StorageError, StorageFull, StorageLimitReached
from ..disk.files import DISK_FULL, LIMIT_REACHED, Files, Threads, is_refusal
from ..disk.kept_space import KeptSpace

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# With less free space, a health check tries whether there is any.
_SCARCE_BYTES = 1 << 20
# Reads that wait for a bucket at a time.
_REMOTE_THREADS = 8


class LogDir:
    """``failure`` is set once, by the first error of the disk, and never cleared.

    ``refuses_appends``: the directory has failed, or the space that is kept back has been used (``kept_space``).
    """

    def __init__(self, files: Files, path: Path, *, threads: int) -> None:
        self.files = files
        self.path = path
        self.failure: LogDirFailed | None = None
        self.refuses_appends = False
        self.threads = files.threads(threads)
        # Started with the first segment that is in a bucket.
        self._remote_threads: Threads | None = None
        self._kept_space = KeptSpace(files, path)
        # Held while the space that is kept back is in use, or is kept back again in a thread.
        self._space = asyncio.Lock()
        self._is_in_use = False
        # The last refusal because of a full disk, until there is space again.
        self._full: StorageFull | None = None
        self._on_failure: list[Callable[[LogDirFailed], object]] = []

    def on_failure(self, observer: Callable[[LogDirFailed], object]) -> None:
        """Have ``observer`` called when the directory stops."""
        self._on_failure.append(observer)

    async def in_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Run ``work`` where it may wait for the disk."""
        return await self.threads.run(work, *arguments)

    async def in_remote_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Run ``work`` where it may wait for a bucket, and takes no thread of the disk."""
        if self._remote_threads is None:
            self._remote_threads = self.files.threads(_REMOTE_THREADS)
        return await self._remote_threads.run(work, *arguments)

    def shut_down_threads(self) -> None:
        """End the threads when they have done their work."""
        if self._remote_threads is not None:
            self._remote_threads.shutdown()
        self.threads.shutdown()

    # ── errors ──

    def refuse(self, path: Path, error: OSError) -> StorageError:
        """Return the error to raise for ``error``; see the table above.

        ``path`` is what the call was about, if the error does not say.
        """
        path = Path(error.filename or path)
        if not is_refusal(error):
            return self.fail(path, error)
        if error.errno in DISK_FULL:
            self._full = StorageFull(path, error)
            return self._full
        return StorageLimitReached(path, error)

    def fail(self, path: Path, error: OSError) -> LogDirFailed:
        """Stop the directory because of ``error``."""
        failure = LogDirFailed(path, error.strerror or str(error))
        if self.failure is None:
            self.failure = failure
            self.refuses_appends = True
            logger.critical("%s", failure)
            for observer in self._on_failure:
                observer(failure)
        return failure

    def unreadable(self, path: Path, error: OSError) -> StorageError:
        """Return the error to raise for a read that failed, which stops nothing else."""
        path = Path(error.filename or path)
        if error.errno in LIMIT_REACHED:
            return StorageLimitReached(path, error)
        return LogDirFailed(path, error.strerror or str(error))

    # ── space that is kept back ──

    def spend_kept_space(self) -> None:
        """Free the space that is kept back; for any thread.

        Nothing else uses it or takes it meanwhile. Appends are refused until it is kept back again.
        """
        self.refuses_appends = True
        self._kept_space.spend()

    async def keep_space(self) -> None:
        """Keep space back again, if the disk has it."""
        async with self._space:
            await self.in_thread(self.keep_space_now)

    def keep_space_now(self) -> None:
        """Do the same while nothing else uses the space or takes it; for any thread."""
        try:
            self._kept_space.keep()
        except OSError as error:
            self.refuses_appends = True
            self._full = StorageFull(self.path, error)
        else:
            self.refuses_appends = self.failure is not None

    def admit_append(self, directory: Path, *, is_marker: bool) -> None:
        """Call before an append if ``refuses_appends``.

        A marker takes a few bytes of what is kept back: readers and the next start wait for it.

        Raises:
            LogDirFailed: the directory has failed.
            StorageFull: there is no space yet that could be kept back again.
        """
        if self.failure is not None:
            raise LogDirFailed(directory, self.failure.cause)
        if is_marker:
            return
        if self._is_in_use:
            raise StorageFull(self.path, "work that frees space uses what is kept back for it")
        if self._space.locked():
            # It is just being kept back again: the append itself finds out whether there is any.
            return
        self.keep_space_now()
        if self.refuses_appends and self._full is not None:
            raise self._full

    def append_in_kept_space(self, error: OSError, append: Callable[[], _T]) -> _T:
        """Append a marker, after ``error``, in what is kept back; on the event loop.

        Raises ``error`` if that is not about a full disk, or if other work uses the space; and ``OSError``.
        """
        if error.errno not in DISK_FULL or self._space.locked():
            raise error
        self.spend_kept_space()
        try:
            return append()
        finally:
            self.keep_space_now()

    async def find_space(self) -> StorageFull | None:
        """Return why nothing can be written, None if it can. Raises ``OSError``."""
        if self.refuses_appends:
            await self.keep_space()
        if not self.refuses_appends:
            self._full = await self.in_thread(self._look_for_space)
        return self._full

    def _look_for_space(self) -> StorageFull | None:
        _, free_bytes = self.files.space(self.path)
        if self._full is None and free_bytes >= _SCARCE_BYTES:
            return None
        try:
            self._kept_space.probe()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return StorageFull(self.path, error)
        return None

    async def with_kept_space(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Await ``work``; on a full disk, again in what is kept back.

        No append gets any of it meanwhile.
        """
        try:
            return await work()
        except StorageFull as error:
            self._full = error
        except OSError as error:
            if not is_refusal(error) or error.errno not in DISK_FULL:
                raise
            self._full = StorageFull(Path(error.filename or self.path), error)
        async with self._space:
            self._is_in_use = True
            try:
                await self.in_thread(self.spend_kept_space)
                return await work()
            finally:
                try:
                    await self.in_thread(self.keep_space_now)
                finally:
                    # Even if the caller stops waiting: appends are refused until then.
                    self._is_in_use = False
