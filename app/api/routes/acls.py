"""Serve access rules over HTTP: list, add, remove."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, TypedDict, cast

from msgspec import Struct
from starlette.requests import Request

from ...errors import AuthorizationDisabled, InvalidRequest
from ...security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ...security.acl_text import FIELDS, acl_of, document_of, filter_of
from ...security.acls import Acls
from ...security.audit import log_change
from ...work_budget import visited
from ..authentication import peer_of
from ..guarded_route import GuardedRoute
from ..json_bodies import LIST_BYTES_MAX, JsonBody
from ..parameters import Text
from ..routing import Routes
from ..schemas import Shown, one_of
from ..state import api_state

route = Routes("broker", GuardedRoute, errors=(403, 409))


def _names(name: str, kind: type[IntEnum], *left_out: str) -> Shown:
    return one_of(name, *(member.name for member in kind if member.name not in left_out))


_Resource = Annotated[str, _names("AclResourceType", ResourceType, "ANY")]
_Pattern = Annotated[str, _names("AclPatternType", PatternType, "ANY", "MATCH")]
_Operation = Annotated[str, _names("AclOperation", Operation, "ANY")]
_Permission = Annotated[str, _names("AclPermission", Permission, "ANY")]


class AclJson(TypedDict):
    resource_type: _Resource
    resource_name: str
    pattern_type: _Pattern
    principal: str
    host: str
    operation: _Operation
    permission: _Permission


class AclList(TypedDict):
    acls: list[AclJson]


class AclBody(Struct, forbid_unknown_fields=True):
    """One access rule, in the names of Kafka; see ``acl_text``."""

    principal: Annotated[str, Shown(examples=["User:alice"])]
    operation: Annotated[str, Shown(examples=["READ"])]
    resource_type: Annotated[str, Shown(examples=["TOPIC"])]
    resource_name: Annotated[str | None, Shown("not needed for CLUSTER")] = None
    pattern_type: _Pattern = "LITERAL"
    host: str = "*"
    permission: _Permission = "ALLOW"

    def document(self) -> dict[str, str]:
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}


class AclsBody(Struct, forbid_unknown_fields=True):
    """Access rules to add, all or none."""

    acls: list[AclBody]


_RULES = JsonBody(
    AclsBody,
    '{"acls": [{"principal": "User:alice", "operation": "READ", "resource_type": "TOPIC", "resource_name": "orders", '
    '"pattern_type": "PREFIXED"}]}',
    bytes_max=LIST_BYTES_MAX,
)


def _filter(name: str, component: str, kind: type[IntEnum], description: str) -> Text:
    return Text(name, description, Annotated[str, _names(component, kind)])


_FILTER = (
    _filter("resource_type", "AclResourceTypeFilter", ResourceType, "what the rule is about"),
    Text("resource_name", "the name or prefix in the rule; * stands for all names"),
    _filter("pattern_type", "AclPatternTypeFilter", PatternType, "MATCH: all rules that cover resource_name"),
    Text("principal", "whom the rule is about", Annotated[str, Shown(example="User:alice")]),
    Text("host", "the address in the rule; * stands for all"),
    _filter("operation", "AclOperationFilter", Operation, "the operation in the rule"),
    _filter("permission", "AclPermissionFilter", Permission, "ALLOW or DENY"),
)


def _acls_of(request: Request) -> Acls:
    acls = api_state(request).acls
    if acls is None:
        raise AuthorizationDisabled
    return acls


def _selection(request: Request) -> dict[str, str]:
    return {field.name: value for field in _FILTER if (value := field.given(request)) is not None}


async def _listed(acls: Iterable[Acl]) -> AclList:
    return {"acls": [cast("AclJson", document_of(acl)) async for acl in visited(acls)]}


def _log(request: Request, operation: str, resource: str) -> None:
    principal = str(request.scope["stele.principal"])
    log_change(peer_of(request.scope), principal=principal, operation=operation, resource=resource)


@route("GET /v1/acls", "List access rules", *_FILTER)
async def list_acls(request: Request) -> AclList:
    """List the access rules (ACLs) that match all parameters.

    `pattern_type=MATCH` selects those that cover a name.
    """
    selection = _selection(request)
    found = await _acls_of(request).find(filter_of(selection))
    return await _listed(found)


@route("POST /v1/acls", "Add access rules", body=_RULES, status=201)
async def add_acls(request: Request) -> AclList:
    """Add access rules, all or none.

    They count at once, on all listeners; rules that exist stay as they are.
    """
    acls = _acls_of(request)
    body = await _RULES.read(request)
    added = [acl_of(acl.document()) async for acl in visited(body.acls)]
    await acls.add(added)
    async for acl in visited(added):
        _log(request, "create-acl", str(acl))
    return await _listed(added)


@route("DELETE /v1/acls", "Remove access rules", *_FILTER)
async def remove_acls(request: Request) -> AclList:
    """Remove the access rules that match all parameters, and return them.

    There must be at least one parameter.
    """
    selection = _selection(request)
    if not selection:
        raise InvalidRequest(f"give one or more of {', '.join(FIELDS)}, so that not all rules are removed")
    removed = await _acls_of(request).remove(filter_of(selection))
    async for acl in visited(removed):
        _log(request, "delete-acl", str(acl))
    return await _listed(removed)
