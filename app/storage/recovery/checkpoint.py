"""Checkpoint files: offsets that survive a restart, in Apache Kafka's text layouts.

``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint`` and
``cleaner-offset-checkpoint``, one of each in the data directory::

    0                       version
    2                       entries
    orders 0 4242           topic, partition, offset
    orders 1 17

``leader-epoch-checkpoint``, one in each partition's directory::

    0
    2
    1 0                     leader epoch, first offset written in it
    3 1200

Each file is replaced as a whole: written under another name, synced, renamed. A
file that does not parse is treated as absent: all these numbers only save work,
except the log start offset, whose loss makes deleted records visible again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from ..disk.files import Files
from ..disk.whole_files import read_file, write_file, write_many

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

_VERSION = "0"


def _encode(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def _read(files: Files, path: Path, parse: Callable[[list[str]], _T]) -> list[_T]:
    """Parse the columns of each line with ``parse``; return nothing if a line is invalid."""
    raw = read_file(files, path)
    if raw is None:
        return []
    lines = raw.decode(errors="replace").splitlines()
    try:
        if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
            raise ValueError("version or count")
        return [parse(line.split(" ")) for line in lines[2:]]
    except ValueError as error:
        logger.warning("%s is corrupt (%s) and is ignored", path, error)
        return []


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(f"{text} is negative")
    return number


def _offset_line(columns: list[str]) -> tuple[tuple[str, int], int]:
    topic, partition, offset = columns
    return (topic, _number(partition)), _number(offset)


def _epoch_line(columns: list[str]) -> tuple[int, int]:
    epoch, offset = columns
    return _number(epoch), _number(offset)


def write_offsets(files: Files, path: Path, offsets: Iterable[tuple[tuple[str, int], int]]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets]
    write_file(files, path, _encode(lines))


def read_offsets(files: Files, path: Path) -> dict[tuple[str, int], int]:
    return dict(_read(files, path, _offset_line))


class LeaderEpochs:
    """The first offset written in each leader epoch; epochs and offsets ascend."""

    __slots__ = ("_entries", "is_dirty")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries = list(entries)
        self.is_dirty = False

    def note(self, epoch: int, offset: int) -> None:
        """Note that a batch at ``offset`` was written in ``epoch``."""
        if not self._entries or epoch > self._entries[-1][0]:
            self._entries.append((epoch, offset))
            self.is_dirty = True

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else -1

    def end_offset_of(self, epoch: int, *, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch``, and where the next one begins: at the end if there is none (KIP-101).

        If all are later it is ``epoch`` itself, as in Kafka. Without an offset, clients that have read records of it
        would reset their position: ``latest`` skips what was written since, and librdkafka stays where it is.
        """
        known = epoch
        for candidate, start in self._entries:
            if candidate > epoch:
                return known, start
            known = candidate
        return known, log_end_offset

    def entries(self) -> list[tuple[int, int]]:
        """Return ``(epoch, first offset)`` of each, ascending."""
        return list(self._entries)

    def epoch_at(self, offset: int) -> int:
        if self._entries and offset >= self._entries[-1][1]:
            return self._entries[-1][0]
        epoch = -1
        for candidate, start in self._entries:
            if start > offset:
                break
            epoch = candidate
        return epoch

    def truncate_to(self, offset: int) -> None:
        """Forget epochs that begin at or after ``offset``."""
        kept = [entry for entry in self._entries if entry[1] < offset]
        self.is_dirty = self.is_dirty or len(kept) != len(self._entries)
        self._entries = kept

    def content(self) -> bytes:
        """Return the content of the file ``LEADER_EPOCHS``, and clear ``is_dirty``."""
        # In this order: the event loop may note another epoch while a thread writes.
        self.is_dirty = False
        return _encode([f"{epoch} {offset}" for epoch, offset in self._entries])

    @classmethod
    def read(cls, files: Files, directory: Path) -> LeaderEpochs:
        entries = _read(files, directory / LEADER_EPOCHS, _epoch_line)
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
            logger.warning(
                "%s is corrupt (its lines do not ascend) and is ignored", directory / LEADER_EPOCHS
            )
            return cls()
        return cls(entries)


def write_epochs(files: Files, root: Path, epochs: Mapping[Path, LeaderEpochs]) -> None:
    """Save the epochs that changed since their last save, of directories below ``root``.

    Raises ``OSError``: any of them may have been saved, and all are saved again.
    """
    dirty = {directory: each for directory, each in epochs.items() if each.is_dirty}
    if not dirty:
        return
    try:
        write_many(
            files, root, {directory / LEADER_EPOCHS: each.content() for directory, each in dirty.items()}
        )
    except OSError:
        for each in dirty.values():
            each.is_dirty = True
        raise
