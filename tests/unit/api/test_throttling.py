"""Quotas over HTTP: 429 with Retry-After, streams that are slowed down, and the API of quotas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from app.api.throttling import quota_of
from app.broker.broker import Broker
from app.broker.quotas.limits import QuotaKey
from tests.support.http_application import application
from tests.support.simulated_time import SimulatedClock, simulated

PRODUCE, CONSUME = QuotaKey.PRODUCE, QuotaKey.CONSUME
COUNTED = {
    ("POST", "/v1/topics/{topic}/records"): PRODUCE,
    ("GET", "/v1/topics/{topic}/records"): CONSUME,
    ("GET", "/v1/topics/{topic}/partitions/{partition}/records"): CONSUME,
    ("GET", "/v1/topics/{topic}/partitions/{partition}/records/{offset}"): CONSUME,
    ("POST", "/v1/transactions"): PRODUCE,
    ("POST", "/v1/transactions/{transactional_id}/records"): PRODUCE,
    ("GET", "/v1/topics/{topic}/search"): CONSUME,
    ("POST", "/v1/topics/{topic}/search"): CONSUME,
    ("GET", "/v1/topics/{topic}/keys/{key}"): CONSUME,
    ("GET", "/v1/topics/{topic}/table"): CONSUME,
    ("POST", "/v1/groups/{group}/poll"): CONSUME,
    ("POST", "/v1/groups/{group}/share/poll"): CONSUME,
    ("POST", "/v1/sql"): CONSUME,
}
URL = "/v1/topics/t/records"
READ = "/v1/topics/t/partitions/0/records?from=0"


@dataclass(frozen=True, slots=True)
class Served:
    app: FastAPI
    http: httpx.AsyncClient
    broker: Broker


@asynccontextmanager
async def served(path: Path) -> AsyncGenerator[Served]:
    async with application(path, SimulatedClock()) as app:
        transport = httpx.ASGITransport(app)
        headers = {"User-Agent": "loader/1.0"}
        async with httpx.AsyncClient(transport=transport, base_url="http://b", headers=headers) as http:
            yield Served(app, http, app.state.stele.broker)


async def set_quota(http: httpx.AsyncClient, entity: dict[str, str | None], **values: float | None) -> None:
    answer = await http.patch("/v1/quotas", json={"entity": entity, "values": values})
    assert answer.status_code == 200, answer.text


async def produce(http: httpx.AsyncClient, size: int) -> httpx.Response:
    return await http.post(URL, content=b"x" * size, headers={"Content-Type": "application/octet-stream"})


@simulated
async def test_the_bodies_that_count_are_those_of_records(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        found = {
            (method.upper(), path): quota_of(method.upper(), re.sub(r"\{\w+\}", "a%2Fb", path))
            for path, operations in one.app.openapi()["paths"].items()
            for method in operations
        }
    assert {name: key for name, key in found.items() if key is not None} == COUNTED


@simulated
async def test_a_produce_over_the_quota_is_refused_until_the_wait_is_over(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await set_quota(one.http, {"user": "ANONYMOUS"}, producer_byte_rate=100)
        assert (await produce(one.http, 2_000)).status_code == 200

        refused = await produce(one.http, 1)
        assert refused.status_code == 429
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["retry-after"] == "10"
        problem = refused.json()
        assert problem["type"] == "/problems/quota-exceeded"
        assert problem["kafka_code"] == 89
        assert problem["retriable"] is True
        assert problem["quota"] == "producer_byte_rate"
        assert problem["retry_after_ms"] == 10_000
        assert one.broker.log_state("t", 0).high_watermark == 1

        assert (await one.http.get(READ)).status_code == 200, "reads have a quota of their own"
        await asyncio.sleep(10)
        assert (await produce(one.http, 1)).status_code == 200


@simulated
async def test_a_quota_that_is_raised_holds_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await set_quota(one.http, {"user": None}, producer_byte_rate=1)
        await produce(one.http, 2_000)
        assert (await produce(one.http, 1)).status_code == 429
        await set_quota(one.http, {"user": None}, producer_byte_rate=None)
        assert (await produce(one.http, 1)).status_code == 200


@simulated
async def test_reads_are_refused_after_a_large_one(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await produce(one.http, 5_000)
        await set_quota(one.http, {"client-id": "loader"}, consumer_byte_rate=100)
        assert (await one.http.get(READ)).status_code == 200
        assert (await one.http.get(READ)).status_code == 429
        other = {"User-Agent": "other/1"}
        assert (await one.http.get(READ, headers=other)).status_code == 200, "another client id"
        assert (await produce(one.http, 5_000)).status_code == 200


@simulated
async def test_an_upload_is_read_more_slowly(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await set_quota(one.http, {"user": None}, producer_byte_rate=1000)
        line = b'{"value":"' + b"x" * 1987 + b'"}\n'
        assert len(line) == 2000

        async def body() -> AsyncGenerator[bytes]:
            for _ in range(30):
                yield line

        before_s = asyncio.get_running_loop().time()
        answer = await one.http.post(URL, content=body(), headers={"Content-Type": "application/x-ndjson"})
        assert answer.status_code == 200
        taken_s = asyncio.get_running_loop().time() - before_s
        # 60 kB, of which 10 kB are allowed at once: on simulated time.
        assert taken_s >= 40
        assert one.broker.log_state("t", 0).high_watermark == 30


@simulated
async def test_a_page_is_no_larger_than_what_is_allowed_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        for _ in range(20):
            await produce(one.http, 1_000)
        await set_quota(one.http, {"user": None}, consumer_byte_rate=500)
        for _ in range(2):
            page = (await one.http.get(READ)).json()
            assert 1 <= len(page["records"]) <= 5
        poll = {"topics": ["t"], "max_bytes": 10**6}
        assert (await one.http.post("/v1/groups/g/poll", json=poll)).status_code == 429
        await asyncio.sleep(11)
        polled = (await one.http.post("/v1/groups/g/poll", json=poll)).json()
        assert 1 <= len(polled["records"]) <= 5


@simulated
async def test_a_live_tail_is_sent_more_slowly(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        for _ in range(20):
            await produce(one.http, 2_000)
        await set_quota(one.http, {"user": None}, consumer_byte_rate=1000)
        sent: list[tuple[float, int]] = []
        over = asyncio.Event()

        async def receive() -> Message:
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append((asyncio.get_running_loop().time(), len(message.get("body", b""))))

        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": URL,
            "raw_path": URL.encode(),
            "query_string": b"from=earliest",
            "headers": [(b"accept", b"text/event-stream")],
            "scheme": "http",
            "server": ("b", 80),
            "client": ("192.0.2.7", 1),
            "http_version": "1.1",
            "app": one.app,
        }
        tail = asyncio.create_task(one.app(scope, receive, send))
        await asyncio.sleep(300)
        over.set()
        await tail
        bodies = [(at_s, size) for at_s, size in sent if size > 1000]
        assert sum(size for _, size in bodies) > 40_000, "everything is sent in the end"
        assert bodies[-1][0] - bodies[0][0] >= 20, "simulated time"


@simulated
async def test_the_time_of_requests_is_limited_but_not_that_of_changing_quotas(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        clock_s = iter(range(0, 10**9, 3))
        one.broker.quotas.clock_s = lambda: float(next(clock_s))
        await set_quota(one.http, {"user": None}, request_percentage=1)
        assert (await one.http.get("/v1/topics")).status_code == 200
        refused = await one.http.get("/v1/topics")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert (await one.http.get("/readyz")).status_code == 200
        await set_quota(one.http, {"user": None}, request_percentage=None)
        assert (await one.http.get("/v1/topics")).status_code == 200


@simulated
async def test_metrics_have_violations_and_the_time_to_wait(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await set_quota(one.http, {"user": None}, producer_byte_rate=100)
        await produce(one.http, 2_000)
        await produce(one.http, 1)
        text = (await one.http.get("/metrics")).text
    labels = '{protocol="http",quota="producer_byte_rate"}'
    assert f"stele_quota_violations_total{labels} 2.0" in text
    assert f"stele_quota_throttle_seconds_total{labels} 20.0" in text
    assert "stele_quota_clients 1.0" in text


# ── the API ──


@simulated
async def test_quotas_are_listed_set_and_removed(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        assert (await one.http.get("/v1/quotas")).json() == {"quotas": []}
        entity = {"user": "alice", "client-id": None}
        answer = await one.http.patch(
            "/v1/quotas",
            json={"entity": entity, "values": {"producer_byte_rate": 1048576, "request_percentage": 0.5}},
        )
        shown = {"entity": entity, "values": {"producer_byte_rate": 1048576, "request_percentage": 0.5}}
        assert answer.json() == shown
        assert (await one.http.get("/v1/quotas")).json() == {"quotas": [shown]}
        answer = await one.http.patch(
            "/v1/quotas",
            json={"entity": entity, "values": {"producer_byte_rate": None, "request_percentage": None}},
        )
        assert answer.json() == {"entity": entity, "values": {}}
        assert (await one.http.get("/v1/quotas")).json() == {"quotas": []}


@simulated
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"entity": {}, "values": {}},
        {"entity": {"planet": "mars"}, "values": {"producer_byte_rate": 1}},
        {"entity": {"user": "a"}, "values": {"producer_byte_rate": 0}},
        {"entity": {"user": "a"}, "values": {"producer_byte_rate": "1"}},
        {"entity": {"user": "a"}, "values": {"controller_mutation_rate": 1}},
        {"entity": {"ip": "192.0.2.7"}, "values": {"producer_byte_rate": 1}},
    ],
)
async def test_a_quota_that_cannot_be_set_is_refused(tmp_path: Path, body: object) -> None:
    async with served(tmp_path) as one:
        answer = await one.http.patch("/v1/quotas", json=body)
        assert answer.status_code == 400
        assert answer.json()["type"] == "/problems/invalid-request"


@simulated
async def test_an_anonymous_client_cannot_change_quotas_where_there_are_logins(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        one.app.state.guards_users = True
        body = {"entity": {"user": None}, "values": {"producer_byte_rate": 1}}
        answer = await one.http.patch("/v1/quotas", json=body)
        assert answer.status_code == 403
        assert one.broker.quotas.list() == []
