"""Report the state of this broker: rates, disk, syncs, connections."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, TypedDict

from starlette.requests import Request

from ...broker.broker import Broker
from ...broker.listeners import Endpoint
from ...groups.services import group_count
from ...monitor.histories import POINTS_MAX, Point
from ...monitor.sampler import Sampler, resident_bytes
from ...work_budget import visited
from ..cluster_document import Counts, Totals, totals
from ..guarded_route import GuardedRoute
from ..parameters import Number
from ..routing import NO_STORE, Routes
from ..schemas import Shown, one_of
from ..state import api_state
from .status import VERSION

route = Routes("broker", GuardedRoute)


class ListenerJson(TypedDict):
    name: str
    host: str | None
    port: int | None
    connections: int
    connections_opened: int
    bytes_in: int
    bytes_out: int
    bytes_in_per_s: int | None
    bytes_out_per_s: int | None


class Health(TypedDict):
    status: Annotated[str, one_of("HealthStatus", "ready", "closing", "failed")]
    reason: str | None


class Rates(TypedDict):
    over_ms: int
    records_in_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    syncs_per_s: float


class Disk(TypedDict):
    path: str
    total_bytes: int | None
    free_bytes: int | None
    log_bytes: int | None


class Syncs(TypedDict):
    count: int
    at: int | None
    p50_ms: float | None
    p99_ms: float | None


class Compaction(TypedDict):
    partitions: int
    due_partitions: int
    dirty_ratio_max: float
    passes: int
    failures: int
    bytes_read: int
    bytes_written: int
    last_pass_at: int | None
    last_pass_took_ms: int | None


class Process(TypedDict):
    resident_bytes: int


class Searches(TypedDict):
    active: int
    scanned_records: int
    ended: Counts


class Overview(TypedDict):
    version: str
    cluster_id: str
    broker_id: int
    now: int
    started_at: int
    uptime_ms: int
    health: Health
    topics: int
    partitions: int
    groups: int
    totals: Totals
    rates: Annotated[Rates | None, Shown("null until two samples exist")]
    listeners: list[ListenerJson]
    disk: Disk
    syncs: Syncs
    compaction: Compaction
    process: Process
    verifying: Annotated[str | None, Shown("the partition that is being verified")]
    searches: Searches


class ListenerHistory(TypedDict):
    name: str
    bytes_in_per_s: list[float | None]
    bytes_out_per_s: list[float | None]
    connections: list[int]


class OverviewHistory(TypedDict):
    interval_ms: int
    at: list[int]
    records_in_per_s: list[float | None]
    bytes_in_per_s: list[float | None]
    bytes_out_per_s: list[float | None]
    sync_p50_ms: list[float | None]
    sync_p99_ms: list[float | None]
    log_bytes: list[int]
    free_bytes: list[float | None]
    listeners: list[ListenerHistory]


class Connection(TypedDict):
    protocol: str
    peer: str
    age_ms: int
    client_id: str | None
    client_name: str | None
    client_version: str | None
    tls_version: str | None
    principal: str
    bytes_in: int
    bytes_out: int


class ConnectionList(TypedDict):
    total: int
    connections: list[Connection]


_POINTS = Number("points", "maximum number of points", POINTS_MAX, minimum=1, maximum=POINTS_MAX)
_LIMIT = Number("limit", "maximum number of connections", 500, minimum=1, maximum=10_000)


@route("GET /v1/overview", "Get an overview of the broker", headers=NO_STORE)
async def get_overview(request: Request) -> Overview:
    """Return health, totals, recent rates, listeners, disk and syncs.

    Rates are averages of the last ten seconds.

    Sizes are those of the last sample.
    """
    state = api_state(request)
    broker, sampler = state.broker, state.sampler
    failure = broker.failure
    status = "failed" if failure else "closing" if broker.is_closing else "ready"
    topics = broker.topics()
    disk, newest = sampler.disk, sampler.history.newest
    return {
        "version": VERSION,
        "cluster_id": broker.cluster_id,
        "broker_id": broker.broker_id,
        "now": broker.now_ms(),
        "started_at": sampler.started_ms,
        "uptime_ms": sampler.uptime_ms,
        "health": {"status": status, "reason": str(failure) if failure else None},
        "topics": len(topics),
        "partitions": sum(topic.partitions for topic in topics),
        "groups": group_count(state.groups),
        "totals": totals(broker.counts),
        "rates": _rates(sampler),
        "listeners": _listeners(state.sampler, broker.endpoints),
        "disk": {
            "path": str(disk.path) if disk else str(broker.settings.data_dir.absolute()),
            "total_bytes": disk.total_bytes if disk else None,
            "free_bytes": disk.free_bytes if disk else None,
            "log_bytes": newest.log_bytes if newest else None,
        },
        "syncs": _syncs(sampler),
        "compaction": _compaction(state.broker, sampler),
        "process": {"resident_bytes": resident_bytes()},
        "verifying": state.verifications.running or None,
        "searches": {
            "active": state.search_slots.taken,
            "scanned_records": state.searches.scanned_records,
            "ended": state.searches.ended,
        },
    }


def _compaction(broker: Broker, sampler: Sampler) -> Compaction:
    counts, now = broker.storage.compaction, sampler.compaction
    return {
        "partitions": now.partitions,
        "due_partitions": now.due,
        "dirty_ratio_max": round(now.dirty_ratio_max, 4),
        "passes": counts.passes,
        "failures": counts.failures,
        "bytes_read": counts.bytes_read,
        "bytes_written": counts.bytes_written,
        "last_pass_at": counts.last_pass_ms if counts.last_pass_ms >= 0 else None,
        "last_pass_took_ms": counts.last_duration_ms if counts.last_duration_ms >= 0 else None,
    }


def _listeners(sampler: Sampler, endpoints: Mapping[str, Endpoint]) -> list[ListenerJson]:
    pair = sampler.history.rates()

    def per_s(column: str, index: int) -> int | None:
        if pair is None:
            return None
        old, new = pair
        return round((getattr(new, column)[index] - getattr(old, column)[index]) * 1000 / new.ms_since(old))

    listeners: list[ListenerJson] = []
    for index, listener in enumerate(sampler.listeners):
        traffic, endpoint = listener.traffic(), endpoints.get(listener.name)
        listeners.append(
            {
                "name": listener.name,
                "host": endpoint.host if endpoint else None,
                "port": endpoint.port if endpoint else None,
                "connections": traffic.connections,
                "connections_opened": traffic.connections_opened,
                "bytes_in": traffic.bytes_in,
                "bytes_out": traffic.bytes_out,
                "bytes_in_per_s": per_s("listener_bytes_in", index),
                "bytes_out_per_s": per_s("listener_bytes_out", index),
            }
        )
    return listeners


def _rates(sampler: Sampler) -> Rates | None:
    pair = sampler.history.rates()
    if pair is None:
        return None
    old, new = pair
    over_ms = new.ms_since(old)

    def per_s(name: str) -> float:
        return round((getattr(new, name) - getattr(old, name)) * 1000 / over_ms, 1)

    return {
        "over_ms": over_ms,
        "records_in_per_s": per_s("records_in"),
        "bytes_in_per_s": per_s("bytes_in"),
        "bytes_out_per_s": per_s("bytes_out"),
        "syncs_per_s": per_s("syncs"),
    }


def _syncs(sampler: Sampler) -> Syncs:
    """Describe the syncs of the newest sample that has any."""
    point = sampler.history.last_with_syncs()
    if point is None:
        return {"count": sampler.syncs.count, "at": None, "p50_ms": None, "p99_ms": None}
    return {
        "count": sampler.syncs.count,
        "at": point.at_ms,
        "p50_ms": round(point.sync_p50_ms or 0.0, 3),
        "p99_ms": round(point.sync_p99_ms or 0.0, 3),
    }


@route("GET /v1/overview/history", "Get the history of the last hour", _POINTS, headers=NO_STORE)
async def get_overview_history(request: Request) -> OverviewHistory:
    """Return columns of equal length, newest last: rates between samples, and sizes at each sample."""
    sampler = api_state(request).sampler
    most = _POINTS.read(request)
    pairs = list(pairwise(sampler.history.last(most + 1)))

    def per_s(old: Point, new: Point, before: int, after: int) -> float:
        return round((after - before) * 1000 / new.ms_since(old), 1)

    return {
        "interval_ms": sampler.interval_ms,
        "at": [new.at_ms for _, new in pairs],
        "records_in_per_s": [per_s(a, b, a.records_in, b.records_in) for a, b in pairs],
        "bytes_in_per_s": [per_s(a, b, a.bytes_in, b.bytes_in) for a, b in pairs],
        "bytes_out_per_s": [per_s(a, b, a.bytes_out, b.bytes_out) for a, b in pairs],
        "sync_p50_ms": [b.sync_p50_ms and round(b.sync_p50_ms, 3) for _, b in pairs],
        "sync_p99_ms": [b.sync_p99_ms and round(b.sync_p99_ms, 3) for _, b in pairs],
        "log_bytes": [b.log_bytes for _, b in pairs],
        "free_bytes": [b.free_bytes for _, b in pairs],
        "listeners": [
            {
                "name": listener.name,
                "bytes_in_per_s": [
                    per_s(a, b, a.listener_bytes_in[index], b.listener_bytes_in[index]) for a, b in pairs
                ],
                "bytes_out_per_s": [
                    per_s(a, b, a.listener_bytes_out[index], b.listener_bytes_out[index]) for a, b in pairs
                ],
                "connections": [b.listener_connections[index] for _, b in pairs],
            }
            for index, listener in enumerate(sampler.listeners)
        ],
    }


@route(
    "GET /v1/connections",
    "List connections",
    _LIMIT,
    headers=NO_STORE,
    example='{"total":1,"connections":[{"protocol":"kafka","peer":"127.0.0.1:51334","age_ms":12000,"client_id":"billing",'
    '"client_name":"librdkafka","client_version":"2.6.1","tls_version":"TLSv1.3",'
    '"principal":"User:CN=billing,O=Example","bytes_in":1048576,"bytes_out":2048}]}',
)
async def list_connections(request: Request) -> ConnectionList:
    """List open connections, oldest first: protocol, address, age, client, TLS, principal and bytes.

    A Kafka client names its library in ApiVersions, an HTTP client in `User-Agent`. The binary protocol has no field
    for it.
    """
    limit = _LIMIT.read(request)
    views = [
        view
        for listener in api_state(request).sampler.listeners
        async for view in visited(listener.connection_views())
    ]
    views.sort(key=lambda view: -view.age_ms)
    return {
        "total": len(views),
        "connections": [
            {
                "protocol": view.protocol,
                "peer": view.peer,
                "age_ms": view.age_ms,
                "client_id": view.client_id or None,
                "client_name": view.client_name or None,
                "client_version": view.client_version or None,
                "tls_version": view.tls_version or None,
                "principal": view.principal,
                "bytes_in": view.bytes_in,
                "bytes_out": view.bytes_out,
            }
            async for view in visited(views[:limit])
        ],
    }
