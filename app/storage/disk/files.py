"""The only module that opens, writes, syncs, renames and removes files of the log.

Everything above takes a ``Files``, so a test can cut the power, tear a sector
or fail any single call. The rules a file system really gives, and which the
callers rely on:

- written bytes survive the death of the process, and the loss of power only
  after ``File.sync``;
- a created, renamed or removed name survives the loss of power only after
  ``sync_dir`` of its directory;
- ``many_syncs`` does both for many files and directories, at the price of a few;
- after a failed sync nothing is known about the bytes it covered, and a second
  sync may succeed without having written them (fsyncgate): never retry. It raises
  ``SyncFailedError``; any other error of a call leaves what was there before.

Directories get mode 0700 and files 0600: records are for those whom the broker lets read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from .disk_threads import DiskThreads
from .fine_timer import FineTimer
from .linux_calls import fallocate, has_syncfs, syncfs

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

Buffer = bytes | bytearray | memoryview

# Errors that say the disk is full: nothing is wrong with it, and space may come. EFBIG is the process's limit.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Errors that say that a limit of the process, the system or the file system was reached: the call had no effect.
LIMIT_REACHED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG, errno.EMLINK})

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
# The rights of the group and of others.
_OTHERS = 0o077

# writev takes at most IOV_MAX buffers
_BUFFERS_MAX = 1024
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)

# From this many paths on, one sync of the whole file system is cheaper than one of each.
_SYNCFS_PATHS_MIN = 64
# Single syncs that wait at the same time share the commits of the file system's journal.
_SYNCS_AT_ONCE = 32


class SyncFailedError(OSError):
    """A sync failed, so nothing is known of the bytes or names that it covered."""


def is_refusal(error: OSError) -> bool:
    """Return whether a call was refused without effect, and may succeed later.

    Any other error means that the disk is broken, or that nothing is known of what is on it.
    """
    return not isinstance(error, SyncFailedError) and error.errno in DISK_FULL | LIMIT_REACHED


class File(Protocol):
    """An open file.

    Positions and sizes are in bytes; every method may raise ``OSError``.
    """

    @property
    def path(self) -> Path: ...
    def size(self) -> int: ...
    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all of ``buffers``; on an error an unknown part of them is in the file."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""
        ...

    def read_at_nowait(self, position: int, size: int) -> bytes | bytearray | None:
        """Read like ``read_at``, or return None rather than wait for a disk."""
        ...

    def truncate(self, size: int) -> None: ...
    def allocate(self, start: int, end: int) -> None:
        """Give the file space on the disk from byte ``start`` to ``end``.

        The file ends at ``end`` then, if it ended before that. Bytes that are there stay, including those that are
        written meanwhile; others read as zeros. If it raises, some of the space may have been given.
        """
        ...

    def sync(self) -> None:
        """Sync the bytes and the size, so that they survive a loss of power.

        Raises ``SyncFailedError``.
        """
        ...

    def close(self) -> None: ...


class SealedFile:
    """The part of a ``File`` that those have in common which nobody changes."""

    __slots__ = ()

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        raise AssertionError("a sealed segment does not change")

    def truncate(self, size: int) -> None:
        raise AssertionError("a sealed segment does not change")

    def allocate(self, start: int, end: int) -> None:
        raise AssertionError("a sealed segment does not change")

    def sync(self) -> None:
        raise AssertionError("a sealed segment does not change")


class Directory(Protocol):
    """An open directory: its sync needs no further file descriptor."""

    def sync(self) -> None:
        """Sync the names in it, so that they last. Raises ``SyncFailedError``."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Threads(Protocol):
    """Threads for calls that wait for a disk."""

    def run(self, work: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        """Begin ``work(*arguments)`` in a thread; it goes on if the future is cancelled."""
        ...

    def time(self) -> float:
        """Return seconds by a clock that the loop and these threads may read."""
        ...

    def timer(self, callback: Callable[[], object]) -> FineTimer:
        """Return a timer for the running loop, for waits as short as those for a disk."""
        ...

    def shutdown(self) -> None:
        """Return when all work is done and the threads have ended; timers are closed."""
        ...


class ManySyncs(Protocol):
    """Syncs of many files and directories, with the same guarantee as one of each."""

    def begin(self) -> None:
        """Write what is not on the disk yet, so that less is left for ``sync``.

        ``sync`` reports the errors.
        """
        ...

    def sync(self, paths: Sequence[Path]) -> None:
        """Sync everything written to ``paths``, so that it lasts.

        They are files and directories, in no order. If it raises ``OSError``, nothing is known of any of them.
        """
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """A directory tree. Every method may raise ``OSError``."""

    def threads(self, count: int) -> Threads:
        """Up to ``count`` threads for calls to these files."""
        ...

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; ``create`` makes the file if it is not there."""
        ...

    def exists(self, path: Path) -> bool: ...
    def size(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int:
        """Time of the last change of the content, in ms since the epoch."""
        ...

    def list_dir(self, path: Path) -> list[str]:
        """Names in ``path``, sorted."""
        ...

    def make_dir(self, path: Path) -> None:
        """Make ``path``; its parent must be there. Nothing happens if it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...
    def remove(self, path: Path) -> None: ...
    def remove_tree(self, path: Path) -> None: ...
    def open_dir(self, path: Path) -> Directory:
        """Open a directory, to sync it after a change that must not be refused halfway."""
        ...

    def sync_dir(self, path: Path) -> None: ...
    def space(self, path: Path) -> tuple[int, int]:
        """Return ``(total, free)`` bytes of the file system of ``path``.

        Free is what is left for users other than root.
        """
        ...

    def make_private(self, root: Path) -> None:
        """Take the rights of other users from ``root`` and what is in it."""
        ...

    def many_syncs(self, root: Path) -> ManySyncs:
        """For what is written below ``root`` from now on. The caller closes it."""
        ...

    def lock(self, path: Path) -> Lock:
        """An exclusive lock that dies with the process.

        Raises ``BlockingIOError`` if it is held.
        """
        ...

    def boot_id(self) -> str:
        """Changes when the machine restarts; empty where that cannot be known."""
        ...


class RealFile:
    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        if len(buffers) == 1:
            # Nearly every append.
            written = os.pwrite(self._fd, buffers[0], position)
            if written == len(buffers[0]):
                return
            position += written
            buffers = [memoryview(buffers[0])[written:]]
        waiting = list(buffers)
        while waiting:
            chunk = waiting[:_BUFFERS_MAX]
            written = os.pwritev(self._fd, chunk, position)
            position += written
            # A short write is not an error: continue after it.
            done = 0
            while done < len(chunk) and written >= len(chunk[done]):
                written -= len(chunk[done])
                done += 1
            waiting = waiting[done:]
            if written:
                waiting[0] = memoryview(waiting[0])[written:]

    # Reading and sending 1 MB to a loopback socket takes 120 µs, ``sendfile`` 119 and ``mmap`` 65 to 138: the copy
    # from the page cache dominates, so neither of them would be cheaper.
    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := os.pread(self._fd, missing, position + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_at_nowait(self, position: int, size: int) -> bytes | bytearray | None:
        if not _NOWAIT:
            return None
        buffer = bytearray(size)
        try:
            got = os.preadv(self._fd, [buffer], position, _NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL):
                return None
            raise
        if got == size:
            return buffer
        # Short: the end of the file, or the end of what is in memory.
        return None

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, start: int, end: int) -> None:
        fallocate(self._fd, start, end - start)

    def sync(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            _sync_failed(error, self._path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDirectory:
    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            _sync_failed(error, self._path)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class RealManySyncs:
    """One ``syncfs`` where that is enough, or else single syncs (ADR-0054).

    The descriptor for ``syncfs`` is open from the start, because it reports the errors since then.
    """

    __slots__ = ("_begin_errno", "_device", "_fd")

    def __init__(self, root: Path) -> None:
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # None: every path is synced on its own.
        self._device = os.fstat(self._fd).st_dev if has_syncfs(self._fd) else None
        # The kernel reports an error once.
        self._begin_errno = 0

    def begin(self) -> None:
        self._begin_errno = 0 if self._device is None else syncfs(self._fd)

    def sync(self, paths: Sequence[Path]) -> None:
        _raise_failed(self._begin_errno)
        single = paths
        if self._device is not None and len(paths) >= _SYNCFS_PATHS_MIN:
            # A directory may lead to another file system.
            single = [path for path in paths if path.stat().st_dev != self._device]
            _raise_failed(syncfs(self._fd))
        if len(single) < 2:
            for path in single:
                _sync_path(path)
            return
        with ThreadPoolExecutor(min(_SYNCS_AT_ONCE, len(single)), thread_name_prefix="stele-syncs") as pool:
            # The first error is raised, and the syncs that have not begun are cancelled.
            for _ in pool.map(_sync_path, single):
                pass

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _sync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        _sync_failed(error, path)
    finally:
        os.close(fd)


def _sync_failed(error: OSError, path: Path) -> NoReturn:
    raise SyncFailedError(error.errno, error.strerror, str(path)) from error


def _raise_failed(number: int) -> None:
    if number:
        raise SyncFailedError(number, f"syncfs: {os.strerror(number)}")


class RealFiles:
    """The file system of this machine."""

    def threads(self, count: int) -> Threads:
        return DiskThreads(count)

    def open(self, path: Path, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, _FILE_MODE))

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def list_dir(self, path: Path) -> list[str]:
        # Not through ``Path``, which costs several times as much; a start lists every partition.
        return sorted(os.listdir(path))  # noqa: PTH208

    def make_dir(self, path: Path) -> None:
        path.mkdir(_DIRECTORY_MODE, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def open_dir(self, path: Path) -> RealDirectory:
        return RealDirectory(path)

    def sync_dir(self, path: Path) -> None:
        directory = RealDirectory(path)
        try:
            directory.sync()
        finally:
            directory.close()

    def space(self, path: Path) -> tuple[int, int]:
        usage = shutil.disk_usage(path)
        return usage.total, usage.free

    def make_private(self, root: Path) -> None:
        is_open = root.stat().st_mode & _OTHERS
        try:
            with os.scandir(root) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        _take_rights(entry.path)
                    elif is_open and entry.is_dir(follow_symlinks=False):
                        for directory, _, names in os.walk(entry.path):
                            for name in names:
                                _take_rights(os.path.join(directory, name))  # noqa: PTH118 - there may be many
                            _take_rights(directory)
            # Last: as long as it is open, another start looks at everything again.
            _take_rights(root)
        except PermissionError as error:
            logger.warning("%s belongs to another user, so others may be able to read it: %s", root, error)

    def many_syncs(self, root: Path) -> RealManySyncs:
        return RealManySyncs(root)

    def lock(self, path: Path) -> RealLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        # It only helps to find the process; on a full disk there is no space for it.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return RealLock(fd)

    def boot_id(self) -> str:
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""


def _take_rights(path: str | Path) -> None:
    mode = os.lstat(path).st_mode
    if mode & _OTHERS and not stat.S_ISLNK(mode):
        os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS)  # noqa: PTH101 - there may be many


def lock_directory(path: Path) -> RealLock:
    """Wait for an exclusive lock on a directory that dies with the process."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return RealLock(fd)
