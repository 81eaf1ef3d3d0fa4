"""Classic members in a group that the broker assigns (KIP-848, ADR-0043).

They join, sync and send heartbeats as in any classic group, and none of them leads. What the
classic protocol calls the generation is the epoch of the member:

- A **join** is a step to the target assignment, as a heartbeat of the new protocol is. The
  subscription says what the member still has.
- A **sync** returns what the broker assigned.
- A **heartbeat** answers REBALANCE_IN_PROGRESS when another join would be a step.

**Managed members** (ADR-0017) are members of the classic protocol, too. The broker takes their steps
at once. They give partitions up without being asked, because their commits are refused from then on.

Like ``group`` this has no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from ...cluster.consumer_group_store import (
    ClassicMembership,
    ConsumerMember,
    MemberProtocol,
    MemberState,
    OwnedPartition,
)
from ...errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from ...work_budget import Pace, Steps
from ..base.consumer_protocol import (
    CONSUMER,
    AssignedPartition,
    Subscription,
    encode_assignment,
    subscription_of,
)
from ..base.messages import NO_MEMBER, Joined, JoinRequest, Synced, SyncRequest
from .group import ConsumerGroup

# A step takes about 20 µs.
_STEP_PIECES = 20
# No member leads, so no member id equals this one.
_NO_LEADER = ""


def check_protocols(group: ConsumerGroup, request: JoinRequest) -> Subscription:
    """Return the subscription of a client that joins.

    Raises:
        InconsistentGroupProtocol: the client is no consumer, its subscription cannot be read, or
            it shares no assignor with the other members of the classic protocol.
    """
    if request.protocol_type != CONSUMER or not request.protocols:
        raise InconsistentGroupProtocol(
            group.name, f"its members are of type {CONSUMER!r}, not {request.protocol_type[:80]!r}"
        )
    replaced = (group.members.get(request.member_id), group.static_member(request.instance_id))
    common = group.index.common_protocols({m.member_id: m for m in replaced if m is not None}.values())
    if common is not None and not any(name in common for name, _ in request.protocols):
        raise InconsistentGroupProtocol(
            group.name,
            f"its classic members support {', '.join(sorted(common))[:200]}, and the request does not",
        )
    subscriptions = [subscription_of(metadata) for _, metadata in request.protocols]
    first = subscriptions[0]
    if first is None:
        raise InconsistentGroupProtocol(
            group.name, "the broker assigns its partitions, and cannot read the subscription of the member"
        )
    return first._replace(
        owned=frozenset(part for subscription in subscriptions if subscription for part in subscription.owned)
    )


def join(
    group: ConsumerGroup,
    request: JoinRequest,
    member_id: str,
    *,
    now_ms: int,
    interval_ms: int,
    size_max: int,
) -> ConsumerMember:
    """Let a member join, or join again: it takes its next step to its target.

    ``member_id`` is the id that the member has from now on. If the request has none, the member takes
    the place of the member with the same instance id.

    Raises:
        InconsistentGroupProtocol: as ``check_protocols``.
        UnknownMember, FencedInstance: see ``ConsumerGroup.member``; a member of the new protocol has the id.
        GroupFull: the group has ``size_max`` members.
    """
    subscription = check_protocols(group, request)
    before = _admit(group, request, member_id, size_max=size_max)
    member = replace(
        before,
        instance_id=request.instance_id,
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=subscription.topics,
        regex="",
        assignor=None,
        classic=ClassicMembership(
            session_timeout_ms=request.session_timeout_ms,
            # Copied, because a listener may pass slices of a frame.
            protocols=tuple(MemberProtocol(name, bytes(metadata)) for name, metadata in request.protocols),
            is_managed=request.is_managed,
        ),
    )
    is_new = member_id not in group.members
    group.put(member)
    if is_new or (before.topics, before.regex) != (member.topics, member.regex):
        group.bump()
        group.forget_regexes()
    if group.is_assignment_due(now_ms, interval_ms=interval_ms):
        group.assign(now_ms)
    return group.reconcile(member_id, owned_by_id(group, subscription.owned))


def _admit(group: ConsumerGroup, request: JoinRequest, member_id: str, *, size_max: int) -> ConsumerMember:
    """Return the member that joins: it is not in the group yet if it is new."""
    static = group.static_member(request.instance_id)
    if request.member_id == NO_MEMBER and static is not None:
        # The instance restarted. The client that had the id before is fenced.
        return group.replace_static(static, member_id)
    if request.member_id in group.members or (request.instance_id is not None and request.member_id):
        return classic_member(group, request.member_id, request.instance_id)
    if len(group.members) >= size_max:
        raise GroupFull(group.name, limit=size_max, setting="group_consumer_size_max")
    return ConsumerMember(member_id=member_id)


def owned_by_id(group: ConsumerGroup, owned: Iterable[AssignedPartition]) -> frozenset[OwnedPartition]:
    """Return the partitions of existing topics by the ids of their topics."""
    owned = frozenset(owned)
    facts = group.topics_of({part.topic for part in owned})
    return frozenset(
        OwnedPartition(facts[topic].topic_id, number) for topic, number in owned if topic in facts
    )


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that sent a request of the classic protocol.

    Raises ``UnknownMember``, also about members of the new protocol, and ``FencedInstance``.
    """
    member = group.member(member_id, instance_id)
    if member.classic is None:
        raise UnknownMember(group.name, member_id)
    return member


