"""Space that is kept back for work that frees space, and for starts (ADR-0068).

A full disk would otherwise refuse its own remedies: to delete records, to lower retention, to delete a topic and to
start, the broker must write a little. So a file of this size takes the space from appends. Such work removes the file
when it meets a full disk, and writes in its place. Until there is space for the file again, appends are refused, so
that they do not take what was freed for others.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from .files import DISK_FULL, Files

KEPT_SPACE = "space-kept-back"
# Checkpoints of 10,000 partitions take 2 MiB, the write-ahead logs of both databases up to 4 MiB each.
KEPT_BYTES_MAX = 16 << 20
# A small file system keeps back no more than this part of it.
_TOTAL_PER_KEPT = 16
_BLOCK_BYTES = 4096
# Where space cannot be allocated, it is written, in pieces of this size.
_PIECE_BYTES = 1 << 20
# There is space for appends again when a file of this size can be made.
_PROBE_BYTES = 64 * 1024


class KeptSpace:
    """The file of one data directory. It is not there before the first ``keep``.

    Calls of ``spend`` and ``keep`` must come one at a time, from any thread.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / KEPT_SPACE
        self._is_kept = False

    def spend(self) -> bool:
        """Give the space to others; return False if none is kept back.

        It needs neither space nor a file descriptor. Raises ``OSError``.
        """
        self._is_kept = False
        try:
            self._files.remove(self._path)
        except FileNotFoundError:
            return False
        return True

    def keep(self) -> None:
        """Take the space again.

        Nothing happens if it is there, or if the system limits something else: the next call tries again.

        Raises:
            OSError: the disk is full; what there was is kept back.
        """
        if self._is_kept:
            return
        total_bytes, _ = self._files.space(self._path.parent)
        size = min(KEPT_BYTES_MAX, total_bytes // _TOTAL_PER_KEPT) // _BLOCK_BYTES * _BLOCK_BYTES
        try:
            if size:
                self._allocate(self._path, size)
        except OSError as error:
            if error.errno in DISK_FULL:
                raise
        else:
            self._is_kept = True

    def probe(self) -> None:
        """Raise ``OSError`` if nothing can be written beside the space that is kept back."""
        path = self._path.with_suffix(".probe")
        try:
            self._allocate(path, _PROBE_BYTES)
        finally:
            # Another one may have removed it.
            with suppress(FileNotFoundError):
                self._files.remove(path)

    def _allocate(self, path: Path, size: int) -> None:
        file = self._files.open(path, create=True)
        try:
            file.allocate(0, size)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EOPNOTSUPP):
                raise OSError(error.errno, error.strerror, str(path)) from error
            for position in range(0, size, _PIECE_BYTES):
                # Zeros take no space on file systems that compress.
                file.write_at(position, [os.urandom(min(_PIECE_BYTES, size - position))])
        finally:
            file.close()
