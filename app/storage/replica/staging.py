"""The directory that a restore writes, until it is complete.

::

    data.restoring/     beside the data directory: renamed to it at the end
    data/restoring/     in it, if it is a file system of its own, or if nothing may be made beside it: what is in
                        there is moved up at the end, and until then no broker uses the directory

So a restore that was interrupted is never served, and the next one begins again.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..disk.files import Files, Lock
from ..logs.data_dir import LOCK

RESTORING = "restoring"
# In a directory without data: what a file system makes, and the lock of a broker that could not start.
_NOTHING = frozenset({"lost+found", LOCK})


class NotEmpty(Exception):
    """The directory has data already, or is in use."""


def is_interrupted(data_dir: Path) -> bool:
    """Return whether the directory has a part of what was to be restored."""
    return (data_dir / RESTORING).exists()


def has_data(files: Files, data_dir: Path) -> bool:
    """Return whether there is anything in the directory that a restore must not replace."""
    if not files.exists(data_dir) or is_interrupted(data_dir):
        return False
    return not _NOTHING.issuperset(files.list_dir(data_dir))


class Staging:
    """``path`` is where to write. Methods raise ``OSError``."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._data_dir = data_dir
        self._is_inside = _must_be_inside(data_dir)
        self.path = (
            data_dir / RESTORING if self._is_inside else data_dir.with_name(f"{data_dir.name}.{RESTORING}")
        )
        self._lock: Lock | None = None

    def begin(self) -> None:
        """Make an empty directory for the restore.

        Raises:
            NotEmpty: see there.
        """
        files = self._files
        if has_data(files, self._data_dir):
            raise NotEmpty(
                f"{self._data_dir} is not empty: name another directory, or move what is in it away first"
            )
        files.make_dir(self.path)
        try:
            self._lock = files.lock(self.path / LOCK)
            if files.exists(self._data_dir / LOCK):
                files.lock(self._data_dir / LOCK).release()
        except BlockingIOError as error:
            self._release()
            raise NotEmpty(f"{self._data_dir} is being restored or used by another process") from error
        # Of a restore that was interrupted.
        self._remove_all(self.path, {LOCK})
        if self._is_inside:
            self._remove_all(self._data_dir, {RESTORING, "lost+found"})
            files.sync_dir(self._data_dir)

    def finish(self) -> None:
        """Make what was written, and synced, the data directory."""
        files = self._files
        if not self._is_inside:
            if files.exists(self._data_dir):
                # A directory takes the place of an empty one.
                self._remove_all(self._data_dir, set())
            files.rename(self.path, self._data_dir)
            files.sync_dir(self._data_dir.parent)
        else:
            for name in files.list_dir(self.path):
                if name != LOCK:
                    files.rename(self.path / name, self._data_dir / name)
            # Before the mark goes.
            files.sync_dir(self._data_dir)
            files.remove_tree(self.path)
            files.sync_dir(self._data_dir)
        self._release()

    def abandon(self) -> None:
        """Remove what was written."""
        if self._lock is None:
            return
        if self._is_inside:
            self._remove_all(self._data_dir, {RESTORING, "lost+found"})
        if self._files.exists(self.path):
            self._files.remove_tree(self.path)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _remove_all(self, directory: Path, kept: set[str]) -> None:
        for name in self._files.list_dir(directory):
            if name in kept:
                continue
            path = directory / name
            if path.is_dir() and not path.is_symlink():
                self._files.remove_tree(path)
            else:
                self._files.remove(path)


def _must_be_inside(data_dir: Path) -> bool:
    if not data_dir.exists():
        return False
    return data_dir.is_symlink() or data_dir.is_mount() or not os.access(data_dir.parent, os.W_OK | os.X_OK)
