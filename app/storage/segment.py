"""A segment: one ``.log`` file of batches, end to end, and its two sparse indexes.

::

    00000000000000001000.log         batches (stele.wire.record_batch), nothing between them
    00000000000000001000.index       offset → position   (offset_index)
    00000000000000001000.timeindex   timestamp → offset  (time_index)

The name is the base offset: the offset of the first record that was meant for
this file, in 20 digits. All three are laid out as Apache Kafka writes them.

The last segment of a log is *active*: it is appended to and its indexes live in
memory. All others are *sealed*: their files never change, and their indexes are
read from disk when a reader comes. Compaction replaces sealed segments by a new one
(``cleaning``), which has the name of the first of them. The replaced ones are
*pinned* before their files are renamed: readers that hold one finish on its files.

This module has the state of a segment and what changes it. ``segment_loader``
brings it back after a start, ``segment_reader`` finds batches in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stele.wire import record_batch as rb

from ..errors import CorruptLog
from .age import RecordAge
from .files import Buffer, File, Files, write_files
from .offset_index import RELATIVE_OFFSET_MAX
from .scan import CorruptRange
from .segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX, SegmentIndexes

LOG_SUFFIX = ".log"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)

# A shutdown writes no indexes of an active segment up to this size: with thousands of partitions
# it is the number of files that takes the time.
UNINDEXED_BYTES = 64 * 1024


class SegmentTornError(Exception):
    """A failed write left bytes behind that could not be cut off again."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = path
        self.cause = cause


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    """One segment of a partition's log; offsets are absolute.

    ``corrupt_ranges`` are the byte ranges known to hold no valid batch, in order.
    ``created_ms`` and ``appended_ms`` are when it began and when its newest batch
    came, by the broker's clock; of a segment from before the start they are taken
    from its first batch and from its file. ``may_have_holes``: compaction may have
    removed records, so offsets need not be adjacent.
    """

    __slots__ = (
        "_file",
        "_files",
        "_read_age",
        "appended_ms",
        "base_offset",
        "corrupt_ranges",
        "created_ms",
        "indexes",
        "is_pinned",
        "is_sealed",
        "may_have_holes",
        "next_offset",
        "path",
        "size",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        created_ms: int,
        may_have_holes: bool = False,
    ) -> None:
        self._files = files
        self.path = directory / (segment_name(base_offset) + LOG_SUFFIX)
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.created_ms = created_ms
        self.appended_ms = created_ms
        self.is_sealed = False
        self.is_pinned = False
        self.may_have_holes = may_have_holes
        self.corrupt_ranges: list[CorruptRange] = []
        self.indexes = SegmentIndexes(files, self.path, base_offset, interval_bytes=index_interval_bytes)
        self._file: File | None = None
        # The times of the records in the first bytes of the log, once they have been read.
        self._read_age: tuple[int, RecordAge] | None = None

    # ── files ──

    @property
    def files(self) -> Files:
        return self._files

    @property
    def paths(self) -> list[Path]:
        """The log and its indexes, whether or not they are there."""
        return [self.path, self.indexes.path, self.indexes.time_path]

    def create(self) -> None:
        """Make the (empty) log file; its name lasts once the directory is synced."""
        self._file = self._files.open(self.path, create=True)

    def file(self) -> File:
        """The open log file, for the thread of the event loop alone."""
        if self._file is None:
            self._file = self._files.open(self.path)
        return self._file

    def open_own(self) -> File:
        """Another handle on the log, for a thread, which closes it."""
        if self.is_pinned:
            return _SharedFile(self)
        try:
            file = self._files.open(self.path)
        except FileNotFoundError:
            if self.is_pinned:
                return _SharedFile(self)
            raise
        if self.is_pinned:
            # Pinned while it was opened: the path may lead to the segment that replaces this one.
            file.close()
            return _SharedFile(self)
        return file

    def pin(self) -> None:
        """Keep the log file open as long as the segment is referenced; for the event loop.

        The segment is about to be replaced: from here on nothing is opened by its path.
        ``indexes.pin`` does the same for the indexes, before the files are renamed.
        """
        self.file()
        self.is_pinned = True

    def __del__(self) -> None:
        # Readers of a pinned segment may be in any thread; the last reference is the only sign that they are done.
        if self.is_pinned and self._file is not None:
            self._file.close()

    def release(self) -> None:
        """Give back the handle and the memory of the indexes; the next reader takes them again."""
        if self.is_pinned:
            return
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.is_sealed:
            self.indexes.forget()

    def unread(self) -> Segment:
        """The same files as a segment of which nothing has been read."""
        segment = Segment(
            self._files,
            self.path.parent,
            self.base_offset,
            index_interval_bytes=self.indexes.interval_bytes,
            created_ms=self.created_ms,
            may_have_holes=self.may_have_holes,
        )
        if self.is_pinned:
            segment._file = _SharedFile(self)
        return segment

    # ── append ──

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp that a batch header states, in ms; -1 if none does."""
        return self.indexes.max_timestamp

    def has_room_for(self, size: int, last_offset: int, *, segment_bytes: int) -> bool:
        return self.size + size <= segment_bytes and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def append(self, batches: rb.Buffer, headers: list[rb.BatchHeader], *, now_ms: int) -> None:
        """Write ``batches`` at the end; their offsets are set and follow ``next_offset``.

        Raises:
            OSError: the write failed and was undone.
            SegmentTornError: it failed and could not be undone.
        """
        file = self.file()
        try:
            file.write_at(self.size, [batches])
        except OSError as error:
            # What was written of it would stand in the middle of the log at the next append.
            try:
                file.truncate(self.size)
            except OSError as second:
                raise SegmentTornError(self.path, second) from error
            raise
        for header in headers:
            self.note(header, self.size)
        self.appended_ms = now_ms

    def note(self, header: rb.BatchHeader, position: int) -> None:
        """Count the batch that stands at byte ``position``, the end of those before it."""
        self.indexes.note(header, position)
        self.next_offset = header.next_offset
        self.size = position + header.size

    # ── sealing ──

    @property
    def needs_indexes(self) -> bool:
        """False for an active segment whose headers are read as soon as its indexes.

        What an earlier shutdown left there is never kept: it may tell of batches that were cut since.
        """
        return self.size > UNINDEXED_BYTES or self.indexes.have_files()

    def write_indexes(self) -> None:
        """Make both indexes last."""
        write_files(self._files, self.path.parent, self.indexes.contents())

    def truncate(self) -> None:
        """Cut the file at ``size``, the end of its last batch that counts."""
        self.file().truncate(self.size)

    # ── damage ──

    def lose_until(self, next_offset: int) -> None:
        """Record that the offsets up to ``next_offset`` were here once and cannot be read."""
        if next_offset > self.next_offset:
            last = (
                self.corrupt_ranges.pop()
                if self.corrupt_ranges and self.corrupt_ranges[-1].end_position == self.size
                else None
            )
            self.corrupt_ranges.append(
                CorruptRange(
                    position=last.position if last else self.size,
                    end_position=self.size,
                    offset=last.offset if last else self.next_offset,
                    next_offset=next_offset,
                    reason=last.reason if last else "the end of the file is missing",
                )
            )
            self.next_offset = next_offset

    def corrupt(self, damage: CorruptRange) -> CorruptLog:
        """The error for a reader that needs what ``damage`` covers."""
        return CorruptLog(
            path=self.path,
            position=damage.position,
            offset=damage.offset,
            next_offset=damage.next_offset,
            reason=damage.reason,
        )

    # ── the times of records ──

    @property
    def record_age(self) -> RecordAge | None:
        """The times of all records; None while they have not all been read."""
        if self._read_age is None or self._read_age[0] != self.size:
            return None
        return self._read_age[1]

    def set_record_age(self, age: RecordAge, *, log_bytes: int) -> None:
        """Remember the times of the records in the first ``log_bytes`` of the log."""
        self._read_age = log_bytes, age


class _SharedFile:
    """The open log of a pinned segment, as a handle that can be closed without closing it."""

    __slots__ = ("_segment",)

    def __init__(self, segment: Segment) -> None:
        # Keeps the segment, and so its file, alive.
        self._segment = segment

    @property
    def path(self) -> Path:
        return self._segment.path

    def size(self) -> int:
        return self._segment.file().size()

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        raise AssertionError("a sealed segment does not change")

    def read_at(self, position: int, size: int) -> bytes:
        return self._segment.file().read_at(position, size)

    def read_at_nowait(self, position: int, size: int) -> bytes | bytearray | None:
        return self._segment.file().read_at_nowait(position, size)

    def truncate(self, size: int) -> None:
        raise AssertionError("a sealed segment does not change")

    def sync(self) -> None:
        raise AssertionError("a sealed segment does not change")

    def close(self) -> None:
        """The file is closed with the segment."""
