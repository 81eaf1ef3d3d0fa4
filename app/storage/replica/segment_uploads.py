"""Which bytes of segments are in the bucket, and the uploads of those that are not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from ...work_budget import WorkBudget, visited
from ..logs.log import DiskLog
from ..segments.segment import Segment
from .bucket import DELTA, SEALED, Bucket
from .cut import RunSpan, SegmentRuns
from .marks import LogMark, SegmentMark, key_of
from .options import ReplicaOptions
from .segment_bytes import BuiltRun, Piece, SegmentVanished, build_object, matching_runs
from .state import PartitionReplica

_T = TypeVar("_T")

# Bytes of an append-only log that are compared before what is in front of them counts as equal.
_TRUSTED_BYTES = 1 << 20


class _Planned(NamedTuple):
    """``piece`` follows the first ``kept`` runs that the bucket has of the segment."""

    log: DiskLog
    piece: Piece
    kept: int

    @property
    def is_whole(self) -> bool:
        """Whether it is a sealed segment, of which the bucket has nothing yet."""
        piece = self.piece
        return piece.segment.is_sealed and not piece.start and piece.end == piece.segment.size


class SegmentUploads:
    """Knows the runs of each open segment; uses ``thread`` for reads of files."""

    def __init__(
        self,
        bucket: Bucket,
        thread: ThreadPoolExecutor,
        options: ReplicaOptions,
        *,
        is_open: Callable[[DiskLog], bool],
    ) -> None:
        """``is_open`` returns False for the log of a deleted topic."""
        self._is_open = is_open
        self._bucket = bucket
        self._thread = thread
        self._options = options
        self._known: dict[Segment, SegmentRuns] = {}
        self._segments: dict[DiskLog, Sequence[Segment]] = {}
        self._slots = asyncio.Semaphore(options.uploads)
        self._sealed: deque[tuple[DiskLog, Segment]] = deque()
        self._is_queued: set[Segment] = set()
        self._has_sealed = asyncio.Event()

    # ── what is there from before ──

    async def recognize(self, log: DiskLog, replica: PartitionReplica) -> None:
        """Compare the segments of a log with what the newest cut has of them.

        Raises:
            OSError: the disk failed.
        """
        by_base = {segment.base_offset: segment for segment in replica.segments}
        trusted = _TRUSTED_BYTES
        for segment in reversed(log.segments):
            if segment.remote is not None:
                known = segment.remote.known
                self._known[segment] = SegmentRuns(known.base_offset, known.next_offset, known.runs)
                continue
            stored = by_base.get(segment.base_offset)
            if stored is None:
                continue
            may_differ = segment.may_have_holes or segment.base_offset < replica.holes_until
            size = segment.size
            if (
                not may_differ
                and trusted <= 0
                and stored.size == size
                and stored.next_offset == segment.next_offset
            ):
                # A later part of the log is the same, so this is.
                self._known[segment] = stored
                continue
            try:
                count = await self._in_thread(
                    partial(
                        matching_runs,
                        segment,
                        size,
                        stored.runs,
                        trusted_bytes=-1 if may_differ else max(trusted, 1),
                    )
                )
            except SegmentVanished:
                continue
            if count:
                runs = stored.runs[:count]
                if sum(run.length for run in runs) == size:
                    # Compaction may have removed all records that followed.
                    next_offset = segment.next_offset
                elif count == len(stored.runs):
                    next_offset = stored.next_offset
                else:
                    next_offset = stored.runs[count].base_offset
                self._known[segment] = SegmentRuns(segment.base_offset, next_offset, runs)
                if not may_differ and count == len(stored.runs):
                    trusted -= stored.size

    # ── new bytes ──

    async def upload(self, marks: Sequence[LogMark]) -> None:
        """Bring all bytes of ``marks`` into the bucket.

        Raises:
            SegmentVanished: there must be new marks.
            OSError: the disk failed.
        """
        try:
            async with asyncio.TaskGroup() as uploads:
                async for kind, planned in self._objects(marks):
                    await self._slots.acquire()
                    # Of a task that is cancelled before it begins, not even a ``finally`` runs.
                    uploads.create_task(self._upload(kind, planned)).add_done_callback(self._free_slot)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _objects(self, marks: Sequence[LogMark]) -> AsyncIterator[tuple[str, Sequence[_Planned]]]:
        """Yield what is to be in one object of a kind, or in several if it is much of one segment."""
        planned: list[_Planned] = []
        size = 0
        for mark in marks:
            async for one in self._plan(mark):
                if one.is_whole:
                    # It need not be written once more when there is time for it.
                    yield SEALED, [one]
                    continue
                length = one.piece.end - one.piece.start
                if planned and size + length > self._options.object_bytes:
                    yield DELTA, planned
                    planned, size = [], 0
                planned.append(one)
                size += length
        if planned:
            yield DELTA, planned

    async def _plan(self, mark: LogMark) -> AsyncIterator[_Planned]:
        async for segment_mark in visited(mark.segment_marks()):
            planned = self._planned(mark.log, segment_mark)
            if planned is not None:
                yield planned

    def _planned(self, log: DiskLog, mark: SegmentMark) -> _Planned | None:
        segment = mark.segment
        known = self._known.get(segment)
        runs: Sequence[RunSpan] = () if known is None else known.runs
        start = 0 if known is None else known.size
        if start >= mark.size:
            return None
        base_offset, kept = segment.base_offset if known is None else known.next_offset, len(runs)
        # Small runs go along with what follows them, so there are few of them however slowly a log grows.
        while kept and runs[kept - 1].length <= min(mark.size - start, self._options.small_run_bytes):
            kept -= 1
            start -= runs[kept].length
            base_offset = runs[kept].base_offset
        piece = Piece(key_of(log), segment, start, mark.size, base_offset, mark.next_offset)
        return _Planned(log, piece, kept)

    async def _upload(self, kind: str, planned: Sequence[_Planned]) -> None:
        bytes_max = self._options.segment_bytes if kind == SEALED else self._options.object_bytes
        rest: Sequence[_Planned] = planned
        while rest:
            rest = await self._upload_once(kind, rest, bytes_max)

    def _check_open(self, read: Iterable[tuple[DiskLog, Segment]]) -> None:
        """Check that what was just read was theirs: another topic of the same name, or other records, may be there."""
        for log, segment in read:
            if segment.is_cut or not self._is_open(log):
                raise SegmentVanished(f"{segment.path} was deleted, or cut back")

    def _free_slot(self, _upload: asyncio.Task[None]) -> None:
        self._slots.release()

    async def _upload_once(self, kind: str, planned: Sequence[_Planned], bytes_max: int) -> list[_Planned]:
        built = await self._in_thread(partial(build_object, [one.piece for one in planned], bytes_max))
        self._check_open((one.log, one.piece.segment) for one in planned)
        key = await self._bucket.put(kind, built.data)
        rest: list[_Planned] = []
        budget = WorkBudget()
        for one, run in zip(planned, built.runs, strict=True):
            self._note(one, run, key)
            if (left := run.rest) is not None:
                rest.append(_Planned(one.log, left, one.kept + 1))
            await budget.visit()
        return rest

    def _note(self, planned: _Planned, run: BuiltRun, key: str) -> None:
        segment = planned.piece.segment
        known = self._known.get(segment)
        before = () if known is None else known.runs[: planned.kept]
        self._known[segment] = SegmentRuns(segment.base_offset, run.next_offset, (*before, run.span(key)))

    # ── what a cut says ──

    def replica_of(self, mark: LogMark) -> PartitionReplica:
        """Return what a cut says of a log whose bytes are uploaded."""
        segments = [self._known.get(one) or _empty(one) for one in mark.segments]
        self._keep(mark.log, mark.segments)
        for segment, runs in zip(mark.segments[:-1], segments, strict=False):
            if segment not in self._is_queued and _is_in_parts(runs):
                self._is_queued.add(segment)
                self._sealed.append((mark.log, segment))
                self._has_sealed.set()
        return PartitionReplica(
            topic=mark.log.topic_partition.topic,
            log_start_offset=mark.log_start_offset,
            holes_until=mark.holes_until,
            epochs=mark.epochs,
            segments=segments,
        )

    def forget(self, log: DiskLog) -> None:
        """Forget the segments of a deleted log."""
        self._keep(log, ())

    def _keep(self, log: DiskLog, segments: Sequence[Segment]) -> None:
        before = self._segments.pop(log, ())
        if segments:
            self._segments[log] = segments
        if before is not segments and before != segments:
            for segment in set(before).difference(segments):
                self._known.pop(segment, None)
                self._is_queued.discard(segment)

    # ── sealed segments ──

    async def next_sealed(self) -> DiskLog:
        """Write a sealed segment that is in parts as one object, or as few; return its log, which has changed.

        Raises:
            OSError: the disk failed.
        """
        while True:
            while not self._sealed:
                self._has_sealed.clear()
                await self._has_sealed.wait()
            log, segment = self._sealed.popleft()
            try:
                if await self._write_sealed(log, segment):
                    return log
            finally:
                # Only now: while it is written, cuts find it in parts.
                self._is_queued.discard(segment)

    async def _write_sealed(self, log: DiskLog, segment: Segment) -> bool:
        """Return False if the segment is gone."""
        if segment not in self._known:
            return False
        piece: Piece | None = Piece(
            key_of(log), segment, 0, segment.size, segment.base_offset, segment.next_offset
        )
        spans: list[RunSpan] = []
        try:
            while piece is not None:
                built = await self._in_thread(partial(build_object, [piece], self._options.segment_bytes))
                self._check_open([(log, segment)])
                key = await self._bucket.put(SEALED, built.data)
                spans.append(built.runs[0].span(key))
                piece = built.runs[0].rest
        except SegmentVanished:
            return False
        if segment not in self._known:
            return False
        self._known[segment] = SegmentRuns(segment.base_offset, segment.next_offset, tuple(spans))
        return True

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _empty(segment: Segment) -> SegmentRuns:
    return SegmentRuns(segment.base_offset, segment.base_offset, ())


def _is_in_parts(runs: SegmentRuns) -> bool:
    return any(not run.object.startswith(SEALED) for run in runs.runs)