def check_generation(group: ConsumerGroup, member: ConsumerMember, generation: int) -> None:
    """Raises ``IllegalGeneration`` unless ``generation`` is the epoch of ``member``."""
    if generation != member.epoch:
        raise IllegalGeneration(group.name, generation, current_generation=member.epoch)


def must_join_again(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """True if another join is the next step of a member to its target.

    It has to give up partitions, there is a newer target, or all partitions that it waits for are free.
    A member of the classic protocol may stop reading to join, so it does not join for some of them.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS or member.epoch < group.assignment_epoch:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and all(
        group.is_free(part, member.member_id) for part in member.target
    )


def step_managed(group: ConsumerGroup) -> Steps[bool]:
    """Let the managed members take all steps that they can; returns True if one took a step."""
    pace = Pace()
    has_stepped = False
    # What one of them has given up may be free for another.
    while group.index.may_step:
        group.index.may_step = False
        for member_id in list(group.index.managed):
            while _steps(group, member_id):
                has_stepped = True
                if pace.is_due(_STEP_PIECES):
                    yield
            if pace.is_due():
                yield
    return has_stepped


def _steps(group: ConsumerGroup, member_id: str) -> bool:
    before = group.members.get(member_id)
    return (
        before is not None
        and not before.is_reconciled(group.assignment_epoch)
        and group.reconcile(member_id, ()) != before
    )


def check_sync(group: ConsumerGroup, member: ConsumerMember, request: SyncRequest) -> None:
    """Check that a member may have its assignment.

    Raises:
        IllegalGeneration: join again.
        InconsistentGroupProtocol: the request names another protocol than the answer to the join did.
        RebalanceInProgress: there is a newer target; join again.
    """
    check_generation(group, member, request.generation)
    for requested, current in (
        (request.protocol_type, CONSUMER),
        (request.protocol_name, _protocol_name(member)),
    ):
        if requested is not None and requested != current:
            raise InconsistentGroupProtocol(group.name, f"it chose {current!r}, not {requested[:80]!r}")
    # A member that has to give up partitions learns by its assignment which.
    is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
    if member.epoch < group.assignment_epoch and not is_revoking:
        raise RebalanceInProgress(group.name)


def joined(member: ConsumerMember) -> Joined:
    """Return the answer to a join."""
    return Joined(
        generation=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=_protocol_name(member),
        leader=_NO_LEADER,
        member_id=member.member_id,
    )


def synced(group: ConsumerGroup, member: ConsumerMember) -> Synced:
    """Return the answer to a sync: what is assigned to the member, without what it has to give up."""
    names = group.topic_names()
    return Synced(
        protocol_type=CONSUMER,
        protocol_name=_protocol_name(member),
        assignment=encode_assignment(named(member.assigned, names)),
    )


def named(partitions: Iterable[OwnedPartition], names: dict[UUID, str]) -> frozenset[AssignedPartition]:
    """Return partitions by the names of their topics; deleted topics have none."""
    return frozenset(
        AssignedPartition(names[topic_id], number) for topic_id, number in partitions if topic_id in names
    )


def _protocol_name(member: ConsumerMember) -> str:
    """Return the assignor that the answer to a join names.

    It is the first, because no member assigns.
    """
    assert member.classic is not None
    return member.classic.protocols[0].name
