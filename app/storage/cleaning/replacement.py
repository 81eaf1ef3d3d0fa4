"""Putting a cleaned segment in the place of the segments it was made of.

::

    step      files                                                  after a crash
    ────────  ─────────────────────────────────────────────────────  ─────────────────────────
    (before)  …1000.log  …2000.log  …1000.log.cleaned                 the old log stands
    commit    …1000.log  …2000.log  …1000.log.swap                    the new one: what the swap
    retire    …1000.log.0.deleted  …2000.log.0.deleted  ….log.swap    file covers is removed, and
    install   …1000.log  and the ``.deleted`` ones                    it gets its final name
    discard   …1000.log

A step is on disk when it returns. The **commit point** is one rename, that of
the ``.log``; the indexes are renamed before it, and one that is missing afterwards
is built from its log, as any other. Only a segment with aborted transactions has a
``.txnindex``, so a start after a crash between commit and install builds all of them again.

- ``retire`` is on disk before ``install`` begins: otherwise a loss of power could
  leave the new segment beside old ones that hold the same offsets. The index of
  an old log never stands beside a new log for the same reason.
- Readers open segments by path. Between ``retire`` and ``install`` no file has a
  name that readers of either segment do not know, so they move from the old path
  to the ``.deleted`` one and never read new bytes at old positions. ``discard``
  waits for ``file.delete.delay.ms``, so that they can finish.
- Each group of a pass is replaced on its own; nothing spans two groups.

These are the steps of Apache Kafka (``LocalLog.replaceSegments``), whose log
directories may have several swap files at once; here it is one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ...errors import CorruptLog
from ..disk.files import Directory as OpenDirectory
from ..disk.files import Files
from ..segments.partition_files import DELETED_SUFFIX, PRODUCERS_SUFFIX
from ..segments.segment import KEY_INDEX_SUFFIX, LOG_SUFFIX, SUFFIXES, segment_name
from ..segments.transaction_index import TRANSACTION_INDEX_SUFFIX
from .cleaned_segment import CLEANED_SUFFIX, read_batches

logger = logging.getLogger(__name__)

SWAP_SUFFIX = ".swap"

# The log last: it is the one that counts.
_NEW_SUFFIXES = tuple(sorted(SUFFIXES, key=lambda suffix: suffix == LOG_SUFFIX))
_STEM_LENGTH = 20


class Replacement:
    """The steps of one group, to be called in order; for threads.

    A step that was refused (``is_refusal``) may be repeated. Only ``open`` needs a file descriptor.

    ``base_offsets`` are those of the segments that are replaced, ascending; the first
    is that of the cleaned segment. An ``OSError`` leaves what a crash would: the
    directory must not be used before ``recover_replacement`` has run on it.
    """

    def __init__(self, files: Files, directory: Path, base_offsets: Sequence[int]) -> None:
        self._files = files
        self._directory = directory
        self._base_offsets = list(base_offsets)
        self._deleted: list[Path] = []
        self._new_suffixes = _NEW_SUFFIXES
        self._opened: OpenDirectory | None = None

    def open(self) -> None:
        """Open the directory for the syncs of all steps."""
        if self._opened is None:
            self._opened = self._files.open_dir(self._directory)

    def close(self) -> None:
        """Close the directory."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _sync(self) -> None:
        assert self._opened is not None, "open() comes first"
        self._opened.sync()

    def _path(self, suffix: str, *, base_offset: int | None = None) -> Path:
        base = self._base_offsets[0] if base_offset is None else base_offset
        return self._directory / (segment_name(base) + suffix)

    def _has_file(self, suffix: str) -> bool:
        return any(self._files.exists(self._path(suffix + stage)) for stage in (CLEANED_SUFFIX, SWAP_SUFFIX))

    def _rename(self, source: Path, target: Path) -> None:
        # It is not there if an earlier attempt came so far.
        if self._files.exists(source):
            self._files.rename(source, target)

    def commit(self) -> None:
        """From here on a start completes the replacement."""
        if not self._has_file(TRANSACTION_INDEX_SUFFIX):
            self._new_suffixes = tuple(
                suffix for suffix in _NEW_SUFFIXES if suffix != TRANSACTION_INDEX_SUFFIX
            )
        for suffix in self._new_suffixes:
            self._rename(self._path(suffix + CLEANED_SUFFIX), self._path(suffix + SWAP_SUFFIX))
        self._sync()

    def retire(self) -> dict[Path, Path]:
        """Rename the old files; returns where each ``.log`` is now, for readers that know its old path.

        Producer snapshots at offsets inside the new segment are renamed, too: a start
        could not read the log from the middle of a segment on.
        """
        moved: dict[Path, Path] = {}
        first, *others = self._base_offsets
        self._retire(first, (*SUFFIXES, KEY_INDEX_SUFFIX), moved)
        # While the first of the old logs is there, all are: a start may go back to them.
        self._sync()
        for base_offset in others:
            self._retire(base_offset, (*SUFFIXES, KEY_INDEX_SUFFIX, PRODUCERS_SUFFIX), moved)
        if others:
            self._sync()
        return moved

    def _retire(self, base_offset: int, suffixes: Sequence[str], moved: dict[Path, Path]) -> None:
        for suffix in suffixes:
            path = self._path(suffix, base_offset=base_offset)
            if not self._files.exists(path):
                continue
            deleted = self._free_deleted_name(path)
            self._files.rename(path, deleted)
            self._deleted.append(deleted)
            if suffix == LOG_SUFFIX:
                moved[path] = deleted

    def _free_deleted_name(self, path: Path) -> Path:
        """A name that no file has: readers may still use one that was retired before."""
        number = 0
        while self._files.exists(deleted := path.with_name(f"{path.name}.{number}{DELETED_SUFFIX}")):
            number += 1
        return deleted

    def install(self) -> None:
        """Give the new files their final names."""
        for suffix in self._new_suffixes:
            self._rename(self._path(suffix + SWAP_SUFFIX), self._path(suffix))
        self._sync()

    def discard(self) -> None:
        """Remove the old files, when no reader can use them.

        A start does it otherwise.
        """
        for path in self._deleted:
            self._files.remove(path)
        self._deleted = []


