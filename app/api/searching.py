"""A search: a scan of partitions that gives what matches, says how far it is, and ends when nobody listens.

It goes round the partitions, a window of offsets of each, forwards or back, and
merges what matched in one round by time: so the first matches are about the
oldest or newest of all, while a filter that matches little need not wait for
every partition. Inside a partition the order is that of the offsets.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

from stele.wire import record_batch as rb
from stele.wire.record_batch import RecordView

from ..broker.broker import Broker
from ..broker.fetch import PartitionFetch, records_from
from ..errors import CorruptLog, OffsetOutOfRange, SteleError
from .filters import Filter
from .upload import pause

Order = Literal["oldest", "newest"]
Ending = Literal["limit", "end", "stopped", "failed"]

# Searches at once: each has the loop for a slice of every turn.
SEARCHES_MAX = 8
_PIECE_BYTES = 256 * 1024
# Offsets of a window: few at first, more as long as nothing is found.
_WINDOW_MIN, _WINDOW_MAX = 16, 8192
# Partitions of one round, and what their windows may hold until they are merged.
_ROUND_PARTITIONS = 16
_ROUND_BYTES = 16 * 1024 * 1024
_PROGRESS_S = 0.2


@dataclass(slots=True)
class SearchTotals:
    """What all searches did, for metrics."""

    active: int = 0
    scanned_records: int = 0
    scanned_bytes: int = 0
    ended: dict[str, int] = field(default_factory=lambda: {"limit": 0, "end": 0, "stopped": 0, "failed": 0})


@dataclass(slots=True)
class Span:
    """What is left of one partition: offsets ``[start, end)``. ``window`` is how many are looked at next."""

    partition: int
    start: int
    end: int
    window: int = _WINDOW_MIN


@dataclass(slots=True)
class _Window:
    """Offsets ``[first, end)`` of a span, and what matched there; ``is_whole`` once all of it was looked at."""

    span: Span
    first: int
    end: int
    matches: list[RecordView] = field(default_factory=list[RecordView])
    scanned: int = 0
    is_whole: bool = False


@dataclass(slots=True, kw_only=True)
class Progress:
    """``offsets`` of ``total`` are behind us. ``damages`` are errors of what could not be read."""

    total: int
    offsets: int = 0
    scanned: int = 0
    matched: int = 0
    bytes: int = 0
    damages: list[SteleError] = field(default_factory=list[SteleError])


@dataclass(frozen=True, slots=True)
class Match:
    partition: int
    record: RecordView


class Search:
    """One run over ``spans``. ``found`` gives matches, and now and then the progress."""

    def __init__(
        self, broker: Broker, topic: str, spans: list[Span], *, wanted: Filter, order: Order, limit: int
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._spans = [span for span in spans if span.start < span.end]
        self._wanted = wanted
        self._is_newest = order == "newest"
        self._limit = limit
        self._due_s = time.monotonic() + _PROGRESS_S
        self.progress = Progress(total=sum(span.end - span.start for span in self._spans))
        self.ending: Ending = "stopped"
        share = limit // max(len(self._spans), 1)
        for span in self._spans:
            span.window = max(_WINDOW_MIN, min(share, _WINDOW_MAX))

    @property
    def left(self) -> list[Span]:
        """What was not looked at, or not shown: where another search goes on."""
        return [span for span in self._spans if span.start < span.end]

    async def found(self) -> AsyncGenerator[Match | Progress]:
        """Ends at the limit, at the end, and when the broker closes; close it to stop it."""
        while self._spans and not self._broker.is_closing:
            spans = list(self._spans)
            for place in range(0, len(spans), _ROUND_PARTITIONS):
                async with aclosing(self._round(spans[place : place + _ROUND_PARTITIONS])) as found:
                    async for one in found:
                        yield one
                if self.progress.matched >= self._limit:
                    self.ending = "limit" if self.left else "end"
                    return
            self._spans = self.left
        self.ending = "stopped" if self._spans else "end"

    async def _round(self, spans: Sequence[Span]) -> AsyncGenerator[Match | Progress]:
        windows: list[_Window] = []
        for span in spans:
            if self._is_newest:
                window = _Window(span, max(span.start, span.end - span.window), span.end)
            else:
                window = _Window(span, span.start, min(span.end, span.start + span.window))
            async with aclosing(self._look(window, _ROUND_BYTES // len(spans))) as looking:
                async for _ in looking:
                    if self._is_due():
                        yield self.progress
            if window.is_whole:
                windows.append(window)
        progress = self.progress
        for window, record in self._merged(windows):
            progress.matched += 1
            # Exact after each: where the limit ends the search, another goes on.
            self._pass(window.span, record.offset if self._is_newest else record.offset + 1)
            yield Match(window.span.partition, record)
            if progress.matched >= self._limit:
                return
        for window in windows:
            self._pass(window.span, window.first if self._is_newest else window.end)
            window.span.window = min(window.span.window * 2, _WINDOW_MAX)

    def _pass(self, span: Span, to: int) -> None:
        if self._is_newest:
            self.progress.offsets += span.end - to
            span.end = to
        else:
            self.progress.offsets += to - span.start
            span.start = to

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + _PROGRESS_S
        return True

    def _merged(self, windows: list[_Window]) -> Iterator[tuple[_Window, RecordView]]:
        """By time, without changing the order inside a partition."""
        sign = -1 if self._is_newest else 1
        waiting = [
            (window, iter(window.matches[::-1] if self._is_newest else window.matches)) for window in windows
        ]
        heads: list[tuple[int, int, RecordView]] = []
        for place, (_, records) in enumerate(waiting):
            record = next(records, None)
            if record is not None:
                heads.append((sign * record.timestamp, place, record))
        heapq.heapify(heads)
        while heads:
            _, place, record = heads[0]
            window, records = waiting[place]
            yield window, record
            following = next(records, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (sign * following.timestamp, place, following))

    async def _look(self, window: _Window, bytes_max: int) -> AsyncGenerator[None]:
        """Fill ``window`` with what matches, ``bytes_max`` of it: a window that would hold more ends there, or,
        going back, is given up for a smaller one."""
        span, at, held = window.span, window.first, 0
        while at < window.end:
            request = PartitionFetch(
                topic=self._topic, partition=span.partition, offset=at, max_bytes=_PIECE_BYTES
            )
            (fetched,) = await self._broker.fetch([request], max_bytes=_PIECE_BYTES)
            self.progress.bytes += len(fetched.batches)
            if fetched.error is not None:
                at = self._behind(fetched.error, at, window.end)
                continue
            if not fetched.batches:
                # The log was cut at its start meanwhile, or it ends sooner than it did.
                break
            try:
                for records in records_from(fetched, at):
                    for record in records:
                        if record.offset >= window.end:
                            break
                        window.scanned += 1
                        if self._wanted.matches(record):
                            window.matches.append(record)
                            held += len(record.value or b"") + len(record.key or b"")
                    at = records[-1].offset + 1
                    yield
                    if at >= window.end:
                        break
                    if held > bytes_max:
                        if self._is_newest:
                            span.window = max(1, (window.end - window.first) // 8)
                            return
                        window.end = at
                        break
                    await pause()
                else:
                    # Control batches at the end hold offsets and no records.
                    at = max(at, next_offset_of(fetched.batches))
            except CorruptLog as damage:
                at = self._behind(damage, at, window.end)
        self.progress.scanned += window.scanned
        window.is_whole = True

    def _behind(self, error: SteleError, at: int, end: int) -> int:
        """Where to go on behind ``error``, which is reported unless retention is the reason."""
        if isinstance(error, OffsetOutOfRange) and error.is_gone:
            return min(max(error.log_start_offset, at + 1), end)
        if str(error) not in map(str, self.progress.damages):
            # A window that was given up is looked at again.
            self.progress.damages.append(error)
        return min(max(error.next_offset, at + 1), end) if isinstance(error, CorruptLog) else end


def next_offset_of(batches: bytes | bytearray) -> int:
    """The offset behind the last of ``batches``, which were checked."""
    return max((header.next_offset for header in rb.iter_headers(batches)), default=0)
