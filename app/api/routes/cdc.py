"""The CDC connectors that the broker runs: their state, and requests to add, drop and copy tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NotRequired, TypedDict, cast

from msgspec import Struct
from starlette.requests import Request
from stele.wire import cdc_requests
from stele.wire.record_batch import build_rows

from ...broker.broker import Broker
from ...broker.producing.produce import Acks
from ...errors import TopicExists
from ...security.audit import log_change
from ...security.principal import ANONYMOUS
from ..authentication import peer_of
from ..errors import HttpError
from ..guarded_route import GuardedRoute
from ..json_bodies import JsonBody
from ..routing import Routes
from ..schemas import Shown, one_of
from ..state import api_state

route = Routes("broker", GuardedRoute)
_Action = Annotated[cdc_requests.Action, Shown(name="CdcAction", kind=str, enum=["add", "drop", "copy"])]


class CdcTable(TypedDict, total=False):
    copied: int
    expected: Annotated[int, Shown("the planner's estimate of the rows to copy")]
    changes: int
    is_copying: bool


# Changes between these LSNs may be missing.
CdcGap = TypedDict("CdcGap", {"from": str, "to": str})


class CdcConnector(TypedDict):
    slot: str
    prefix: str
    state: Annotated[
        str,
        one_of(
            "CdcState",
            "standby",
            "starting",
            "connecting",
            "copying",
            "streaming",
            "waiting",
            "stopped",
            "failed",
            "gap",
        ),
    ]
    restarts: int
    database: NotRequired[str]
    confirmed_lsn: NotRequired[str]
    lag_bytes: NotRequired[int | None]
    retained_bytes: NotRequired[
        Annotated[int | None, Shown("WAL that PostgreSQL keeps for the slot, which is more than its lag")]
    ]
    wal_status: NotRequired[str | None]
    exceeds_max_lag: NotRequired[bool]
    events: NotRequired[int]
    repeated: NotRequired[int]
    transactions: NotRequired[int]
    notifications: NotRequired[int]
    messages: NotRequired[int]
    refused_messages: NotRequired[int]
    commit_ms: NotRequired[int]
    failures: NotRequired[int]
    last_error: NotRequired[str | None]
    gap: NotRequired[CdcGap | None]
    refused_tables: NotRequired[Annotated[dict[str, str], Shown(name="CdcRefusedTables")]]
    tables: NotRequired[Annotated[dict[str, CdcTable], Shown(name="CdcTables")]]


class CdcConnectorList(TypedDict):
    connectors: list[CdcConnector]


class CdcRequest(TypedDict):
    action: _Action
    tables: Annotated[list[str], Shown("each with its schema")]
    where: str
    prefix: str
    slot: str


class CdcBody(Struct, forbid_unknown_fields=True):
    """What the connector is asked to do."""

    action: _Action
    tables: Annotated[list[str], Shown("as SCHEMA.TABLE", minItems=1, maxItems=cdc_requests.TABLES_MAX)]
    where: Annotated[str, Shown("a condition in SQL for the rows to copy")] = ""


_BODY = JsonBody(CdcBody, '{"action": "copy", "tables": ["public.orders"], "where": "price > 100"}')


@route("GET /v1/cdc", "Get the state of change data capture")
async def get_cdc(request: Request) -> CdcConnectorList:
    """Return each connector of this broker: slot, state, position, lag, tables and the last error.

    The list is empty unless a connector is configured.
    """
    cdc = api_state(request).cdc
    return {"connectors": cast("list[CdcConnector]", cdc.connectors() if cdc is not None else [])}


@route("POST /v1/cdc", "Add, drop or copy tables", status=202, body=_BODY, errors=(409, 422, 503, 504, 507))
async def change_cdc_tables(request: Request) -> CdcRequest:
    """Ask the connector of this broker to follow tables, to leave them, or to copy them once more, while it runs.

    The request is stored when it is answered, and the connector looks for it every two seconds, or when it starts. What
    became of it is in `tables`, `refused_tables` and `last_error` of `GET /v1/cdc`.

    PostgreSQL evaluates the condition with the rights of the connector.
    """
    state = api_state(request)
    body = await _BODY.read(request)
    connector = state.cdc.requestable if state.cdc is not None else None
    if connector is None:
        raise HttpError(
            409,
            "this broker runs no connector that follows tables; configure it with STELE_CDC_DSN and STELE_CDC_TABLES, "
            "or ask one that runs elsewhere with stele cdc add, drop or copy",
        )
    try:
        records = cdc_requests.encode(body.action, body.tables, where=body.where)
    except ValueError as error:
        raise HttpError(422, str(error)) from error
    prefix, slot = connector
    await _store(
        state.broker,
        cdc_requests.topic_of(prefix, slot),
        records.values(),
        timeout_ms=state.settings.request_timeout_ms,
    )
    principal = request.scope.get("stele.principal", ANONYMOUS)
    peer = peer_of(request.scope)
    for name in records:
        # The condition may name values, which are none of the log's business.
        log_change(
            peer, principal=str(principal), operation=f"cdc-{body.action}", resource=f"CdcTable:{name}"
        )
    return {
        "action": body.action,
        "tables": list(records),
        "where": body.where,
        "prefix": prefix,
        "slot": slot,
    }


async def _store(broker: Broker, topic: str, records: Iterable[bytes], *, timeout_ms: int) -> None:
    """Append requests to their topic, which is created with the first one."""
    await broker.find_topics((topic,))
    if not broker.has_topic(topic):
        try:
            await broker.create_topic(topic, partitions=1, configs=cdc_requests.CONFIGS)
        except TopicExists:
            await broker.find_topics((topic,))
    now_ms = broker.now_ms()
    batch = build_rows([(now_ms, None, record, []) for record in records])
    if broker.must_wait_for_room(topic, batch):
        await broker.produce_room()
    await broker.produce(topic, 0, batch, acks=Acks.ALL).wait(timeout_ms)
