"""Scan the partitions of a topic for matching records, and report the progress.

A search runs in rounds. A round scans a window of offsets of each of some partitions,
forwards or backwards, and merges the matches by time. So the first matches are among
the oldest or newest of all, and a filter with few matches does not have to wait for
every partition. Within a partition, matches are in the order of their offsets. A
window ends at the end of a batch, so that each batch is decoded once, unless its
matches exceed the limits of the window.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import BatchHeader, RecordView

from ..broker.broker import Broker
from ..broker.reading.decoded_bytes import DecodedReader
from ..broker.reading.fetch import Fetched, PartitionFetch, batch_in_turns, batches_from, is_large, record_at
from ..broker.reading.fetch import size_of as record_size
from ..errors import CorruptLog, OffsetOutOfRange, ReadMemoryFull, SteleError
from ..work_budget import WorkBudget
from .filters import Filter

Order = Literal["oldest", "newest"]
Ending = Literal["limit", "end", "stopped", "failed"]

# Concurrent searches; each takes a slice of every turn of the loop.
SEARCHES_MAX = 8
_PIECE_BYTES, _PIECE_BYTES_MIN = 256 * 1024, 4 * 1024
# Offsets of a window: few at first, doubled while the search goes on.
_WINDOW_MIN, _WINDOW_MAX = 16, 8192
# Partitions per round, and bytes of matches that their windows may hold until they are merged.
_ROUND_PARTITIONS = 16
_ROUND_BYTES = 16 * 1024 * 1024
# Memory of the objects of a decoded record, and of each of its headers.
_RECORD_BYTES, _HEADER_BYTES = 200, 150
_PROGRESS_S = 0.2


@dataclass(slots=True)
class SearchTotals:
    """Totals over all searches, for metrics."""

    scanned_records: int = 0
    scanned_bytes: int = 0
    ended: dict[str, int] = field(default_factory=lambda: {"limit": 0, "end": 0, "stopped": 0, "failed": 0})


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of a large match, which is read again when it is returned."""

    offset: int
    timestamp: int
    key: None = None
    value: None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list[tuple[str, bytes | None]])


