"""Managed members: members for which the broker joins, syncs and leads (ADR-0017).

``ManagedMembers`` has the calls that wait for an assignment; the functions after it
are what the broker requests, answers and decides for such members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from ...cluster.group_store import MemberProtocol
from ...errors import InvalidRequest, RebalanceInProgress, SteleError
from ...work_budget import Pace, Steps
from ..base.assignors import CLASSIC_ASSIGNORS, uniform
from ..base.consumer_protocol import (
    CONSUMER,
    AssignedPartition,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from ..base.member import Member
from ..base.messages import JoinRequest, ManagedJoin, Membership
from ..base.parking import answer
from ..base.states import GroupState
from .group import Group


class ManagedMembers:
    """The futures of one group: joins that wait for an assignment, and calls of ``settled``."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._is_closed = False
        # By member id: joins that wait for an assignment.
        self._waiting: dict[str, asyncio.Future[Membership]] = {}
        # Calls of ``settled``.
        self._settling: list[asyncio.Future[None]] = []

    def close(self, error: SteleError) -> None:
        """Answer all that waits with ``error``."""
        self._is_closed = True
        for waiting in self._waiting.values():
            answer(waiting, error)
        self._waiting.clear()
        self.settle()

    @property
    def waiting(self) -> list[str]:
        """The ids of the members that wait for an assignment."""
        return list(self._waiting)

    def is_waiting(self, member_id: str) -> bool:
        return member_id in self._waiting

    def await_assignment(self, member_id: str) -> asyncio.Future[Membership]:
        """Wait for the next assignment; an earlier call of the member gets ``RebalanceInProgress``."""
        self.refuse(member_id, RebalanceInProgress(self._group.name))
        waiting = self._waiting[member_id] = asyncio.get_running_loop().create_future()
        return waiting

    def answer_assigned(self, member: Member) -> bool:
        """Send ``member`` its assignment; False if it does not wait for one."""
        waiting = self._waiting.pop(member.member_id, None)
        if waiting is None:
            return False
        member.is_new = False
        answer(waiting, membership_of(self._group, member))
        return True

    def hand_over(self) -> dict[str, asyncio.Future[Membership]]:
        """Return what waits, by member id: the caller answers it."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    def refuse(self, member_id: str, error: SteleError) -> None:
        """Answer a member that waits with ``error``."""
        waiting = self._waiting.pop(member_id, None)
        if waiting is not None:
            answer(waiting, error)

    async def settled(self) -> None:
        """Return once the broker is not about to assign; that waits for the store, and for no member."""
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
        """Wake the calls of ``settled``, because an assignment was kept or refused."""
        for waiting in self._settling:
            if not waiting.done():
                waiting.set_result(None)
        self._settling.clear()


def join_request_of(request: ManagedJoin) -> JoinRequest:
    """Return the join of Kafka's protocol that the broker makes for a managed member."""
    metadata = encode_subscription(frozenset(request.topics))
    return JoinRequest(
        group=request.group,
        member_id=request.member_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms,
        protocol_type=CONSUMER,
        protocols=tuple(MemberProtocol(name, metadata) for name in CLASSIC_ASSIGNORS),
        is_managed=True,
    )


def not_managed(member_id: str) -> InvalidRequest:
    """Return the error for a managed member that names one of the Kafka listener."""
    return InvalidRequest(
        f"member {member_id[:80]!r} joined through the Kafka listener; use the same listener"
    )


def membership_of(group: Group, member: Member) -> Membership:
    """Return the generation and the partitions of a managed member."""
    return Membership(
        member_id=member.member_id,
        # The member would believe that it got no partitions in a generation that is not assigned yet.
        generation=group.assigned_generation,
        assigned=member.assigned,
        is_rebalancing=group.state is not GroupState.STABLE,
    )


def is_led_by_the_broker(group: Group) -> bool:
    """True if the leader is a managed member, for which the broker assigns."""
    return group.leader is not None and group.members[group.leader].is_managed


def are_all_managed(group: Group) -> bool:
    return all(member.is_managed for member in group.members.values())


def assignments_by_the_broker(
    group: Group,
    previous: Mapping[str, frozenset[AssignedPartition]],
    *,
    partitions_of: Callable[[Iterable[str]], Mapping[str, int]],
) -> Steps[dict[str, bytes]]:
    """Assign for the leader; returns the encoded assignments by member id.

    ``previous`` has the last assignment, which assignors may keep where possible. The generation of
    ``group`` must be the same until the last step.
    """
    assert group.protocol_name is not None
    pace = Pace()
    subscriptions: dict[str, frozenset[str]] = {}
    topics: set[str] = set()
    for member in list(group.members.values()):
        subscribed = subscribed_topics(member.metadata_for(group.protocol_name)) or frozenset()
        subscriptions[member.member_id] = subscribed
        topics |= subscribed
        if pace.is_due(1 + len(subscribed)):
            yield
    assign = CLASSIC_ASSIGNORS.get(group.protocol_name, uniform)
    assigned = yield from assign(AssignedPartition, subscriptions, partitions_of(topics), previous)
    encoded: dict[str, bytes] = {}
    for member_id, parts in assigned.items():
        encoded[member_id] = encode_assignment(parts)
        if pace.is_due(1 + len(parts)):
            yield
    return encoded
