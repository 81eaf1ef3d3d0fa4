"""Serve the health checks and the description of the cluster."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...broker.broker import Broker
from ...cluster.membership import Member
from ...errors import BrokerClosing
from ...groups.group_lease import GROUPS_LEASE
from ..guarded_route import GuardedRoute
from ..openapi import status as openapi
from ..record_json import encode
from ..state import broker_of

router = APIRouter(tags=["broker"], route_class=GuardedRoute)

LEASES = (GROUPS_LEASE,)


def _version() -> str:
    try:
        return version("stele-broker")
    except PackageNotFoundError:
        return "unknown"


VERSION = _version()


@router.get("/healthz", openapi_extra=openapi.HEALTH, summary="Check liveness")
async def healthz(request: Request) -> Response:
    """Answer 200 while the event loop runs."""
    return Response(b'{"status":"alive"}', media_type="application/json")


@router.get("/readyz", openapi_extra=openapi.READY, summary="Check readiness")
async def readyz(request: Request) -> Response:
    """Answer 200 if the broker accepts writes; 503 with the reason if the log has stopped or the broker is closing."""
    broker = broker_of(request)
    if broker.failure is not None:
        raise broker.failure
    if broker.is_closing:
        raise BrokerClosing
    return Response(b'{"status":"ready"}', media_type="application/json")


def _own(broker: Broker) -> dict[str, Any]:
    return {
        "id": broker.broker_id,
        "host": broker.settings.advertised_host or broker.settings.host,
        "rack": broker.settings.broker_rack,
        **{f"{listener}_port": endpoint.port for listener, endpoint in broker.endpoints.items()},
    }


def _member(member: Member) -> dict[str, Any]:
    hosts = [endpoint.host for endpoint in member.endpoints.values()]
    return {
        "id": member.broker_id,
        "host": hosts[0] if hosts else None,
        "rack": member.rack,
        "started_at": member.started_at_ms,
        **{f"{listener}_port": endpoint.port for listener, endpoint in member.endpoints.items()},
    }


@router.get("/v1/cluster", openapi_extra=openapi.CLUSTER, summary="Describe the cluster")
async def cluster(request: Request) -> Response:
    """Return the id of the cluster, its live brokers, their leases, and the numbers of topics and partitions.

    ``broker_id`` is the broker that answers.
    """
    broker = broker_of(request)
    topics = broker.topics()
    document = {
        "cluster_id": broker.cluster_id,
        "version": VERSION,
        "broker_id": broker.broker_id,
        "brokers": [_member(member) for member in broker.cluster.members] or [_own(broker)],
        "leases": {
            name: {"broker_id": lease.broker_id, "epoch": lease.epoch}
            for name in LEASES
            if (lease := broker.cluster.lease(name)) is not None
        },
        "topics": len(topics),
        "partitions": sum(topic.partitions for topic in topics),
    }
    return Response(encode(document), media_type="application/json")
