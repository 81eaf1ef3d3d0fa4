"""Serve the quotas of clients over HTTP: list, set, remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

from msgspec import Struct
from starlette.requests import Request

from ...broker.quotas.entities import QuotaEntity
from ...broker.quotas.limits import QuotaKey
from ...security.audit import log_change
from ...security.principal import ANONYMOUS
from ..authentication import peer_of
from ..errors import HttpError
from ..guarded_route import GuardedRoute
from ..json_bodies import JsonBody
from ..rights import access_of
from ..routing import Routes
from ..schemas import Shown
from ..state import broker_of

route = Routes("quotas", GuardedRoute, errors=(403,))
_Entity = Annotated[
    dict[str, str | None],
    Shown(
        "names by type: user, client-id, both of them, or ip; null for all without a quota of their own",
        name="QuotaEntity",
        minProperties=1,
    ),
]
_Changes = Annotated[
    dict[str, float | None], Shown("quotas by Kafka's names; null removes one", name="QuotaChanges")
]


class Quota(TypedDict):
    entity: _Entity
    values: Annotated[dict[str, float], Shown(name="QuotaValues")]


class QuotaList(TypedDict):
    quotas: list[Quota]


class QuotaBody(Struct, forbid_unknown_fields=True):
    """A change of quotas."""

    entity: _Entity
    values: _Changes


_CHANGE = JsonBody(QuotaBody, '{"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1048576}}')


def _shown(entity: QuotaEntity, values: Mapping[QuotaKey, float]) -> Quota:
    return {
        "entity": dict(entity.parts),
        "values": {key: int(value) if value.is_integer() else value for key, value in values.items()},
    }


@route("GET /v1/quotas", "List quotas")
async def list_quotas(request: Request) -> QuotaList:
    """List all quotas, by entity.

    A name of null stands for all users, client ids or addresses without a quota of
    their own."""
    listed = [_shown(entity, values) for entity, values in broker_of(request).quotas.list()]
    return {"quotas": listed}


@route("PATCH /v1/quotas", "Set or remove quotas", body=_CHANGE)
async def alter_quotas(request: Request) -> Quota:
    """Set quotas of one entity, and remove those whose value is null; return all that it has then.

    They are in effect at once, on all listeners.
    """
    principal = request.scope.get("stele.principal", ANONYMOUS)
    # With access rules, these have decided already.
    if access_of(request) is None and request.app.state.guards_users and principal.is_anonymous:
        raise HttpError(403, "log in to change quotas; otherwise any client could remove its own")
    body = await _CHANGE.read(request)
    entity = QuotaEntity.of(body.entity.items())
    values = await broker_of(request).quotas.alter(entity, body.values)
    log_change(
        peer_of(request.scope),
        principal=str(principal),
        operation="alter-quotas",
        resource=f"Quota:{entity}",
    )
    return _shown(entity, values)
