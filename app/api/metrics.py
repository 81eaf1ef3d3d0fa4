"""Metrics of the HTTP listener and the broker, for Prometheus, with a bounded number of series.

Labels are route templates, methods, status classes and listeners. Topics and groups
have series of their own up to a limit each; what is beyond it is added up.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..monitor.group_sampler import OTHERS
from ..monitor.sampler import StickyNames, TopicSize, resident_bytes
from .state import ApiState

GROUP_TOPICS_MAX = 20

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


def observe_broker(state: ApiState, registry: CollectorRegistry) -> None:
    """Gauges that are read when Prometheus asks, and the time of each sync."""
    broker = state.broker
    topics = Gauge("stele_topics", "Topics.", registry=registry)
    topics.set_function(lambda: len(broker.topics()))
    partitions = Gauge("stele_partitions", "Partitions of all topics.", registry=registry)
    partitions.set_function(lambda: sum(topic.partitions for topic in broker.topics()))
    groups = Gauge("stele_groups", "Groups.", registry=registry)
    groups.set_function(lambda: state.groups.coordinator.group_count)
    failed = Gauge(
        "stele_log_dir_failed", "1 when the log has stopped after an error of the disk.", registry=registry
    )
    failed.set_function(lambda: 1 if broker.failure else 0)
    resident = Gauge("stele_resident_bytes", "Memory of the process.", registry=registry)
    resident.set_function(resident_bytes)
    registry.register(_BrokerCounters(state))
    registry.register(_Topics(state))
    registry.register(_Groups(state))
    syncs = Histogram(
        "stele_sync_seconds", "Time of one sync of a partition.", buckets=_SYNC_BUCKETS, registry=registry
    )
    noted = state.sampler.syncs.observe

    def observe(seconds: float) -> None:
        syncs.observe(seconds)
        noted(seconds)

    broker.observe_syncs(observe)


class _BrokerCounters(Collector):
    """The broker and the listeners count in plain integers, which costs their hot path nothing; they are read here."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        state = self._state
        counts, searches = state.broker.counts, state.searches
        for name, text, value in (
            ("stele_appended_batches", "Batches appended, over all protocols.", counts.appended_batches),
            ("stele_appended_records", "Records appended, over all protocols.", counts.appended_records),
            ("stele_appended_bytes", "Bytes of batches appended, over all protocols.", counts.appended_bytes),
            ("stele_fetched_bytes", "Bytes of batches read, over all protocols.", counts.fetched_bytes),
            ("stele_search_scanned_records", "Records looked at by searches.", searches.scanned_records),
            ("stele_search_scanned_bytes", "Bytes of batches looked at by searches.", searches.scanned_bytes),
        ):
            yield CounterMetricFamily(name, text, value=value)
        queue = state.broker.produce_queue
        yield GaugeMetricFamily(
            "stele_produce_queue_requests",
            "Produce requests waiting to be compressed or checked by a thread.",
            value=queue.requests,
        )
        yield GaugeMetricFamily(
            "stele_produce_queue_bytes",
            "Memory they hold; STELE_PRODUCE_QUEUE_BYTES_MAX limits it.",
            value=queue.size_bytes,
        )
        yield GaugeMetricFamily("stele_searches_active", "Searches that run.", value=state.search_slots.taken)
        ended = CounterMetricFamily(
            "stele_searches",
            "Searches by how they ended; stopped: the client went away, or the broker stopped.",
            labels=("end",),
        )
        for end, number in searches.ended.items():
            ended.add_metric((end,), number)
        yield ended
        yield from self._listeners()
        disk = state.sampler.disk
        if disk is not None:
            yield GaugeMetricFamily("stele_disk_bytes", "Size of the file system.", value=disk.total_bytes)
            yield GaugeMetricFamily(
                "stele_disk_free_bytes", "Free on the file system.", value=disk.free_bytes
            )

    def _listeners(self) -> Iterable[Metric]:
        connections = GaugeMetricFamily(
            "stele_listener_connections", "Open connections.", labels=("protocol",)
        )
        opened = CounterMetricFamily(
            "stele_listener_connections_opened", "Connections made.", labels=("protocol",)
        )
        refused = CounterMetricFamily(
            "stele_listener_connections_refused",
            "Connections refused: too many of them, or too many open files.",
            labels=("protocol",),
        )
        bytes_in = CounterMetricFamily("stele_listener_bytes_in", "Bytes that came.", labels=("protocol",))
        bytes_out = CounterMetricFamily("stele_listener_bytes_out", "Bytes that left.", labels=("protocol",))
        for listener in self._state.sampler.listeners:
            traffic = listener.traffic()
            connections.add_metric((listener.name,), traffic.connections)
            opened.add_metric((listener.name,), traffic.connections_opened)
            refused.add_metric((listener.name,), traffic.connections_refused)
            bytes_in.add_metric((listener.name,), traffic.bytes_in)
            bytes_out.add_metric((listener.name,), traffic.bytes_out)
        return (connections, opened, refused, bytes_in, bytes_out)


class _Topics(Collector):
    """Sizes of topics as they were last sampled; topics beyond the limit are added up under ``OTHERS``."""

    def __init__(self, state: ApiState) -> None:
        self._sampler = state.sampler
        self._names = StickyNames(state.settings.metrics_topics_max)

    def collect(self) -> Iterable[Metric]:
        sizes = self._sampler.topic_sizes
        own = dict.fromkeys(self._names.choose(sizes))
        rows = [(name, sizes[name]) for name in own]
        if len(own) < len(sizes):
            others = [size for name, size in sizes.items() if name not in own]
            rows.append(
                (
                    OTHERS,
                    TopicSize(
                        sum(size.end_offsets for size in others),
                        sum(size.records for size in others),
                        sum(size.size_bytes for size in others),
                    ),
                )
            )
        end = GaugeMetricFamily(
            "stele_topic_end_offset", "Sum of the end offsets of a topic's partitions.", labels=("topic",)
        )
        records = GaugeMetricFamily("stele_topic_records", "Records in a topic.", labels=("topic",))
        size_bytes = GaugeMetricFamily("stele_topic_size_bytes", "Bytes of a topic's log.", labels=("topic",))
        for name, size in rows:
            end.add_metric((name,), size.end_offsets)
            records.add_metric((name,), size.records)
            size_bytes.add_metric((name,), size.size_bytes)
        return (end, records, size_bytes)


class _Groups(Collector):
    """Lag as it was last sampled. A group with many topics has its first ones, and the rest added up."""

    def __init__(self, state: ApiState) -> None:
        self._groups = state.sampler.groups

    def collect(self) -> Iterable[Metric]:
        members = GaugeMetricFamily("stele_group_members", "Members of a group.", labels=("group",))
        lag = GaugeMetricFamily(
            "stele_group_lag", "Records that a group is behind in a topic.", labels=("group", "topic")
        )
        for name, lags in self._groups.own.items():
            members.add_metric((name,), self._groups.lags[name].members)
            topics = sorted(lags)
            for topic in topics[:GROUP_TOPICS_MAX]:
                lag.add_metric((name, topic), lags[topic])
            if len(topics) > GROUP_TOPICS_MAX:
                lag.add_metric((name, OTHERS), sum(lags[topic] for topic in topics[GROUP_TOPICS_MAX:]))
        others = self._groups.others()
        if others is not None:
            members.add_metric((OTHERS,), others.members)
            lag.add_metric((OTHERS, OTHERS), others.lag)
        return (members, lag)


async def metrics(request: Request) -> Response:
    """Everything measured, in Prometheus' text format."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
