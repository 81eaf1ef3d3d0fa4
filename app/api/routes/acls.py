"""Serve access rules over HTTP: list, add, remove."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...errors import AuthorizationDisabled, InvalidRequest
from ...security.acl_text import FIELDS, acl_of, document_of, filter_of
from ...security.acls import Acls
from ...security.audit import log_change
from ..authentication import peer_of
from ..bodies import AclsBody
from ..guarded_route import GuardedRoute
from ..json_bodies import json_answer, json_body
from ..openapi import acls as openapi
from ..state import api_state

router = APIRouter(tags=["broker"], route_class=GuardedRoute)


def _acls_of(request: Request) -> Acls:
    acls = api_state(request).acls
    if acls is None:
        raise AuthorizationDisabled
    return acls


def _selection(request: Request) -> dict[str, str]:
    query = request.query_params
    return {name: value for name in FIELDS if (value := query.get(name)) is not None}


def _log(request: Request, operation: str, resource: str) -> None:
    principal = str(request.scope["stele.principal"])
    log_change(peer_of(request.scope), principal=principal, operation=operation, resource=resource)


@router.get("/v1/acls", openapi_extra=openapi.LIST_ACLS, summary="List access rules")
async def list_acls(request: Request) -> Response:
    """List the access rules (ACLs) that match all parameters.

    `pattern_type=MATCH` selects those that cover a name.
    """
    selection = _selection(request)
    found = _acls_of(request).find(filter_of(selection))
    return json_answer({"acls": [document_of(acl) for acl in found]})


@router.post("/v1/acls", status_code=201, openapi_extra=openapi.ADD_ACLS, summary="Add access rules")
async def add_acls(request: Request) -> Response:
    """Add access rules, all or none.

    They count at once, on all listeners; rules that exist stay as they are.
    """
    acls = _acls_of(request)
    example = '{"acls": [{"principal": "User:alice", "operation": "READ", "resource_type": "TOPIC", "resource_name": "orders"}]}'
    body = await json_body(request, AclsBody, example)
    added = [acl_of(one.document()) for one in body.acls]
    await acls.add(added)
    for acl in added:
        _log(request, "create-acl", str(acl))
    return json_answer({"acls": [document_of(acl) for acl in added]}, 201)


@router.delete("/v1/acls", openapi_extra=openapi.REMOVE_ACLS, summary="Remove access rules")
async def remove_acls(request: Request) -> Response:
    """Remove the access rules that match all parameters, and return them.

    There must be at least one parameter.
    """
    selection = _selection(request)
    if not selection:
        raise InvalidRequest(f"give one or more of {', '.join(FIELDS)}, so that not all rules are removed")
    removed = await _acls_of(request).remove(filter_of(selection))
    for acl in removed:
        _log(request, "delete-acl", str(acl))
    return json_answer({"acls": [document_of(acl) for acl in removed]})
