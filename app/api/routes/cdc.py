"""Report the state of the CDC connectors that the broker runs."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict, cast

from starlette.requests import Request

from ..guarded_route import GuardedRoute
from ..routing import Routes
from ..schemas import Shown, one_of
from ..state import api_state

route = Routes("broker", GuardedRoute)


class CdcTable(TypedDict, total=False):
    copied: int
    expected: int
    changes: int


# Changes between these LSNs may be missing.
CdcGap = TypedDict("CdcGap", {"from": str, "to": str})


class CdcConnector(TypedDict):
    slot: str
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


@route("GET /v1/cdc", "Get the state of change data capture")
async def get_cdc(request: Request) -> CdcConnectorList:
    """Return each connector of this broker: slot, state, position, lag, tables and the last error.

    The list is empty unless a connector is configured.
    """
    return {"connectors": cast("list[CdcConnector]", api_state(request).connectors())}
