"""DescribeAcls, CreateAcls, DeleteAcls: the access rules of the broker (KIP-140)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.acls import (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

from ....cluster.acls import AclRecord
from ....errors import AuthorizationDisabled, InvalidAcl, SteleError
from ....security.acl import ALTER_CLUSTER, DESCRIBE_CLUSTER, Acl, AclFilter, ResourceType
from ....security.acls import Acls
from ....security.audit import Peer, log_change
from ....work_budget import visited
from ..context import Context, describe_error
from ..guards.refusals import refused
from ..guards.rights import on_cluster
from ..served import Served, always


def _acls_of(context: Context) -> Acls:
    authorizer = context.listener.security.authorizer
    if authorizer is None:
        raise AuthorizationDisabled
    return authorizer.acls


def _log(context: Context, operation: str, acl: Acl) -> None:
    peer = Peer("kafka", context.peer, context.client_host)
    log_change(peer, principal=str(context.principal), operation=operation, resource=str(acl))


@dataclass(frozen=True, slots=True, kw_only=True)
class _KafkaFilter(AclFilter):
    """Selects no rules about subjects, for which the protocol has no type."""

    def selects(self, acl: Acl) -> bool:
        return acl.resource_type is not ResourceType.SUBJECT and AclFilter.selects(self, acl)


def _filter(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return _KafkaFilter.of(
        resource_type=request.resource_type_filter,
        resource_name=request.resource_name_filter,
        pattern_type=request.pattern_type_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=request.operation,
        permission=request.permission_type,
    )


async def describe_acls(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    try:
        found = await _acls_of(context).find(_filter(request))
    except SteleError as error:
        code, message = describe_error(error)
        return DescribeAclsResponse(error_code=code, error_message=message, resources=())
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=kind,
                pattern_type=pattern,
                resource_name=name,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            async for (kind, pattern, name), acls in visited(groupby(found, key=lambda acl: acl.record[:3]))
        ],
    )


async def create_acls(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add the valid rules together; the others are refused one by one."""
    results: list[AclCreationResult] = []
    valid: list[Acl] = []
    async for creation in visited(request.creations):
        code, message = ErrorCode.NONE, None
        try:
            _acls_of(context)
            valid.append(_created(creation))
        except SteleError as error:
            code, message = describe_error(error)
        results.append(AclCreationResult(error_code=code, error_message=message))
    if valid:
        try:
            await _acls_of(context).add(valid)
        except SteleError as error:
            code, message = describe_error(error)
            results = [
                one if one.error_code else AclCreationResult(error_code=code, error_message=message)
                for one in results
            ]
        else:
            async for acl in visited(valid):
                _log(context, "create-acl", acl)
    return CreateAclsResponse(results=results)


def _created(creation: AclCreation) -> Acl:
    if creation.resource_type == ResourceType.SUBJECT:
        raise InvalidAcl("the Kafka protocol has no rules about subjects; add them over HTTP")
    return Acl.of(
        AclRecord(
            creation.resource_type,
            creation.resource_pattern_type,
            creation.resource_name,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
    )


async def delete_acls(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[await _delete(context, wanted) async for wanted in visited(request.filters)]
    )


async def _delete(context: Context, wanted: DeleteAclsFilter) -> DeleteAclsFilterResult:
    try:
        removed = await _acls_of(context).remove(_filter(wanted))
    except SteleError as error:
        code, message = describe_error(error)
        return DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=())
    async for acl in visited(removed):
        _log(context, "delete-acl", acl)
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            async for acl in visited(removed)
        ],
    )


def _each_creation(request: CreateAclsRequest) -> CreateAclsResponse:
    result = refused(AclCreationResult, ALTER_CLUSTER)
    return CreateAclsResponse(results=[result] * len(request.creations))


def _each_filter(request: DeleteAclsRequest) -> DeleteAclsResponse:
    result = refused(DeleteAclsFilterResult, ALTER_CLUSTER)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


ROWS = (
    Served(DESCRIBE_ACLS_API, describe_acls, on_cluster(DESCRIBE_CLUSTER, DescribeAclsResponse), lists=True),
    Served(
        CREATE_ACLS_API,
        create_acls,
        on_cluster(ALTER_CLUSTER, CreateAclsResponse, _each_creation),
        changes=True,
        is_barrier=always,
    ),
    Served(
        DELETE_ACLS_API,
        delete_acls,
        on_cluster(ALTER_CLUSTER, DeleteAclsResponse, _each_filter),
        changes=True,
        is_barrier=always,
        lists=True,
    ),
)
