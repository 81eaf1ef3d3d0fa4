"""The series of requests over HTTP are those that the counters of ``prometheus_client`` would give."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import Message, Receive, Scope, Send

from app.api.metrics import collectors
from app.api.metrics.collectors import HttpMetrics, RequestCounts

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
    Gauge(
        "stele_http_requests_in_progress",
        "HTTP requests in progress, live tails and long polls included; one per connection at most.",
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


@pytest.mark.parametrize("fails", [False, True])
async def test_requests_that_wait_are_in_progress_until_they_end(fails: bool) -> None:
    registry, waiting = CollectorRegistry(), asyncio.Event()
    counts = RequestCounts(registry)

    async def poll(scope: Scope, receive: Receive, send: Send) -> None:
        await waiting.wait()
        if fails:
            raise ConnectionError

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        """It sends nothing."""

    def in_progress() -> float | None:
        return registry.get_sample_value("stele_http_requests_in_progress")

    app = HttpMetrics(poll, counts)
    scope = {"type": "http", "method": "GET"}
    polls = [asyncio.ensure_future(app(scope, receive, send)) for _ in range(3)]
    await asyncio.sleep(0)
    assert in_progress() == 3
    waiting.set()
    await asyncio.gather(*polls, return_exceptions=True)
    assert in_progress() == 0
