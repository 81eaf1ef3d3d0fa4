"""Serve the quotas of clients over HTTP: list, set, remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...broker.quotas.entities import QuotaEntity
from ...broker.quotas.limits import QuotaKey
from ...security.audit import log_change
from ...security.principal import ANONYMOUS
from ..authentication import peer_of
from ..bodies import QuotaBody
from ..errors import HttpError
from ..guarded_route import GuardedRoute
from ..json_bodies import json_answer, json_body
from ..openapi import quotas as openapi
from ..rights import access_of
from ..state import broker_of

router = APIRouter(tags=["quotas"], route_class=GuardedRoute)

_EXAMPLE = '{"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1048576}}'


def _shown(entity: QuotaEntity, values: Mapping[QuotaKey, float]) -> dict[str, Any]:
    return {
        "entity": dict(entity.parts),
        "values": {key: int(value) if value.is_integer() else value for key, value in values.items()},
    }


@router.get("/v1/quotas", openapi_extra=openapi.LIST_QUOTAS, summary="List quotas")
async def list_quotas(request: Request) -> Response:
    """List all quotas, by entity.

    A name of null stands for all users, client ids or addresses without a quota of
    their own."""
    listed = [_shown(entity, values) for entity, values in broker_of(request).quotas.list()]
    return json_answer({"quotas": listed})


@router.patch("/v1/quotas", openapi_extra=openapi.ALTER_QUOTAS, summary="Set or remove quotas")
async def alter_quotas(request: Request) -> Response:
    """Set quotas of one entity, and remove those whose value is null; return all that it has then.

    They are in effect at once, on all listeners.
    """
    principal = request.scope.get("stele.principal", ANONYMOUS)
    # With access rules, these have decided already.
    if access_of(request) is None and request.app.state.guards_users and principal.is_anonymous:
        raise HttpError(403, "log in to change quotas; otherwise any client could remove its own")
    body = await json_body(request, QuotaBody, _EXAMPLE)
    entity = QuotaEntity.of(body.entity.items())
    values = await broker_of(request).quotas.alter(entity, body.values)
    log_change(
        peer_of(request.scope),
        principal=str(principal),
        operation="alter-quotas",
        resource=f"Quota:{entity}",
    )
    return json_answer(_shown(entity, values))
