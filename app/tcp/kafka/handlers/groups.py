"""ListGroups, DescribeGroups, DeleteGroups: groups as an administrator sees them."""

from __future__ import annotations

from ipaddress import ip_address

from stele.wire.error_codes import ErrorCode

from ....errors import GroupNotFound, SteleError
from ...errors import error_code_of
from ..schemas.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ..schemas.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ..schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from . import authorized
from .context import Context, describe_error

# KIP-1043: before, a group that is not there is described as dead.
_FIRST_WITH_NOT_FOUND = 6
_DEAD = "Dead"


def list_groups(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    try:
        found = context.groups.list_groups(
            states=list(request.states_filter), types=list(request.types_filter)
        )
    except SteleError as error:
        return ListGroupsResponse(error_code=error_code_of(error), groups=())
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=one.group,
                protocol_type=one.protocol_type,
                group_state=one.state.value,
                group_type=one.type,
            )
            for one in found
        ],
    )


def describe_groups(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    # Once each: a name is short, and what is told of a group is not.
    asked = dict.fromkeys(request.groups)
    groups = [_describe(context, group) for group in asked]
    for group in groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = authorized.on_group(is_asked=request.include_authorized_operations)
    return DescribeGroupsResponse(groups=groups)


def _describe(context: Context, group: str) -> DescribedGroup:
    try:
        found = context.groups.describe(group)
    except SteleError as error:
        code, message = describe_error(error)
        if isinstance(error, GroupNotFound) and context.version < _FIRST_WITH_NOT_FOUND:
            code = ErrorCode.NONE
        return DescribedGroup(
            error_code=code,
            error_message=message,
            group_id=group,
            group_state=_DEAD,
            protocol_type="",
            protocol_data="",
            members=(),
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group,
        group_state=found.state.value,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=as_java_address(one.client_host),
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in found.members
        ],
    )


def as_java_address(host: str) -> str:
    """Return an address as Kafka writes it: after a slash, IPv6 in full. Anything else is unchanged."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return f"/{host}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


async def delete_groups(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    for group in request.groups_names:
        code = ErrorCode.NONE
        try:
            await context.groups.delete_group(group)
        except SteleError as error:
            code = error_code_of(error)
        results.append(DeletableGroupResult(group_id=group, error_code=code))
    return DeleteGroupsResponse(results=results)
