"""Read small files as a whole, and replace them as a whole.

A file is written under another name, synced and renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .files import DISK_FULL, Files, SyncFailedError


def read_file(files: Files, path: Path) -> bytes | None:
    """The whole of a small file, or None if there is none."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def write_file(files: Files, path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace ``path`` by ``data``.

    After a crash it has either the old bytes or the new ones, never a mixture. If it raises anything but
    ``SyncFailedError``, it has the old bytes.
    """
    write_files(files, path.parent, {path.name: data}, sync=sync)


def write_many(files: Files, root: Path, contents: Mapping[Path, bytes]) -> None:
    """Replace each file of ``contents``, below ``root``, as ``write_file`` does.

    They are synced together.
    """
    syncs = files.many_syncs(root)
    try:
        temporary = {path: path.with_name(path.name + ".tmp") for path in contents}
        for path, data in contents.items():
            _write_temporary(files, temporary[path], data, sync=False)
        # Before the names: a name never leads to bytes that may be lost.
        syncs.sync(list(temporary.values()))
        for path in contents:
            files.rename(temporary[path], path)
        syncs.sync(list({path.parent: None for path in contents}))
    finally:
        syncs.close()


def write_files(files: Files, directory: Path, contents: Mapping[str, bytes], *, sync: bool = True) -> None:
    """Replace each file of ``contents`` in ``directory``, as ``write_file`` does.

    The directory is synced once.
    """
    # Opened first: once a file has its name, nothing may fail.
    opened = files.open_dir(directory) if sync else None
    try:
        for name, data in contents.items():
            temporary = directory / (name + ".tmp")
            _write_temporary(files, temporary, data, sync=sync)
            files.rename(temporary, directory / name)
        if opened is not None:
            opened.sync()
    finally:
        if opened is not None:
            opened.close()


def _write_temporary(files: Files, path: Path, data: bytes, *, sync: bool) -> None:
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [data])
        if sync:
            file.sync()
    except SyncFailedError as error:
        if error.errno in DISK_FULL:
            # The file is not in use yet, and the next try writes all of it again.
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    except OSError as error:
        # Calls on a descriptor know no name.
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from error
    finally:
        file.close()
