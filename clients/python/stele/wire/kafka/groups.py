"""Groups of the classic protocol, and what all groups share."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Bool, Int8, Int16, Int32, at, message
from .api import Api

# ── FindCoordinator (api key 10): finds the broker that coordinates a group.


@message
class FindCoordinatorRequest:
    key: str = at("0-3", default="")
    key_type: Int8 = at("1+", default=0)
    coordinator_keys: Sequence[str] = at("4+", default=())


@message
class Coordinator:
    key: str = at("4+", default="")
    node_id: Int32 = at("4+", default=0)
    host: str = at("4+", default="")
    port: Int32 = at("4+", default=0)
    error_code: Int16 = at("4+", default=0)
    error_message: str | None = at("4+", default="")


@message
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16 = at("0-3", default=0)
    error_message: str | None = at("1-3", default="")
    node_id: Int32 = at("0-3", default=0)
    host: str = at("0-3", default="")
    port: Int32 = at("0-3", default=0)
    coordinators: Sequence[Coordinator] = at("4+", default=())


FIND_COORDINATOR_API = Api(
    key=10,
    name="FindCoordinator",
    versions=(0, 6),
    flexible_since=3,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
)


# ── JoinGroup (api key 11): joins a group, or joins it again in a rebalance.


@message
class JoinGroupRequestProtocol:
    name: str
    metadata: bytes


@message
class JoinGroupRequest:
    group_id: str
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = at("1+", default=-1)
    member_id: str
    group_instance_id: str | None = at("5+", default=None)
    protocol_type: str
    protocols: Sequence[JoinGroupRequestProtocol]
    reason: str | None = at("8+", default=None)


@message
class JoinGroupResponseMember:
    member_id: str
    group_instance_id: str | None = at("5+", default=None)
    metadata: bytes


@message
class JoinGroupResponse:
    throttle_time_ms: Int32 = at("2+", default=0)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: str | None = at("7+", default=None)
    protocol_name: str | None = at(nullable="7+")
    leader: str
    skip_assignment: Bool = at("9+", default=False)
    member_id: str
    members: Sequence[JoinGroupResponseMember]


JOIN_GROUP_API = Api(
    key=11,
    name="JoinGroup",
    versions=(0, 9),
    flexible_since=6,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
)


# ── SyncGroup (api key 14): distributes the assignment of the leader to the members.


@message
class SyncGroupRequestAssignment:
    member_id: str
    assignment: bytes


@message
class SyncGroupRequest:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = at("3+", default=None)
    protocol_type: str | None = at("5+", default=None)
    protocol_name: str | None = at("5+", default=None)
    assignments: Sequence[SyncGroupRequestAssignment]


@message
class SyncGroupResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16
    protocol_type: str | None = at("5+", default=None)
    protocol_name: str | None = at("5+", default=None)
    assignment: bytes


SYNC_GROUP_API = Api(
    key=14,
    name="SyncGroup",
    versions=(0, 5),
    flexible_since=4,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
)


# ── Heartbeat (api key 12): keeps a member in its group, and reports rebalances.


@message
class HeartbeatRequest:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = at("3+", default=None)


@message
class HeartbeatResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16


HEARTBEAT_API = Api(
    key=12,
    name="Heartbeat",
    versions=(0, 4),
    flexible_since=4,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
)


# ── LeaveGroup (api key 13): removes members from a group at once.


@message
class MemberIdentity:
    member_id: str = at("3+", default="")
    group_instance_id: str | None = at("3+", default=None)
    reason: str | None = at("5+", default=None)


@message
class LeaveGroupRequest:
    group_id: str
    member_id: str = at("0-2", default="")
    members: Sequence[MemberIdentity] = at("3+", default=())


@message
class MemberResponse:
    member_id: str = at("3+", default="")
    group_instance_id: str | None = at("3+", default="")
    error_code: Int16 = at("3+", default=0)


@message
class LeaveGroupResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16
    members: Sequence[MemberResponse] = at("3+", default=())


LEAVE_GROUP_API = Api(
    key=13,
    name="LeaveGroup",
    versions=(0, 5),
    flexible_since=4,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
)


# ── ListGroups (api key 16): lists groups.


@message
class ListGroupsRequest:
    states_filter: Sequence[str] = at("4+", default=())
    types_filter: Sequence[str] = at("5+", default=())


@message
class ListedGroup:
    group_id: str
    protocol_type: str
    group_state: str = at("4+", default="")
    group_type: str = at("5+", default="")


@message
class ListGroupsResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    error_code: Int16
    groups: Sequence[ListedGroup]


LIST_GROUPS_API = Api(
    key=16,
    name="ListGroups",
    versions=(0, 5),
    flexible_since=3,
    request=ListGroupsRequest,
    response=ListGroupsResponse,
)


# ── DescribeGroups (api key 15): returns the state and the members of groups.


@message
class DescribeGroupsRequest:
    groups: Sequence[str]
    include_authorized_operations: Bool = at("3+", default=False)


@message
class DescribedGroupMember:
    member_id: str
    group_instance_id: str | None = at("4+", default=None)
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


@message
class DescribedGroup:
    error_code: Int16
    error_message: str | None = at("6+", default=None)
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: Sequence[DescribedGroupMember]
    authorized_operations: Int32 = at("3+", default=-2147483648)


@message
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = at("1+", default=0)
    groups: Sequence[DescribedGroup]


DESCRIBE_GROUPS_API = Api(
    key=15,
    name="DescribeGroups",
    versions=(0, 6),
    flexible_since=5,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
)


# ── DeleteGroups (api key 42): deletes groups and their offsets.


@message
class DeleteGroupsRequest:
    groups_names: Sequence[str]


@message
class DeletableGroupResult:
    group_id: str
    error_code: Int16


@message
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[DeletableGroupResult]


DELETE_GROUPS_API = Api(
    key=42,
    name="DeleteGroups",
    versions=(0, 2),
    flexible_since=2,
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
)