@dataclass(slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of a partition that are still to be scanned.

    ``window`` is the size of the next window.
    """

    partition: int
    start: int
    end: int
    window: int = _WINDOW_MIN


@dataclass(slots=True)
class _Window:
    """Offsets ``[first, end)`` of a range, and their matches.

    A window holds at most ``matches_max`` matches of ``bytes_max`` in total. Beyond that
    it is cut (``is_cut``), and the next window gets the rest: a forward window ends
    earlier, a backward window begins later.
    """

    offset_range: OffsetRange
    first: int
    end: int
    is_newest: bool
    matches_max: int
    bytes_max: int
    matches: deque[RecordView] = field(default_factory=deque[RecordView])
    scanned: int = 0
    held_bytes: int = 0
    is_cut: bool = False

    def keep(self, record: RecordView) -> bool:
        """Add a match; False if the window is full and ends with it."""
        if is_large(record):
            record = _Place(record.offset, record.timestamp)
        self.matches.append(record)
        self.held_bytes += size_of(record)
        if not self.is_newest:
            if len(self.matches) >= self.matches_max or self.held_bytes >= self.bytes_max:
                self.end, self.is_cut = record.offset + 1, True
            return not self.is_cut
        while len(self.matches) > 1 and (
            len(self.matches) > self.matches_max or self.held_bytes > self.bytes_max
        ):
            dropped = self.matches.popleft()
            self.held_bytes -= size_of(dropped)
            self.first, self.is_cut = dropped.offset + 1, True
        return True


def size_of(record: RecordView) -> int:
    """Return the approximate memory of a decoded record in bytes."""
    return _RECORD_BYTES + record_size(record) + _HEADER_BYTES * len(record.headers)


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of a search: ``offsets`` of ``total`` are done.

    ``errors`` explain what could not be read.
    """

    total: int
    offsets: int = 0
    scanned: int = 0
    matched: int = 0
    bytes: int = 0
    errors: list[SteleError] = field(default_factory=list[SteleError])


@dataclass(frozen=True, slots=True)
class Match:
    """A record that matches, and its partition."""

    partition: int
    record: RecordView


class Search:
    """One search over ``ranges``; iterate over ``found``, then read ``ending`` and ``left``."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        ranges: list[OffsetRange],
        *,
        wanted: Filter,
        order: Order,
        limit: int,
        reader: DecodedReader,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._ranges = [offset_range for offset_range in ranges if offset_range.start < offset_range.end]
        self._wanted = wanted
        self._is_newest = order == "newest"
        self._limit = limit
        self._isolation = isolation
        self._reader = reader
        self._due_s = time.monotonic() + _PROGRESS_S
        self.progress = Progress(
            total=sum(offset_range.end - offset_range.start for offset_range in self._ranges)
        )
        self.ending: Ending = "stopped"
        self._has_failed = False
        self._budget = WorkBudget()
        share = limit // max(len(self._ranges), 1)
        for offset_range in self._ranges:
            offset_range.window = max(_WINDOW_MIN, min(share, _WINDOW_MAX))

    @property
    def left(self) -> list[OffsetRange]:
        """The ranges that were not scanned or returned, where another search continues."""
        return [offset_range for offset_range in self._ranges if offset_range.start < offset_range.end]

    async def found(self) -> AsyncGenerator[list[Match] | Progress]:
        """Yield blocks of matches, and ``progress`` every ``_PROGRESS_S``.

        A large match is alone in its block.

        Ends at the limit, at the end of the ranges, or when the broker closes. Close the
        generator to stop the search.
        """
        while self._ranges and not self._broker.is_closing:
            ranges = list(self._ranges)
            for start in range(0, len(ranges), _ROUND_PARTITIONS):
                if self._broker.is_closing:
                    break
                async with aclosing(self._round(ranges[start : start + _ROUND_PARTITIONS])) as steps:
                    async for step in steps:
                        yield step
                if self.progress.matched >= self._limit:
                    self.ending = "limit" if self.left else "end"
                    return
            self._ranges = self.left
        self.ending = "stopped" if self._ranges else "failed" if self._has_failed else "end"

    async def _round(self, ranges: Sequence[OffsetRange]) -> AsyncGenerator[list[Match] | Progress]:
        windows: list[_Window] = []
        bytes_max = _ROUND_BYTES // len(ranges)
        begun = await self._begin([self._window(span, bytes_max=bytes_max) for span in ranges])
        for offset_range, first in zip(ranges, begun, strict=True):
            window = self._window(offset_range, bytes_max=bytes_max)
            async with aclosing(self._scan(window, first)) as scan:
                async for _ in scan:
                    if self._broker.is_closing:
                        return
                    if self._is_due():
                        yield self.progress
            windows.append(window)
        async with aclosing(self._blocks(windows)) as blocks:
            async for matches in blocks:
                yield matches
        if self.progress.matched >= self._limit:
            return
        for window in windows:
            offset_range = window.offset_range
            self._pass(offset_range, window.first if self._is_newest else window.end)
            offset_range.window = (
                max(1, window.end - window.first)
                if window.is_cut
                else min(offset_range.window * 2, _WINDOW_MAX)
            )

    def _window(self, offset_range: OffsetRange, *, bytes_max: int) -> _Window:
        first, end = offset_range.start, min(offset_range.end, offset_range.start + offset_range.window)
        if self._is_newest:
            first, end = max(offset_range.start, offset_range.end - offset_range.window), offset_range.end
        return _Window(
            offset_range,
            first,
            end,
            is_newest=self._is_newest,
            matches_max=self._limit - self.progress.matched,
            bytes_max=bytes_max,
        )

    async def _blocks(self, windows: list[_Window]) -> AsyncGenerator[list[Match]]:
        """Yield the matches of a round in order, in blocks per turn of the loop."""
        progress, budget = self.progress, WorkBudget()
        matches: list[Match] = []
        for window, record in self._merged(windows):
            progress.matched += 1
            # Updated per record, so that another search continues exactly where the limit ends this one.
            self._pass(window.offset_range, record.offset if self._is_newest else record.offset + 1)
            if isinstance(record, _Place):
                if matches:
                    yield matches
                    matches = []
                async with aclosing(self._read_again(window.offset_range.partition, record)) as again:
                    async for match in again:
                        yield [match]
            else:
                matches.append(Match(window.offset_range.partition, record))
            if progress.matched >= self._limit:
                break
            if budget.is_over(size_of(record)):
                yield matches
                matches = []
                await budget.pause()
        if matches:
            yield matches

    async def _read_again(self, partition: int, place: _Place) -> AsyncGenerator[Match]:
        """Yield the match at ``place``, holding its room until it was sent; nothing if retention deleted it."""
        request = self._request(partition, place.offset, 1)
        try:
            (fetched,) = await self._broker.fetch([request], max_bytes=1, is_scan=True)
            if fetched.error is not None:
                raise fetched.error
            found = await record_at(fetched, place.offset, self._reader)
        except SteleError as error:
            self._offset_after(error, place.offset, place.offset + 1)
            return
        if found is not None:
            try:
                yield Match(partition, found.record)
            finally:
                await found.close()

    def _request(self, partition: int, offset: int, max_bytes: int) -> PartitionFetch:
        return PartitionFetch(
            topic=self._topic,
            partition=partition,
            offset=offset,
            max_bytes=max_bytes,
            isolation=self._isolation,
        )

    def _pass(self, offset_range: OffsetRange, to: int) -> None:
        if self._is_newest:
            self.progress.offsets += offset_range.end - to
            offset_range.end = to
        else:
            self.progress.offsets += to - offset_range.start
            offset_range.start = to

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + _PROGRESS_S
        return True

    def _merged(self, windows: list[_Window]) -> Iterator[tuple[_Window, RecordView]]:
        """Merge the matches by time, without changing the order within a partition."""
        sign = -1 if self._is_newest else 1
        waiting = [
            (window, reversed(window.matches) if self._is_newest else iter(window.matches))
            for window in windows
        ]
        heads: list[tuple[int, int, RecordView]] = []
        for index, (_, records) in enumerate(waiting):
            record = next(records, None)
            if record is not None:
                heads.append((sign * record.timestamp, index, record))
        heapq.heapify(heads)
        while heads:
            _, index, record = heads[0]
            window, records = waiting[index]
            yield window, record
            following = next(records, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (sign * following.timestamp, index, following))

    async def _begin(self, windows: Sequence[_Window]) -> list[Fetched | None]:
        """Read the first piece of each window that needs no wait."""
        if len(windows) == 1:
            return [None]
        requests = [self._piece(window, window.first) for window in windows]
        size = sum(request.max_bytes for request in requests)
        try:
            reads = await self._broker.fetch(requests, max_bytes=size, is_scan=True)
        except SteleError:
            # The scan of its window reports it.
            return [None] * len(windows)
        return [fetched if fetched.batches else None for fetched in reads]

    def _piece(self, window: _Window, at: int) -> PartitionFetch:
        # Backwards, bytes past the window would be read for nothing.
        size = (window.end - at) * _RECORD_BYTES if self._is_newest else _PIECE_BYTES
        return PartitionFetch(
            topic=self._topic,
            partition=window.offset_range.partition,
            offset=at,
            max_bytes=max(_PIECE_BYTES_MIN, min(size, _PIECE_BYTES)),
            isolation=self._isolation,
            until_offset=window.end,
        )

    async def _scan(self, window: _Window, first: Fetched | None) -> AsyncGenerator[None]:
        """Fill ``window`` with its matches.

        ``first`` is its first piece, if that was read. Yields regularly, so that the caller can report progress.
        """
        at = window.first
        while at < window.end:
            fetched, first = first, None
            if fetched is None:
                request = self._piece(window, at)
                try:
                    (fetched,) = await self._broker.fetch(
                        [request], max_bytes=request.max_bytes, is_scan=True
                    )
                except SteleError as error:
                    at = self._offset_after(error, at, window.end)
                    continue
            self.progress.bytes += len(fetched.batches)
            if fetched.error is not None:
                at = self._offset_after(fetched.error, at, window.end)
                continue
            if not fetched.batches:
                # The log has been truncated meanwhile, at its start or at its end.
                break
            try:
                for header in batches_from(fetched, at):
                    if at == window.first and self._is_newest:
                        window.first = at = max(window.offset_range.start, min(at, header.base_offset))
                    async with aclosing(self._scan_batch(window, fetched, header, at)) as scan:
                        async for _ in scan:
                            yield
                    if window.is_cut and not self._is_newest:
                        at = window.end
                        break
                    at = header.next_offset
                    window.end = max(window.end, min(at, window.offset_range.end))
                    if at >= window.offset_range.end:
                        break
            except (CorruptLog, ReadMemoryFull) as error:
                at = self._offset_after(error, at, window.end)
        self.progress.scanned += window.scanned

    async def _scan_batch(
        self, window: _Window, fetched: Fetched, header: BatchHeader, at: int
    ) -> AsyncGenerator[None]:
        budget, end = self._budget, window.offset_range.end
        async with aclosing(batch_in_turns(fetched, header, at, budget, self._reader)) as slices:
            async for records in slices:
                is_last = records[-1].offset >= end - 1
                if records[-1].offset >= end:
                    records = [record for record in records if record.offset < end]
                window.scanned += len(records)
                for record in await self._wanted.matching(records, budget):
                    if not window.keep(record):
                        return
                yield
                if is_last:
                    return

    def _offset_after(self, error: SteleError, at: int, end: int) -> int:
        """Return where to continue after ``error``.

        It is reported unless retention caused it.
        """
        if isinstance(error, OffsetOutOfRange) and error.is_gone:
            return min(max(error.log_start_offset, at + 1), end)
        # After a cut, the next window scans a part again and meets the same error.
        if str(error) not in map(str, self.progress.errors):
            self.progress.errors.append(error)
        if isinstance(error, CorruptLog):
            return min(max(error.next_offset, at + 1), end)
        self._has_failed = True
        return end
