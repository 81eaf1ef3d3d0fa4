"""A partition of a share group that answers acknowledgements once they are stored.

One write per partition is under way at a time. Acknowledgements that arrive meanwhile
wait, and the next write stores all of them at once. So a write never contains the
outcome of an acknowledgement whose own write may still fail, and a failed one is dropped
alone.

Dead letters are written once it is stored that their records are given up.

``SharePartition`` has the rules. This module adds the clock, the timer of the locks and
the writes. Everything runs on the event loop, and nothing awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from ...cluster.share_group_store import SharePartitionRecord, StoredRecords
from ...errors import CoordinatorNotAvailable, SteleError
from ...storage.topic_partition import TopicPartition
from ..base.context import GroupContext
from ..base.parking import answer
from ..base.share_state import (
    Acknowledgement,
    AcquiredRange,
    OffsetRange,
    RecordState,
    ShareLimits,
    ShareState,
    StoredRange,
)
from ..base.timers import Timer
from .dead_letter_drain import DeadLetterDrain
from .partition import SharePartition, Transition


class DurableSharePartition:
    """One partition of a share group.

    ``limits`` returns the limits in effect. ``freed`` is called when records became available, or
    when there is room to acquire more.
    """

    def __init__(
        self,
        stored: SharePartitionRecord,
        context: GroupContext,
        *,
        limits: Callable[[], ShareLimits],
        freed: Callable[[], object],
    ) -> None:
        self.topic_id: UUID = stored.topic_id
        self.partition = stored.partition
        self.records = SharePartition(stored.group, _state_of(stored))
        self._stored = stored
        self._context = context
        self._limits = limits
        self._freed = freed
        self._locks = Timer(context.scheduler, self._end_locks)
        self._dead_letters = DeadLetterDrain(
            self.records,
            lambda ranges: context.write_dead_letters(
                stored.group, TopicPartition(stored.topic, stored.partition), ranges
            ),
            scheduler=context.scheduler,
            archived=self._finished,
        )
        self._waiting: list[tuple[Transition, asyncio.Future[None]]] = []
        self._is_writing = False
        self._is_changed = False
        self._is_closed = False

    def close(self, error: SteleError) -> None:
        """Stop the timers for good, and answer what is not being written with ``error``."""
        self._is_closed = True
        self._locks.stop()
        self._dead_letters.close()
        self._refuse_waiting(error)

    # ── what members do ──

    def fetch_offset(self, log_start_offset: int) -> int | None:
        """Return where a member should read; None while nothing may be acquired."""
        if self.records.trim(log_start_offset):
            self._write()
        return self.records.fetch_offset(self._limits())

    def acquire(
        self,
        member_id: str,
        *,
        read_from: int,
        read_to: int,
        batches: Sequence[OffsetRange],
        records_max: int,
        is_strict: bool,
    ) -> list[AcquiredRange]:
        """Lock the available records of a read for a member; see ``SharePartition.acquire``."""
        start_offset = self.records.start_offset
        acquired = self.records.acquire(
            member_id,
            read_from=read_from,
            read_to=read_to,
            batches=batches,
            now_ms=self._now_ms(),
            limits=self._limits(),
            records_max=records_max,
            is_strict=is_strict,
        )
        self._context.share_counts.delivered += sum(span.last - span.first + 1 for span in acquired)
        self._wait_for_locks()
        if self.records.start_offset != start_offset:
            # Past markers and holes, which the next start need not read again.
            self._write()
        return acquired

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], *, may_renew: bool = True
    ) -> asyncio.Future[None]:
        """Take what a member says of its records. Completes when that is durable.

        Raises, at once or from the future:
            InvalidRequest, InvalidRecordState: as ``SharePartition.acknowledge``.
            GroupStoreFailed: nothing changed, and the member still holds the records.
            CoordinatorNotAvailable: the partition is closed.
        """
        if self._is_closed:
            raise CoordinatorNotAvailable("the share group was deleted, or the broker is shutting down")
        transition = self.records.acknowledge(
            member_id, acknowledgements, now_ms=self._now_ms(), limits=self._limits(), may_renew=may_renew
        )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if transition.spans:
            self._waiting.append((transition, future))
            self._write()
        else:
            future.set_result(None)
        self._wait_for_locks()
        return future

    def check(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Raise what ``acknowledge`` would raise at once."""
        self.records.check(member_id, acknowledgements, now_ms=self._now_ms())

    def held_by(self, member_id: str) -> tuple[list[AcquiredRange], int]:
        """Return what a member holds, and in how many ms the first of its locks ends."""
        held, deadline_ms = self.records.held_by(member_id)
        return held, max(0, deadline_ms - self._now_ms())

    def release_member(self, member_id: str, *, is_delivered: bool = True) -> None:
        """Take back all records of a member whose session or connection has ended."""
        self._taken_back(self.records.release_member(member_id, self._limits(), is_delivered=is_delivered))

    def _taken_back(self, count: int) -> None:
        if count:
            self._context.share_counts.expired += count
            self._write()
            self._freed()

    def reset(self, start_offset: int) -> asyncio.Future[None]:
        """Begin at ``start_offset`` and forget all states. Completes when that is durable.

        If it cannot be stored, the states are forgotten nevertheless until the broker restarts.
        """
        self.records.reset(start_offset)
        return self._stored_anew()

    def cut(self, end_offset: int) -> asyncio.Future[None]:
        """Forget the states from ``end_offset`` on; see ``SharePartition.cut``. Completes as ``reset``."""
        self.records.cut(end_offset)
        return self._stored_anew()

    def _stored_anew(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((Transition(()), future))
        self._write()
        self._freed()
        return future

    # ── dead letters ──

    def write_dead_letters(self) -> None:
        """Go on with the dead letters that a restart has interrupted."""
        self._dead_letters.start()

    def _finished(self) -> None:
        self._write()
        self._freed()

    # ── locks ──

    def _now_ms(self) -> int:
        return int(self._context.scheduler.time() * 1000)

    def _end_locks(self) -> None:
        self._taken_back(self.records.expire(self._now_ms(), self._limits()))
        self._wait_for_locks()

    def _wait_for_locks(self) -> None:
        deadline_ms = self.records.next_deadline_ms()
        if deadline_ms is None or self._is_closed:
            self._locks.stop()
        else:
            self._locks.start(max(1, deadline_ms - self._now_ms()))

    # ── writes ──

    def record(self) -> SharePartitionRecord:
        """Return what is to be stored now."""
        state = self.records.snapshot()
        stored = self._stored
        return SharePartitionRecord(
            group=stored.group,
            topic=stored.topic,
            topic_id=stored.topic_id,
            partition=stored.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            records=tuple(StoredRecords(*kept) for kept in state.ranges),
        )

    def _write(self) -> None:
        """Store the states, now or after the write under way."""
        self._is_changed = True
        if self._is_writing or self._is_closed:
            return
        self._is_writing, self._is_changed = True, False
        waiting, self._waiting = self._waiting, []
        self._context.persist([self.record()], lambda error: self._written(waiting, error))

    def _refuse_waiting(self, error: SteleError) -> None:
        waiting, self._waiting = self._waiting, []
        for transition, future in waiting:
            self.records.complete(transition, is_stored=False)
            answer(future, error)

    def _written(
        self, waiting: Sequence[tuple[Transition, asyncio.Future[None]]], error: SteleError | None
    ) -> None:
        self._is_writing = False
        for transition, _ in waiting:
            if error is None:
                self._count(transition)
            self.records.complete(transition, is_stored=error is None)
        for _, future in waiting:
            answer(future, error)
        if self._is_changed:
            self._write()
        elif error is None:
            self._dead_letters.start()
        if waiting:
            # Records were released, or finished ones made room; of a failed write, locks may have ended.
            self._freed()
            self._end_locks()

    def _count(self, settled: Transition) -> None:
        counts = self._context.share_counts
        counts.accepted += settled.count(RecordState.ACKNOWLEDGED)
        counts.released += settled.count(RecordState.AVAILABLE)
        counts.given_up += settled.count(RecordState.ARCHIVED) + settled.count(RecordState.ARCHIVING)


def _state_of(stored: SharePartitionRecord) -> ShareState:
    return ShareState(
        start_offset=stored.start_offset,
        state_epoch=stored.state_epoch,
        ranges=tuple(
            StoredRange(kept.first, kept.last, RecordState(kept.state), kept.delivery_count)
            for kept in stored.records
        ),
    )
