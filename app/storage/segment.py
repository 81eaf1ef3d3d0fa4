"""A segment: one ``.log`` file of batches, end to end, and its two sparse indexes.

::

    00000000000000001000.log         batches (stele.wire.record_batch), nothing between them
    00000000000000001000.index       offset → position   (offset_index)
    00000000000000001000.timeindex   timestamp → offset  (time_index)

The name is the base offset: the offset of the first record that was meant for
this file, in 20 digits. All three are laid out as Apache Kafka writes them.

The last segment of a log is *active*: it is appended to and its indexes live in
memory. All others are *sealed*: their files never change, and their indexes are
read from disk when a reader comes. After a crash the bytes of the log count, and
the indexes are built from them again (``recovery``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stele.wire import record_batch as rb

from ..errors import CorruptLog
from .files import File, Files, read_file, write_files
from .offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from .offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from .scan import Damage, scan_batches
from .time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from .time_index import TimeIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Enough for the headers between two index entries in one read.
_WALK_BYTES = 16 * 1024
# A shutdown writes no indexes of an active segment up to this size: with thousands of partitions
# it is the number of files that takes the time.
_UNINDEXED_BYTES = 64 * 1024
# Headers read one by one at a start; more behind the last index entry are a sign of damage.
_WALK_BATCHES_MAX = 4096


class WouldBlockError(Exception):
    """The bytes are not in memory: do this again in a thread, where a disk may be waited for."""


class SegmentTornError(Exception):
    """A failed write left bytes behind that could not be cut off again."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = path
        self.cause = cause


class _MisfitError(Exception):
    """Batches, or batches and index, do not fit together: the log must be examined."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.position = position
        self.reason = reason


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Whole batches: ``size`` bytes from ``position`` of a segment's log."""

    segment: Segment
    position: int
    size: int


