"""Serve the health checks, the metrics and the description of the cluster."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, TypedDict

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from ...errors import BrokerClosing
from ...security.acl import DESCRIBE_CLUSTER
from ..cluster_document import BrokerJson, Survey, member_document, own_document, survey_document
from ..guarded_route import GuardedRoute
from ..openapi.operations import Content
from ..rights import access_of
from ..routing import NO_STORE, Routes
from ..schemas import Shown, one_of
from ..state import broker_of

route = Routes("broker", GuardedRoute)


class Liveness(TypedDict):
    status: Annotated[str, one_of("AliveStatus", "alive")]


class Readiness(TypedDict):
    status: Annotated[str, one_of("ReadyStatus", "ready")]


class BrokerLease(TypedDict):
    broker_id: int
    incarnation: str
    epoch: int
    expires_in_ms: int


class Cluster(TypedDict):
    cluster_id: str
    version: str
    broker_id: int
    is_shared: Annotated[bool, Shown("whether there may be other brokers")]
    brokers: list[BrokerJson]
    leases: Annotated[dict[str, BrokerLease], Shown(name="Leases")]
    topics: int
    partitions: int
    survey: Survey | None


def _version() -> str:
    try:
        return version("stele-broker")
    except PackageNotFoundError:
        return "unknown"


VERSION = _version()


@route("GET /healthz", "Check liveness")
async def healthz(request: Request) -> Liveness:
    """Answer 200 while the event loop runs."""
    return {"status": "alive"}


@route("GET /readyz", "Check readiness", errors=(503, 507))
async def readyz(request: Request) -> Readiness:
    """Answer 200 if new clients may be sent to the broker.

    503 with the reason if the log has stopped, if PostgreSQL or the object store has not answered for some seconds,
    or if the broker is shutting down, although a broker of several serves those it has until the others know. 507
    while the disk is full: reads continue, and so does what frees space.
    """
    broker = broker_of(request)
    await broker.check_writable()
    stall = broker.stall
    if stall is not None:
        raise stall
    if broker.is_closing or broker.cluster.is_leaving:
        raise BrokerClosing
    return {"status": "ready"}


@route("GET /metrics", "Get metrics", answers=[Content("text/plain")])
async def get_metrics(request: Request) -> Response:
    """Return all metrics in the text format of Prometheus."""
    registry: CollectorRegistry = request.app.state.registry
    surveys = broker_of(request).cluster.surveys
    if surveys is not None:
        await surveys.now()
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


@route("GET /v1/cluster", "Describe the cluster", headers=NO_STORE)
async def get_cluster(request: Request) -> Cluster:
    """Return the cluster: id, live brokers, leases, counts of topics and partitions.

    ``broker_id`` is the broker that answers. ``survey`` has all brokers, including those that were killed in the last
    day, the objects and the work that waits. It is null for a broker on its own, and for clients that may not
    describe the cluster.
    """
    broker = broker_of(request)
    topics = broker.topics()
    surveys, access = broker.cluster.surveys, access_of(request)
    survey = None
    if surveys is not None and (access is None or access.sees(DESCRIBE_CLUSTER)):
        survey = survey_document(surveys, await surveys.now())
    return {
        "cluster_id": broker.cluster_id,
        "version": VERSION,
        "broker_id": broker.broker_id,
        "is_shared": broker.cluster.is_shared,
        "brokers": [member_document(member) for member in broker.cluster.members] or [own_document(broker)],
        "leases": {
            name: {
                "broker_id": lease.broker_id,
                "incarnation": str(lease.incarnation),
                "epoch": lease.epoch,
                "expires_in_ms": lease.expires_in_ms,
            }
            for name, lease in sorted(broker.cluster.leases.items())
        },
        "topics": len(topics),
        "partitions": sum(topic.partitions for topic in topics),
        "survey": survey,
    }
