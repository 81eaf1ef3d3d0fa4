"""The group coordinator: all that a listener may call about groups and committed offsets.

It runs on the event loop of the broker, like ``Broker``. What a call changes is
changed, or parked in order, when the call returns. Its future completes when the
answer is known, and where the answer promises something, when that is durable.
Listeners await the future, or drop it when their client is gone.

Each call checks the request, finds the group in ``GroupTable`` and hands the
request over. What happens then is in ``live_group``, ``committed_offsets``, ``claims``
and ``offset_retention``.

Every call may raise ``CoordinatorNotAvailable`` (the broker is closing) and
``CoordinatorFenced`` (another coordinator has taken the groups over).

It is one class in one file, because it is the facade of groups: a method per request, over the parts beside
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ..errors import (
    CoordinatorNotAvailable,
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribedToTopic,
    InternalTopic,
    InvalidRequest,
    SteleError,
    UnknownMember,
    UnknownPartition,
)
from ..work_budget import Steps, at_once, in_turns, mapped, visited
from .base.checks import check_group_id, check_join
from .base.committed_offsets import GroupOffsets, records_of
from .base.consumer_protocol import CONSUMER
from .base.messages import (
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
    OffsetsOfTransaction,
    OffsetToCommit,
    Results,
    Synced,
    SyncRequest,
)
from .classic.managed_members import join_request_of
from .consumer.ownership import Claimant
from .consumer_groups import ConsumerGroups
from .descriptions import ManagedMember, description_of, listing_of, managed_member, member_count
from .ended_elsewhere import AskEnded, EndedElsewhere
from .live_group import LiveGroup
from .offset_retention import OffsetRetention
from .share_groups import ShareGroups
from .table import GroupTable
from .topic_changes import TopicChanges
from .transactional_offsets import TransactionalOffsets


class GroupCoordinator:
    """Serves the groups of ``table``.

    ``consumers`` serves the groups whose partitions the broker assigns, ``shares`` the share groups.
    ``ask_ended`` is given if transactions end at other brokers, too: see ``EndedElsewhere``.
    """

    def __init__(self, table: GroupTable, *, ask_ended: AskEnded | None = None) -> None:
        self.table = table
        self.transactional = TransactionalOffsets(self.table)
        self._ended = None if ask_ended is None else EndedElsewhere(self.table, ask_ended)
        self.consumers = ConsumerGroups(self.table)
        self.shares = ShareGroups(self.table)
        self._retention = OffsetRetention(self.table)
        self._topics = TopicChanges(self.table)

    # ── life ──

    async def open(self) -> None:
        """Take the store over and continue where its last coordinator ended; sessions start again.

        Topics must be known by now: offsets of unknown topics are deleted.

        Raises:
            GroupStoreFailed: the store cannot be read or written.
        """
        await self.table.open()
        self._retention.start()

    def begin_close(self) -> None:
        """Refuse all calls from now on, and answer all parked joins and syncs."""
        self._retention.stop()
        self.table.refuse(lambda: CoordinatorNotAvailable("the broker is shutting down"))

    def check_each_call(self, check: Callable[[], None]) -> None:
        """Call ``check`` for each request.

        It raises ``NotCoordinator`` if another broker may have the groups.
        """
        self.table.check_each_call(check)

    async def stand_by(self, refusal: Callable[[], SteleError]) -> None:
        """Leave the groups to another broker until the next ``open``; every call raises ``refusal()``."""
        self._retention.stop()
        await self.table.stand_by(refusal)

    async def close(self) -> None:
        """Keep the commits received so far, and close the store."""
        self.begin_close()
        await self.table.close()

    @property
    def epoch(self) -> int:
        """The number of this coordinator; each one that takes the store over has a higher one."""
        return self.table.epoch

    # ── membership ──

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """Join a group, or join it again. Completes when the next generation begins.

        Raises, at once or from the future:
            InvalidGroupId, InvalidSessionTimeout, InvalidRequest, InconsistentGroupProtocol: change the request.
            MemberIdRequired: join again with the member id it carries.
            UnknownMember: join again without a member id.
            FencedInstance: stop; another process has this instance id.
            GroupFull, TooManyGroups: a limit of the broker is reached.
            RebalanceInProgress: the same member sent another join meanwhile.
            GroupStoreFailed: join again.
        """
        self.table.check_open()
        check_group_id(request.group)
        check_join(request, self.table.settings)
        live = self._joined_group(request.group, request.member_id)
        try:
            return live.join(request)
        finally:
            self.table.keep(live)

    def join_managed(self, request: ManagedJoin) -> asyncio.Future[Membership]:
        """Join a group as a managed member (ADR-0017), or join it again with other topics.

        Completes when the next generation is assigned: without delay, unless a Kafka member
        has to be waited for.

        Raises, at once or from the future:
            UnknownTopic, InvalidTopicName, InternalTopic: subscribe to existing topics that store records.
            InvalidRequest: the request has no topics; and all that ``join`` raises.
        """
        self.table.check_open()
        check_group_id(request.group)
        if not request.topics:
            raise InvalidRequest("a member subscribes to at least one topic")
        for name in request.topics:
            if self.table.topic(name).is_internal:
                raise InternalTopic(name)
        joining = join_request_of(request)
        check_join(joining, self.table.settings)
        live = self._joined_group(request.group, request.member_id)
        try:
            return live.join_managed(joining)
        finally:
            self.table.keep(live)

    def _joined_group(self, group: str, member_id: str) -> LiveGroup:
        return (
            self.table.existing_or_new(group)
            if member_id == NO_MEMBER
            else self.table.of_member(group, member_id)
        )

    def membership(self, group: str, member_id: str, *, generation: int | None = None) -> Membership:
        """Restart the session of a managed member, and return what it is assigned.

        ``generation`` is the one that the member knows. An older one is no error here: the
        answer has the current one.

        Raises:
            UnknownMember: join again.
            IllegalGeneration: ``generation`` has not begun.
        """
        return self.table.of_member(group, member_id).membership(member_id, generation=generation)

    async def settled(self, group: str) -> None:
        """Return once the broker is not about to assign ``group``; that waits for the store only."""
        live = self.table.groups.get(group)
        if live is not None:
            await live.settled()

    def topics_changed(self, topic: str) -> None:
        """Assign groups that the broker leads again, because ``topic`` changed.

        It was created or deleted, or its number of partitions changed. With many groups it takes several turns.
        """
        self._topics.changed(topic)

    def sync(self, request: SyncRequest) -> asyncio.Future[Synced]:
        """Return a member's assignment; the leader brings all of them.

        Completes when they are durable.

        Raises, at once or from the future:
            UnknownMember, FencedInstance, IllegalGeneration: as ``join``.
            InconsistentGroupProtocol: the group chose another protocol than the one named.
            RebalanceInProgress: join again.
            GroupStoreFailed: the assignment was not kept; join again.
        """
        return self.table.of_member(request.group, request.member_id).sync(request)

    def heartbeat(self, group: str, *, generation: int, member_id: str, instance_id: str | None) -> None:
        """Restart the session of a member.

        Raises:
            UnknownMember, FencedInstance, IllegalGeneration: as ``join``.
            RebalanceInProgress: the session restarted, and the member should join again.
        """
        self.table.of_member(group, member_id).heartbeat(
            generation=generation, member_id=member_id, instance_id=instance_id
        )

    def leave(self, group: str, members: Sequence[LeavingMember]) -> Results:
        """Remove ``members``, with one rebalance for all of them.

        Returns None, ``UnknownMember`` or ``FencedInstance`` for each, in the order of ``members``.
        """
        self.table.check_open()
        check_group_id(group)
        live = self.table.groups.get(group)
        if live is None:
            return [UnknownMember(group, member.member_id) for member in members]
        return live.leave(members)

    # ── commits ──

    def commit(self, request: CommitRequest) -> asyncio.Future[Results]:
        """Keep offsets. Completes when they are durable, and can be read.

        The results are in the order of ``request.offsets``: None, or the error of that offset
        (``UnknownTopic``, ``UnknownPartition``, ``OffsetMetadataTooLarge``, ``InvalidRequest``).

        Raises, at once or from the future:
            InvalidGroupId, UnknownMember, FencedInstance, IllegalGeneration, TooManyGroups: as ``join``.
            GroupNotFound: a member commits, and the group does not exist.
            RebalanceInProgress: sync first.
            StaleMemberEpoch, CommitVersionTooOld: of groups whose partitions the broker assigns.
            GroupStoreFailed: nothing was kept; commit again.
        """
        self.table.check_open()
        check_group_id(request.group)
        if request.generation >= 0 and request.group not in self.table.groups:
            raise GroupNotFound(request.group)
        live = self.table.existing_or_new(request.group)
        live.check_commit(request)
        return self._keep_offsets(live, request)

    async def checked(self, request: CommitRequest) -> CommitRequest:
        """Check the offsets of a long request with pauses, so that a commit in one turn only has to keep them."""
        return replace(request, checked=await in_turns(records_of(self.table, request)))

    def commit_owned(self, claimant: Claimant, offset: OffsetToCommit) -> asyncio.Future[Results]:
        """Commit as the owner; raises what ``check_owner`` raises; the results are those of ``commit``."""
        live = self._owned_group(claimant)
        request = CommitRequest(
            group=claimant.group,
            generation=claimant.generation,
            member_id=claimant.member_id,
            offsets=[offset],
        )
        return self._keep_offsets(live, request)

    def commit_assigned(
        self, membership: Membership, group: str, offsets: Sequence[OffsetToCommit]
    ) -> asyncio.Future[Results]:
        """Commit for a member that is assigned all of the partitions, owner or not.

        The results are those of ``commit``.

        Raises:
            UnknownMember, IllegalGeneration, RebalanceInProgress, PartitionNotAssigned: nothing was committed.
        """
        request = self.assigned_request(membership, group, offsets)
        return self._keep_offsets(self.table.of_member(group, membership.member_id), request)

    def assigned_request(
        self, membership: Membership, group: str, offsets: Sequence[OffsetToCommit]
    ) -> CommitRequest:
        """Return the request of a member to commit partitions that are all assigned to it.

        Raises as ``commit_assigned``.
        """
        live = self.table.of_member(group, membership.member_id)
        for offset in offsets:
            claimant = Claimant(
                group=group,
                member_id=membership.member_id,
                generation=membership.generation,
                topic=offset.topic,
                partition=offset.partition,
            )
            live.claims.check_assigned(claimant)
        return CommitRequest(
            group=group,
            generation=membership.generation,
            member_id=membership.member_id,
            offsets=offsets,
        )

    def _keep_offsets(self, live: LiveGroup, request: CommitRequest) -> asyncio.Future[Results]:
        future = live.offsets.commit(request)
        self.table.keep(live)
        return future

    # ── commits within a transaction: see ``TransactionalOffsets`` ──

    def stage_offsets(
        self, request: CommitRequest, *, producer_id: int, producer_epoch: int
    ) -> asyncio.Future[Results]:
        """See ``TransactionalOffsets.stage``."""
        return self.transactional.stage(request, producer_id=producer_id, producer_epoch=producer_epoch)

    async def stage_after_ended(
        self, request: CommitRequest, *, producer_id: int, producer_epoch: int
    ) -> Results:
        """As ``stage_offsets``, once those of earlier transactions are settled."""
        if self._ended is not None and producer_id in self.table.pending_producers:
            await self._ended.settle()
        return await self.stage_offsets(request, producer_id=producer_id, producer_epoch=producer_epoch)

    async def settle_ended(self, group: str | None = None) -> None:
        """Settle the offsets of transactions that ended at any broker before the call.

        Await it before ``committed``. ``group``: do nothing unless this one has pending offsets.

        Raises as ``EndedElsewhere.settle``.
        """
        if self._ended is None or not self.table.is_open:
            return
        if group is not None:
            live = self.table.groups.get(group)
            if live is None or not (live.offsets.pending or live.offsets.is_being_written):
                return
        await self._ended.settle()

    def end_offsets(self, producer_id: int, *, commit: bool) -> OffsetsOfTransaction:
        """See ``TransactionalOffsets.end``."""
        return self.transactional.end(producer_id, commit=commit)

    # ── ownership ──

    def claim(self, claimant: Claimant) -> asyncio.Future[None]:
        """Make a member the owner of a partition that is assigned to it.

        Completes when that is durable.

        Nothing happens if the member owns it already, as in a group whose partitions the broker assigns.

        Raises, at once or from the future:
            UnknownTopic, UnknownPartition: the partition does not exist.
            UnknownMember, IllegalGeneration, PartitionNotAssigned: the member missed a rebalance.
            PartitionOwned: another member still owns it.
            RebalanceInProgress: wait for the next generation.
            GroupStoreFailed: the claim was not kept; claim again.
        """
        return self._claimed_group(claimant).claims.claim(claimant)

    def release(self, claimant: Claimant) -> asyncio.Future[None]:
        """Give a partition back; it stays assigned to the member.

        Raises what ``check_owner`` raises.
        """
        return self._claimed_group(claimant).claims.release(claimant)

    def check_owner(self, claimant: Claimant) -> None:
        """Check that a member owns a partition, and restart its session.

        Raises:
            PartitionNotOwned: no member owns it; claim it first.
            UnknownTopic, UnknownPartition, UnknownMember, IllegalGeneration, RebalanceInProgress,
                PartitionNotAssigned, PartitionOwned: as ``claim``.
        """
        self._owned_group(claimant)

    def _owned_group(self, claimant: Claimant) -> LiveGroup:
        live = self._claimed_group(claimant)
        live.claims.check_owner(claimant)
        return live

    def _claimed_group(self, claimant: Claimant) -> LiveGroup:
        partitions = self.table.topic(claimant.topic).partitions
        if not 0 <= claimant.partition < partitions:
            raise UnknownPartition(claimant.topic, claimant.partition, partitions=partitions)
        return self.table.of_member(claimant.group, claimant.member_id)

    # ── committed offsets ──

    def committed(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
    ) -> list[CommittedOffset]:
        """Return the offsets of ``partitions`` (topic, number), in their order; None: all, sorted.

        With ``require_stable`` an offset that an open transaction may replace has the error
        ``UnstableOffset`` instead (KIP-447).
        """
        return at_once(self.committed_in_steps(group, partitions, require_stable=require_stable))

    def committed_in_steps(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
    ) -> Steps[list[CommittedOffset]]:
        """``committed`` in steps; all offsets are those of the first one."""
        self.table.check_open()
        live = self.table.groups.get(group)
        offsets = GroupOffsets(group, self.table) if live is None else live.offsets
        return (yield from offsets.committed(partitions, require_stable=require_stable))

    async def cut_offsets(self, topic: str, partition: int, end_offset: int) -> list[str]:
        """Move positions of groups past the end of a log that was cut back to its end; return these groups.

        Those are committed offsets, and what share groups know of records. Members find that their positions are out of
        range.

        Raises ``GroupStoreFailed``: some were not moved.
        """
        moved: list[str] = []
        async for group in visited(self.table.names()):
            live = self.table.groups.get(group)
            shared = None if live is None or live.share is None else live.share.partition(topic, partition)
            if shared is not None and shared.records.end_offset > end_offset:
                await shared.cut(end_offset)
                moved.append(group)
            known = None if live is None else live.offsets.records.get((topic, partition))
            if live is None or known is None or known.offset <= end_offset:
                continue
            offset = OffsetToCommit(
                topic=topic, partition=partition, offset=end_offset, metadata=known.metadata
            )
            await self._keep_offsets(live, CommitRequest(group=group, offsets=[offset]))
            moved.append(group)
        return moved

    def delete_offsets(self, group: str, partitions: Sequence[tuple[str, int]]) -> asyncio.Future[Results]:
        """Delete committed offsets, and pending ones of the same partitions.

        The results are in the order of ``partitions``: None, even if there was no offset, or an error.

        Raises:
            GroupNotFound: the group does not exist.
            GroupNotEmpty: its members are no consumers, so the broker cannot know what they read.
        """
        live = self.table.existing(group)
        if live.type == "classic" and not live.is_empty and live.group.protocol_type != CONSUMER:
            raise GroupNotEmpty(group)
        # There may be thousands of partitions.
        subscribed = live.subscribed({topic for topic, _ in partitions})
        results: Results = [
            GroupSubscribedToTopic(group, topic) if topic in subscribed else None for topic, _ in partitions
        ]
        keys = {(topic, number): None for topic, number in partitions if topic not in subscribed}
        return live.offsets.delete(keys, results)

    def forget_topic(self, topic: str) -> asyncio.Future[None]:
        """Delete the committed offsets of a deleted topic in all groups.

        A topic of the same name that was created since has another id and keeps its offsets.
        """
        return self.table.forget_topic(topic)

    async def sweep(self) -> None:
        """Drop the offsets whose retention is over, and groups in which nothing is left."""
        await self._retention.sweep()

    # ── describing and deleting groups ──

    def listings(self) -> Iterator[GroupListing]:
        """Return all groups by name, each as it is when it is taken: the caller may pause in between."""
        self.table.check_open()
        return (listing_of(live) for _, live in sorted(self.table.groups.items()))

    async def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """List groups by name, with pauses.

        ``states`` and ``types`` (``classic``, ``consumer``, ``share``) filter regardless of case.
        """
        wanted_states = set(await in_turns(mapped(str.casefold, states)))
        wanted_types = set(await in_turns(mapped(str.casefold, types)))
        return [
            listing
            async for listing in visited(self.listings())
            if (not wanted_states or listing.state.value.casefold() in wanted_states)
            and (not wanted_types or listing.type in wanted_types)
        ]

    @property
    def group_count(self) -> int:
        return len(self.table.groups)

    def group_names(self) -> list[str]:
        """Return the names of all groups, unordered; none while groups cannot be served."""
        return self.table.names()

    def is_share_group(self, group: str) -> bool:
        """Return whether the group exists and is a share group."""
        self.table.check_open()
        live = self.table.groups.get(group)
        return live is not None and live.share is not None

    def describe(self, group: str) -> GroupDescription:
        """Raises ``GroupNotFound``."""
        return description_of(self.table.existing(group), self.table)

    def member_count(self, group: str) -> int:
        """Raises ``GroupNotFound``."""
        return member_count(self.table.existing(group))

    def managed_member(self, group: str, client_id: str) -> ManagedMember | None:
        """Return the managed member with a client id; None if there is none, or no such group."""
        self.table.check_open()
        live = self.table.groups.get(group)
        return None if live is None else managed_member(live, client_id)

    def delete_group(self, group: str) -> asyncio.Future[None]:
        """Delete a group and its offsets, also pending ones.

        Raises ``GroupNotFound``, ``GroupNotEmpty``.
        """
        live = self.table.existing(group)
        if not live.is_empty:
            raise GroupNotEmpty(group)
        return self.table.drop(live)
