"""Whole batches out of the bytes of runs, which come from the block cache.

A read that has some batches does not wait long for more: what is slow or fails after them is left to the next read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stele.wire import record_batch as rb

from ....errors import CorruptLog, SteleError, StorageUnavailable
from ....work_budget import WorkBudget
from ...engine import PartitionFetch
from ...recovery.checkpoint import LeaderEpochs
from ..meta import ObjectRef, RunRead
from ..store.block_cache import BlockCache
from ..store.object_keys import size_of
from ..store.object_store import ObjectNotFound, ObjectStoreError
from .batches import CorruptRunError, Cut, cut, cut_cleaned
from .loads_ahead import LoadsAhead, Part
from .object_reads import BYTES_PER_MS_MIN, ReadOptions
from .sparse_index import INTERVAL_BYTES, find


class Batches(NamedTuple):
    """Batches read from a log. There may be holes before ``holes_until``."""

    batches: bytes | bytearray = b""
    holes_until: int = 0


class LateRead(Exception):
    """The store has not answered yet, and the reader has batches of other partitions."""


class PlannedRead(NamedTuple):
    """The runs that ``request`` reads, up to the offset ``end``."""

    request: PartitionFetch
    runs: Sequence[RunRead]
    end: int


class _RunPart(NamedTuple):
    """The part read from a run.

    ``empty`` is a batch without records that was left out before all others.
    """

    batches: bytearray
    empty: bytes
    is_whole: bool


class ReadCall:
    """One call of a reader: how long it waits, and what it loads ahead.

    It ends without more at ``answer_at_s`` if it has batches, and with an error at ``fail_at_s`` if not, both by the
    clock of the loop.
    """

    __slots__ = ("ahead", "answer_at_s", "fail_at_s", "has_batches")

    def __init__(self, ahead: LoadsAhead, options: ReadOptions, max_bytes: int) -> None:
        begun_s = asyncio.get_running_loop().time()
        self.ahead = ahead
        self.has_batches = False
        self.answer_at_s = begun_s + options.answer_after_ms / 1000
        self.fail_at_s = begun_s + (options.timeout_ms + max_bytes / BYTES_PER_MS_MIN) / 1000

    @property
    def until_s(self) -> float:
        return self.answer_at_s if self.has_batches else self.fail_at_s


class RunReader:
    """Reads planned runs.

    A sequential reader of a merged object has the next ``read_ahead_blocks`` blocks loaded before it asks for them.
    """

    def __init__(self, cache: BlockCache[ObjectRef], *, options: ReadOptions, read_ahead_blocks: int) -> None:
        self._cache = cache
        self._options = options
        self._read_ahead_blocks = read_ahead_blocks

    def begin(self, plans: Iterable[PlannedRead], max_bytes: int) -> ReadCall:
        """Begin a call that reads what was planned, within ``max_bytes`` in all."""
        options = self._options
        ahead = LoadsAhead(
            self._cache, _parts(plans, max_bytes), count=options.ahead, bytes_max=options.ahead_bytes
        )
        return ReadCall(ahead, options, max_bytes)

    def forget(self, runs: Sequence[RunRead]) -> None:
        """Drop the cached parts of the objects of these runs, which are damaged."""
        for run in runs:
            self._cache.forget(run.object, size_of(run.object.key))

    async def read(
        self,
        call: ReadCall,
        request: PartitionFetch,
        runs: Sequence[RunRead],
        max_bytes: int,
        *,
        log_start: int,
        end: int,
        at_least_one: bool,
        epochs: LeaderEpochs,
    ) -> Batches:
        """Return the batches of ``runs`` up to the offset ``end``, within ``max_bytes``.

        Raises:
            ObjectNotFound: an object is gone.
            LateRead: see there.
            CorruptLog, StorageUnavailable: see there.
        """
        offset = request.offset
        batches = bytearray()
        empty, holes_until = b"", 0
        for run in runs:
            if run.base_offset >= (min(end, request.until_offset) if batches else end):
                break
            if run.base_offset > offset:
                if not batches and offset == request.offset and run.base_offset > max(offset, log_start):
                    raise corrupt_run(run, 0, "a run before it is missing", offset)
                break
            if run.last_offset < offset:
                continue
            call.ahead.next()
            try:
                part = await self._read_run(
                    call,
                    run,
                    offset,
                    max_bytes - len(batches),
                    end=min(end, request.until_offset),
                    at_least_one=at_least_one and not batches,
                    skip_empty=not batches,
                    epochs=epochs,
                )
            except (ObjectNotFound, LateRead, SteleError):
                if not batches:
                    raise
                break
            if run.cleaned_until:
                holes_until = run.last_offset + 1
            empty = part.empty or empty
            if batches:
                batches += part.batches
            else:
                batches = part.batches
            if not part.is_whole or len(batches) >= max_bytes:
                break
            offset = run.last_offset + 1
        if not batches and empty and (at_least_one or len(empty) <= max_bytes):
            # Nothing else was found within the limits: with it, the reader moves on.
            return Batches(empty, holes_until)
        return Batches(batches, holes_until)

    async def _read_run(
        self,
        call: ReadCall,
        run: RunRead,
        offset: int,
        max_bytes: int,
        *,
        end: int,
        at_least_one: bool,
        skip_empty: bool,
        epochs: LeaderEpochs,
    ) -> _RunPart:
        """Return batches of one run, and whether they reach its end.

        What fails after some batches is left to the next read. Raises as ``read``.
        """
        relative, start = find(run.sparse_index, offset - run.base_offset)
        stop = _stop(run, end)
        budget = WorkBudget()
        batches, empty = bytearray(), b""
        base_offset, position = run.base_offset + relative, start
        wanted = _wanted_bytes(run, max_bytes)
        while position < run.length:
            try:
                data = await self._load(call, run, position, min(wanted, run.length - position), stop)
                part = _cut(
                    run,
                    data,
                    base_offset,
                    from_offset=offset,
                    end_offset=end,
                    max_bytes=max_bytes - len(batches),
                    at_least_one=at_least_one and not batches,
                    skip_empty=skip_empty and not batches,
                    epochs=epochs,
                )
            except CorruptRunError as error:
                if batches:
                    return _RunPart(batches, empty, is_whole=False)
                raise corrupt_run(run, position + error.position, error.reason, offset) from error
            except (ObjectNotFound, LateRead, SteleError):
                if batches:
                    return _RunPart(batches, empty, is_whole=False)
                raise
            if part.batches:
                call.has_batches = True
                batches += part.batches
            empty = part.empty or empty
            position, base_offset = position + part.position, part.next_offset
            if part.position < len(data) and not part.needed_bytes:
                return _RunPart(batches, empty, is_whole=False)
            if part.needed_bytes > run.length - position > 0:
                raise corrupt_run(run, position, "the run ends inside a batch", offset)
            wanted = max(part.needed_bytes, max_bytes - len(batches), rb.HEADER_BYTES)
            await budget.spend(part.position)
        if base_offset != run.last_offset + 1:
            raise corrupt_run(run, 0, f"the run ends before offset {base_offset}", offset)
        return _RunPart(batches, empty, is_whole=True)

    async def _load(self, call: ReadCall, run: RunRead, position: int, length: int, stop: int) -> bytes:
        """Return bytes of a run, and read ahead up to ``stop``."""
        object_bytes, at = size_of(run.object.key), run.position + position
        try:
            data = await self._cache.read(run.object, object_bytes, at, length, until_s=call.until_s)
        except ObjectNotFound:
            raise
        except ObjectStoreError as error:
            raise StorageUnavailable("the read", str(error)) from error
        except TimeoutError:
            if call.has_batches:
                raise LateRead from None
            raise StorageUnavailable(
                "the read", f"the object store has not returned object {run.object.key} in time"
            ) from None
        if run.is_merged and self._read_ahead_blocks and position + length < stop:
            self._cache.read_ahead(run.object, object_bytes, at + length, self._read_ahead_blocks)
        return data


def _parts(plans: Iterable[PlannedRead], max_bytes: int) -> Iterator[Part]:
    """Yield what these reads load first, within ``max_bytes`` in all."""
    for request, runs, end in plans:
        left = min(request.max_bytes, max_bytes)
        offset, end = request.offset, min(end, request.until_offset)
        for run in runs:
            if run.last_offset < offset:
                continue
            if run.base_offset >= end and run.base_offset > offset:
                break
            start = find(run.sparse_index, offset - run.base_offset)[1] if run.base_offset < offset else 0
            length = min(_wanted_bytes(run, left), run.length - start)
            yield Part(run.object, run.position + start, length)
            left -= length
            max_bytes -= length
            if left <= 0:
                break
        if max_bytes <= 0:
            return


def _wanted_bytes(run: RunRead, max_bytes: int) -> int:
    """Return how much of a run is loaded first for a read of ``max_bytes``."""
    return max(max_bytes, rb.HEADER_BYTES) + (INTERVAL_BYTES if run.sparse_index else 0)


def _stop(run: RunRead, end: int) -> int:
    """Return a position in the run after all batches before the offset ``end``."""
    if end > run.last_offset:
        return run.length
    return find(run.sparse_index, end - run.base_offset)[1] + INTERVAL_BYTES


def _cut(
    run: RunRead,
    data: bytes,
    base_offset: int,
    *,
    from_offset: int,
    end_offset: int,
    max_bytes: int,
    at_least_one: bool,
    skip_empty: bool,
    epochs: LeaderEpochs,
) -> Cut:
    if not run.cleaned_until:
        return cut(
            data,
            base_offset,
            from_offset=from_offset,
            end_offset=end_offset,
            max_bytes=max_bytes,
            at_least_one=at_least_one,
            epochs=epochs,
        )
    return cut_cleaned(
        data,
        base_offset,
        from_offset=from_offset,
        end_offset=end_offset,
        max_bytes=max_bytes,
        at_least_one=at_least_one,
        skip_empty=skip_empty,
        epochs=epochs,
    )


def corrupt_run(run: RunRead, position: int, reason: str, offset: int) -> CorruptLog:
    """Return the error of a reader that wanted ``offset``; ``position`` is where in the run the damage is."""
    return CorruptLog(
        path=Path(run.object.key),
        position=run.position + position,
        offset=offset,
        next_offset=run.last_offset + 1,
        reason=reason,
    )
