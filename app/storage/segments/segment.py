"""A segment: one ``.log`` file of adjacent batches, and its two sparse indexes.

::

    00000000000000001000.log         batches (stele.wire.record_batch), nothing between them
    00000000000000001000.index       offset → position   (offset_index)
    00000000000000001000.timeindex   timestamp → offset  (time_index)
    00000000000000001000.txnindex    aborted transactions, if there are any (transaction_index)

The name is the base offset, in 20 digits: the offset of the first record that was
meant for this file. All these files have Apache Kafka's layout.

The last segment of a log is *active*: it is appended to, and its indexes are in
memory. All others are *sealed*: their files never change, and their two sparse indexes are
read from disk when a reader needs them. The aborted transactions stay in memory. Compaction (``cleaning``) replaces sealed
segments by a new one, which has the name of the first of them. The replaced segments
are *pinned* before their files are renamed, so that readers that hold one can finish.

This module has the state of a segment and the methods that change it.
``loader`` loads it at a start, ``reader`` finds batches in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path

from stele.wire import record_batch as rb

from ...errors import CorruptLog
from ..config_types import INT64_MAX
from ..disk.files import File, Files, SealedFile, is_refusal
from ..disk.whole_files import read_file, write_files
from .age import RecordAge
from .indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX, SegmentIndexes
from .offset_index import RELATIVE_OFFSET_MAX
from .remote_segments import RemoteLog
from .scan import CorruptRange
from .space_ahead import AHEAD_BYTES_MAX, space_end
from .transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex

LOG_SUFFIX = ".log"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
KEY_INDEX_SUFFIX = ".keyindex"

# A shutdown writes no indexes of an active segment up to this size: with thousands of partitions
# it is the number of files that takes the time.
UNINDEXED_BYTES = 64 * 1024
# Of a batch that is written ahead of its append: up to 2 ms.
_SLICE_BYTES = 1024 * 1024


class SegmentTornError(Exception):
    """A failed write left bytes that could not be truncated."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = path
        self.cause = cause


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    """One segment of a partition's log; offsets are absolute.

    ``corrupt_ranges`` are the byte ranges known to hold no valid batch, in order.
    ``created_ms`` and ``appended_ms`` are the times of its creation and of its last
    append, by the broker's clock; for a loaded segment they are taken from its first
    batch and from its file. ``may_have_holes``: compaction may have removed records,
    so offsets need not be adjacent.
    """

    __slots__ = (
        "_ahead",
        "_file",
        "_files",
        "_is_torn",
        "_read_age",
        "aborted",
        "allocated",
        "appended_ms",
        "base_offset",
        "corrupt_ranges",
        "created_ms",
        "has_key_index",
        "indexes",
        "is_cut",
        "is_pinned",
        "is_sealed",
        "last_append",
        "may_have_holes",
        "next_offset",
        "path",
        "remote",
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
        # The file may be so long: space was allocated ahead of the records.
        self.allocated = 0
        self.created_ms = created_ms
        self.appended_ms = created_ms
        # Base offset and position of what was appended last, which readers at the end of the log look for.
        self.last_append = (INT64_MAX, 0)
        self.is_sealed = False
        self.is_pinned = False
        # The log was cut back before its end: other batches may come to be where it had some.
        self.is_cut = False
        self.may_have_holes = may_have_holes
        # The log if it is in a bucket alone.
        self.remote: RemoteLog | None = None
        self.corrupt_ranges: list[CorruptRange] = []
        # Whether a key index was validated in this run.
        self.has_key_index = False
        # The transactions that a marker in this segment has aborted.
        self.aborted = TransactionIndex()
        self.indexes = SegmentIndexes(files, self.path, base_offset, interval_bytes=index_interval_bytes)
        self._file: File | None = None
        # A failed write, or one ahead of an append, may have left bytes after ``size``.
        self._is_torn = False
        # The batch that is there, whole but for its header.
        self._ahead: weakref.ref[memoryview] | None = None
        # The times of the records in the first bytes of the log, once they have been read.
        self._read_age: tuple[int, RecordAge] | None = None

    # ── files ──

    @property
    def files(self) -> Files:
        return self._files

    @property
    def paths(self) -> list[Path]:
        """Return the paths of the log and its indexes, whether or not they exist."""
        return [
            self.path,
            self.indexes.path,
            self.indexes.time_path,
            self.transaction_index_path,
            self.key_index_path,
        ]

    @property
    def transaction_index_path(self) -> Path:
        """Of the aborted transactions; there is no such file if the segment has none."""
        return self.path.with_suffix(TRANSACTION_INDEX_SUFFIX)

    @property
    def key_index_path(self) -> Path:
        """The key index of a sealed segment of a compacted partition (``keys``)."""
        return self.path.with_suffix(KEY_INDEX_SUFFIX)

    def create(self) -> None:
        """Create the empty log file; its name is durable once the directory is synced."""
        self._file = self._files.open(self.path, create=True)

    def file(self) -> File:
        """Return the open log file; only for the event loop."""
        if self.remote is not None:
            return self.remote.file
        if self._file is None:
            self._file = self._files.open(self.path)
        return self._file

    def open_own(self) -> File:
        """Open another handle on the log, for a thread; the caller closes it."""
        if self.remote is not None:
            return self.remote.file
        if self.is_pinned:
            return _SharedFile(self)
        try:
            file = self._files.open(self.path)
        except FileNotFoundError:
            if self.remote is not None:
                return self.remote.file
            if self.is_pinned:
                return _SharedFile(self)
            raise
        if self.is_pinned:
            # Pinned while it was opened: the path may be that of the segment that replaces this one.
            file.close()
            return _SharedFile(self)
        return file

    def pin(self) -> None:
        """Keep the log file open as long as the segment is referenced; for the event loop.

        The segment is about to be replaced, so nothing is opened by its path any longer.
        ``indexes.pin`` does the same for the indexes, before the files are renamed.
        """
        self.file()
        self.is_pinned = True

    def __del__(self) -> None:
        # Readers of a pinned segment may be in any thread; they are done when the last reference is gone.
        if self.is_pinned and self._file is not None:
            self._file.close()

    def release(self) -> None:
        """Close the file and free the indexes; the next reader opens and loads them again."""
        if self.is_pinned:
            return
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.is_sealed:
            self.indexes.forget()

    def leave_disk(self, remote: RemoteLog) -> None:
        """Read the log, which is sealed, from ``remote`` from now on; for the event loop.

        The caller removes the file.
        """
        self.remote = remote
        if self._file is not None:
            self._file.close()
            self._file = None

    def unread(self) -> Segment:
        """Return a segment with the same files that is not loaded."""
        segment = Segment(
            self._files,
            self.path.parent,
            self.base_offset,
            index_interval_bytes=self.indexes.interval_bytes,
            created_ms=self.created_ms,
            may_have_holes=self.may_have_holes,
        )
        segment.remote = self.remote
        if self.is_pinned:
            segment._file = _SharedFile(self)
        return segment

    # ── append ──

    @property
    def max_timestamp(self) -> int:
        """Return the newest timestamp in a batch header, in ms; -1 if there is none."""
        return self.indexes.max_timestamp

    def has_room_for(self, size: int, last_offset: int, *, segment_bytes: int) -> bool:
        return self.size + size <= segment_bytes and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def write_ahead(self, batch: memoryview, leader_epoch: int | None) -> Iterator[None]:
        """Write a batch after the end, a slice at a time, so that ``append`` writes its header only.

        Until then its CRC is wrong: a start takes it for the last batch, torn. The caller stops when the end has moved.

        Raises ``OSError``.
        """
        file = self._file or self.file()
        if self._is_torn:
            # Another batch that was not appended may be longer.
            self._cut_tail(file)
        if leader_epoch is not None:
            rb.assign_offsets(batch, 0, self.next_offset, leader_epoch)
        opening = bytearray(batch[: rb.HEADER_BYTES])
        opening[rb.CRC_START - 1] ^= 0xFF
        # Any other append cuts it off first.
        self._is_torn, self._ahead = True, None
        self.allocated = max(self.allocated, self.size + len(batch))
        file.write_at(self.size, [opening])
        for start in range(rb.HEADER_BYTES, len(batch), _SLICE_BYTES):
            file.write_at(self.size + start, [batch[start : start + _SLICE_BYTES]])
            yield
        self._ahead = weakref.ref(batch)

    def append(self, batches: rb.Buffer, headers: list[rb.BatchHeader], *, now_ms: int) -> None:
        """Write ``batches`` at the end; their offsets are set and follow ``next_offset``.

        Raises:
            OSError: the write failed and was undone, or will be before the next one.
            SegmentTornError: it failed and cannot be undone.
        """
        file = self._file or self.file()
        written: rb.Buffer = batches
        if self._is_torn:
            if self._ahead is not None and self._ahead() is batches:
                written = memoryview(batches)[: rb.HEADER_BYTES]
            else:
                self._cut_tail(file)
            self._is_torn, self._ahead = False, None
        try:
            file.write_at(self.size, [written])
        except OSError as error:
            # Otherwise a partial write would be in the middle of the log after the next append.
            self._is_torn = True
            # It is cut when the segment is sealed, too.
            self.allocated = max(self.allocated, self.size + len(batches))
            try:
                self._cut_tail(file)
            except OSError as second:
                if not is_refusal(second):
                    raise SegmentTornError(self.path, second) from error
            else:
                self._is_torn = False
            raise
        self.last_append = (self.next_offset, self.size)
        for header in headers:
            self.note(header, self.size)
        self.appended_ms = now_ms

    def _cut_tail(self, file: File) -> None:
        file.truncate(self.size)
        # A sync that has begun may give it space after this.
        self.allocated = min(self.allocated, self.size + AHEAD_BYTES_MAX)

    def note(self, header: rb.BatchHeader, position: int) -> None:
        """Note the batch at byte ``position``, which is where the previous one ends."""
        self.indexes.note(header, position)
        self.next_offset = header.base_offset + header.last_offset_delta + 1
        self.size = position + header.size

    # ── space ahead ──

    def needed_space(self, unsynced_bytes: int) -> tuple[int, int] | None:
        """Return from which to which byte the next sync is to allocate space.

        ``unsynced_bytes``: what it covers. None if there is enough.
        """
        end = space_end(self.size, self.allocated, unsynced_bytes)
        if not end:
            return None
        start, self.allocated = max(self.size, self.allocated), end
        return start, end

    def cut_space(self) -> None:
        """Make the file end with its records again, and sync that; for any thread.

        The records do not change meanwhile.
        """
        if self.allocated <= self.size:
            return
        try:
            file = self.open_own()
        except FileNotFoundError:
            # Retention has deleted the segment meanwhile.
            return
        try:
            file.truncate(self.size)
            file.sync()
        finally:
            file.close()
        self.allocated = 0

    # ── sealing ──

    @property
    def needs_indexes(self) -> bool:
        """False for an active segment whose headers are as quick to read as its indexes.

        Index files of an earlier shutdown are never kept: they may have entries of batches cut since.
        """
        return self.size > UNINDEXED_BYTES or bool(self.aborted) or self.indexes.have_files()

    def write_indexes(self) -> None:
        """Write and sync all indexes."""
        self.remove_stale_index()
        write_files(self._files, self.path.parent, self.index_contents())

    def index_contents(self) -> dict[str, bytes]:
        """Return the contents of the index files by name."""
        contents = self.indexes.contents()
        if self.aborted:
            contents[self.transaction_index_path.name] = self.aborted.to_bytes()
        return contents

    def write_transaction_index(self) -> None:
        """Write and sync the aborted transactions; without any, remove their file."""
        self.remove_stale_index()
        if self.aborted:
            name = self.transaction_index_path.name
            write_files(self._files, self.path.parent, {name: self.aborted.to_bytes()})

    def load_aborted(self) -> bool:
        """Read the aborted transactions from their file; False if it cannot belong to this log."""
        data = read_file(self._files, self.transaction_index_path)
        if data is None:
            self.aborted = TransactionIndex()
            return True
        index = TransactionIndex.from_bytes(data, base_offset=self.base_offset, next_offset=self.next_offset)
        self.aborted = index or TransactionIndex()
        # A segment without aborted transactions has no file.
        return bool(index)

    def remove_stale_index(self) -> None:
        """Remove an index of aborted transactions if there are none: it is that of batches that were cut."""
        if not self.aborted and self._files.exists(self.transaction_index_path):
            self._files.remove(self.transaction_index_path)

    def truncate(self) -> None:
        """Truncate the file at ``size``, the end of its last batch that is kept."""
        self.file().truncate(self.size)

    # ── corrupt ranges ──

    def lose_until(self, next_offset: int) -> None:
        """Note that the records before ``next_offset`` were in this segment and are lost."""
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

    def corrupt(self, corrupt_range: CorruptRange) -> CorruptLog:
        """Return the error for a reader that needs records of ``corrupt_range``."""
        return CorruptLog(
            path=self.path,
            position=corrupt_range.position,
            offset=corrupt_range.offset,
            next_offset=corrupt_range.next_offset,
            reason=corrupt_range.reason,
        )

    # ── the times of records ──

    @property
    def record_age(self) -> RecordAge | None:
        """Return the times of all records; None until they have all been read."""
        if self._read_age is None or self._read_age[0] != self.size:
            return None
        return self._read_age[1]

    def set_record_age(self, age: RecordAge, *, log_bytes: int) -> None:
        """Set the times of the records in the first ``log_bytes`` of the log."""
        self._read_age = log_bytes, age


class _SharedFile(SealedFile):
    """The open log of a pinned segment, as a handle whose close leaves it open."""

    __slots__ = ("_segment",)

    def __init__(self, segment: Segment) -> None:
        # Keeps the segment, and so its file, alive.
        self._segment = segment

    @property
    def path(self) -> Path:
        return self._segment.path

    def size(self) -> int:
        return self._segment.file().size()

    def read_at(self, position: int, size: int) -> bytes:
        return self._segment.file().read_at(position, size)

    def read_at_nowait(self, position: int, size: int) -> bytes | bytearray | None:
        return self._segment.file().read_at_nowait(position, size)

    def close(self) -> None:
        """Do nothing, because the file is closed with the segment."""
