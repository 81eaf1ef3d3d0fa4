"""Members of groups, the partitions they own, and committed offsets (ADR-0017)."""

from __future__ import annotations

from stele.wire import messages as m

from ....broker.reading.fetch import PartitionFetch, read_bound, visible_bytes
from ....errors import InvalidRequest
from ....groups.base.messages import LeavingMember, ManagedJoin, Membership, OffsetToCommit
from ....groups.consumer.ownership import Claimant
from ....security.acl import READ_TOPIC
from ...response_queue import Buffers
from .context import BinaryListener


async def join_group(listener: BinaryListener, request: m.JoinGroupRequest) -> Buffers:
    membership = await listener.groups.of(request.group).coordinator.join_managed(
        ManagedJoin(
            group=request.group,
            topics=request.topics,
            member_id=request.member_id,
            client_id=request.client_id or "binary",
            session_timeout_ms=request.session_timeout_ms,
        )
    )
    return m.JoinGroupResponse(
        member_id=membership.member_id,
        generation=membership.generation,
        is_rebalancing=membership.is_rebalancing,
        assignment=_assignment(listener, membership),
    ).encode()


async def heartbeat(listener: BinaryListener, request: m.HeartbeatRequest) -> Buffers:
    await listener.groups.of(request.group).coordinator.settled(request.group)
    membership = listener.groups.of(request.group).coordinator.membership(
        request.group, request.member_id, generation=request.generation
    )
    return m.HeartbeatResponse(
        member_id=membership.member_id,
        generation=membership.generation,
        is_rebalancing=membership.is_rebalancing,
        assignment=_assignment(listener, membership),
    ).encode()


async def leave_group(listener: BinaryListener, request: m.LeaveGroupRequest) -> Buffers:
    (error,) = listener.groups.of(request.group).coordinator.leave(
        request.group, [LeavingMember(member_id=request.member_id)]
    )
    if error is not None:
        raise error
    await listener.groups.of(request.group).coordinator.settled(request.group)
    return m.LeaveGroupResponse().encode()


async def claim(listener: BinaryListener, request: m.ClaimRequest) -> Buffers:
    await listener.groups.of(request.group).coordinator.claim(_claimant(request))
    return m.ClaimResponse().encode()


async def release(listener: BinaryListener, request: m.ReleaseRequest) -> Buffers:
    await listener.groups.of(request.group).coordinator.release(_claimant(request))
    return m.ReleaseResponse().encode()


async def commit(listener: BinaryListener, request: m.CommitRequest) -> Buffers:
    claimant = _claimant(request)
    await listener.broker.refresh([(request.topic, request.partition)])
    end = listener.broker.log_state(request.topic, request.partition).high_watermark
    if not 0 <= request.offset <= end:
        raise InvalidRequest(
            f"offset {request.offset} cannot be committed: {request.topic}-{request.partition} ends at {end}"
        )
    offset = OffsetToCommit(
        topic=request.topic, partition=request.partition, offset=request.offset, metadata=request.metadata
    )
    (error,) = await listener.groups.of(request.group).coordinator.commit_owned(claimant, offset)
    if error is not None:
        raise error
    return m.CommitResponse().encode()


async def committed(listener: BinaryListener, request: m.CommittedRequest) -> Buffers:
    listener.broker.log_state(request.topic, request.partition)
    coordinator = listener.groups.of(request.group).coordinator
    await coordinator.settle_ended(request.group)
    (position,) = coordinator.committed(request.group, [(request.topic, request.partition)])
    return m.CommittedResponse(offset=position.offset, metadata=position.metadata).encode()


async def owner_fetch(listener: BinaryListener, request: m.OwnerFetchRequest) -> Buffers:
    claimant = _claimant(request)
    listener.groups.of(request.group).coordinator.check_owner(claimant)
    max_bytes = max(0, request.max_bytes)
    (fetched,) = await listener.broker.fetch(
        [
            PartitionFetch(
                topic=request.topic, partition=request.partition, offset=request.offset, max_bytes=max_bytes
            )
        ],
        max_bytes=max_bytes,
        max_wait_ms=max(0, request.max_wait_ms),
    )
    if fetched.error is not None:
        raise fetched.error
    batches = bytes(await visible_bytes(fetched))
    # The member may have lost the partition while it waited.
    listener.groups.of(request.group).coordinator.check_owner(claimant)
    return m.OwnerFetchResponse(
        high_watermark=read_bound(fetched),
        log_start_offset=fetched.log_start_offset,
        batches=batches,
    ).encode()


def _assignment(listener: BinaryListener, membership: Membership) -> list[tuple[str, list[int]]]:
    """Return what is assigned in topics that the client may read.

    The member may be another client's.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(membership.assigned):
        topics.setdefault(topic, []).append(partition)
    access = listener.access
    if access is not None:
        topics = {topic: partitions for topic, partitions in topics.items() if access.sees(READ_TOPIC, topic)}
    return list(topics.items())


def _claimant(
    request: m.ClaimRequest | m.ReleaseRequest | m.CommitRequest | m.OwnerFetchRequest,
) -> Claimant:
    return Claimant(
        group=request.group,
        member_id=request.member_id,
        generation=request.generation,
        topic=request.topic,
        partition=request.partition,
    )
