"""Metrics of the HTTP door and the broker, for Prometheus, with a bounded number of series.

Labels are route templates, methods and status classes: never a topic's name,
of which there may be thousands.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..broker.broker import Broker

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# From a record in memory to a long upload.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_SYNC_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)


class HttpMetrics:
    """Counts and times every request; an ASGI middleware."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._requests = Counter(
            "stele_http_requests", "HTTP requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "stele_http_request_seconds",
            "Time to the end of the answer.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500

        async def count(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, count)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._requests.labels(method, route, f"{status // 100}xx").inc()
            self._seconds.labels(method, route).observe(time.perf_counter() - start)


def observe_broker(broker: Broker, registry: CollectorRegistry) -> None:
    """Gauges that are read when Prometheus asks, and the time of each sync."""
    topics = Gauge("stele_topics", "Topics.", registry=registry)
    topics.set_function(lambda: len(broker.topics()))
    partitions = Gauge("stele_partitions", "Partitions of all topics.", registry=registry)
    partitions.set_function(lambda: sum(topic.partitions for topic in broker.topics()))
    failed = Gauge(
        "stele_log_dir_failed", "1 when the log has stopped after an error of the disk.", registry=registry
    )
    failed.set_function(lambda: 1 if broker.failure else 0)
    registry.register(_BrokerCounters(broker))
    syncs = Histogram(
        "stele_sync_seconds", "Time of one sync of a partition.", buckets=_SYNC_BUCKETS, registry=registry
    )
    broker.observe_syncs(syncs.observe)


class _BrokerCounters(Collector):
    """The broker counts in plain integers, which costs its hot path nothing; they are read here."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        counts = self._broker.counts
        for name, text, value in (
            ("stele_appended_batches", "Batches appended, through all doors.", counts.appended_batches),
            ("stele_appended_records", "Records appended, through all doors.", counts.appended_records),
            ("stele_appended_bytes", "Bytes of batches appended, through all doors.", counts.appended_bytes),
            ("stele_fetched_bytes", "Bytes of batches read, through all doors.", counts.fetched_bytes),
        ):
            yield CounterMetricFamily(name, text, value=value)


async def metrics(request: Request) -> Response:
    """Everything measured, in Prometheus' text format."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
