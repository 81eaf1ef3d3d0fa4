"""Copies partitions: fetches from their leaders at the source, appends to the copies.

Each broker of the source has one fetch under way for all partitions that it leads. While the batches of one fetch are
appended, the next one is read. A partition that fails waits on its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

from ..errors import SteleClientError, UnexpectedEndError
from ..records import TopicPartition
from ..wire.error_codes import ErrorCode
from ..wire.isolation_level import IsolationLevel
from ..wire.kafka.fetch import PartitionData
from . import positions
from .comparisons import Comparisons
from .errors import MirrorError, SourceError, error_name
from .flow import Flow
from .partition import Job, PartitionCopy, pause_s
from .positions import NOTHING, CopyState, LeftOut, SourceState
from .source import reads
from .source.cluster import Source
from .source.reads import AskedEpoch, EpochEnd, FetchFrom
from .target import Target

logger: logging.Logger = logging.getLogger("stele.mirror")

# Errors after which the metadata may say where to go.
_STALE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
# A partition that begins again because of its offset may do so at once so often.
_OUT_OF_RANGE_FREE = 1
# Partitions that are compared with the source at a time.
_BEGIN_MAX = 500
# Copies of which it is found out at a time where they and their sources begin to differ.
_SEARCHES_MAX = 10
# Looks for partitions whose pause is over.
_LOOK_S = 0.25
# Of a partition whose end is not known.
_NO_END = 2**63 - 1
# Looks for copies that have come to an end.
_REACH_S = 0.02
# A source that answers at once without records, although it may wait, is not asked more often than this.
_EMPTY_PAUSE_S = 0.05


class LeaderCopies:
    """Copies the partitions that one broker of the source leads."""

    def __init__(
        self, broker: int, source: Source, target: Target, flow: Flow, *, refresh: Callable[[], None]
    ) -> None:
        """``refresh`` asks for new metadata of the source."""
        self._broker = broker
        self._source = source
        self._target = target
        self._flow = flow
        self._refresh = refresh
        self._comparisons = Comparisons(broker, source, target)
        # In the order in which they are asked for: those that brought records go to the end.
        self.partitions: dict[TopicPartition, PartitionCopy] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def changed(self) -> None:
        """Look again at what to do."""
        self._changed.set()

    async def run(self) -> None:
        """Copy until it is cancelled."""
        failures = 0
        try:
            while True:
                self._changed.clear()
                self._begin_due()
                ready = [one for one in self.partitions.values() if one.may_fetch]
                if not ready:
                    await self._pause(_LOOK_S)
                    continue
                try:
                    await self._flow.room()
                    await self._fetch(ready)
                    failures = 0
                except (SourceError, MirrorError) as error:
                    failures += 1
                    self._wait_all(ready, error)
                    self._refresh()
                    await asyncio.sleep(pause_s(failures))
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pause(self, seconds: float) -> None:
        """Wait until something has changed, at most for a while."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()

    def _wait_all(self, partitions: Iterable[PartitionCopy], error: object) -> None:
        now_s = asyncio.get_running_loop().time()
        for one in partitions:
            self._flow.give(one.wait(error, now_s))

    # ── beginning ──

    def _begin_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        due = [one for one in self.partitions.values() if one.must_begin(now_s)][:_BEGIN_MAX]
        if due:
            for one in due:
                one.is_beginning = True
            self._spawn(self._begin(due))
        # Others cannot be cut back.
        lost = [
            one for one in self.partitions.values() if one.state == "diverged" and self._target.has_batches
        ]
        free = _SEARCHES_MAX - sum(one.is_beginning for one in lost)
        for one in [one for one in lost if one.must_search(now_s)][: max(0, free)]:
            one.is_beginning = True
            self._spawn(self._search(one))

    async def _begin(self, partitions: Sequence[PartitionCopy]) -> None:
        runs = {one.name: one.run for one in partitions}
        try:
            copies = await self._copies(partitions)
            asked = [one for one in partitions if one.name in copies and one.run == runs[one.name]]
            sources = await self._sources(asked, copies) if asked else {}
            tails = await self._comparisons.differing_tails(
                [one for one in asked if one.name in sources], copies, sources
            )
            for one in asked:
                source = sources.get(one.name)
                if source is not None and one.run == runs[one.name] and copies[one.name].end > source.start:
                    await self._compare(one, source.start)
            for one in asked:
                if one.name in sources and one.run == runs[one.name]:
                    self._begin_one(one, copies[one.name], sources[one.name], tails.get(one.name))
        except (SourceError, MirrorError, SteleClientError) as error:
            self._wait_all((one for one in partitions if one.run == runs[one.name]), error)
            self._refresh()
        except Exception as error:
            # The edge of a task: whatever it is, the partitions are tried again.
            logger.exception("comparing copies with broker %d of the source failed", self._broker)
            self._wait_all((one for one in partitions if one.run == runs[one.name]), repr(error))
        finally:
            for one in partitions:
                one.is_beginning = False

    async def _copies(self, partitions: Sequence[PartitionCopy]) -> dict[TopicPartition, CopyState]:
        """Return what the copies have; those that cannot be asked wait."""
        states = await self._target.states({one.name: one.copy_id for one in partitions})
        copies: dict[TopicPartition, CopyState] = {}
        for one in partitions:
            state = states[one.name]
            if isinstance(state, CopyState):
                copies[one.name] = state
            elif isinstance(state, positions.Diverged | positions.NotCopyable):
                self._stop(one, state)
            else:
                self._wait_all([one], f"the copy: {state}")
                self._refresh()
        return copies

    async def _sources(
        self, partitions: Sequence[PartitionCopy], copies: dict[TopicPartition, CopyState]
    ) -> dict[TopicPartition, SourceState]:
        """Return what the source has; partitions with an error wait."""
        epochs = {one.name: one.leader.epoch for one in partitions}
        starts = await reads.offsets(self._source, self._broker, epochs, reads.EARLIEST)
        ends = await reads.offsets(
            self._source, self._broker, epochs, reads.LATEST, isolation=self._target.isolation
        )
        found: dict[TopicPartition, SourceState] = {}
        for one in partitions:
            start, end = starts.get(one.name), ends.get(one.name)
            if start is None or end is None:
                self._wait_all([one], "the source did not answer for this partition")
            elif start.error or end.error or start.offset < 0 or end.offset < start.offset:
                self._fail(one, start.error or end.error)
            else:
                found[one.name] = SourceState(start=start.offset, end=end.offset)
        compared = {
            one.name: AskedEpoch(one.leader.epoch, copies[one.name].epoch)
            for one in partitions
            if one.name in found and positions.must_compare(copies[one.name], found[one.name])
        }
        if not compared:
            return found
        ends_of_epochs = await reads.epoch_ends(self._source, self._broker, compared)
        for one in partitions:
            if one.name in compared:
                end_of_epoch = ends_of_epochs.get(one.name) or EpochEnd(-1, -1, -1)
                if end_of_epoch.error:
                    del found[one.name]
                    self._fail(one, end_of_epoch.error)
                else:
                    was = found[one.name]
                    found[one.name] = SourceState(
                        start=was.start, end=was.end, epoch_end=(end_of_epoch.epoch, end_of_epoch.end)
                    )
        return found

    async def _compare(self, one: PartitionCopy, start: int) -> None:
        """Compare records of a copy with those of the source, if the target has no epochs of the source."""
        samples = self._target.samples(one.name)
        if not samples:
            return
        begin = FetchFrom(one.topic_id, one.leader.epoch, max(start, samples[0].offset), -1)
        answers = await reads.fetch(
            self._source,
            self._broker,
            {one.name: begin},
            wait_ms=0,
            bytes_max=self._source.config.fetch_bytes,
        )
        answer = answers.get(one.name)
        if answer is None or answer.error_code not in (0, ErrorCode.OFFSET_OUT_OF_RANGE):
            self._fail(one, -1 if answer is None else answer.error_code)
            return
        try:
            positions.check_samples(samples, answer.records or b"")
        except positions.Diverged as error:
            self._stop(one, error)

    def _begin_one(
        self, one: PartitionCopy, copy: CopyState, source: SourceState, differs_at: int | None
    ) -> None:
        copy_end = copy.end
        try:
            position = positions.begin(copy, source)
            if differs_at is not None:
                raise positions.differs(copy, differs_at)
            copy, floor = self._target.begun(one.name, copy, position)
        except (positions.Diverged, positions.NotCopyable) as error:
            self._stop(one, error)
            return
        if 0 < copy_end < position:
            one.gap = copy_end, position - 1
            logger.warning(
                "%s: the source deleted offsets %d to %d before they were copied", one.name, *one.gap
            )
        one.began(position, copy, source, floor=floor)

    async def _search(self, one: PartitionCopy) -> None:
        """Find out where a copy that has diverged and its source begin to differ."""
        leader = one.leader
        try:
            found, copy, source = await self._comparisons.search(one)
        except (SourceError, MirrorError, SteleClientError) as error:
            logger.info("it is not known yet where %s and its source begin to differ: %s", one.name, error)
            one.failures += 1
            one.due_s = asyncio.get_running_loop().time() + pause_s(one.failures)
            self._refresh()
        else:
            if one.leader == leader:
                one.found(found, copy, source)
        finally:
            one.is_beginning = False

    # ── fetching ──

    async def _fetch(self, partitions: Sequence[PartitionCopy]) -> None:
        loop = asyncio.get_running_loop()
        runs = {one.name: (one, one.run) for one in partitions}
        asked = {
            one.name: FetchFrom(one.topic_id, one.leader.epoch, one.position or 0, one.epoch)
            for one in partitions
        }
        # While others append, they would have to wait for the response before they can go on.
        is_busy = any(one.jobs or one.is_beginning for one in self.partitions.values())
        wait_ms = 0 if is_busy else self._source.config.fetch_wait_ms
        begun_s = loop.time()
        answers = await reads.fetch(
            self._source,
            self._broker,
            asked,
            wait_ms=wait_ms,
            bytes_max=self._flow.fetch_bytes_max,
            isolation=self._target.isolation,
        )
        has_brought = False
        for name, answer in answers.items():
            # What was not asked for, or has begun again meanwhile, is dropped.
            one, run = runs.get(name, (None, -1))
            if one is not None and one.run == run:
                has_brought = self._take(one, answer) or has_brought
        if has_brought:
            return
        if is_busy:
            await self._pause(self._source.config.fetch_wait_ms / 1000)
        elif loop.time() - begun_s < wait_ms / 2000:
            await asyncio.sleep(_EMPTY_PAUSE_S)

    def _take(self, one: PartitionCopy, answer: PartitionData) -> bool:
        """Take what a fetch brought of a partition; return whether it brought anything."""
        if answer.error_code:
            self._fail(one, answer.error_code)
            return False
        is_committed = self._target.isolation == IsolationLevel.READ_COMMITTED
        end = answer.last_stable_offset if is_committed else answer.high_watermark
        if end < 0:
            self._wait_all([one], "the source sent no high watermark")
            return False
        if answer.log_start_offset > (one.position or 0):
            self._wait_all([one], f"the source begins at {answer.log_start_offset}, after what it sent")
            return False
        try:
            diverging = answer.diverging_epoch
            if diverging is not None and one.epoch >= 0:
                positions.check_epoch(one.position or 0, one.epoch, diverging.epoch, diverging.end_offset)
            records = answer.records if answer.records is not None else b""
            pieces = positions.cut(
                records, one.position or 0, end, floor=one.floor, piece_bytes=self._flow.piece_bytes
            )
            ended = answer.aborted_transactions if is_committed and pieces else None
            aborted = positions.aborted_batches(
                records, [(each.producer_id, each.first_offset) for each in ended or ()]
            )
        except (positions.Diverged, positions.NotCopyable) as error:
            self._stop(one, error)
            return False
        except positions.Damaged as error:
            self._wait_all([one], error)
            return False
        job = Job(records if pieces else b"", pieces, answer.log_start_offset, aborted)
        one.fetched(job, high_watermark=end)
        if one.jobs and one.jobs[-1] is job:
            self._flow.take(job.size)
            if pieces:
                self.partitions[one.name] = self.partitions.pop(one.name)
            if not one.is_appending:
                one.is_appending = True
                self._spawn(self._append(one))
        return bool(pieces)

    def _fail(self, one: PartitionCopy, number: int) -> None:
        """Handle an error of the source for one partition."""
        if number in _STALE:
            self._refresh()
        if number == ErrorCode.OFFSET_OUT_OF_RANGE and one.failures < _OUT_OF_RANGE_FREE:
            # Retention, or records were lost: the comparison tells.
            one.failures += 1
            self._flow.give(one.begin_again())
        else:
            self._wait_all([one], f"the source: {error_name(number)}")

    def _stop(self, one: PartitionCopy, error: positions.Diverged | positions.NotCopyable) -> None:
        has_diverged = isinstance(error, positions.Diverged)
        text = f"{error}. {self._target.advice}" if has_diverged else str(error)
        logger.error("%s has stopped: %s", one.name, text)
        self._flow.give(one.stop("diverged" if has_diverged else "refused", text))

    # ── appending ──

    async def _append(self, one: PartitionCopy) -> None:
        run = one.run
        try:
            while one.run == run and one.jobs:
                await self._append_job(one, one.jobs[0], run)
        except UnexpectedEndError:
            # Another process has appended, or an append whose response was lost.
            if one.run == run:
                self._flow.give(one.begin_again())
        except (positions.Diverged, positions.NotCopyable) as error:
            if one.run == run:
                self._stop(one, error)
        except (SteleClientError, SourceError, MirrorError) as error:
            if one.run == run:
                self._wait_all([one], f"the copy: {error}")
                if not isinstance(error, SteleClientError) or not error.retriable:
                    # It may have been deleted, or is somewhere else.
                    self._refresh()
        except Exception as error:
            # The edge of a task: whatever it is, the partition is tried again.
            logger.exception("appending to %s failed", one.name)
            if one.run == run:
                self._wait_all([one], repr(error))
        finally:
            one.is_appending = False

    async def _append_job(self, one: PartitionCopy, job: Job, run: int) -> None:
        for piece in job.pieces:
            batches = job.records[piece.start : piece.stop]
            left_out = LeftOut(job.log_start, job.aborted)
            if not await self._store(one, run, batches, log_start=-1, left_out=left_out):
                return
            if one.end != piece.next_offset:
                raise UnexpectedEndError(
                    f"{one.name} ends at {one.end} after an append up to {piece.next_offset}"
                )
        # Afterwards, because a copy that ended before it would leave out the batches up to there.
        if job.log_start > one.start and not await self._store(one, run, b"", log_start=job.log_start):
            return
        one.jobs.popleft()
        self._flow.give(job.size)
        self._changed.set()

    async def _store(
        self,
        one: PartitionCopy,
        run: int,
        batches: bytes | memoryview,
        *,
        log_start: int,
        left_out: LeftOut = NOTHING,
    ) -> bool:
        """Append to a copy; return whether it still matters."""
        copy = await self._target.append(
            one.name, one.copy_id, batches, expected_end=one.end, log_start=log_start, left_out=left_out
        )
        if one.run != run:
            return False
        one.appended(copy)
        self._flow.stored_bytes += len(batches)
        return True


