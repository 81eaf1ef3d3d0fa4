"""Calls of Linux that Python's library does not have.

Each says whether the system has it, or raises ``OSError``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from functools import cache

# Before this version of Linux, syncfs did not report a failed write of a file (syncfs(2), "BUGS").
_SYNCFS_LINUX = (5, 8)
# Where syncfs is known to wait for files, names and the cache of the disk: ext4, XFS, Btrfs (statfs(2)).
_SYNCFS_TYPES = frozenset({0xEF53, 0x58465342, 0x9123683E})
# More than the structure has on any system; its first field is the type.
_STATFS_BYTES = 512


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def fallocate(fd: int, start: int, size: int) -> None:
    """Call fallocate(2).

    Not ``posix_fallocate``: where the file system has no such call, it writes zeros, even over what another
    thread writes meanwhile.
    """
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) < 8 or not hasattr(_libc(), "fallocate"):
        raise OSError(errno.ENOTSUP, "fallocate: not on this system")
    if _libc().fallocate(fd, 0, ctypes.c_long(start), ctypes.c_long(size)):
        number = ctypes.get_errno()
        raise OSError(number, f"fallocate: {os.strerror(number)}")


def syncfs(fd: int) -> int:
    """Sync the file system of ``fd``; return the number of the error, or 0."""
    return ctypes.get_errno() if _libc().syncfs(fd) else 0


def has_syncfs(fd: int) -> bool:
    """Return whether ``syncfs`` here keeps what ``fsync`` of each file promises."""
    system = os.uname()
    version = re.match(r"(\d+)\.(\d+)", system.release)
    if system.sysname != "Linux" or version is None or not hasattr(_libc(), "syncfs"):
        return False
    if (int(version[1]), int(version[2])) < _SYNCFS_LINUX:
        return False
    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc().fstatfs(fd, status):
        return False
    file_system = int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
    return file_system in _SYNCFS_TYPES
