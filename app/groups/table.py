"""The table of groups: which exist, what they share, and what of them is durable.

The table takes the store over when it opens, and refuses every call after it was
closed or another coordinator took the store. It implements ``GroupContext``:
groups reach the clock, the topics and the store through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..broker.entity_configs import DEFAULT_GROUP_CONFIGS, GroupConfigs
from ..broker.topics import Topic
from ..clock import Clock
from ..cluster.group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteTopicOffsets,
    GroupChange,
    GroupRecord,
    GroupStore,
    OffsetRecord,
    StoreChange,
)
from ..cluster.share_group_store import DeleteSharePartitions
from ..cluster.transaction_store import StoredAnswer, StoredTransactions
from ..errors import (
    CoordinatorFenced,
    CoordinatorNotAvailable,
    GroupNotFound,
    SteleError,
    TooManyGroups,
    TopicError,
    UnknownMember,
)
from ..settings import Settings
from ..storage.topic_partition import TopicPartition
from ..turns import Turns
from ..work_budget import WorkBudget
from .base.checks import check_group_id
from .base.messages import EndedOffsets
from .base.offset_rules import topic_id_of
from .base.parking import ANSWERS_PER_TURN, answer
from .base.pending_producers import PendingProducers
from .base.share_state import ShareCounts, StoredRange
from .base.states import Event, GroupState
from .base.timers import Scheduler
from .base.topic_facts import TopicFacts
from .base.writer import StoreWriter
from .classic.group import Group
from .consumer.group import ConsumerGroup
from .live_group import LiveGroup
from .share.dead_letter_drain import WriteLetters
from .share.durable_partition import DurableSharePartition
from .share.live_group import LiveShareGroup

_T = TypeVar("_T")

# Offsets of a group that are looked at in the time of a look at a partition.
_OFFSETS_PER_VISIT = 100


async def no_offsets(topic: str, partition: int, at: int) -> int:
    """Answer as a log without records."""
    return 0


async def no_dead_letters(group: str, partition: TopicPartition, records: Sequence[StoredRange]) -> None:
    """Let records end without dead letters."""


def random_id() -> str:
    return str(uuid.uuid4())


class GroupTable:
    """All groups of one coordinator, by name.

    ``epoch`` is that of the coordinator, 0 before ``open``.
    """

    def __init__(
        self,
        *,
        store: GroupStore,
        store_thread: ThreadPoolExecutor | None = None,
        clock: Clock,
        settings: Settings,
        topic: Callable[[str], Topic],
        configs: GroupConfigs = DEFAULT_GROUP_CONFIGS,
        topic_names: Callable[[], Sequence[str]] = tuple,
        list_offset: Callable[[str, int, int], Awaitable[int]] = no_offsets,
        write_dead_letters: WriteLetters = no_dead_letters,
        scheduler: Scheduler | None = None,
        make_id: Callable[[], str] = random_id,
    ) -> None:
        """The groups are those of ``store``, which is called in ``store_thread`` if several stores share one.

        ``topic`` finds a topic by its name, and raises ``TopicError``: ``Broker.readable_topic``.
        ``configs`` has the configurations of groups: ``Broker.configs.groups``. ``topic_names`` returns
        the names that regular expressions of members may match. ``list_offset`` returns the offset of a
        time or position in a partition. ``write_dead_letters`` is ``DeadLetterWriter.write``.
        ``scheduler`` (default: the running loop) and ``make_id`` (default: UUIDs) are for tests.
        """
        self.settings = settings
        self.configs = configs
        self.topic_names = topic_names
        self.list_offset = list_offset
        self.write_dead_letters = write_dead_letters
        self.make_id = make_id
        self.groups: dict[str, LiveGroup] = {}
        self.share_counts = ShareCounts()
        self.answers = Turns(ANSWERS_PER_TURN)
        self.epoch = 0
        self.pending_producers = PendingProducers()
        self._scheduler = scheduler
        self.clock = clock
        self._topic = topic
        self._writer = StoreWriter(store, store_thread)
        self._refusal: Callable[[], SteleError] | None = lambda: CoordinatorNotAvailable("they are not open")
        self._check_held: Callable[[], None] | None = None
        self._change_watchers: list[Callable[[str], None]] = []
        self._durable_watchers: list[Callable[[Sequence[StoreChange]], None]] = []
        self._end_watchers: list[Callable[[EndedOffsets], None]] = []
        self._forgetting: set[asyncio.Future[None]] = set()
        self._stand_by_watchers: list[Callable[[], None]] = []

    # ── life ──

    async def open(self) -> None:
        """See ``GroupCoordinator.open``."""
        if self._scheduler is None:
            self._scheduler = asyncio.get_running_loop()
        stored = await self._writer.open()
        self.epoch = stored.epoch
        for record in stored.groups:
            self.groups[record.group] = LiveGroup(Group.restored(record), self)
        for consumer_group in stored.consumer_groups:
            restored = ConsumerGroup.restored(consumer_group, topics_of=self.topic_facts)
            self._stored_group(restored.name).migration.restore(restored)
        stale: list[GroupChange] = []
        for record in stored.offsets:
            if topic_id_of(self._topic, record.topic) != record.topic_id:
                # The broker crashed after it deleted the topic and before it deleted these offsets.
                stale.append(DeleteOffset(group=record.group, topic=record.topic, partition=record.partition))
                continue
            self._stored_group(record.group).offsets.restore(record)
        for pending in stored.pending:
            topic = pending.record.topic
            current_id = topic_id_of(self._topic, topic)
            if current_id != pending.record.topic_id:
                stale.append(DeleteTopicOffsets(topic=topic, besides=current_id))
                continue
            self._stored_group(pending.record.group).offsets.restore_pending(pending)
        for share_partition in stored.share_partitions:
            name, topic = share_partition.group, share_partition.topic
            if topic_id_of(self._topic, topic) != share_partition.topic_id:
                stale.append(DeleteSharePartitions(group=name, topic_id=share_partition.topic_id))
                continue
            live = self._stored_group(name)
            if live.share is None:
                live.share = LiveShareGroup(name, self)
            live.share.restore(share_partition)
        for live in self.groups.values():
            if live.consumer is not None:
                # The policy of migration may have changed, or an assignment may be due.
                live.consumer.write()
        if stale:
            self.persist(stale, self._ignore)
        self._refusal = None

    def _stored_group(self, group: str) -> LiveGroup:
        if group not in self.groups:
            self.groups[group] = LiveGroup(Group(group), self)
        return self.groups[group]

    def refuse(self, refusal: Callable[[], SteleError]) -> None:
        """Refuse all calls from now on, and answer all parked requests.

        The first refusal stays.
        """
        if self._refusal is not None:
            return
        self._refusal = refusal
        for live in self.groups.values():
            live.close(refusal())

    def check_each_call(self, check: Callable[[], None]) -> None:
        """Call ``check`` for each request.

        It raises ``NotCoordinator`` if another broker may have the groups.
        """
        self._check_held = check

    async def stand_by(self, refusal: Callable[[], SteleError]) -> None:
        """Finish what was begun, forget all groups, and refuse calls until ``open``."""
        self.refuse(refusal)
        await self._writer.drain()
        self.groups.clear()
        self.pending_producers = PendingProducers()
        self._refusal = refusal
        for watcher in self._stand_by_watchers:
            watcher()

    async def transactions(self) -> StoredTransactions:
        """Return what the store has of transactions."""
        return await self._writer.transactions()

    async def answer_ages(self) -> Sequence[tuple[str, int]]:
        """Return the idempotency keys that the store has an answer of, and their times; the oldest first."""
        return await self._writer.answer_ages()

    async def stored_answer(self, key: str) -> StoredAnswer | None:
        """Return the answer that the store has of an idempotency key."""
        return await self._writer.answer(key)

    async def submitted(self) -> None:
        """Wait until all changes that were submitted are durable, and watchers know them.

        Raises what a write raises.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.persist([], lambda error: answer(stored, error))
        await stored

    def run_in_store(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run ``call`` in the thread of the store, which has it before this returns."""
        return self._writer.run(call)

    async def close(self) -> None:
        """Write what was submitted, then close the store."""
        await self._writer.close()

    @property
    def is_open(self) -> bool:
        return self._refusal is None

    def check_open(self) -> None:
        """Raises ``CoordinatorNotAvailable``, ``CoordinatorFenced`` or ``NotCoordinator``."""
        if self._refusal is not None:
            raise self._refusal()
        if self._check_held is not None:
            self._check_held()

    # ── what the groups share: see ``GroupContext`` ──

    @property
    def scheduler(self) -> Scheduler:
        assert self._scheduler is not None
        return self._scheduler

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def topic(self, name: str) -> Topic:
        return self._topic(name)

    def partitions_of(self, topics: Iterable[str]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name in topics:
            with contextlib.suppress(TopicError):
                counts[name] = self._topic(name).partitions
        return counts

    def topic_facts(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        facts: dict[str, TopicFacts] = {}
        for name in topics:
            with contextlib.suppress(TopicError):
                topic = self._topic(name)
                facts[name] = TopicFacts(topic_id=topic.topic_id, partitions=topic.partitions)
        return facts

    def changed(self, group: str) -> None:
        for watcher in self._change_watchers:
            watcher(group)

    def persist(self, changes: Sequence[StoreChange], done: Callable[[SteleError | None], None]) -> None:
        def written(error: SteleError | None) -> None:
            if isinstance(error, CoordinatorFenced):
                epoch, current_epoch = error.epoch, error.current_epoch
                self.refuse(lambda: CoordinatorFenced(epoch=epoch, current_epoch=current_epoch))
            done(error)
            if error is None:
                self._notify(changes)

        self._writer.submit(changes, written)

    def _notify(self, changes: Sequence[StoreChange]) -> None:
        for watcher in self._durable_watchers:
            watcher(changes)

    def _ignore(self, error: SteleError | None) -> None:
        """Ignore the outcome.

        No request waits for it, the next start tries again, and the writer has logged the error.
        """

    # ── watching ──

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call ``watcher`` with each group whose members or assignments change."""
        self._change_watchers.append(watcher)

    def watch_durable(self, watcher: Callable[[Sequence[StoreChange]], None]) -> None:
        """Call ``watcher`` with changes in order, once they are durable and answered."""
        self._durable_watchers.append(watcher)

    def watch_ends(self, watcher: Callable[[EndedOffsets], None]) -> None:
        """Call ``watcher`` after a transaction has committed or dropped its offsets."""
        self._end_watchers.append(watcher)

    def watch_stand_by(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher`` when all groups were forgotten: others may have them."""
        self._stand_by_watchers.append(watcher)

    # ── transactions ──

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Commit or drop the pending offsets of a producer, which the store has done."""
        committed = self.pending_producers.end(producer_id, is_committed=is_committed)
        self._notify([record for records in committed.values() for record in records])
        ended = EndedOffsets(producer_id=producer_id, is_committed=is_committed, groups=frozenset(committed))
        for watcher in self._end_watchers:
            watcher(ended)

    # ── finding groups ──

    def existing(self, group: str) -> LiveGroup:
        """Raises ``GroupNotFound``."""
        self.check_open()
        live = self.groups.get(group)
        if live is None:
            raise GroupNotFound(group)
        return live

    def of_member(self, group: str, member_id: str) -> LiveGroup:
        """Return the group that a member names.

        Raises ``InvalidGroupId``, ``UnknownMember``.
        """
        self.check_open()
        check_group_id(group)
        live = self.groups.get(group)
        if live is None:
            raise UnknownMember(group, member_id)
        return live

    def existing_or_new(self, group: str) -> LiveGroup:
        """Return the group, or a new one that is not listed before ``keep``.

        Raises ``TooManyGroups``.
        """
        live = self.groups.get(group)
        if live is not None:
            return live
        limit = self.settings.groups_max
        if len(self.groups) >= limit:
            raise TooManyGroups(group, limit=limit)
        return LiveGroup(Group(group), self)

    def keep(self, live: LiveGroup) -> None:
        """List a group from ``existing_or_new``, unless a refused request left it unused."""
        if not live.is_unused:
            self.groups.setdefault(live.group.name, live)

    @contextlib.contextmanager
    def listed(self, live: LiveGroup) -> Generator[None]:
        """List a group from ``existing_or_new`` during a request that awaits; afterwards only if it is used.

        Another request that comes meanwhile finds the same group.
        """
        name = live.group.name
        self.groups.setdefault(name, live)
        try:
            yield
        finally:
            if self.groups.get(name) is live and live.is_unused:
                del self.groups[name]

    # ── deleting ──

    def drop(self, live: LiveGroup) -> asyncio.Future[None]:
        """Delete a group and its offsets, also pending ones.

        Completes when that is durable.

        The group is no longer listed when this returns. A request that names it after that
        begins a new group, whose changes are written after the deletion.
        """
        name = live.group.name
        del self.groups[name]
        live.forget_all_pending()
        closed: list[DurableSharePartition] = []
        if live.share is not None:
            # What is stored after the deletion would stay.
            closed += live.share.partitions.values()
            live.share.close(GroupNotFound(name))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def dropped(error: SteleError | None) -> None:
            if error is None:
                live.group.handle(Event.DELETED)
                live.migration.end(GroupNotFound(name))
                self.pending_producers.forget(live.offsets)
            else:
                # The store still has it.
                if live.share is not None:
                    live.share = LiveShareGroup(name, self)
                    for partition in closed:
                        live.share.restore(partition.record())
                self.groups.setdefault(name, live)
            answer(future, error)

        self.persist([DeleteGroup(group=name)], dropped)
        return future

    def forget_topic(self, topic: str) -> asyncio.Future[None]:
        """See ``GroupCoordinator.forget_topic``."""
        current_id = topic_id_of(self._topic, topic)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            # The next start finds offsets of a topic that does not exist, and deletes them.
            future.set_result(None)
            return future

        def forgotten(error: SteleError | None) -> None:
            if error is not None:
                answer(future, error)
                return
            forgetting = asyncio.ensure_future(self._forget_topic(topic, current_id, future))
            self._forgetting.add(forgetting)
            forgetting.add_done_callback(self._forgetting.discard)

        self.persist([DeleteTopicOffsets(topic=topic, besides=current_id)], forgotten)
        return future

    async def _forget_topic(
        self, topic: str, current_id: uuid.UUID | None, forgotten: asyncio.Future[None]
    ) -> None:
        """Forget what the store has deleted.

        Meanwhile no reader gets an offset of a topic id that is over (``GroupOffsets.committed``).
        """
        budget = WorkBudget()
        for live in list(self.groups.values()):
            live.offsets.forget_topic(topic, current_id)
            if live.share is not None:
                live.share.forget_topic(topic, current_id)
            await budget.visit(1 + len(live.offsets.records) / _OFFSETS_PER_VISIT)
        answer(forgotten, None)

    # ── what is durable ──

    def names(self) -> list[str]:
        """Return the names of all groups, unordered; none while the table refuses calls."""
        return list(self.groups) if self.is_open else []

    def durable_record(self, group: str) -> GroupRecord | None:
        """Return the group about as the store has it.

        None if it was never stored, or while the assignment of its generation is not known.
        """
        live = self.groups.get(group)
        if live is None or live.type != "classic" or live.group.state is GroupState.COMPLETING_REBALANCE:
            return None
        return live.group.record() if live.group.generation > 0 else None

    def durable_offsets(self, group: str) -> list[tuple[str, int]]:
        """Return topic and partition of the group's durable committed offsets."""
        live = self.groups.get(group)
        return [] if live is None else list(live.offsets.records)

    def durable_offset(self, group: str, topic: str, partition: int) -> OffsetRecord | None:
        """Return a committed offset that is durable."""
        live = self.groups.get(group)
        return None if live is None else live.offsets.records.get((topic, partition))
