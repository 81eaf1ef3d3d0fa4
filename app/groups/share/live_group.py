"""Serves one share group: sessions of members, states of partitions (KIP-932, ADR-0044).

``ShareGroup`` decides who reads what, and ``DurableSharePartition`` has the states of the records. This
module has the timers of the members, gives new partitions their first state, and wakes the members that
wait for records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from functools import partial
from uuid import UUID

from ...broker.entity_configs import DEAD_LETTER_TOPIC, share_start
from ...cluster.consumer_group_store import OwnedPartition
from ...cluster.group_store import GroupChange
from ...cluster.share_group_store import DeleteSharePartitions, SharePartitionRecord
from ...errors import CoordinatorNotAvailable, SteleError, TopicError, UnknownPartition
from ...storage.topic_partition import TopicPartition
from ...work_budget import WorkBudget
from ..base.context import GroupContext
from ..base.parking import answer
from ..base.share_state import ShareLimits
from ..base.timers import Sessions
from ..base.topic_facts import TopicFacts
from .durable_partition import DurableSharePartition
from .group import LEAVING, ShareGroup, ShareHeartbeat, ShareHeartbeatAnswer

logger = logging.getLogger(__name__)

_NO_OFFSET = -1

Wake = Callable[[TopicPartition], None]


class LiveShareGroup:
    """A share group with its members and the states of its partitions.

    ``partitions`` are by topic id and number. A partition is in it once its first state is durable.
    """

    def __init__(self, name: str, context: GroupContext) -> None:
        self.group = ShareGroup(name)
        self.partitions: dict[OwnedPartition, DurableSharePartition] = {}
        self._names: dict[UUID, str] = {}
        # The numbers of the partitions that have a state, by topic id.
        self._numbers: dict[UUID, set[int]] = {}
        # What was known of topics when all their partitions had a state.
        self._started: dict[str, TopicFacts] = {}
        self._context = context
        self._sessions = Sessions(context.scheduler, self._session_over)
        # By topic: what was known of it, and what gives its partitions their first state.
        self._starting: dict[str, tuple[TopicFacts, asyncio.Task[None]]] = {}
        # Requests that wait for one of these tasks.
        self._waiters: dict[asyncio.Task[None], list[asyncio.Future[None]]] = {}
        self._wakes: set[Wake] = set()
        self._is_closed = False
        self._polls = 0

    @property
    def is_unused(self) -> bool:
        """It has no members, and nothing of it is stored or about to be."""
        return not (self.group.members or self.partitions or self._starting)

    def restore(self, stored: SharePartitionRecord) -> None:
        """Go on with a stored state."""
        self._add(stored).write_dead_letters()
        self._serve()

    def close(self, error: SteleError) -> None:
        """Stop all timers for good, and answer what waits for the store with ``error``."""
        self._is_closed = True
        self._sessions.close()
        self.stop_starting()
        self._drop(list(self.partitions), error)

    def stop_starting(self) -> None:
        """Give no partition a state from now on; those who wait for one get ``CoordinatorNotAvailable``."""
        for _, task in self._starting.values():
            task.cancel()

    def in_turn(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Return the partitions of a poll without a session; each time another one comes first, so that none starves."""
        first = self._polls % max(1, len(partitions))
        self._polls += 1
        return [*partitions[first:], *partitions[:first]]

    # ── members ──

    async def heartbeat(self, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """See ``ShareGroups.heartbeat``."""
        context, group = self._context, self.group
        if request.epoch == LEAVING:
            self._remove(request.member_id)
            return ShareHeartbeatAnswer(
                member_id=request.member_id, epoch=LEAVING, heartbeat_interval_ms=self._heartbeat_ms()
            )
        topic_changes = group.topic_changes
        group.take(request, size_max=context.settings.group_size_max)
        self._sessions.start(
            request.member_id, context.configs.number(group.name, "share.session.timeout.ms")
        )
        if group.topic_changes != topic_changes:
            self._serve()
            context.changed(group.name)
        await self.start_partitions(group.members[request.member_id].topics)
        epoch, assigned = group.answer(request)
        return ShareHeartbeatAnswer(
            member_id=request.member_id,
            epoch=epoch,
            heartbeat_interval_ms=self._heartbeat_ms(),
            assigned=assigned,
        )

    def _heartbeat_ms(self) -> int:
        return self._context.configs.number(self.group.name, "share.heartbeat.interval.ms")

    def _session_over(self, member_id: str) -> None:
        logger.info("share group %r: member %r missed its session timeout", self.group.name, member_id)
        self._remove(member_id)

    def _remove(self, member_id: str) -> None:
        """Remove a member, which holds its records on.

        Its last acknowledgements may be on their way over another connection: clients send them and the leave at
        the same time. What it holds ends with its share session, its connection or its locks.
        """
        self.group.remove(member_id)
        self._sessions.stop(member_id)
        self._context.changed(self.group.name)

    def release_member(
        self,
        member_id: str,
        partitions: Iterable[OwnedPartition] | None = None,
        *,
        is_delivered: bool = True,
    ) -> None:
        """Release the records of a member whose share session or connection ended.

        In ``partitions``; everywhere by default. With ``is_delivered`` false it never got them.
        """
        for partition in tuple(self.partitions) if partitions is None else partitions:
            known = self.partitions.get(partition)
            if known is not None and known.records.is_holder(member_id):
                known.release_member(member_id, is_delivered=is_delivered)

    # ── partitions ──

    def _limits(self, topic: str) -> ShareLimits:
        """Return the limits in effect."""
        name, configs = self.group.name, self._context.configs
        dead_letter_topic = configs.text(name, DEAD_LETTER_TOPIC)
        return ShareLimits(
            delivery_count=configs.number(name, "share.delivery.count.limit"),
            lock_ms=configs.number(name, "share.record.lock.duration.ms"),
            locks=configs.number(name, "share.partition.max.record.locks"),
            # A letter that is given up has no letter of its own.
            has_dead_letters=dead_letter_topic not in ("", topic),
        )

    def check_served(self) -> None:
        """Check that no other broker may have the group.

        Raises ``NotCoordinator``, ``CoordinatorNotAvailable``.

        What is locked for a member is not stored, so nothing else would tell a broker that was paused.
        """
        self._context.check_open()

    def topic_of(self, topic_id: UUID) -> str:
        """Return the name of a topic in which the group has a state."""
        return self._names[topic_id]

    async def start_partitions(self, topics: Iterable[str], *, reset: str | None = None) -> None:
        """Return once every partition of those of ``topics`` that exist has a state.

        ``reset`` says where the group begins instead of its ``share.auto.offset.reset``.

        Raises:
            GroupStoreFailed, StorageUnavailable: some have none yet; ask again.
        """
        while True:
            due = {
                name: facts
                for name, facts in self._context.topic_facts(topics).items()
                # Records that are made on read are not shared.
                if self._started.get(name) != facts and not self._context.topic(name).is_internal
            }
            new = {name: facts for name, facts in due.items() if name not in self._starting}
            if new:
                # Outside the context of the first request, because others wait for it too.
                task = asyncio.get_running_loop().create_task(self._start(new, reset), context=Context())
                task.add_done_callback(self._done)
                self._starting.update((name, (facts, task)) for name, facts in new.items())
            under_way = {name: self._starting[name] for name in due}
            for started in [self._wait_for(task) for task in {task for _, task in under_way.values()}]:
                await started
            if all(facts == due[name] for name, (facts, _) in under_way.items()):
                return
            # It began before a topic grew.

    def _wait_for(self, task: asyncio.Task[None]) -> asyncio.Future[None]:
        """Return the end of a task that is not done yet.

        A thousand members may wait for it, which do not all go on in one turn of the loop.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(task, []).append(waiter)
        return waiter

    def _done(self, task: asyncio.Task[None]) -> None:
        unavailable = "the share group was deleted, or the broker is closing"
        error: BaseException | None
        if task.cancelled():
            error = CoordinatorNotAvailable(unavailable)
        elif (error := task.exception()) is not None and not isinstance(error, SteleError):
            logger.error("partitions of a share group could not be started", exc_info=error)
            error = CoordinatorNotAvailable("its partitions could not be started; the broker's log says why")
        elif error is not None:
            logger.warning("partitions of a share group could not be started yet: %s", error)
        for waiter in self._waiters.pop(task, ()):
            self._context.answers.call(partial(answer, waiter, error))

    async def _start(self, topics: Mapping[str, TopicFacts], reset: str | None) -> None:
        """Store the first state of the partitions of topics that have none."""
        budget = WorkBudget()
        try:
            records: list[SharePartitionRecord] = []
            for name, facts in topics.items():
                for number in range(facts.partitions):
                    partition = OwnedPartition(facts.topic_id, number)
                    if partition not in self.partitions:
                        records.append(await self._first_state(name, partition, reset))
                    await budget.visit()
            await self._persist(records)
            for record in records:
                facts = self._context.topic_facts((record.topic,)).get(record.topic)
                # A topic that was deleted meanwhile took its states along.
                if facts is not None and facts.topic_id == record.topic_id:
                    self._add(record)
                await budget.visit()
            for name, facts in topics.items():
                if len(self._numbers.get(facts.topic_id, ())) == facts.partitions:
                    self._started[name] = facts
        finally:
            for name in topics:
                del self._starting[name]
        self._serve()
        self._context.changed(self.group.name)

    async def _first_state(
        self, name: str, partition: OwnedPartition, reset: str | None
    ) -> SharePartitionRecord:
        context = self._context
        if reset is None:
            reset = context.configs.text(self.group.name, "share.auto.offset.reset")
        if partition.topic_id in self._numbers:
            # The partition came after the group, which misses none of its records.
            reset = "earliest"
        start_offset = await context.list_offset(
            name, partition.partition, share_start(reset, context.now_ms())
        )
        if start_offset == _NO_OFFSET:
            start_offset = await context.list_offset(
                name, partition.partition, share_start("latest", context.now_ms())
            )
        return SharePartitionRecord(
            group=self.group.name,
            topic=name,
            topic_id=partition.topic_id,
            partition=partition.partition,
            state_epoch=0,
            start_offset=start_offset,
        )

    def _persist(self, changes: Sequence[GroupChange]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._context.persist(changes, lambda error: answer(future, error))
        return future

    def _add(self, record: SharePartitionRecord) -> DurableSharePartition:
        self._names[record.topic_id] = record.topic
        self._numbers.setdefault(record.topic_id, set()).add(record.partition)
        topic_partition = TopicPartition(record.topic, record.partition)
        added = self.partitions[OwnedPartition(record.topic_id, record.partition)] = DurableSharePartition(
            record,
            self._context,
            limits=lambda: self._limits(record.topic),
            freed=lambda: self._wake(topic_partition),
        )
        return added

    def _serve(self) -> None:
        """Assign the partitions of subscribed topics that have a state."""
        served: dict[str, list[OwnedPartition]] = {}
        for topic_id in sorted(self._numbers) if self.group.topics else ():
            name = self._names[topic_id]
            if self.group.is_subscribed(name):
                numbers = sorted(self._numbers[topic_id])
                served.setdefault(name, []).extend(OwnedPartition(topic_id, number) for number in numbers)
        self.group.serve(served)

    def topics_changed(self, topic: str) -> None:
        """Give partitions of ``topic`` that are new a state, if a member reads it."""
        if self._is_closed or not self.group.is_subscribed(topic):
            return
        self._serve()
        # No caller waits for it: the next heartbeat informs the members, or fails with the error.
        starting = asyncio.get_running_loop().create_task(self.start_partitions([topic]), context=Context())
        starting.add_done_callback(_retrieve)

    def forget_topic(self, topic: str, current_id: UUID | None) -> None:
        """Drop the states of ``topic``, which the store has done; a topic of that name has ``current_id``."""
        gone = [
            partition
            for partition in self.partitions
            if self._names[partition.topic_id] == topic and partition.topic_id != current_id
        ]
        self._drop(gone, CoordinatorNotAvailable(f"topic {topic!r} was deleted"))

    def _drop(self, gone: Sequence[OwnedPartition], error: SteleError) -> None:
        for partition in gone:
            self.partitions.pop(partition).close(error)
            name, numbers = self._names[partition.topic_id], self._numbers[partition.topic_id]
            numbers.remove(partition.partition)
            if not numbers:
                del self._numbers[partition.topic_id]
            self._started.pop(name, None)
            self._wake(TopicPartition(name, partition.partition))
        self._serve()

    # ── what administrators do ──

    async def reset(self, topic: str, partition: OwnedPartition, start_offset: int) -> None:
        """Begin a partition at ``start_offset``, and forget all its states.

        Raises ``GroupStoreFailed``.
        """
        known = self.partitions.get(partition)
        if known is not None:
            await known.reset(start_offset)
            return
        record = SharePartitionRecord(
            group=self.group.name,
            topic=topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            state_epoch=0,
            start_offset=start_offset,
        )
        await self._persist([record])
        self._add(record)
        self._serve()

    async def forget(self, topic_id: UUID) -> None:
        """Forget the states of a topic. Raises ``GroupStoreFailed``."""
        gone = {part: known for part, known in self.partitions.items() if part.topic_id == topic_id}
        # What is stored after the deletion would stay.
        self._drop(list(gone), CoordinatorNotAvailable("the offsets of the share group were deleted"))
        try:
            await self._persist([DeleteSharePartitions(group=self.group.name, topic_id=topic_id)])
        except SteleError:
            for part, known in gone.items():
                if part not in self.partitions:
                    self.restore(known.record())
            raise

    # ── members that wait for records ──

    def watch(self, wake: Wake) -> None:
        """Call ``wake`` with each partition that has records again, until ``unwatch``."""
        self._wakes.add(wake)

    def unwatch(self, wake: Wake) -> None:
        self._wakes.discard(wake)

    def _wake(self, topic_partition: TopicPartition) -> None:
        for wake in list(self._wakes):
            wake(topic_partition)

    def partition(self, topic: str, number: int) -> DurableSharePartition | None:
        """Return a partition that has a state. Raises ``TopicError`` if it does not exist."""
        known = self._context.topic(topic)
        if not 0 <= number < known.partitions:
            raise UnknownPartition(topic, number, partitions=known.partitions)
        return self.partitions.get(OwnedPartition(known.topic_id, number))


def _retrieve(task: asyncio.Task[None]) -> None:
    """Mark the error of a task as seen, and log it: perhaps no caller waits for it."""
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, (SteleError, TopicError)):
        logger.warning("partitions of a share group could not be started yet: %s", error)
    else:
        logger.error("partitions of a share group could not be started", exc_info=error)
