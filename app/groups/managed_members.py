"""Managed members: members that the broker joins for and assigns to (ADR-0017).

``ManagedMembers`` owns who waits for an assignment; the functions beside it say
what the broker answers and decides in place of such members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from ..cluster.group_store import MemberProtocol
from ..errors import RebalanceInProgress, SteleError
from .assignors import ASSIGNOR_NAMES, ASSIGNORS, even
from .consumer_protocol import (
    CONSUMER,
    AssignedPartition,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from .group import Group
from .group_states import GroupState
from .member import Member
from .messages import JoinRequest, ManagedJoin, Membership
from .parking import answer


class ManagedMembers:
    """The futures of one group: members that wait to be assigned, and callers that wait for the assigning to end."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._is_closed = False
        # What the broker joined for, and waits to hear what it is assigned.
        self._waiting: dict[str, asyncio.Future[Membership]] = {}
        # Who waits for the end of that, whatever it will be.
        self._settling: list[asyncio.Future[None]] = []

    def close(self, error: SteleError) -> None:
        """Answer all who wait."""
        self._is_closed = True
        for waiting in self._waiting.values():
            answer(waiting, error)
        self._waiting.clear()
        self.settle()

    @property
    def waiting(self) -> list[str]:
        """The ids of members that wait for an assignment."""
        return list(self._waiting)

    def is_waiting(self, member_id: str) -> bool:
        return member_id in self._waiting

    def await_assignment(self, member_id: str) -> asyncio.Future[Membership]:
        """Wait for the next assignment; refuses an earlier call of the same member with ``RebalanceInProgress``."""
        self.refuse(member_id, RebalanceInProgress(self._group.name))
        waiting = self._waiting[member_id] = asyncio.get_running_loop().create_future()
        return waiting

    def answer_assigned(self, member: Member) -> bool:
        """Tell ``member`` its assignment; False if it does not wait for one."""
        waiting = self._waiting.pop(member.member_id, None)
        if waiting is None:
            return False
        member.is_new = False
        answer(waiting, membership_of(self._group, member))
        return True

    def refuse(self, member_id: str, error: SteleError) -> None:
        """Answer the member with ``error``, if it waits."""
        waiting = self._waiting.pop(member_id, None)
        if waiting is not None:
            answer(waiting, error)

    async def settled(self) -> None:
        """Return when the broker is not about to assign: what that waits for is the disk, and no member."""
        group = self._group
        while (
            not self._is_closed
            and group.state is GroupState.COMPLETING_REBALANCE
            and is_led_by_the_broker(group)
        ):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append(waiting)
            await waiting

    def settle(self) -> None:
        """An assignment was kept or refused: have those in ``settled`` look again."""
        for waiting in self._settling:
            if not waiting.done():
                waiting.set_result(None)
        self._settling.clear()


def join_request_of(request: ManagedJoin) -> JoinRequest:
    """The join of Kafka's protocol that the broker makes for a managed member."""
    metadata = encode_subscription(frozenset(request.topics))
    return JoinRequest(
        group=request.group,
        member_id=request.member_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms,
        protocol_type=CONSUMER,
        protocols=tuple(MemberProtocol(name, metadata) for name in ASSIGNOR_NAMES),
        is_managed=True,
    )


def membership_of(group: Group, member: Member) -> Membership:
    """What a managed member is told: its generation and its partitions."""
    # A generation that has not been assigned is not told: a member would take it for one that gives it nothing.
    is_unassigned = group.state is GroupState.COMPLETING_REBALANCE
    return Membership(
        member_id=member.member_id,
        generation=group.generation - is_unassigned,
        assigned=member.assigned,
        is_rebalancing=group.state is not GroupState.STABLE,
    )


def is_led_by_the_broker(group: Group) -> bool:
    """The leader is a managed member: the broker assigns for it."""
    return group.leader is not None and group.members[group.leader].is_managed


def are_all_managed(group: Group) -> bool:
    return all(member.is_managed for member in group.members.values())


def assignments_by_the_broker(
    group: Group,
    previous: Mapping[str, frozenset[AssignedPartition]],
    *,
    partitions_of: Callable[[Iterable[str]], Mapping[str, int]],
) -> dict[str, bytes]:
    """Assign for the leader: the encoded assignment of each member, near to the ``previous`` one."""
    assert group.protocol_name is not None
    subscriptions = {
        member.member_id: subscribed_topics(member.metadata_for(group.protocol_name)) or frozenset()
        for member in group.members.values()
    }
    partitions = partitions_of({topic for topics in subscriptions.values() for topic in topics})
    assign = ASSIGNORS.get(group.protocol_name, even)
    assignments = assign(subscriptions, partitions, previous)
    return {member_id: encode_assignment(parts) for member_id, parts in assignments.items()}
