"""The files of one partition, by name.

::

    orders-0/
      partition.metadata                    version and topic id, as Apache Kafka writes it
      leader-epoch-checkpoint
      00000000000000000000.log/.index/.timeindex        sealed
      00000000000000041872.log                          active (its indexes are in memory)
      00000000000000041872.producers                    producer states at that offset
      holes-until                                       if segments were compacted: the offset after the last
      aborted-transactions                              which segments have a .txnindex, if any has
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from uuid import UUID

from ..config_types import INT64_MAX
from ..disk.files import Files
from ..disk.whole_files import read_file, write_file
from .segment import KEY_INDEX_SUFFIX, LOG_SUFFIX, SUFFIXES, segment_name
from .transaction_index import TRANSACTION_INDEX_SUFFIX

logger = logging.getLogger(__name__)

PARTITION_METADATA = "partition.metadata"
PRODUCERS_SUFFIX = ".producers"
DELETED_SUFFIX = ".deleted"
HOLES_UNTIL = "holes-until"
# Older snapshots than these are never needed.
_SNAPSHOTS_KEPT = 2
ABORTED_TRANSACTIONS = "aborted-transactions"
# Version and offset, a line each.
_HOLES_UNTIL = re.compile(rb"0\n\d{1,19}\n")
# Version, and the base offset of each segment, a line each.
_ABORTED = re.compile(rb"0\n(?:\d{1,19}\n)*")
_TOPIC_ID = re.compile(r"topic_id: ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class PartitionFiles:
    """The directory of one partition; every method may raise ``OSError``."""

    def __init__(self, files: Files, directory: Path) -> None:
        self.files = files
        self.directory = directory
        # The topic that ``partition.metadata`` names.
        self._named_topic: UUID | None = None

    def names(self) -> list[str]:
        """Of all files; none if there is no directory."""
        return self.files.list_dir(self.directory) if self.files.exists(self.directory) else []

    def stored(self, suffix: str, names: Sequence[str] | None = None) -> list[int]:
        """The offsets that files with ``suffix`` are named after, ascending.

        ``names`` are those of all files, if the caller knows them.
        """
        names = self.names() if names is None else names
        stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
        return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal())

    def producers_path(self, offset: int) -> Path:
        return self.directory / (segment_name(offset) + PRODUCERS_SUFFIX)

    def stale_snapshots(self, recovery_point: int, names: Sequence[str] | None = None) -> list[Path]:
        """Producer snapshots that no recovery will ask for: all but the newest two that are surely of use.

        ``names`` as for ``stored``.
        """
        passed = [offset for offset in self.stored(PRODUCERS_SUFFIX, names) if offset <= recovery_point]
        return [self.producers_path(offset) for offset in passed[:-_SNAPSHOTS_KEPT]]

    def remove_segment(self, base_offset: int) -> None:
        for suffix in (*SUFFIXES, KEY_INDEX_SUFFIX):
            path = self.directory / (segment_name(base_offset) + suffix)
            if self.files.exists(path):
                self.files.remove(path)

    def remove_leftovers(self, names: Sequence[str]) -> list[str]:
        """Remove what was under way when the last run ended.

        ``names`` are those of all files. Return those that are left.
        """
        left: list[str] = []
        for name in names:
            if name.endswith((DELETED_SUFFIX, ".tmp")):
                self.files.remove(self.directory / name)
            else:
                left.append(name)
        return left

    def remove_key_indexes(self, from_offset: int) -> None:
        """Remove the key indexes from ``from_offset`` on, and those without a log."""
        logs = set(self.stored(LOG_SUFFIX))
        for base_offset in self.stored(KEY_INDEX_SUFFIX):
            if base_offset >= from_offset or base_offset not in logs:
                self.files.remove(self.directory / (segment_name(base_offset) + KEY_INDEX_SUFFIX))

    def is_blank(self) -> bool:
        """Nothing was ever written to it: a clean shutdown adds nothing to what a start made."""
        only = segment_name(0) + LOG_SUFFIX
        return set(self.names()) == {PARTITION_METADATA, only} and self.files.size(self.directory / only) == 0

    def read_holes_until(self) -> int:
        """The offset before which compaction may have removed records; 0 if it has removed none.

        If the file is damaged, that is all there is: nothing is called lost because of it.
        """
        path = self.directory / HOLES_UNTIL
        raw = read_file(self.files, path)
        if raw is None:
            return 0
        if _HOLES_UNTIL.fullmatch(raw) is None:
            logger.error("%s is damaged: lost records cannot be told from compacted ones", path)
            return INT64_MAX
        return int(raw.split()[1])

    def write_holes_until(self, offset: int) -> None:
        """Call before a segment that ends at ``offset`` is replaced by a compacted one.

        What it writes must last first.
        """
        write_file(self.files, self.directory / HOLES_UNTIL, holes_content(offset))

    def lost_transaction_indexes(self, before_offset: int, remote: Collection[int]) -> bool:
        """Return whether a segment before ``before_offset`` has lost its ``.txnindex``.

        A segment without aborted transactions has none, so there is a list of those that have one. ``remote`` are the
        base offsets of segments whose logs are elsewhere.
        """
        raw = read_file(self.files, self.directory / ABORTED_TRANSACTIONS)
        if raw is None:
            return False
        if _ABORTED.fullmatch(raw) is None:
            logger.warning("%s is damaged", self.directory / ABORTED_TRANSACTIONS)
            return True
        names = set(self.names())
        listed = [int(line) for line in raw.split()[1:]]
        return any(
            (base in remote or segment_name(base) + LOG_SUFFIX in names)
            and segment_name(base) + TRANSACTION_INDEX_SUFFIX not in names
            for base in listed
            if base < before_offset
        )

    def aborted_list(self, base_offsets: Iterable[int]) -> bytes:
        """Return the content of ``ABORTED_TRANSACTIONS`` for segments with aborts."""
        return b"0\n" + b"".join(b"%d\n" % base for base in base_offsets)

    def write_aborted_list(self, base_offsets: Iterable[int]) -> None:
        write_file(self.files, self.directory / ABORTED_TRANSACTIONS, self.aborted_list(base_offsets))

    def topic_id(self, expected: UUID) -> UUID | None:
        """Return the topic id of the directory; ``expected`` if it names none; None without a partition."""
        raw = read_file(self.files, self.directory / PARTITION_METADATA)
        if raw is None:
            return expected if self.stored(LOG_SUFFIX) else None
        if raw == metadata_content(expected):
            self._named_topic = expected
            return expected
        found = _TOPIC_ID.search(raw.decode(errors="replace"))
        if found is None or _differ_in_one(found[1], str(expected)):
            logger.warning("%s is damaged and is written again", self.directory / PARTITION_METADATA)
            return expected
        return UUID(found[1])

    def make(self, topic_id: UUID) -> None:
        """Make the directory and note the topic in it.

        Does nothing if ``topic_id`` was just read from there.
        """
        if self._named_topic == topic_id:
            return
        self.files.make_dir(self.directory)
        path = self.directory / PARTITION_METADATA
        content = metadata_content(topic_id)
        if read_file(self.files, path) != content:
            write_file(self.files, path, content)


def metadata_content(topic_id: UUID) -> bytes:
    """Return the content of ``PARTITION_METADATA``."""
    return f"version: 0\ntopic_id: {topic_id}\n".encode()


def holes_content(offset: int) -> bytes:
    """Return the content of ``HOLES_UNTIL``."""
    return b"0\n%d\n" % offset


def _differ_in_one(a: str, b: str) -> bool:
    """Random ids never differ in one character alone: one of them is damaged."""
    return len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1