def recover_replacement(files: Files, directory: Path) -> bool:
    """Complete or undo the replacement that the last run did not finish.

    Call it before a partition's files are listed.

    After an undone or completed replacement the directory holds the old segments or
    the new one, without any file of the other. Indexes may be missing, and are never
    those of another log. Returns True if a replacement was completed. Running it
    again, even after a crash inside it, changes nothing more.

    Raises:
        OSError: the disk failed.
    """
    names = files.list_dir(directory)
    swapped = sorted(name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    is_completed = False
    for name in swapped:
        is_completed |= _complete(files, directory, int(name[:_STEM_LENGTH]))
    leftovers = [
        name
        for name in files.list_dir(directory)
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX))
    ]
    for name in leftovers:
        files.remove(directory / name)
    if leftovers:
        # A later replacement uses the same names: an old one must not come back beside them.
        files.sync_dir(directory)
    return is_completed


def _complete(files: Files, directory: Path, base_offset: int) -> bool:
    """Repeat ``retire`` and ``install``.

    Returns False if the swap file is corrupt and the old log stays.
    """
    swap = directory / (segment_name(base_offset) + LOG_SUFFIX + SWAP_SUFFIX)
    end_offset, error = _end_of(files, swap, base_offset)
    names = files.list_dir(directory)
    if error is not None:
        # It was synced before it got this name: the disk has lost it since.
        logger.error("%s cannot be used as it is: %s", swap, error)
        if segment_name(base_offset) + LOG_SUFFIX in names:
            files.remove(swap)
            return False
    for name in names:
        stem, suffix = name[:_STEM_LENGTH], name[_STEM_LENGTH:]
        if not stem.isdecimal() or not base_offset <= int(stem) < end_offset:
            continue
        if suffix in (*SUFFIXES, KEY_INDEX_SUFFIX) or (
            suffix == PRODUCERS_SUFFIX and int(stem) != base_offset
        ):
            files.remove(directory / name)
    files.sync_dir(directory)
    for suffix in _NEW_SUFFIXES:
        source = directory / (segment_name(base_offset) + suffix + SWAP_SUFFIX)
        if files.exists(source):
            files.rename(source, directory / (segment_name(base_offset) + suffix))
    files.sync_dir(directory)
    logger.info("%s: the cleaning of offsets %d to %d is complete", directory, base_offset, end_offset - 1)
    return True


def _end_of(files: Files, path: Path, base_offset: int) -> tuple[int, CorruptLog | None]:
    """Return the offset after the last batch of a log.

    The second result is the error that stopped reading it, if there was one.
    """
    end_offset = base_offset
    file = files.open(path)
    try:
        for _, header in read_batches(file, base_offset=base_offset):
            end_offset = header.next_offset
    except CorruptLog as error:
        return end_offset, error
    finally:
        file.close()
    return end_offset, None
