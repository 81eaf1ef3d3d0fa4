"""Export the metrics of the broker for Prometheus.

The number of series is bounded.

Labels are route templates, methods, status classes and protocols. A limited number of
topics and groups have their own series; the others are summed up as ``(others)``.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...groups.services import group_count, share_counts
from ...monitor.group_sampler import OTHERS
from ...monitor.loop_probe import BUCKETS_S as HOLD_BUCKETS_S
from ...monitor.sampler import StickyNames, TopicSize, resident_bytes
from ...sql.statements import SqlStatements
from ..state import ApiState
from .cluster import cluster_metrics
from .listeners import listener_metrics
from .replica import replica_metrics
from .transactions import transaction_metrics

GROUP_TOPICS_MAX = 20

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# From a read of cached data to a long upload.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_BUCKETS_AND_REST = (*(str(float(bound)) for bound in _BUCKETS), "+Inf")
_HOLD_BUCKETS_AND_REST = (*map(str, HOLD_BUCKETS_S), "+Inf")
_SYNC_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)


@dataclass(slots=True)
class _Times:
    """The times of requests: how many are within each bucket, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * len(_BUCKETS_AND_REST))
    total_s: float = 0.0


class RequestCounts(Collector):
    """The series of requests over HTTP: their number and their times.

    Plain numbers that only Prometheus adds up, because its own counters take a lock each.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_progress = 0
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._times: defaultdict[tuple[str, str], _Times] = defaultdict(_Times)
        registry.register(self)

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        self.noting(method, route, status)(seconds)

    def noting(self, method: str, route: str, status: int) -> Callable[[float], None]:
        """Return ``note`` for requests that have all but the time in common.

        There are no series before the first.
        """
        requests, by_route = self._requests, self._times
        labels, series = (method, route, f"{status // 100}xx"), (method, route)

        def note(seconds: float) -> None:
            requests[labels] += 1
            times = by_route[series]
            times.counts[bisect_left(_BUCKETS, seconds)] += 1
            times.total_s += seconds

        return note

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "stele_http_requests",
            "HTTP requests answered, by method, route and status class.",
            labels=("method", "route", "status"),
        )
        for labels, count in self._requests.items():
            requests.add_metric(labels, count)
        yield requests
        yield GaugeMetricFamily(
            "stele_http_requests_in_progress",
            "HTTP requests in progress, live tails and long polls included; one per connection at most.",
            value=self.in_progress,
        )
        seconds = HistogramMetricFamily(
            "stele_http_request_seconds",
            "Time from the start of an HTTP request to the end of its response.",
            labels=("method", "route"),
        )
        for series, times in self._times.items():
            buckets = list(zip(_BUCKETS_AND_REST, accumulate(times.counts), strict=True))
            seconds.add_metric(series, buckets, times.total_s)
        yield seconds


class HttpMetrics:
    """ASGI middleware that counts and times every request."""

    def __init__(self, app: ASGIApp, counts: RequestCounts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500
        self._counts.in_progress += 1

        async def count(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, count)
        finally:
            self._counts.in_progress -= 1
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._counts.note(method, route, status, time.perf_counter() - start)


def observe_broker(state: ApiState, registry: CollectorRegistry) -> None:
    """Register the metrics of the broker: gauges read per scrape, and the time of each sync."""
    broker = state.broker
    topics = Gauge("stele_topics", "Number of topics.", registry=registry)
    topics.set_function(lambda: len(broker.topics()))
    partitions = Gauge("stele_partitions", "Number of partitions of all topics.", registry=registry)
    partitions.set_function(lambda: sum(topic.partitions for topic in broker.topics()))
    groups = Gauge("stele_groups", "Number of consumer groups.", registry=registry)
    groups.set_function(lambda: group_count(state.groups))
    failed = Gauge(
        "stele_log_dir_failed", "1 if the log has stopped after a disk error, otherwise 0.", registry=registry
    )
    failed.set_function(lambda: 1 if broker.failure else 0)
    resident = Gauge("stele_resident_bytes", "Resident memory of the process.", registry=registry)
    resident.set_function(resident_bytes)
    registry.register(_BrokerCounters(state))
    registry.register(_Topics(state))
    registry.register(_Groups(state))
    syncs = Histogram(
        "stele_sync_seconds",
        "Time of each fdatasync of a partition.",
        buckets=_SYNC_BUCKETS,
        registry=registry,
    )
    noted = state.sampler.syncs.observe

    def observe(seconds: float) -> None:
        syncs.observe(seconds)
        noted(seconds)

    broker.observe_syncs(observe)


def _sql(sql: SqlStatements, active: int) -> Iterable[Metric]:
    totals = sql.totals
    yield GaugeMetricFamily("stele_sql_statements_active", "SQL statements in progress.", value=active)
    yield GaugeMetricFamily(
        "stele_sql_processes", "Processes that run SQL statements or wait for one.", value=sql.processes
    )
    ended = CounterMetricFamily(
        "stele_sql_statements",
        "SQL statements by result; stopped means that the client disconnected or the broker shut down.",
        labels=("end",),
    )
    for end, number in totals.ended.items():
        ended.add_metric((end,), number)
    yield ended
    yield CounterMetricFamily(
        "stele_sql_scanned_bytes",
        "Bytes of batches, and of files in buckets, read for SQL statements.",
        value=totals.scanned_bytes,
    )
    yield CounterMetricFamily(
        "stele_sql_answer_bytes", "Bytes of answers to SQL statements.", value=totals.answer_bytes
    )


class _BrokerCounters(Collector):
    """Read the counters of the broker and the listeners per scrape.

    They are plain integers, so that counting costs the hot path almost nothing.
    """

    def __init__(self, state: ApiState) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        state = self._state
        counts, searches = state.broker.counts, state.searches
        shared = share_counts(state.groups)
        for name, text, value in (
            ("stele_appended_batches", "Batches appended over all protocols.", counts.appended_batches),
            ("stele_appended_records", "Records appended over all protocols.", counts.appended_records),
            ("stele_appended_bytes", "Bytes of batches appended over all protocols.", counts.appended_bytes),
            (
                "stele_fetched_bytes",
                "Bytes of batches read over all protocols, searches excluded.",
                counts.fetched_bytes,
            ),
            (
                "stele_contract_refused_records",
                "Records over all protocols that broke the schema contract of their topic.",
                counts.contract_refusals,
            ),
            (
                "stele_internal_errors",
                "Requests over all protocols that ended with an internal error; the log has the error.",
                counts.internal_errors,
            ),
            (
                "stele_share_group_dead_letters",
                "Dead letters that share groups have written.",
                counts.dead_letters,
            ),
            (
                "stele_share_group_dead_letters_lost",
                "Records that share groups have given up without a dead letter, because their topic refused it.",
                counts.lost_dead_letters,
            ),
            (
                "stele_share_group_delivered_records",
                "Records that share groups have delivered, each delivery counted.",
                shared.delivered,
            ),
            (
                "stele_share_group_accepted_records",
                "Records that members of share groups have accepted.",
                shared.accepted,
            ),
            (
                "stele_share_group_released_records",
                "Records that members of share groups have given back.",
                shared.released,
            ),
            (
                "stele_share_group_given_up_records",
                "Records that members of share groups have rejected, or given back after the last delivery.",
                shared.given_up,
            ),
            (
                "stele_share_group_expired_records",
                "Records released because the lock of a share group member or its session ended.",
                shared.expired,
            ),
            ("stele_search_scanned_records", "Records scanned by searches.", searches.scanned_records),
            ("stele_search_scanned_bytes", "Bytes of batches scanned by searches.", searches.scanned_bytes),
        ):
            yield CounterMetricFamily(name, text, value=value)
        queue = state.broker.produce_queue
        yield GaugeMetricFamily(
            "stele_produce_queue_requests",
            "Produce requests waiting to be compressed or checked by a thread, or because they are large.",
            value=queue.requests,
        )
        yield GaugeMetricFamily(
            "stele_produce_queue_bytes",
            "Bytes of the produce requests in the queue; limited by STELE_PRODUCE_QUEUE_BYTES_MAX.",
            value=queue.size_bytes,
        )
        unread = state.broker.unread
        yield GaugeMetricFamily(
            "stele_unread_response_bytes",
            "Bytes of responses that binary and Kafka connections hold because their clients have not read them.",
            value=unread.held_bytes,
        )
        yield CounterMetricFamily(
            "stele_unread_connections_closed",
            "Connections closed because of the responses that they left unread.",
            value=unread.broken_off,
        )
        remembered, forgotten = state.broker.producer_counts
        yield GaugeMetricFamily(
            "stele_producer_states",
            "Producer ids that partitions remember, once for each partition; limited by STELE_PRODUCER_STATES_MAX.",
            value=remembered,
        )
        yield CounterMetricFamily(
            "stele_producer_states_forgotten",
            "Producer ids that expired early because of STELE_PRODUCER_STATES_MAX.",
            value=forgotten,
        )
        yield GaugeMetricFamily(
            "stele_searches_active", "Searches in progress.", value=state.search_slots.taken
        )
        ended = CounterMetricFamily(
            "stele_searches",
            "Searches by result; stopped means that the client disconnected or the broker shut down.",
            labels=("end",),
        )
        for end, number in searches.ended.items():
            ended.add_metric((end,), number)
        yield ended
        if state.sql is not None:
            yield from _sql(state.sql, state.sql_slots.taken)
        yield from self._cleaner()
        yield from cluster_metrics(state.broker)
        if state.replica is not None:
            yield from replica_metrics(state.replica.status)
        yield from transaction_metrics(state.transactions.coordinator.counts, state.sampler.holds)
        yield from self._quotas()
        yield from listener_metrics(state.sampler.listeners)
        yield self._loop_holds()
        disk = state.sampler.disk
        if disk is not None:
            yield GaugeMetricFamily(
                "stele_disk_bytes", "Size of the file system of the data directory.", value=disk.total_bytes
            )
            yield GaugeMetricFamily(
                "stele_disk_free_bytes",
                "Free space on the file system of the data directory.",
                value=disk.free_bytes,
            )

    def _loop_holds(self) -> Metric:
        counts, total_s = self._state.loop_probe.histogram()
        holds = HistogramMetricFamily(
            "stele_loop_hold_seconds",
            "CPU time for which the event loop let a call wait, looked at ten times a second.",
        )
        holds.add_metric((), list(zip(_HOLD_BUCKETS_AND_REST, counts, strict=True)), total_s)
        return holds

    def _quotas(self) -> Iterable[Metric]:
        quotas = self._state.broker.quotas
        labels = ("protocol", "quota")
        violations = CounterMetricFamily(
            "stele_quota_violations",
            "Requests and connections that exceeded a quota, or arrived before the wait after a violation was over.",
            labels=labels,
        )
        throttled = CounterMetricFamily(
            "stele_quota_throttle_seconds",
            "Total time that clients had to wait because of quotas.",
            labels=labels,
        )
        for (protocol, key), noted in quotas.throttling.items():
            violations.add_metric((protocol, key), noted.violations)
            throttled.add_metric((protocol, key), noted.delay_ms / 1000)
        yield violations
        yield throttled
        yield GaugeMetricFamily(
            "stele_quota_clients",
            "Clients whose quota usage is tracked, at most 10,000.",
            value=quotas.remembered,
        )

    def _cleaner(self) -> Iterable[Metric]:
        counts, now = self._state.broker.storage.compaction, self._state.sampler.compaction
        for name, text, value in (
            ("stele_log_cleaner_passes", "Passes of compaction that have ended.", counts.passes),
            ("stele_log_cleaner_failures", "Compaction passes that ended with an error.", counts.failures),
            (
                "stele_log_cleaner_read_bytes",
                "Bytes of batches that compaction passes have read.",
                counts.bytes_read,
            ),
            (
                "stele_log_cleaner_written_bytes",
                "Bytes of batches that compaction passes have kept and written.",
                counts.bytes_written,
            ),
        ):
            yield CounterMetricFamily(name, text, value=value)
        yield GaugeMetricFamily(
            "stele_log_cleaner_last_pass_timestamp_seconds",
            "Unix time at which the last compaction pass ended; 0 before the first.",
            value=max(counts.last_pass_ms, 0) / 1000,
        )
        yield GaugeMetricFamily(
            "stele_log_cleaner_partitions", "Partitions of compacted topics.", value=now.partitions
        )
        yield GaugeMetricFamily(
            "stele_log_cleaner_due_partitions",
            "Partitions that exceed their min.cleanable.dirty.ratio.",
            value=now.due,
        )
        yield GaugeMetricFamily(
            "stele_log_cleaner_dirty_ratio_max",
            "Largest part of a partition that is new since its last pass, 0 to 1.",
            value=now.dirty_ratio_max,
        )


class _Topics(Collector):
    """Export the sizes of topics as of the last sample.

    Topics beyond the limit are summed up as ``OTHERS``.
    """

    def __init__(self, state: ApiState) -> None:
        self._sampler = state.sampler
        self._names = StickyNames(state.settings.metrics_topics_max)

    def collect(self) -> Iterable[Metric]:
        sizes = self._sampler.topic_sizes
        own = dict.fromkeys(self._names.choose(sizes))
        rows = [(name, sizes[name]) for name in own]
        if len(own) < len(sizes):
            unlisted = [size for name, size in sizes.items() if name not in own]
            rows.append(
                (
                    OTHERS,
                    TopicSize(
                        sum(size.end_offsets for size in unlisted),
                        sum(size.records for size in unlisted),
                        sum(size.size_bytes for size in unlisted),
                    ),
                )
            )
        end = GaugeMetricFamily(
            "stele_topic_end_offset", "Sum of the end offsets of a topic's partitions.", labels=("topic",)
        )
        records = GaugeMetricFamily("stele_topic_records", "Records in a topic.", labels=("topic",))
        size_bytes = GaugeMetricFamily(
            "stele_topic_size_bytes", "Bytes of the log of a topic.", labels=("topic",)
        )
        for name, size in rows:
            end.add_metric((name,), size.end_offsets)
            records.add_metric((name,), size.records)
            size_bytes.add_metric((name,), size.size_bytes)
        return (end, records, size_bytes)


class _Groups(Collector):
    """Export the lag of groups as of the last sample.

    A group has series for its first ``GROUP_TOPICS_MAX`` topics, and one for the sum of the others.
    """

    def __init__(self, state: ApiState) -> None:
        self._groups = state.sampler.groups

    def collect(self) -> Iterable[Metric]:
        members = GaugeMetricFamily("stele_group_members", "Members of a consumer group.", labels=("group",))
        lag = GaugeMetricFamily(
            "stele_group_lag", "Lag of a consumer group in a topic, in records.", labels=("group", "topic")
        )
        in_flight = GaugeMetricFamily(
            "stele_share_group_records_in_flight",
            "Records that members of a share group hold.",
            labels=("group",),
        )
        for name, lags in self._groups.own.items():
            members.add_metric((name,), self._groups.lags[name].members)
            if self._groups.lags[name].is_share:
                in_flight.add_metric((name,), self._groups.lags[name].in_flight)
            topics = sorted(lags)
            for topic in topics[:GROUP_TOPICS_MAX]:
                lag.add_metric((name, topic), lags[topic])
            if len(topics) > GROUP_TOPICS_MAX:
                lag.add_metric((name, OTHERS), sum(lags[topic] for topic in topics[GROUP_TOPICS_MAX:]))
        others = self._groups.others()
        if others is not None:
            members.add_metric((OTHERS,), others.members)
            lag.add_metric((OTHERS, OTHERS), others.lag)
        return (members, lag, in_flight)