class Copying:
    """All partitions of a mirror, each with the broker that leads it at the source."""

    def __init__(self, source: Source, target: Target, flow: Flow, *, refresh: Callable[[], None]) -> None:
        self._source = source
        self._target = target
        self._flow = flow
        self._refresh = refresh
        self._leaders: dict[int, LeaderCopies] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.partitions: dict[TopicPartition, PartitionCopy] = {}

    def update(self, wanted: Iterable[PartitionCopy]) -> None:
        """Copy these partitions and no others; those that are known already go on.

        Their leaders and ids are those of ``wanted``.
        """
        now_s = asyncio.get_running_loop().time()
        partitions: dict[TopicPartition, PartitionCopy] = {}
        for new in wanted:
            one = self.partitions.get(new.name)
            if one is None or (one.topic_id, one.copy_id) != (new.topic_id, new.copy_id):
                if one is not None:
                    self._leave(one)
                one = new
            elif one.leader != new.leader:
                if one.leader.broker != new.leader.broker:
                    self._leave(one)
                self._flow.give(one.led_by(new.leader))
            partitions[one.name] = one
            if new.is_stopped:
                self._flow.give(one.stop(new.state, new.error))
            if one.leader.broker < 0:
                if one.due_s <= now_s:
                    self._flow.give(one.wait("it has no leader at the source", now_s))
            else:
                self._leader(one.leader.broker).partitions.setdefault(one.name, one)
        for name in self.partitions.keys() - partitions.keys():
            self._leave(self.partitions[name])
        self.partitions = partitions
        for broker in [number for number, leader in self._leaders.items() if not leader.partitions]:
            self._tasks.pop(broker).cancel()
            del self._leaders[broker]
        for leader in self._leaders.values():
            leader.changed()

    def _leave(self, one: PartitionCopy) -> None:
        """Take a partition from its leader; what is under way is dropped."""
        self._flow.give(one.begin_again())
        leader = self._leaders.get(one.leader.broker)
        if leader is not None:
            leader.partitions.pop(one.name, None)

    def _leader(self, broker: int) -> LeaderCopies:
        if broker not in self._leaders:
            leader = LeaderCopies(broker, self._source, self._target, self._flow, refresh=self._refresh)
            self._leaders[broker] = leader
            self._tasks[broker] = asyncio.create_task(self._supervised(leader))
        return self._leaders[broker]

    async def _supervised(self, leader: LeaderCopies) -> None:
        failures = 0
        while True:
            try:
                await leader.run()
            except Exception as error:
                # The edge of a task: whatever it is, the others go on, and these are tried again.
                logger.exception("copying from a broker of the source failed")
                failures += 1
                now_s = asyncio.get_running_loop().time()
                for one in leader.partitions.values():
                    self._flow.give(one.wait(repr(error), now_s))
                await asyncio.sleep(pause_s(failures))

    async def reach_ends(self, topics: Collection[str]) -> None:
        """Return once the copies of ``topics`` have what the source has now, but for those that have stopped.

        Raises:
            SourceError, MirrorError: the source does not answer.
        """
        ends: dict[TopicPartition, int] = {}
        while behind := [
            one
            for one in self.partitions.values()
            if one.name.topic in topics and not one.is_stopped and one.end < ends.get(one.name, _NO_END)
        ]:
            unknown = [one for one in behind if one.name not in ends]
            for broker in {one.leader.broker for one in unknown if one.leader.broker >= 0}:
                asked = {one.name: one.leader.epoch for one in unknown if one.leader.broker == broker}
                found = await reads.offsets(self._source, broker, asked, reads.LATEST)
                # A leader that has changed is asked for again.
                ends |= {name: end.offset for name, end in found.items() if not end.error}
            await asyncio.sleep(_REACH_S)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
