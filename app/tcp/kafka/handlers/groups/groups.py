"""ListGroups, DescribeGroups, DeleteGroups: the administration of groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Protocol, TypeVar
from uuid import UUID

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.groups import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    LIST_GROUPS_API,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

from .....cluster.consumer_group_store import OwnedPartition
from .....errors import GroupNotFound, GroupOfOtherType, SteleError
from .....groups.services import list_groups as list_coordinated
from .....security.acl import DELETE_GROUP
from .....work_budget import WorkBudget
from ....errors import error_code_of
from ...context import Context, describe_error
from ...guards import authorized
from ...guards import groups as group_guards
from ...guards.rights import Parts, on_each
from ...served import Served

# KIP-1043: older versions describe a missing group as dead.
_FIRST_WITH_NOT_FOUND = 6
_DEAD = "Dead"
# Groups of other types are described by APIs of their own.
_CLASSIC = "classic"


class Described(Protocol):
    """What the descriptions of consumer groups and share groups have in common."""

    authorized_operations: int

    @property
    def members(self) -> Sequence[object]: ...


G = TypeVar("G", bound=Described)


async def list_groups(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    try:
        # Clients ask every broker, and put the answers together.
        groups = await list_coordinated(
            context.listener.groups, states=set(request.states_filter), types=set(request.types_filter)
        )
    except SteleError as error:
        return ListGroupsResponse(error_code=error_code_of(error), groups=())
    listed: list[ListedGroup] = []
    budget = WorkBudget()
    for group in groups:
        listed.append(
            ListedGroup(
                group_id=group.group,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type=group.type,
            )
        )
        await budget.visit()
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)


async def describe_groups(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    described: list[DescribedGroup] = []
    budget = WorkBudget()
    # Once per group, because a name is short and the description of a group is not.
    for name in dict.fromkeys(request.groups):
        group = _describe(context, name)
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized.on_group(is_asked=request.include_authorized_operations)
        described.append(group)
        await budget.visit(1 + len(group.members))
    return DescribeGroupsResponse(groups=described)


def _describe(context: Context, name: str) -> DescribedGroup:
    try:
        group = context.coordinator(name).describe(name)
        if group.type != _CLASSIC:
            raise GroupOfOtherType(name, group.type)
    except SteleError as error:
        code, message = describe_error(error)
        if isinstance(error, (GroupNotFound, GroupOfOtherType)) and context.version < _FIRST_WITH_NOT_FOUND:
            code = ErrorCode.NONE
        return DescribedGroup(
            error_code=code,
            error_message=message,
            group_id=name,
            group_state=_DEAD,
            protocol_type="",
            protocol_data="",
            members=(),
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=name,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=as_java_address(member.client_host),
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def as_java_address(host: str) -> str:
    """Return an address as Kafka writes it: a slash, then IPv4, or IPv6 in full.

    A host that is not an address is returned unchanged.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return f"/{host}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


async def described_by(
    names: Sequence[str],
    describe: Callable[[str], G],
    refused: Callable[..., G],
    *,
    with_operations: bool,
) -> list[G]:
    """Describe groups whose members have epochs, each with ``describe``.

    ``refused`` makes those with an error.
    """
    groups: list[G] = []
    budget = WorkBudget()
    # Once per group, because a name is short and the description of a group is not.
    for name in dict.fromkeys(names):
        try:
            group = describe(name)
        except SteleError as error:
            code, message = describe_error(error)
            group = refused(
                error_code=code,
                error_message=message,
                group_id=name,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
        else:
            group.authorized_operations = authorized.on_group(is_asked=with_operations)
        groups.append(group)
        await budget.visit(1 + len(group.members))
    return groups


def by_topic_id(partitions: Iterable[OwnedPartition]) -> dict[UUID, list[int]]:
    """Return partition numbers by the id of their topic, in order."""
    topics: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic_id, partition in partitions:
        topics[topic_id].append(partition)
    return {topic_id: sorted(topics[topic_id]) for topic_id in sorted(topics)}


async def delete_groups(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    budget = WorkBudget()
    for group in request.groups_names:
        code = ErrorCode.NONE
        try:
            await context.coordinator(group).delete_group(group)
        except SteleError as error:
            code = error_code_of(error)
        results.append(DeletableGroupResult(group_id=group, error_code=code))
        await budget.visit()
    return DeleteGroupsResponse(results=results)


ROWS = (
    Served(
        DESCRIBE_GROUPS_API,
        describe_groups,
        group_guards.on_described_groups(DescribeGroupsResponse, "groups"),
        walks=True,
    ),
    Served(LIST_GROUPS_API, list_groups, group_guards.LIST_GROUPS, walks=True),
    Served(
        DELETE_GROUPS_API,
        delete_groups,
        on_each(
            DELETE_GROUP,
            DeleteGroupsResponse,
            Parts(field="groups_names", name="", answers="results", answer_name="group_id"),
        ),
        changes=True,
    ),
)
