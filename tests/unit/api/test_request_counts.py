"""The series of requests over HTTP are those that the counters of ``prometheus_client`` would give."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from app.api.metrics import collectors
from app.api.metrics.collectors import RequestCounts

SECONDS = (0.0, 0.0005, 0.0006, 0.001, 0.3, 60.0, 61.0)


def _lines(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


def test_requests_are_counted_by_method_route_and_class_and_timed_by_method_and_route() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counts = RequestCounts(ours)
    number = Counter(
        "stele_http_requests",
        "HTTP requests answered, by method, route and status class.",
        ("method", "route", "status"),
        registry=theirs,
    )
    times = Histogram(
        "stele_http_request_seconds",
        "Time from the start of an HTTP request to the end of its response.",
        ("method", "route"),
        buckets=collectors._BUCKETS,
        registry=theirs,
    )
    assert _lines(ours) == _lines(theirs)
    note = counts.noting("POST", "/v1/records", 200)
    for seconds in SECONDS:
        note(seconds)
        number.labels("POST", "/v1/records", "2xx").inc()
        times.labels("POST", "/v1/records").observe(seconds)
    for status in (404, 409, 503):
        counts.note("GET", "/v1/topics", status, 0.002)
        number.labels("GET", "/v1/topics", f"{status // 100}xx").inc()
        times.labels("GET", "/v1/topics").observe(0.002)
    assert _lines(ours) == _lines(theirs)