class Segment:
    """One segment of a partition's log.

    Offsets are absolute here; indexes hold them relative to ``base_offset``.
    Methods that may read the disk take ``nowait``: True raises
    ``WouldBlockError`` instead of waiting for it.
    """

    __slots__ = (
        "_bytes_since_index",
        "_file",
        "_files",
        "_index",
        "_index_interval_bytes",
        "_is_newest_confirmed",
        "_max_timestamp",
        "_time_index",
        "base_offset",
        "created_ms",
        "damages",
        "is_sealed",
        "max_timestamp_offset",
        "next_offset",
        "path",
        "size",
    )

    def __init__(
        self, files: Files, directory: Path, base_offset: int, *, index_interval_bytes: int, created_ms: int
    ) -> None:
        self._files = files
        self.path = directory / (segment_name(base_offset) + LOG_SUFFIX)
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.created_ms = created_ms
        self.is_sealed = False
        self.damages: list[Damage] = []
        self.max_timestamp_offset = base_offset
        self._max_timestamp = rb.NO_TIMESTAMP
        self._index: OffsetIndex | None = OffsetIndex()
        self._time_index: TimeIndex | None = TimeIndex()
        self._bytes_since_index = 0
        self._index_interval_bytes = index_interval_bytes
        self._is_newest_confirmed = True
        self._file: File | None = None

    # ── files ──

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(INDEX_SUFFIX)

    @property
    def time_index_path(self) -> Path:
        return self.path.with_suffix(TIME_INDEX_SUFFIX)

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
        return self._files.open(self.path)

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def release(self) -> None:
        """Give back the handle and the memory of the indexes; the next reader takes them again."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.is_sealed:
            self._index = None
            self._time_index = None

    # ── append ──

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp in ms, -1 while empty."""
        return self._max_timestamp

    def has_room_for(self, size: int, last_offset: int, *, segment_bytes: int) -> bool:
        return self.size + size <= segment_bytes and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def append(self, batches: rb.Buffer, headers: list[rb.BatchHeader]) -> None:
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
        position = self.size
        for header in headers:
            self._note(header, position)
            position += header.size
        self.size = position

    def _note(self, header: rb.BatchHeader, position: int) -> None:
        """Take a batch that stands at ``position`` into indexes and bounds."""
        assert self._index is not None
        assert self._time_index is not None
        last_offset = header.last_offset
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index > self._index_interval_bytes:
            self._index.append(last_offset - self.base_offset, position)
            self._time_index.maybe_append(self._max_timestamp, self.max_timestamp_offset - self.base_offset)
            self._bytes_since_index = 0
        self._bytes_since_index += header.size
        self.next_offset = last_offset + 1

    # ── sealing and opening ──

    def indexes(self) -> dict[str, bytes]:
        """The contents of both index files, by name; the time index has its closing entry."""
        assert self._index is not None
        assert self._time_index is not None
        if self._max_timestamp != rb.NO_TIMESTAMP:
            self._time_index.maybe_append(self._max_timestamp, self.max_timestamp_offset - self.base_offset)
        return {
            self.index_path.name: self._index.to_bytes(),
            self.time_index_path.name: self._time_index.to_bytes(),
        }

    @property
    def needs_indexes(self) -> bool:
        """False for an active segment whose headers are read as soon as its indexes.

        What an earlier shutdown left there is never kept: it may tell of batches that were cut since.
        """
        return self.size > _UNINDEXED_BYTES or any(
            map(self._files.exists, (self.index_path, self.time_index_path))
        )

    def write_indexes(self) -> None:
        """Make both indexes last."""
        write_files(self._files, self.path.parent, self.indexes())

    def adopt_sealed(self, *, next_offset: int) -> bool:
        """Take a sealed segment as it lies on the disk, reading no log.

        Returns False when its indexes were missing or could not be its own, and
        the log had to be read after all. What is wrong in the middle of an index
        shows when it is used.
        """
        self.size = self._files.size(self.path)
        self.next_offset = next_offset
        self.is_sealed = True
        self._index = None
        self._time_index = None
        is_fit = self._adopt_bounds()
        if not is_fit:
            self.examine()
            self.write_indexes()
            self.release()
        return is_fit

    def _adopt_bounds(self) -> bool:
        """The newest timestamp, from the last entry of the time index; False if an index does not fit."""
        relative_end = self.next_offset - self.base_offset
        last = self._last_entry(self.index_path, INDEX_ENTRY_BYTES)
        if last is None or (last and int.from_bytes(last[:4], "big") >= relative_end):
            return False
        if last and int.from_bytes(last[4:], "big") >= self.size:
            return False
        last = self._last_entry(self.time_index_path, TIME_ENTRY_BYTES)
        if last is None:
            return False
        newest = TimeIndex.last_of(last)
        if newest is None:
            # Empty is right only if no record has a time; the first is asked for all.
            return self._first_timestamp() == rb.NO_TIMESTAMP
        if newest[0] < 0 or not 0 <= newest[1] < relative_end:
            return False
        self._max_timestamp = newest[0]
        self.max_timestamp_offset = self.base_offset + newest[1]
        self._is_newest_confirmed = False
        return True

    def _last_entry(self, path: Path, entry_bytes: int) -> bytes | None:
        """The last entry of an index file, empty if it has none; None if there is no such file of whole entries."""
        if not self._files.exists(path):
            return None
        file = self._files.open(path)
        try:
            size = file.size()
            return file.read_at(max(0, size - entry_bytes), entry_bytes) if size % entry_bytes == 0 else None
        finally:
            file.close()

    def _first_timestamp(self) -> int:
        file = self.open_own()
        try:
            return rb.read_header(file.read_at(0, rb.HEADER_BYTES)).max_timestamp
        except rb.CorruptBatchError:
            return rb.NO_TIMESTAMP
        finally:
            file.close()

    def adopt_active(self) -> bool:
        """Take the active segment after a clean shutdown: its indexes, and the headers behind them.

        Returns False when they do not fit together: then it must be scanned.
        """
        size = self.file().size()
        index_data = read_file(self._files, self.index_path)
        times_data = read_file(self._files, self.time_index_path)
        if index_data is None and times_data is None and size <= _UNINDEXED_BYTES:
            # So a clean shutdown leaves it.
            index_data = times_data = b""
        if index_data is None or times_data is None:
            return False
        index = OffsetIndex.from_bytes(index_data, log_bytes=size or 1)
        times = TimeIndex.from_bytes(times_data)
        if index is None or times is None:
            return False
        self._index, self._time_index = index, times
        newest = times.last()
        if newest:
            self._max_timestamp, self.max_timestamp_offset = newest[0], self.base_offset + newest[1]
        position = 0
        try:
            if entries := index.entries():
                # The last entry itself stands for the batch that it points to.
                relative_offset, position = entries[-1]
                header = rb.read_header(self.file().read_at(position, rb.HEADER_BYTES))
                if header.last_offset != self.base_offset + relative_offset:
                    return False
                self.next_offset = header.next_offset
                self._bytes_since_index = header.size
                position += header.size
            walked = 0
            while position < size:
                header = rb.read_header(self.file().read_at(position, rb.HEADER_BYTES))
                walked += 1
                if header.base_offset != self.next_offset or walked > _WALK_BATCHES_MAX:
                    return False
                self._note(header, position)
                position += header.size
        except rb.CorruptBatchError:
            return False
        if position != size or self.max_timestamp_offset > self.next_offset:
            return False
        self.size = size
        self._is_newest_confirmed = False
        if self._max_timestamp != rb.NO_TIMESTAMP:
            self.created_ms = min(self.created_ms, self._max_timestamp)
        return True

    def rebuild(self, *, end: int | None = None) -> Iterator[rb.BatchHeader | Damage]:
        """Scan the log (up to byte ``end``), building indexes and bounds; yields what the scan finds.

        The caller decides on each damage: to go on keeps it in ``damages``, to
        stop leaves ``size`` at the end of the last batch before it.
        """
        self.next_offset, self.size = self.base_offset, 0
        self._index, self._time_index = OffsetIndex(), TimeIndex()
        self._bytes_since_index = 0
        self._max_timestamp, self.max_timestamp_offset = rb.NO_TIMESTAMP, self.base_offset
        self.damages = []
        for found in scan_batches(self.file(), expected_offset=self.base_offset, end=end):
            yield found
            if isinstance(found, Damage):
                self.damages.append(found)
                self.next_offset, self.size = found.next_offset, found.end_position
            else:
                if self.size == 0:
                    self.created_ms = min(self.created_ms, found.max_timestamp)
                self._note(found, found.position)
                self.size = found.position + found.size

    def examine(self) -> None:
        """Read the whole log and note every damage, since something did not fit; for threads.

        The indexes of a sealed segment are built again on the way: they may be
        what is wrong. Those of the active one come from memory and are right.
        """
        found = Segment(
            self._files,
            self.path.parent,
            self.base_offset,
            index_interval_bytes=self._index_interval_bytes,
            created_ms=self.created_ms,
        )
        try:
            for _ in found.rebuild(end=self.size):
                pass
        finally:
            found.release()
        if self.is_sealed:
            found.lose_until(self.next_offset)
            self._index, self._time_index = found._index, found._time_index
        if self.is_sealed or found._max_timestamp > self._max_timestamp:
            self._max_timestamp = found._max_timestamp
            self.max_timestamp_offset = found.max_timestamp_offset
        for damage in found.damages:
            if damage not in self.damages:
                logger.error("%s", self._corrupt(damage))
        self.damages = found.damages

    def truncate(self) -> None:
        """Cut the file at ``size``, the end of its last batch that counts."""
        self.file().truncate(self.size)

    def lose_until(self, next_offset: int) -> None:
        """Say that the offsets up to ``next_offset`` were here once and cannot be read."""
        if next_offset > self.next_offset:
            last = self.damages.pop() if self.damages and self.damages[-1].end_position == self.size else None
            self.damages.append(
                Damage(
                    position=last.position if last else self.size,
                    end_position=self.size,
                    offset=last.offset if last else self.next_offset,
                    next_offset=next_offset,
                    reason=last.reason if last else "the end of the file is missing",
                )
            )
            self.next_offset = next_offset

    # ── reading ──

    def headers(self) -> Iterator[rb.BatchHeader]:
        """Every header, CRCs unchecked; reads the disk.

        Raises:
            CorruptLog: there is damage that was not known; the next call goes around it.
        """
        try:
            yield from self._walk(0, nowait=False)
        except _MisfitError as misfit:
            self.examine()
            raise self._unreadable(misfit) from misfit

    def _offset_index(self) -> OffsetIndex:
        index = self._index
        if index is None:
            data = read_file(self._files, self.index_path) or b""
            # A hint that does not fit is dropped: reading then starts at byte 0.
            index = self._index = OffsetIndex.from_bytes(data, log_bytes=self.size) or OffsetIndex()
        return index

    def extent_from(self, offset: int, max_bytes: int, *, nowait: bool) -> Extent:
        """Whole batches from the one that holds ``offset``, up to ``max_bytes`` but at least one.

        Raises:
            CorruptLog: ``offset`` cannot be read.
            WouldBlockError: see the class.
        """
        return self._examined(lambda: self._extent_from(offset, max_bytes, nowait=nowait), nowait=nowait)

    def _examined(self, look: Callable[[], _T], *, nowait: bool) -> _T:
        """The result of ``look``; if something does not fit, the log is examined and ``look`` tried again."""
        try:
            return look()
        except _MisfitError as misfit:
            if nowait:
                raise WouldBlockError from misfit
        self.examine()
        try:
            return look()
        except _MisfitError as misfit:
            raise self._unreadable(misfit) from misfit

    def _extent_from(self, offset: int, max_bytes: int, *, nowait: bool) -> Extent:
        start, first_size = self._locate(offset, nowait=nowait)
        end = self.size
        limit = start + max(max_bytes, first_size)
        if limit < end:
            end = max(start + first_size, self._offset_index().position_before(limit))
            if end < limit - self._index_interval_bytes:
                end = self._boundary_before(end, limit, nowait=nowait)
        for damage in self.damages:
            if start < damage.position < end:
                end = damage.position
        return Extent(segment=self, position=start, size=end - start)

    def _locate(self, offset: int, *, nowait: bool) -> tuple[int, int]:
        """``(position, size)`` of the batch that holds ``offset``."""
        for damage in self.damages:
            if damage.offset <= offset < damage.next_offset:
                raise self._corrupt(damage)
        position = self._offset_index().position_for(offset - self.base_offset)
        walk = self._walk(position, nowait=nowait)
        for header in walk:
            if header.base_offset > offset:
                break
            if header.next_offset > offset:
                # The batch behind it bears witness that it really holds the offset.
                following = next(walk, None)
                if following is None and self.is_sealed and not self._may_end_at(header.next_offset):
                    break
                return header.position, header.size
        raise _MisfitError(position, f"no batch holds offset {offset}")

    def _may_end_at(self, next_offset: int) -> bool:
        return next_offset == self.next_offset or any(d.offset == next_offset for d in self.damages)

    def _boundary_before(self, position: int, limit: int, *, nowait: bool) -> int:
        """The last batch boundary at or below ``limit``, from a boundary at ``position``."""
        for header in self._walk(position, nowait=nowait):
            if header.position + header.size > limit:
                return header.position
            position = header.position + header.size
        return position

    def _walk(self, position: int, *, nowait: bool) -> Iterator[rb.BatchHeader]:
        """Headers from ``position`` on, jumping over known damage. Raises ``_MisfitError``."""
        jumps = {damage.position: damage.end_position for damage in self.damages}
        file = self.file() if nowait else self.open_own()
        try:
            window, start, expected = b"", position, -1 if position else self.base_offset
            for damage in self.damages:
                if damage.position < position < damage.end_position:
                    position, start = damage.end_position, damage.end_position
            while position < self.size:
                if position in jumps:
                    position, expected = jumps[position], -1
                    continue
                at = position - start
                if at + rb.HEADER_BYTES > len(window):
                    size = min(_WALK_BYTES, self.size - position)
                    got = file.read_at_nowait(position, size) if nowait else file.read_at(position, size)
                    if got is None:
                        raise WouldBlockError
                    window, start, at = got, position, 0
                try:
                    header = rb.read_header(window, at)
                    if expected >= 0 and header.base_offset != expected:
                        raise rb.CorruptBatchError(
                            f"base offset is {header.base_offset}, expected {expected}"
                        )
                    if position + header.size > self.size:
                        raise rb.CorruptBatchError("the batch is longer than the segment")
                except rb.CorruptBatchError as error:
                    raise _MisfitError(position, error.reason) from error
                header.position = position
                yield header
                position += header.size
                expected = header.next_offset
        finally:
            if not nowait:
                file.close()

    def _unreadable(self, misfit: _MisfitError) -> CorruptLog:
        """What an examination makes of ``misfit``: the first damage that ends behind it."""
        for damage in self.damages:
            if damage.end_position >= misfit.position:
                return self._corrupt(damage)
        return CorruptLog(
            path=self.path,
            position=misfit.position,
            offset=self.base_offset,
            next_offset=self.next_offset,
            reason=misfit.reason,
        )

    def _corrupt(self, damage: Damage) -> CorruptLog:
        return CorruptLog(
            path=self.path,
            position=damage.position,
            offset=damage.offset,
            next_offset=damage.next_offset,
            reason=damage.reason,
        )

    def read_nowait(self, extent: Extent) -> bytes | bytearray | None:
        return self.file().read_at_nowait(extent.position, extent.size)

    def read(self, extent: Extent) -> bytes:
        """The extent's bytes, through a handle of its own: for threads."""
        file = self.open_own()
        try:
            return file.read_at(extent.position, extent.size)
        finally:
            file.close()

    def confirm_newest(self) -> None:
        """See that ``max_timestamp`` of a segment from before the start is what the batches say; for threads."""
        if not self._is_newest_confirmed:
            self._examined(self._check_newest, nowait=False)
            self._is_newest_confirmed = True

    def _check_newest(self) -> None:
        relative_offset = max(0, self.max_timestamp_offset - self.base_offset)
        is_found = self._max_timestamp == rb.NO_TIMESTAMP
        for header in self._walk(self._offset_index().position_for(relative_offset), nowait=False):
            if header.max_timestamp > self._max_timestamp:
                raise _MisfitError(header.position, "the time index does not know the newest batch")
            is_found = is_found or (
                header.last_offset == self.max_timestamp_offset
                and header.max_timestamp == self._max_timestamp
            )
        if not is_found:
            raise _MisfitError(0, "the newest entry of the time index does not stand for a batch")

    def find_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """``(offset, timestamp, leader epoch)`` of the first record at or after ``timestamp_ms``.

        Reads the disk: for threads.

        Raises:
            CorruptLog: the batch that must be opened does not pass its CRC.
        """
        self.confirm_newest()
        if timestamp_ms > self.max_timestamp:
            return None
        return self._examined(lambda: self._find_time(timestamp_ms), nowait=False)

    def _find_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        times = self._time_index
        if times is not None:
            entry, is_from_disk = times.entry_for(timestamp_ms), False
        else:
            data = read_file(self._files, self.time_index_path) or b""
            entry, is_from_disk = TimeIndex.search(data, timestamp_ms), True
        position = self._offset_index().position_for(entry[1]) if entry else 0
        for header in self._walk(position, nowait=False):
            if entry and is_from_disk and header.last_offset >= self.base_offset + entry[1]:
                # An entry that does not stand for a batch could lead behind what is looked for.
                if (header.max_timestamp, header.last_offset - self.base_offset) != entry:
                    raise _MisfitError(header.position, "the time index does not fit the log")
                entry = None
            if header.max_timestamp < timestamp_ms:
                continue
            raw = self.read(Extent(segment=self, position=header.position, size=header.size))
            try:
                rb.check_batch(raw)
            except rb.CorruptBatchError as error:
                raise _MisfitError(header.position, error.reason) from error
            try:
                record = rb.first_record(raw, timestamp_ms=timestamp_ms)
            except rb.CorruptBatchError as error:
                # As its producer sent it: the CRC is right.
                raise CorruptLog(
                    path=self.path,
                    position=header.position,
                    offset=header.base_offset,
                    next_offset=header.next_offset,
                    reason=error.reason,
                ) from error
            if record is not None:
                return record.offset, record.timestamp, header.partition_leader_epoch
        return None
