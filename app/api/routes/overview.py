"""Report the state of this broker: rates, disk, syncs, connections."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...broker.broker import Broker
from ...groups.services import group_count
from ...monitor.histories import POINTS_MAX, Point
from ...monitor.sampler import Sampler, resident_bytes
from ..guarded_route import GuardedRoute
from ..openapi import overview as openapi
from ..records.record_json import encode
from ..requests import integer_parameter
from ..state import api_state
from .status import VERSION

router = APIRouter(tags=["broker"], route_class=GuardedRoute)

_CONNECTIONS_DEFAULT, _CONNECTIONS_MAX = 500, 10_000


def _answer(document: object) -> Response:
    return Response(encode(document), media_type="application/json", headers={"Cache-Control": "no-store"})


@router.get("/v1/overview", openapi_extra=openapi.GET_OVERVIEW, summary="Get an overview of the broker")
async def get_overview(request: Request) -> Response:
    """Return health, totals, recent rates, listeners, disk and syncs.

    Rates are averages of the last ten seconds.

    Sizes are those of the last sample.
    """
    state = api_state(request)
    broker, sampler = state.broker, state.sampler
    failure = broker.failure
    status = "failed" if failure else "closing" if broker.is_closing else "ready"
    topics = broker.topics()
    counts, disk = broker.counts, sampler.disk
    newest = sampler.history.newest
    return _answer(
        {
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
            "totals": {
                "records_in": counts.appended_records,
                "bytes_in": counts.appended_bytes,
                "bytes_out": counts.fetched_bytes,
            },
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
    )


def _compaction(broker: Broker, sampler: Sampler) -> dict[str, Any]:
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


def _listeners(sampler: Sampler, endpoints: Any) -> list[dict[str, Any]]:
    listeners: list[dict[str, Any]] = []
    pair = sampler.history.rates()
    for index, listener in enumerate(sampler.listeners):
        traffic = listener.traffic()
        endpoint = endpoints.get(listener.name)
        entry: dict[str, Any] = {
            "name": listener.name,
            "host": endpoint.host if endpoint else None,
            "port": endpoint.port if endpoint else None,
            "connections": traffic.connections,
            "connections_opened": traffic.connections_opened,
            "bytes_in": traffic.bytes_in,
            "bytes_out": traffic.bytes_out,
            "bytes_in_per_s": None,
            "bytes_out_per_s": None,
        }
        if pair is not None:
            old, new = pair
            seconds = new.ms_since(old) / 1000
            entry["bytes_in_per_s"] = round(
                (new.listener_bytes_in[index] - old.listener_bytes_in[index]) / seconds
            )
            entry["bytes_out_per_s"] = round(
                (new.listener_bytes_out[index] - old.listener_bytes_out[index]) / seconds
            )
        listeners.append(entry)
    return listeners


def _rates(sampler: Sampler) -> dict[str, Any] | None:
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


def _syncs(sampler: Sampler) -> dict[str, Any]:
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


@router.get(
    "/v1/overview/history",
    openapi_extra=openapi.GET_OVERVIEW_HISTORY,
    summary="Get the history of the last hour",
)
async def get_overview_history(request: Request) -> Response:
    """Return columns of equal length, newest last: rates between samples, and sizes at each sample."""
    sampler = api_state(request).sampler
    most = integer_parameter(request, "points", POINTS_MAX, minimum=1, maximum=POINTS_MAX)
    pairs = list(pairwise(sampler.history.last(most + 1)))

    def per_s(old: Point, new: Point, before: int, after: int) -> float:
        return round((after - before) * 1000 / new.ms_since(old), 1)

    return _answer(
        {
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
                        per_s(a, b, a.listener_bytes_out[index], b.listener_bytes_out[index])
                        for a, b in pairs
                    ],
                    "connections": [b.listener_connections[index] for _, b in pairs],
                }
                for index, listener in enumerate(sampler.listeners)
            ],
        }
    )


@router.get("/v1/connections", openapi_extra=openapi.LIST_CONNECTIONS, summary="List connections")
async def list_connections(request: Request) -> Response:
    """List open connections, oldest first: protocol, address, age, client, TLS, principal and bytes.

    A Kafka client names its library in ApiVersions, an HTTP client in `User-Agent`. The binary protocol has no field
    for it.
    """
    limit = integer_parameter(request, "limit", _CONNECTIONS_DEFAULT, minimum=1, maximum=_CONNECTIONS_MAX)
    views = [
        view for listener in api_state(request).sampler.listeners for view in listener.connection_views()
    ]
    views.sort(key=lambda view: -view.age_ms)
    return _answer(
        {
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
                for view in views[:limit]
            ],
        }
    )
