"""The two sparse indexes of one segment, and its newest timestamp.

The indexes of the active segment grow in memory, by about one entry per
``index.interval.bytes`` of log. Those of a sealed segment are files, read when a
reader needs them and freed when the segment is released. Indexes are hints: an entry
that does not match the log is noticed when it is used (``reader``), and then
the log is read instead (``loader.examine``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stele.wire import record_batch as rb

from ..disk.files import Files
from ..disk.whole_files import read_file
from .offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from .offset_index import OffsetIndex
from .time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from .time_index import TimeIndex

INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"


class SegmentIndexes:
    """The offset index and the time index, with absolute offsets.

    The indexes themselves hold offsets relative to ``base_offset``. ``max_timestamp`` is the
    newest in a batch header, in ms, -1 if there is none; ``max_timestamp_offset`` is the last
    offset of that batch.
    """

    __slots__ = (
        "_base_offset",
        "_bytes_since_entry",
        "_files",
        "_log_path",
        "_offsets",
        "_pinned",
        "_times",
        "interval_bytes",
        "is_newest_confirmed",
        "max_timestamp",
        "max_timestamp_offset",
    )

    def __init__(self, files: Files, log_path: Path, base_offset: int, *, interval_bytes: int) -> None:
        self._files = files
        self._base_offset = base_offset
        self.interval_bytes = interval_bytes
        self._log_path = log_path
        self._pinned: tuple[OffsetIndex, TimeIndex] | None = None
        self.clear()

    @property
    def path(self) -> Path:
        """Return the path of the offset index.

        It is made on first use, because a start may open thousands of segments.
        """
        return self._log_path.with_suffix(INDEX_SUFFIX)

    @property
    def time_path(self) -> Path:
        """Return the path of the time index."""
        return self._log_path.with_suffix(TIME_INDEX_SUFFIX)

    def clear(self) -> None:
        """Reset to the indexes of an empty log."""
        self._offsets: OffsetIndex | None = OffsetIndex()
        self._times: TimeIndex | None = TimeIndex()
        self._bytes_since_entry = 0
        self.max_timestamp = rb.NO_TIMESTAMP
        self.max_timestamp_offset = self._base_offset
        # False while ``max_timestamp`` is only known from an index file.
        self.is_newest_confirmed = True

    def forget(self) -> None:
        """Free the memory; the files have the same entries."""
        self._offsets = None
        self._times = None

    def replace(self, other: SegmentIndexes) -> None:
        """Replace the indexes by those of ``other``, which were rebuilt from the log."""
        if self._pinned is not None:
            assert other._offsets is not None
            assert other._times is not None
            self._pinned = other._offsets, other._times
            return
        self._offsets, self._times = other._offsets, other._times

    def note(self, header: rb.BatchHeader, position: int) -> None:
        """Add the batch at byte ``position``; batches are added in order."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_entry > self.interval_bytes:
            assert self._offsets is not None
            assert self._times is not None
            self._offsets.append(last_offset - self._base_offset, position)
            self._times.maybe_append(self.max_timestamp, self.max_timestamp_offset - self._base_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size

    # ── files ──

    def contents(self) -> dict[str, bytes]:
        """Return the contents of both files by name; the time index gets its closing entry."""
        assert self._offsets is not None
        assert self._times is not None
        if self.max_timestamp != rb.NO_TIMESTAMP:
            self._times.maybe_append(self.max_timestamp, self.max_timestamp_offset - self._base_offset)
        return {self.path.name: self._offsets.to_bytes(), self.time_path.name: self._times.to_bytes()}

    def have_files(self) -> bool:
        """Return whether the file of either index exists."""
        return any(map(self._files.exists, (self.path, self.time_path)))

    def adopt_bounds(self, *, next_offset: int, log_bytes: int, first_timestamp: Callable[[], int]) -> bool:
        """Set the newest timestamp of a sealed segment from its time index.

        Reads two entries. Returns False if a file is missing or cannot belong to this
        log. Errors in the middle of an index are noticed when it is used.
        """
        self.forget()
        relative_end = next_offset - self._base_offset
        last = self._last_entry(self.path, INDEX_ENTRY_BYTES)
        if last is None or (last and int.from_bytes(last[:4], "big") >= relative_end):
            return False
        if last and int.from_bytes(last[4:], "big") >= log_bytes:
            return False
        last = self._last_entry(self.time_path, TIME_ENTRY_BYTES)
        if last is None:
            return False
        newest = TimeIndex.last_of(last)
        if newest is None:
            # It may be empty only if no record has a timestamp; the first batch stands for all.
            return first_timestamp() == rb.NO_TIMESTAMP
        if newest[0] < 0 or not 0 <= newest[1] < relative_end:
            return False
        self.max_timestamp, self.max_timestamp_offset = newest[0], self._base_offset + newest[1]
        self.is_newest_confirmed = False
        return True

    def _last_entry(self, path: Path, entry_bytes: int) -> bytes | None:
        """Return the last entry of an index file, empty if it has none.

        None if the file is missing or has an incomplete entry.
        """
        if not self._files.exists(path):
            return None
        file = self._files.open(path)
        try:
            size = file.size()
            return file.read_at(max(0, size - entry_bytes), entry_bytes) if size % entry_bytes == 0 else None
        finally:
            file.close()

    def load(self, *, log_bytes: int, may_be_missing: bool) -> bool:
        """Read both files into memory, to append to them; False if they cannot belong to this log.

        With ``may_be_missing``, the indexes are empty if neither file exists.
        """
        index_data, times_data = read_file(self._files, self.path), read_file(self._files, self.time_path)
        if index_data is None and times_data is None and may_be_missing:
            index_data = times_data = b""
        if index_data is None or times_data is None:
            return False
        self._offsets = OffsetIndex.from_bytes(index_data, log_bytes=log_bytes or 1)
        self._times = TimeIndex.from_bytes(times_data)
        if self._offsets is None or self._times is None:
            return False
        newest = self._times.last()
        if newest:
            self.max_timestamp, self.max_timestamp_offset = newest[0], self._base_offset + newest[1]
        return True

    def last_entry(self) -> tuple[int, int] | None:
        """Return ``(last offset, position)`` of the last entry in memory."""
        entries = [] if self._offsets is None else self._offsets.entries()
        return (self._base_offset + entries[-1][0], entries[-1][1]) if entries else None

    def resume_after(self, header: rb.BatchHeader) -> None:
        """Count the bytes to the next entry from the batch of the last entry."""
        self._bytes_since_entry = header.size

    def pin(self, *, log_bytes: int) -> None:
        """Keep both indexes in memory, because their files are about to be replaced; for threads."""
        offsets = OffsetIndex.from_bytes(read_file(self._files, self.path) or b"", log_bytes=log_bytes)
        times = TimeIndex.from_bytes(read_file(self._files, self.time_path) or b"")
        # Without them a search starts at byte 0.
        self._pinned = offsets or OffsetIndex(), times or TimeIndex()

    def unpin(self) -> None:
        """Undo ``pin``: the files stay."""
        self._pinned = None

    # ── lookups ──

    def offsets(self, log_bytes: int) -> OffsetIndex:
        """Return the offset index; read it from its file if it is not in memory."""
        if self._pinned is not None:
            return self._pinned[0]
        index = self._offsets
        if index is None:
            data = read_file(self._files, self.path) or b""
            # An invalid index is ignored: reading then starts at byte 0.
            index = self._offsets = OffsetIndex.from_bytes(data, log_bytes=log_bytes) or OffsetIndex()
            if self._pinned is not None:
                # Pinned while the file was read, which may be that of the next segment of this name.
                return self._pinned[0]
        return index

    def time_entry(self, timestamp_ms: int) -> tuple[tuple[int, int] | None, bool]:
        """Return ``TimeIndex.entry_for``, and whether it was read from the file."""
        if self._times is None and self._pinned is None:
            data = read_file(self._files, self.time_path) or b""
            if self._pinned is None:
                return TimeIndex.search(data, timestamp_ms), True
        times = self._times if self._pinned is None else self._pinned[1]
        assert times is not None
        return times.entry_for(timestamp_ms), self._pinned is not None
