"""Transactions over HTTP, in one request and over several, against the application in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.clock import SystemClock
from tests.support.http_application import application

Json = dict[str, Any]


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        for topic, partitions in (("orders", 2), ("audit", 1), ("input", 1)):
            await ok(client, "PUT", "/v1/topics/" + topic, json={"partitions": partitions}, status=201)
        yield client


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def ok(client: httpx.AsyncClient, method: str, path: str, *, status: int = 200, **request: Any) -> Any:
    answer = await client.request(method, path, **request)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def values(client: httpx.AsyncClient, topic: str, partition: int = 0, **params: str) -> list[str]:
    path = f"/v1/topics/{topic}/partitions/{partition}/records"
    page = await ok(client, "GET", path, params=params)
    return [record["value"] for record in page["records"]]


async def committed(client: httpx.AsyncClient, group: str) -> list[tuple[str, int, int]]:
    document = await ok(client, "GET", f"/v1/groups/{group}")
    return [(part["topic"], part["partition"], part["committed"]) for part in document["partitions"]]


async def poll(client: httpx.AsyncClient, **more: Any) -> Json:
    return await ok(client, "POST", "/v1/groups/g/poll", json={"topics": ["input"], **more})


async def lease_of(client: httpx.AsyncClient) -> Json:
    """Poll until there are records: a poll may end before its group has a member."""
    while (polled := await poll(client, wait_ms=2000))["lease"] is None:
        pass
    return polled


async def fill(client: httpx.AsyncClient, *texts: str) -> None:
    await ok(
        client, "POST", "/v1/topics/input/records", json={"records": [{"value": text} for text in texts]}
    )


BODY: Json = {
    "records": [
        {"topic": "orders", "partition": 1, "value": "a"},
        {"topic": "audit", "value": "b"},
        {"topic": "orders", "partition": 1, "value": "c"},
    ]
}
RECEIPTS = [("orders", 1, 0), ("audit", 0, 0), ("orders", 1, 1)]


def receipts(answer: Json) -> list[tuple[str, int, int]]:
    return [(record["topic"], record["partition"], record["offset"]) for record in answer["records"]]


# ── one request ──


async def test_records_leases_and_offsets_commit_in_one_request(http: httpx.AsyncClient) -> None:
    await fill(http, "1", "2")
    lease = (await lease_of(http))["lease"]
    body = BODY | {
        "leases": [{"group": "g", "lease": lease}],
        "offsets": [{"group": "h", "topic": "input", "partition": 0, "offset": 1}],
    }
    answer = await ok(http, "POST", "/v1/transactions", json=body)
    assert receipts(answer) == RECEIPTS
    assert answer["durability"] == "synced"
    assert await values(http, "orders", 1) == ["a", "c"]
    assert await values(http, "audit") == ["b"]
    assert await committed(http, "g") == [("input", 0, 2)]
    assert await committed(http, "h") == [("input", 0, 1)]


async def test_the_producer_of_one_request_serves_the_next(http: httpx.AsyncClient) -> None:
    for number in range(3):
        answer = await ok(
            http, "POST", "/v1/transactions", json={"records": [{"topic": "audit", "value": f"{number}"}]}
        )
        # Each marker takes an offset.
        assert receipts(answer) == [("audit", 0, 2 * number)]
    assert await values(http, "audit") == ["0", "1", "2"]


async def test_concurrent_requests_do_not_disturb_each_other(http: httpx.AsyncClient) -> None:
    requests = [
        ok(http, "POST", "/v1/transactions", json={"records": [{"topic": "audit", "value": f"{number}"}] * 2})
        for number in range(100)
    ]
    await asyncio.gather(*requests)
    assert sorted(await values(http, "audit", limit="1000")) == sorted(
        f"{number}" for number in range(100) for _ in range(2)
    )


async def test_a_lease_that_is_over_aborts_all(http: httpx.AsyncClient) -> None:
    await fill(http, "1")
    lease = (await lease_of(http))["lease"]
    await ok(http, "POST", "/v1/groups/g/nack", json={"lease": lease}, status=204)
    assert (await lease_of(http))["lease"] != lease
    body = BODY | {"leases": [{"group": "g", "lease": lease}]}
    problem = await ok(http, "POST", "/v1/transactions", json=body, status=409)
    assert problem["type"] == "/problems/lease-fenced"
    assert await values(http, "orders", 1) == await values(http, "audit") == []
    # The aborted records are in the log all the same, so this shows that the abort is a marker.
    assert await values(http, "audit", isolation="read_uncommitted") == ["b"]
    await ok(http, "POST", "/v1/transactions", json=BODY)
    assert await values(http, "orders", 1) == ["a", "c"]


async def test_a_record_at_fault_is_named_and_nothing_is_written(http: httpx.AsyncClient) -> None:
    body = {
        "records": [
            {"topic": "audit", "value": "a"},
            {"value": "no topic"},
            {"topic": "orders", "partition": 7, "value": "x"},
            {"topic": "not a name", "value": "x"},
        ]
    }
    problem = await ok(http, "POST", "/v1/transactions", json=body, status=400)
    assert [error["index"] for error in problem["errors"]] == [1, 2, 3]
    assert "record 1: the record has no topic" in problem["detail"]
    assert await values(http, "audit", isolation="read_uncommitted") == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"records": []}, 400),
        ({"records": [{"topic": "audit"}]}, 400),
        ({"record": []}, 400),
        ({"offsets": [{"group": "", "topic": "input", "partition": 0, "offset": 1}]}, 400),
        ({"offsets": [{"group": "g", "topic": "input", "partition": 9, "offset": 1}]}, 404),
        ({"offsets": [{"group": "g", "topic": "input", "partition": 0, "offset": -1}]}, 400),
        ({"leases": [{"group": "g", "lease": "made up"}]}, 400),
    ],
)
async def test_an_invalid_request_is_refused(http: httpx.AsyncClient, body: Json, status: int) -> None:
    await ok(http, "POST", "/v1/transactions", json=body, status=status)


async def test_a_request_with_too_many_records_is_refused(tmp_path: Path) -> None:
    async with (
        application(tmp_path, SystemClock(), transaction_request_records_max=2) as app,
        client_of(app) as client,
    ):
        record = {"topic": "audit", "value": "x"}
        problem = await ok(client, "POST", "/v1/transactions", json={"records": [record] * 3}, status=413)
        assert problem["limit"] == 2
        await ok(client, "POST", "/v1/transactions", json={"records": [record] * 2})
        assert await values(client, "audit") == ["x", "x"]


# ── idempotency keys ──


async def test_a_repeated_request_gets_the_first_answer(http: httpx.AsyncClient) -> None:
    first = await http.post("/v1/transactions", json=BODY, headers={"Idempotency-Key": "k1"})
    again = await http.post("/v1/transactions", json=BODY, headers={"Idempotency-Key": "k1"})
    assert first.status_code == 200
    assert first.content == again.content
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert await values(http, "audit") == ["b"]
    problem = await ok(
        http,
        "POST",
        "/v1/transactions",
        json={"records": [{"topic": "audit", "value": "other"}]},
        headers={"Idempotency-Key": "k1"},
        status=422,
    )
    assert problem["type"] == "/problems/idempotency-key-reused"
    assert await values(http, "audit") == ["b"]


async def test_a_request_that_failed_may_be_corrected_under_its_key(http: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k"}
    wrong = {"offsets": [{"group": "g", "topic": "nowhere", "partition": 0, "offset": 1}]}
    await ok(http, "POST", "/v1/transactions", json=BODY | wrong, headers=headers, status=404)
    await ok(http, "POST", "/v1/transactions", json=BODY, headers=headers)
    assert await values(http, "audit") == ["b"]


async def test_of_equal_requests_at_once_one_is_executed(http: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(
        *(http.post("/v1/transactions", json=BODY, headers={"Idempotency-Key": "k"}) for _ in range(5))
    )
    assert sorted({answer.status_code for answer in answers}) == [200, 409]
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["type"] == "/problems/idempotency-key-in-use"
            assert answer.json()["retriable"]
    assert await values(http, "audit") == ["b"]


class TurnedClock(SystemClock):
    turned_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.turned_ms


async def test_a_key_is_forgotten_when_it_has_expired(tmp_path: Path) -> None:
    clock, expiration_ms = TurnedClock(), 3_600_000
    async with (
        application(tmp_path, clock, idempotency_key_expiration_ms=expiration_ms) as app,
        client_of(app) as client,
    ):
        await ok(client, "PUT", "/v1/topics/orders", json={"partitions": 2}, status=201)
        for copies in (1, 2):
            for _ in range(2):
                headers = {"Idempotency-Key": "k"}
                await ok(client, "POST", "/v1/transactions", json=BODY, headers=headers)
                assert await values(client, "audit") == ["b"] * copies
            clock.turned_ms += expiration_ms


async def test_answers_survive_a_restart(tmp_path: Path) -> None:
    headers = {"Idempotency-Key": "k"}
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        await ok(client, "PUT", "/v1/topics/orders", json={"partitions": 2}, status=201)
        first = await ok(client, "POST", "/v1/transactions", json=BODY, headers=headers)
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        assert await ok(client, "POST", "/v1/transactions", json=BODY, headers=headers) == first
        assert await values(client, "audit") == ["b"]


# ── several requests ──


async def begin(client: httpx.AsyncClient, name: str = "job-7") -> dict[str, str]:
    return token(await ok(client, "POST", f"/v1/transactions/{name}/begin"))


def token(answer: Json) -> dict[str, str]:
    return {"Producer-Id": str(answer["producer_id"]), "Producer-Epoch": str(answer["producer_epoch"])}


async def step(
    client: httpx.AsyncClient, what: str, headers: dict[str, str], *, status: int = 200, **request: Any
) -> Any:
    return await ok(
        client, "POST", f"/v1/transactions/job-7/{what}", headers=headers, status=status, **request
    )


async def test_a_transaction_over_several_requests_is_visible_after_its_commit(
    http: httpx.AsyncClient,
) -> None:
    await fill(http, "1")
    lease = (await lease_of(http))["lease"]
    first = await begin(http)
    assert receipts(await step(http, "records", first, json=BODY)) == RECEIPTS
    await step(http, "records", first, json={"records": [{"topic": "audit", "value": "d"}]})
    await step(http, "settle", first, json={"leases": [{"group": "g", "lease": lease}]}, status=204)
    assert await values(http, "audit") == []
    second = token(await step(http, "commit", first))
    assert await values(http, "audit") == ["b", "d"]
    assert await committed(http, "g") == [("input", 0, 1)]
    # The answer was lost.
    assert token(await step(http, "commit", first)) == second
    await step(http, "records", second, json={"records": [{"topic": "audit", "value": "e"}]})
    await step(http, "commit", second)
    assert await values(http, "audit") == ["b", "d", "e"]


async def test_an_abort_leaves_nothing_and_gives_the_lease_back(http: httpx.AsyncClient) -> None:
    await fill(http, "1")
    polled = await lease_of(http)
    producer = await begin(http)
    await step(http, "records", producer, json=BODY)
    await step(
        http, "settle", producer, json={"leases": [{"group": "g", "lease": polled["lease"]}]}, status=204
    )
    assert (await poll(http))["records"] == []
    await step(http, "abort", producer)
    assert await values(http, "audit") == await values(http, "orders", 1) == []
    again = await lease_of(http)
    assert [record["value"] for record in again["records"]] == ["1"]


async def test_a_second_begin_fences_the_first(http: httpx.AsyncClient) -> None:
    first = await begin(http)
    await step(http, "records", first, json=BODY)
    second = await begin(http)
    assert await values(http, "audit") == []
    offsets: Json = {"offsets": [{"group": "g", "topic": "input", "partition": 0, "offset": 1}]}
    bodies: list[tuple[str, Json | None]] = [
        ("records", BODY),
        ("settle", offsets),
        ("commit", None),
        ("abort", None),
    ]
    for what, body in bodies:
        problem = await step(http, what, first, json=body, status=409)
        assert problem["type"] == "/problems/transaction-fenced", what
    await step(http, "records", second, json={"records": [{"topic": "audit", "value": "z"}]})
    await step(http, "commit", second)
    assert await values(http, "audit") == ["z"]


@pytest.mark.parametrize(
    "headers", [{}, {"Producer-Id": "1"}, {"Producer-Id": "1", "Producer-Epoch": "99999"}]
)
async def test_a_request_without_the_fencing_token_is_refused(
    http: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    problem = await step(http, "commit", headers, status=400)
    assert "Producer-" in problem["detail"]


async def test_the_ids_of_the_broker_are_not_for_clients(http: httpx.AsyncClient) -> None:
    await ok(http, "POST", "/v1/transactions/__stele.atomic-0/begin", status=400)
