"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Membership of groups.

Joins and syncs take effect in the order of the requests. Their responses are due when
the other members have joined, or when the leader has sent the assignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.groups import (
    FIND_COORDINATOR_API,
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    SYNC_GROUP_API,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from .....cluster.group_shards import lease_of_group
from .....cluster.group_store import MemberProtocol
from .....cluster.leaders import ranked
from .....errors import MemberIdRequired, NotCoordinator, SteleError
from .....groups.base.messages import Joined, JoinRequest, LeavingMember, Synced, SyncRequest
from .....security.acl import READ_GROUP
from .....work_budget import SMALL_VISIT, WorkBudget, pause, visited
from ....errors import error_code_of
from ...context import Context
from ...guards import groups as group_guards
from ...guards.rights import on_name
from ...served import Served
from ..nodes import Node, nodes, own_node

# With the default session timeout, leases of a lost broker end within this time. Responses of a connection keep their
# order, so it is no longer with a longer one.
FIND_MS = 6_000
# Keys of coordinators, protocols of a member that joins, and members that leave, without a pause: each takes about 2,
# 1 and 10 µs.
_KEYS_AT_ONCE, _PROTOCOLS_AT_ONCE, _LEAVING_AT_ONCE = 500, 500, 250
_GROUP, _TRANSACTION = 0, 1
_NO_NODE = -1
_NO_GENERATION = -1
# KIP-394, KIP-559, KIP-814, KIP-345: what a version can express.
_FIRST_WITH_MEMBER_ID_REQUIRED = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9
_FIRST_WITH_MEMBERS_LEAVING = 3
_FIRST_WITH_KEYS = 4
_FIRST_WITH_PROTOCOL = 5


def find_coordinator(
    context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    """Return the broker that has each group, and this one for every transactional id.

    A group that no live broker has is about to get one, so the response waits for that. Then it names the broker that
    is to have the group, which refuses requests until it has it, as in Kafka while a coordinator loads its groups.
    FindCoordinator itself is never refused for that: after three refusals librdkafka waits for good, whatever its
    time-outs are (its issue 5456).
    """
    keys = request.coordinator_keys if context.version >= _FIRST_WITH_KEYS else [request.key]
    if request.key_type not in (_GROUP, _TRANSACTION):
        message = (
            f"coordinators of type {request.key_type} are not served; only those of groups (0) and "
            "transactions (1) are"
        )
        if len(keys) > _KEYS_AT_ONCE:
            return _refuse_all(context, keys, message)
        return _found_coordinators(
            context, [_refused(key, ErrorCode.INVALID_REQUEST, message) for key in keys]
        )
    if len(keys) > _KEYS_AT_ONCE:
        return _found_in_time(context, request.key_type, keys)
    found = [_found(context, request.key_type, key) for key in keys]
    if any(one.error_code for one in found):
        return _found_in_time(context, request.key_type, keys)
    return _found_coordinators(context, found)


async def _refuse_all(context: Context, keys: Sequence[str], message: str) -> FindCoordinatorResponse:
    refused = [_refused(key, ErrorCode.INVALID_REQUEST, message) async for key in visited(keys, SMALL_VISIT)]
    return _found_coordinators(context, refused)


async def _found_in_time(context: Context, key_type: int, keys: Sequence[str]) -> FindCoordinatorResponse:
    """Wait for coordinators, at most for ``FIND_MS``."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + FIND_MS / 1000
    while True:
        moved = context.broker.cluster.moved()
        found = [_found(context, key_type, key) async for key in visited(keys, SMALL_VISIT)]
        left_s = until_s - loop.time()
        if not any(one.error_code for one in found):
            return _found_coordinators(context, found)
        if left_s <= 0:
            expected = [
                _found(context, key_type, key, is_expected=True) async for key in visited(keys, SMALL_VISIT)
            ]
            return _found_coordinators(context, expected)
        await asyncio.wait((moved,), timeout=left_s)


def _found_coordinators(context: Context, found: Sequence[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= _FIRST_WITH_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _found(context: Context, key_type: int, key: str, *, is_expected: bool = False) -> Coordinator:
    node = _coordinator(context, key_type, key)
    if node is None and is_expected:
        node = _expected_coordinator(context, key)
    if node is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(NotCoordinator(None)))
    return Coordinator(
        key=key,
        node_id=node.broker_id,
        host=node.host,
        port=node.port,
        error_code=ErrorCode.NONE,
        error_message=None,
    )


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, host="", port=-1, error_code=code, error_message=message)


def _coordinator(context: Context, key_type: int, key: str) -> Node | None:
    cluster = context.broker.cluster
    if not cluster.is_shared or key_type != _GROUP:
        return own_node(context)
    lease = cluster.lease(lease_of_group(key))
    if lease is None:
        return None
    return next((node for node in nodes(context) if node.broker_id == lease.broker_id), None)


def _expected_coordinator(context: Context, group: str) -> Node:
    """Return the live broker that the lease of a group belongs to."""
    shown = {node.broker_id: node for node in nodes(context)}
    order = ranked(lease_of_group(group).encode(), context.broker.cluster.members)
    preferred = [member.broker_id for member in order if member.broker_id in shown]
    # Without any, this broker alone is shown.
    return shown[preferred[0]] if preferred else own_node(context)


def join_group(context: Context, request: JoinGroupRequest) -> JoinGroupResponse | Coroutine[Any, Any, Any]:
    if len(request.protocols) > _PROTOCOLS_AT_ONCE:
        return _join_in_turns(context, request)
    return _join(context, request, [MemberProtocol(one.name, one.metadata) for one in request.protocols])


async def _join_in_turns(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    protocols = [
        MemberProtocol(one.name, one.metadata) async for one in visited(request.protocols, SMALL_VISIT)
    ]
    answer = _join(context, request, protocols)
    return await answer if isinstance(answer, Coroutine) else answer


def _join(
    context: Context, request: JoinGroupRequest, protocols: Sequence[MemberProtocol]
) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
    version = context.version
    try:
        joining = context.coordinator(request.group_id).join(
            JoinRequest(
                group=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                client_id=context.client_id,
                client_host=context.client_host,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=(
                    request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms
                ),
                protocol_type=request.protocol_type,
                protocols=protocols,
                requires_known_member_id=version >= _FIRST_WITH_MEMBER_ID_REQUIRED,
                supports_skip_assignment=version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
                reason=request.reason,
            )
        )
    except SteleError as error:
        return _not_joined(context, request, error)

    async def joined() -> JoinGroupResponse:
        try:
            return await _joined(await joining)
        except SteleError as error:
            return _not_joined(context, request, error)

    return joined()


async def _joined(joined: Joined) -> JoinGroupResponse:
    members: list[JoinGroupResponseMember] = []
    budget = WorkBudget()
    # The leader is told of all.
    for member in joined.members:
        members.append(
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
        )
        await budget.visit()
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=members,
    )


def _not_joined(context: Context, request: JoinGroupRequest, error: SteleError) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error_code_of(error),
        generation_id=_NO_GENERATION,
        protocol_name=None if context.version >= _FIRST_WITH_NULL_PROTOCOL else "",
        leader="",
        member_id=error.member_id if isinstance(error, MemberIdRequired) else request.member_id,
        members=(),
    )


def sync_group(context: Context, request: SyncGroupRequest) -> SyncGroupResponse | Coroutine[Any, Any, Any]:
    if context.version >= _FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        # Only the encoding allows null (KIP-559); it is refused before all other checks.
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    try:
        syncing = context.coordinator(request.group_id).sync(
            SyncRequest(
                group=request.group_id,
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignments={share.member_id: share.assignment for share in request.assignments},
            )
        )
    except SteleError as error:
        return SyncGroupResponse(error_code=error_code_of(error), assignment=b"")

    async def synced() -> SyncGroupResponse:
        try:
            return _synced(await syncing)
        except SteleError as error:
            return SyncGroupResponse(error_code=error_code_of(error), assignment=b"")

    return synced()


def _synced(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def heartbeat(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        context.coordinator(request.group_id).heartbeat(
            request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
        )
    except SteleError as error:
        return HeartbeatResponse(error_code=error_code_of(error))
    return HeartbeatResponse(error_code=ErrorCode.NONE)


def leave_group(
    context: Context, request: LeaveGroupRequest
) -> LeaveGroupResponse | Coroutine[Any, Any, LeaveGroupResponse]:
    if len(request.members) > _LEAVING_AT_ONCE:
        return _leave_in_turns(context, request)
    return _leave(context, request)


async def _leave_in_turns(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Let some members leave at a time; a rebalance that begins with the first is the only one if it goes on."""
    left: list[MemberResponse] = []
    for first in range(0, len(request.members), _LEAVING_AT_ONCE):
        members = request.members[first : first + _LEAVING_AT_ONCE]
        some = _leave(context, replace(request, members=members))
        if some.error_code:
            return some
        left.extend(some.members)
        await pause()
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=left)


def _leave(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if context.version < _FIRST_WITH_MEMBERS_LEAVING:
        leaving = [LeavingMember(member_id=request.member_id)]
    else:
        leaving = [
            LeavingMember(
                member_id=member.member_id, instance_id=member.group_instance_id, reason=member.reason
            )
            for member in request.members
        ]
    try:
        results = context.coordinator(request.group_id).leave(request.group_id, leaving)
    except SteleError as error:
        return LeaveGroupResponse(error_code=error_code_of(error))
    codes = [ErrorCode.NONE if result is None else error_code_of(result) for result in results]
    if context.version < _FIRST_WITH_MEMBERS_LEAVING:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=member.member_id, group_instance_id=member.instance_id, error_code=code)
            for member, code in zip(leaving, codes, strict=True)
        ],
    )


ROWS = (
    Served(FIND_COORDINATOR_API, find_coordinator, group_guards.FIND_COORDINATOR),
    Served(
        JOIN_GROUP_API,
        join_group,
        on_name(READ_GROUP, "group_id", JoinGroupResponse, protocol_name=""),
        lists=True,
    ),
    Served(HEARTBEAT_API, heartbeat, on_name(READ_GROUP, "group_id", HeartbeatResponse)),
    Served(LEAVE_GROUP_API, leave_group, on_name(READ_GROUP, "group_id", LeaveGroupResponse), changes=True),
    Served(SYNC_GROUP_API, sync_group, on_name(READ_GROUP, "group_id", SyncGroupResponse)),
)
