"""The group coordinator: all that a listener may call about groups and committed offsets.

On the event loop of the broker, like ``Broker``. What changes something is done
or parked, in order, when the call returns; its future completes when the answer
is known, and where the answer promises something, when that is durable. Listeners
await the future, or drop it when their peer is gone.

It is one class because it is one interface: it finds the group, checks the
request and hands it over. What happens then is in ``live_group``,
``group_offsets``, ``managed_members`` and ``offset_retention``.

Every call may raise ``CoordinatorNotAvailable`` (the broker is closing) and
``CoordinatorFenced`` (another coordinator has the groups).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence

from ..broker.topics import Topic
from ..clock import Clock
from ..cluster.group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteOwner,
    DeleteTopicOffsets,
    GroupChange,
    GroupRecord,
    GroupStore,
    OffsetRecord,
    OwnerRecord,
)
from ..errors import (
    CoordinatorFenced,
    CoordinatorNotAvailable,
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InternalTopic,
    InvalidRequest,
    SteleError,
    TooManyGroups,
    TopicError,
    UnknownMember,
    UnknownPartition,
)
from ..settings import Settings
from .checks import check_group_id, check_join
from .descriptions import description_of, listing_of
from .group import CONSUMER, Claimant, Event, Group, GroupState
from .group_offsets import GroupOffsets
from .live_group import LiveGroup
from .managed_members import join_request_of, membership_of
from .messages import (
    NO_MEMBER,
    CommitRequest,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    Joined,
    JoinRequest,
    LeavingMember,
    ManagedJoin,
    Membership,
    OffsetToCommit,
    Results,
    Synced,
    SyncRequest,
)
from .offset_retention import OffsetRetention
from .offsets import topic_id_of
from .parking import answer
from .timers import Scheduler
from .writer import StoreWriter

logger = logging.getLogger(__name__)


class GroupCoordinator:
    """``topic`` finds a topic by its name, and raises ``TopicError``: ``Broker.readable_topic``.

    ``scheduler`` (the running loop) and ``make_id`` (UUIDs) are for tests.
    """

    def __init__(
        self,
        *,
        store: GroupStore,
        clock: Clock,
        settings: Settings,
        topic: Callable[[str], Topic],
        scheduler: Scheduler | None = None,
        make_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.settings = settings
        self.make_id = make_id
        self._scheduler = scheduler
        self._clock = clock
        self._topic = topic
        self._writer = StoreWriter(store)
        self._groups: dict[str, LiveGroup] = {}
        self._retention = OffsetRetention(self._groups, clock=clock, settings=settings, drop=self._drop)
        self._refusal: Callable[[], SteleError] | None = lambda: CoordinatorNotAvailable("they are not open")
        self._watchers: list[Callable[[str], None]] = []
        self._keepers: list[Callable[[Sequence[GroupChange]], None]] = []
        self.epoch = 0

    # ── life ──

    async def open(self) -> None:
        """Take the store over, and begin where its last coordinator ended; the sessions of members start anew.

        Topics must be known by now: offsets of those that are not are dropped.

        Raises:
            GroupStoreFailed: it cannot be read or written.
        """
        if self._scheduler is None:
            self._scheduler = asyncio.get_running_loop()
        stored = await self._writer.open()
        self.epoch = stored.epoch
        for record in stored.groups:
            self._groups[record.group] = LiveGroup(Group.restored(record), self)
        gone: list[GroupChange] = []
        for record in stored.offsets:
            if topic_id_of(self._topic, record.topic) != record.topic_id:
                # The topic was deleted, and a crash came before its offsets were.
                gone.append(DeleteOffset(group=record.group, topic=record.topic, partition=record.partition))
                continue
            if record.group not in self._groups:
                self._groups[record.group] = LiveGroup(Group(record.group), self)
            self._groups[record.group].offsets.restore(record)
        if gone:
            self.persist(gone, self._ignore)
        self._refusal = None
        self._retention.start(self._scheduler)

    def begin_close(self) -> None:
        """Refuse what comes from now on, and answer all joins and syncs that are parked."""
        self._refuse_from_now_on(lambda: CoordinatorNotAvailable("the broker is shutting down"))

    async def close(self) -> None:
        """Keep the commits that came, and close the store."""
        self.begin_close()
        await self._writer.close()

    def _refuse_from_now_on(self, refusal: Callable[[], SteleError]) -> None:
        if self._refusal is not None:
            return
        self._refusal = refusal
        self._retention.stop()
        for live in self._groups.values():
            live.close(refusal())

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal()

    # ── what the groups share ──

    @property
    def scheduler(self) -> Scheduler:
        assert self._scheduler is not None
        return self._scheduler

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def topic(self, name: str) -> Topic:
        """Raises ``TopicError``."""
        return self._topic(name)

    def partitions_of(self, topics: Iterable[str]) -> dict[str, int]:
        """How many each of those topics has that exist."""
        found: dict[str, int] = {}
        for name in topics:
            with contextlib.suppress(TopicError):
                found[name] = self._topic(name).partitions
        return found

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Have ``watcher`` called with the name of each group whose members or assignments have changed."""
        self._watchers.append(watcher)

    def watch_kept(self, watcher: Callable[[Sequence[GroupChange]], None]) -> None:
        """Have ``watcher`` called with changes that are durable, in their order, when they were answered."""
        self._keepers.append(watcher)

    def changed(self, group: str) -> None:
        for watcher in self._watchers:
            watcher(group)

    def persist(self, changes: Sequence[GroupChange], done: Callable[[SteleError | None], None]) -> None:
        def written(error: SteleError | None) -> None:
            if isinstance(error, CoordinatorFenced):
                epoch, current_epoch = error.epoch, error.current_epoch
                self._refuse_from_now_on(lambda: CoordinatorFenced(epoch=epoch, current_epoch=current_epoch))
            done(error)
            if error is None:
                for watcher in self._keepers:
                    watcher(changes)

        self._writer.submit(changes, written)

    def _ignore(self, error: SteleError | None) -> None:
        """Nobody waits for it, it is tried again, and the writer has logged what was wrong."""

    # ── membership ──

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """Join a group, or join it again. Completes when the next generation begins.

        Raises, at once or from the future:
            InvalidGroupId, InvalidSessionTimeout, InvalidRequest, InconsistentGroupProtocol: never without a change.
            MemberIdRequired: join again with the member id it carries.
            UnknownMember: join again without a member id.
            FencedInstance: stop; another process has this instance id.
            GroupFull, TooManyGroups: see there.
            RebalanceInProgress: the same member asked again meanwhile.
            GroupStoreFailed: join again.
        """
        self._check_open()
        check_group_id(request.group)
        check_join(request, self.settings)
        live = self._groups.get(request.group)
        if live is not None:
            return live.join(request)
        if request.member_id != NO_MEMBER:
            raise UnknownMember(request.group, request.member_id)
        live = self._new_group(request.group)
        try:
            return live.join(request)
        finally:
            # One that was refused leaves no group behind.
            if not live.is_unused:
                self._groups[request.group] = live

    def join_managed(self, request: ManagedJoin) -> asyncio.Future[Membership]:
        """Join a group as a member for which the broker does the rest (ADR-0017), or join again with other topics.

        Completes when the next generation is assigned: at once, where no Kafka member has to be waited for.

        Raises, at once or from the future:
            UnknownTopic, InvalidTopicName, InternalTopic: subscribe to topics that exist and have their records stored.
            InvalidRequest: no topics; and all that ``join`` raises.
        """
        self._check_open()
        check_group_id(request.group)
        if not request.topics:
            raise InvalidRequest("a member subscribes to at least one topic")
        for name in request.topics:
            if self._topic(name).is_internal:
                raise InternalTopic(name)
        joining = join_request_of(request)
        check_join(joining, self.settings)
        live = self._groups.get(request.group)
        if live is not None:
            return live.join_managed(joining)
        if request.member_id != NO_MEMBER:
            raise UnknownMember(request.group, request.member_id)
        live = self._new_group(request.group)
        try:
            return live.join_managed(joining)
        finally:
            if not live.is_unused:
                self._groups[request.group] = live

    def membership(self, group: str, member_id: str, *, generation: int | None = None) -> Membership:
        """The member is there (its session begins anew), and this is what the broker has assigned to it.

        ``generation``: the one that the member knows; an older one is no fault here, it is told the current one.

        Raises:
            UnknownMember: join again.
            IllegalGeneration: ``generation`` has not begun.
        """
        live = self._group_of(group, member_id)
        member = live.group.check_member(member_id, None)
        if generation is not None and not 0 <= generation <= live.group.generation:
            raise IllegalGeneration(group, generation, current_generation=live.group.generation)
        live.keep_alive(member)
        return membership_of(live.group, member)

    async def settled(self, group: str) -> None:
        """Return when ``group`` is not about to be assigned by the broker: a matter of a sync of the store."""
        live = self._groups.get(group)
        if live is not None:
            await live.managed.settled()

    def topics_changed(self, topic: str) -> None:
        """``topic`` was made, deleted, or has more partitions: groups that the broker leads are assigned anew."""
        if self._refusal is None:
            for live in list(self._groups.values()):
                live.topics_changed(topic)

    def sync(self, request: SyncRequest) -> asyncio.Future[Synced]:
        """Ask for the assignment, or as the leader give it. Completes when it is durable.

        Raises, at once or from the future:
            UnknownMember, FencedInstance, IllegalGeneration: as at ``join``.
            InconsistentGroupProtocol: the group chose another protocol than the one named.
            RebalanceInProgress: join again.
            GroupStoreFailed: it could not be kept; join again.
        """
        return self._group_of(request.group, request.member_id).sync(request)

    def heartbeat(self, group: str, *, generation: int, member_id: str, instance_id: str | None) -> None:
        """The member is there.

        Raises:
            UnknownMember, FencedInstance, IllegalGeneration: as at ``join``.
            RebalanceInProgress: it is heard all the same, and should join again.
        """
        self._group_of(group, member_id).heartbeat(
            generation=generation, member_id=member_id, instance_id=instance_id
        )

    def leave(self, group: str, members: Sequence[LeavingMember]) -> Results:
        """Take ``members`` out, with one rebalance for all of them.

        In the order of ``members``: None, ``UnknownMember`` or ``FencedInstance``.
        """
        self._check_open()
        check_group_id(group)
        live = self._groups.get(group)
        if live is None:
            return [UnknownMember(group, member.member_id) for member in members]
        return live.leave(members)

    def _group_of(self, group: str, member_id: str) -> LiveGroup:
        self._check_open()
        check_group_id(group)
        live = self._groups.get(group)
        if live is None:
            raise UnknownMember(group, member_id)
        return live

    def _new_group(self, group: str) -> LiveGroup:
        """Not listed yet."""
        limit = self.settings.groups_max
        if len(self._groups) >= limit:
            raise TooManyGroups(group, limit=limit)
        return LiveGroup(Group(group), self)

    # ── offsets ──

    def commit(self, request: CommitRequest) -> asyncio.Future[Results]:
        """Keep offsets. Completes when they are durable; they can be read from then on.

        In the order of ``request.offsets``: None, or what was wrong with that one
        (``UnknownTopic``, ``UnknownPartition``, ``OffsetMetadataTooLarge``, ``InvalidRequest``).

        Raises, at once or from the future:
            InvalidGroupId, UnknownMember, FencedInstance, IllegalGeneration, TooManyGroups: see ``join``.
            GroupNotFound: it commits as a member, and there is no such group.
            RebalanceInProgress: sync first.
            GroupStoreFailed: nothing was kept; commit again.
        """
        self._check_open()
        check_group_id(request.group)
        live = self._groups.get(request.group)
        if live is None:
            if request.generation >= 0:
                raise GroupNotFound(request.group)
            live = self._new_group(request.group)
        member = live.group.check_commit(
            generation=request.generation, member_id=request.member_id, instance_id=request.instance_id
        )
        if member is not None:
            live.keep_alive(member)
        return self._keep_offsets(live, request)

    def _keep_offsets(self, live: LiveGroup, request: CommitRequest) -> asyncio.Future[Results]:
        future = live.offsets.commit(request)
        if not live.is_unused:
            self._groups.setdefault(request.group, live)
        return future

    # ── ownership ──

    def claim(self, claimant: Claimant) -> asyncio.Future[None]:
        """Make a member the owner of a partition that is assigned to it. Completes when that is durable.

        Nothing happens if it is the owner already.

        Raises, at once or from the future:
            UnknownTopic, UnknownPartition, UnknownMember, IllegalGeneration: see there.
            PartitionNotAssigned, PartitionOwned: see there.
            RebalanceInProgress: wait for the next generation.
            GroupStoreFailed: it was not kept; claim again.
        """
        live = self._claimed_in(claimant)
        group = live.group
        group.check_claim(claimant)
        live.keep_alive(group.members[claimant.member_id])
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if claimant.key in group.owners:
            future.set_result(None)
            return future
        group.owners[claimant.key] = claimant.member_id

        def kept(error: SteleError | None) -> None:
            if error is not None and group.owners.get(claimant.key) == claimant.member_id:
                del group.owners[claimant.key]
            answer(future, error)

        self.persist(
            [
                OwnerRecord(
                    group=claimant.group,
                    topic=claimant.topic,
                    partition=claimant.partition,
                    member_id=claimant.member_id,
                )
            ],
            kept,
        )
        return future

    def release(self, claimant: Claimant) -> asyncio.Future[None]:
        """Give a partition back, which stays assigned to the member. Raises what ``check_owner`` raises."""
        live = self._claimed_in(claimant)
        live.group.check_owner(claimant)
        live.keep_alive(live.group.members[claimant.member_id])
        del live.group.owners[claimant.key]
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        change = DeleteOwner(group=claimant.group, topic=claimant.topic, partition=claimant.partition)
        self.persist([change], lambda error: answer(future, error))
        return future

    def check_owner(self, claimant: Claimant) -> None:
        """
        Raises:
            UnknownTopic, UnknownPartition, UnknownMember, IllegalGeneration, RebalanceInProgress: see ``claim``.
            PartitionNotAssigned, PartitionOwned, PartitionNotOwned: see there.
        """
        live = self._claimed_in(claimant)
        live.group.check_owner(claimant)
        live.keep_alive(live.group.members[claimant.member_id])

    def commit_owned(self, claimant: Claimant, offset: OffsetToCommit) -> asyncio.Future[Results]:
        """Commit as the owner; raises what ``check_owner`` raises, and answers as ``commit``."""
        self.check_owner(claimant)
        request = CommitRequest(
            group=claimant.group,
            generation=claimant.generation,
            member_id=claimant.member_id,
            offsets=[offset],
        )
        return self._keep_offsets(self._groups[claimant.group], request)

    def commit_assigned(
        self, membership: Membership, group: str, offsets: Sequence[OffsetToCommit]
    ) -> asyncio.Future[Results]:
        """Commit for a member that has all of the partitions assigned, owner or not; answers as ``commit``.

        Raises:
            UnknownMember, IllegalGeneration, RebalanceInProgress, PartitionNotAssigned: nothing was committed.
        """
        live = self._group_of(group, membership.member_id)
        for one in offsets:
            claimant = Claimant(
                group=group,
                member_id=membership.member_id,
                generation=membership.generation,
                topic=one.topic,
                partition=one.partition,
            )
            live.group.check_assigned(claimant)
        request = CommitRequest(
            group=group,
            generation=membership.generation,
            member_id=membership.member_id,
            offsets=offsets,
        )
        return self._keep_offsets(live, request)

    def _claimed_in(self, claimant: Claimant) -> LiveGroup:
        found = self._topic(claimant.topic)
        if not 0 <= claimant.partition < found.partitions:
            raise UnknownPartition(claimant.topic, claimant.partition, partitions=found.partitions)
        return self._group_of(claimant.group, claimant.member_id)

    # ── what was committed ──

    def committed(
        self, group: str, partitions: Iterable[tuple[str, int]] | None = None
    ) -> list[CommittedOffset]:
        """The offsets of ``partitions`` (topic, number), in their order; None: all there are, sorted."""
        self._check_open()
        live = self._groups.get(group)
        offsets = GroupOffsets(group, self) if live is None else live.offsets
        return offsets.committed(partitions)

    def delete_offsets(self, group: str, partitions: Sequence[tuple[str, int]]) -> asyncio.Future[Results]:
        """Forget offsets. In the order of ``partitions``: None, also if there was none, or what was wrong.

        Raises:
            GroupNotFound: see there.
            GroupNotEmpty: members that are no consumers; nobody knows what they read.
        """
        live = self._existing(group)
        is_empty = live.group.state is GroupState.EMPTY
        if not is_empty and live.group.protocol_type != CONSUMER:
            raise GroupNotEmpty(group)
        results: Results = []
        keys: list[tuple[str, int]] = []
        subscribed = {topic: live.group.is_subscribed(topic) for topic, _ in partitions}
        for topic, partition in partitions:
            if subscribed[topic]:
                results.append(GroupSubscribedToTopic(group, topic))
            else:
                results.append(None)
                keys.append((topic, partition))
        return live.offsets.delete(keys, results)

    def forget_topic(self, topic: str) -> asyncio.Future[None]:
        """``topic`` was deleted: forget how far anybody read it.

        A topic of the same name that was made since has another id, and keeps its offsets.
        """
        besides = topic_id_of(self._topic, topic)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._refusal is not None:
            # Too late; the next start finds offsets of a topic that is not there.
            future.set_result(None)
            return future

        def forgotten(error: SteleError | None) -> None:
            if error is None:
                for live in self._groups.values():
                    live.offsets.forget_topic(topic, besides)
            answer(future, error)

        self.persist([DeleteTopicOffsets(topic=topic, besides=besides)], forgotten)
        return future

    # ── looking and deleting ──

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """By name. ``states`` and ``types`` (there is ``classic``) in any case; none of them: all."""
        self._check_open()
        wanted = {state.casefold() for state in states}
        kinds = {kind.casefold() for kind in types}
        listings = [listing_of(live.group) for _, live in sorted(self._groups.items())]
        return [
            listing
            for listing in listings
            if (not wanted or listing.state.value.casefold() in wanted)
            and (not kinds or listing.type in kinds)
        ]

    @property
    def group_count(self) -> int:
        return len(self._groups)

    def group_names(self) -> list[str]:
        """In no order; none while groups cannot be served."""
        return [] if self._refusal is not None else list(self._groups)

    def kept_record(self, group: str) -> GroupRecord | None:
        """The group about as the store has it; None if it was never kept, or its generation is not assigned yet."""
        live = self._groups.get(group)
        if live is None or live.group.state is GroupState.COMPLETING_REBALANCE:
            return None
        return live.group.record() if live.group.generation > 0 else None

    def kept_offsets(self, group: str) -> list[tuple[str, int]]:
        """Topic and partition of the group's committed offsets that are durable."""
        live = self._groups.get(group)
        return [] if live is None else list(live.offsets.records)

    def kept_offset(self, group: str, topic: str, partition: int) -> OffsetRecord | None:
        """A committed offset that is durable."""
        live = self._groups.get(group)
        return None if live is None else live.offsets.records.get((topic, partition))

    def describe(self, group: str) -> GroupDescription:
        """Raises ``GroupNotFound``."""
        return description_of(self._existing(group).group)

    def delete_group(self, group: str) -> asyncio.Future[None]:
        """Delete a group and its offsets. Raises ``GroupNotFound``, ``GroupNotEmpty``."""
        live = self._existing(group)
        if live.group.state is not GroupState.EMPTY:
            raise GroupNotEmpty(group)
        return self._drop(live)

    def _existing(self, group: str) -> LiveGroup:
        self._check_open()
        live = self._groups.get(group)
        if live is None:
            raise GroupNotFound(group)
        return live

    def _drop(self, live: LiveGroup) -> asyncio.Future[None]:
        """Gone at once for all who ask; who comes now begins another group, whose changes are written later."""
        name = live.group.name
        del self._groups[name]
        live.forget_all_pending()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def dropped(error: SteleError | None) -> None:
            if error is None:
                live.group.handle(Event.DELETED)
            else:
                # It is still in the store.
                self._groups.setdefault(name, live)
            answer(future, error)

        self.persist([DeleteGroup(group=name)], dropped)
        return future

    # ── retention ──

    def sweep(self) -> None:
        """Drop the offsets that are due, and groups in which nothing is left."""
        self._retention.sweep()
