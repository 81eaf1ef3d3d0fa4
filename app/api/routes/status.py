"""Serve the health checks, the metrics and the description of the cluster."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from ...errors import BrokerClosing
from ...security.acl import DESCRIBE_CLUSTER
from ..cluster_document import member_document, own_document, survey_document
from ..guarded_route import GuardedRoute
from ..openapi import status as openapi
from ..records.record_json import encode
from ..rights import access_of
from ..state import broker_of

router = APIRouter(tags=["broker"], route_class=GuardedRoute)


def _version() -> str:
    try:
        return version("stele-broker")
    except PackageNotFoundError:
        return "unknown"


VERSION = _version()


@router.get("/healthz", openapi_extra=openapi.HEALTHZ, summary="Check liveness")
async def healthz(request: Request) -> Response:
    """Answer 200 while the event loop runs."""
    return Response(b'{"status":"alive"}', media_type="application/json")


@router.get("/readyz", openapi_extra=openapi.READYZ, summary="Check readiness")
async def readyz(request: Request) -> Response:
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
    return Response(b'{"status":"ready"}', media_type="application/json")


@router.get("/metrics", openapi_extra=openapi.METRICS, summary="Get metrics")
async def get_metrics(request: Request) -> Response:
    """Return all metrics in the text format of Prometheus."""
    registry: CollectorRegistry = request.app.state.registry
    surveys = broker_of(request).cluster.surveys
    if surveys is not None:
        await surveys.now()
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/cluster", openapi_extra=openapi.GET_CLUSTER, summary="Describe the cluster")
async def get_cluster(request: Request) -> Response:
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
    document = {
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
    return Response(encode(document), media_type="application/json", headers={"Cache-Control": "no-store"})
