"""Topics as Iceberg tables over HTTP: how far each table is."""

from __future__ import annotations

from typing import Annotated, TypedDict, cast

from starlette.requests import Request

from ...errors import InvalidRequest
from ..guarded_route import GuardedRoute
from ..routing import Routes
from ..schemas import Shown, one_of
from ..state import IcebergView, api_state

route = Routes("iceberg", GuardedRoute)


class IcebergTable(TypedDict):
    topic: str
    topic_id: str
    table: Annotated[str, Shown("namespace and name in the catalog")]
    mode: Annotated[str, one_of("IcebergMode", "key_value", "value_schema")]
    commit_interval_ms: int
    snapshot_retention_ms: int
    partitions: int
    state: Annotated[str, one_of("IcebergTableState", "starting", "writing", "level", "failed", "standby")]
    rows: Annotated[int, Shown("rows of the newest snapshot")]
    error_rows: Annotated[int, Shown("records that do not fit, in the table of errors")]
    lag_records: Annotated[
        int | None, Shown("offsets that were visible at the last look and are not written")
    ]
    lag_seconds: Annotated[float | None, Shown("time since everything visible was written; 0 if it is")]
    lost_records: Annotated[int, Shown("offsets that were deleted before they were written")]
    commits: Annotated[int, Shown("since the process started")]
    failures: Annotated[int, Shown("since the process started")]
    snapshot_id: int | None
    committed_ms: int | None
    reason: Annotated[str | None, Shown("why it has failed, and what to do")]


class IcebergWriter(TypedDict):
    state: Annotated[str, one_of("IcebergWriterState", "idle", "standby", "starting", "running", "failed")]
    restarts: int
    last_error: str | None
    warehouse: str
    topics: list[IcebergTable]


def _tables(request: Request) -> IcebergView:
    tables = api_state(request).iceberg
    if tables is None:
        raise InvalidRequest("this application knows of no tables")
    return tables


@route("GET /v1/iceberg", "List the topics that are Iceberg tables")
async def list_iceberg_tables(request: Request) -> IcebergWriter:
    """Return the state of the process that writes the tables, and of each table.

    A topic is a table if its configuration ``stele.iceberg.mode`` is not ``off``.
    """
    return cast("IcebergWriter", await _tables(request).status())


@route("GET /v1/iceberg/{topic}", "Get the Iceberg table of a topic", errors=(404,))
async def get_iceberg_table(request: Request) -> IcebergTable:
    """Return how far the table of a topic is: rows, lag, errors, and why it has failed."""
    return cast("IcebergTable", _tables(request).status_of(request.path_params["topic"]))
