"""Bodies of many small elements: they become no more objects, and no longer answers, than one request may have."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from app.api.http import body_codings
from app.api.json_bodies import JsonBody
from app.api.openapi.operations import OPERATIONS
from app.api.records import json_records, ndjson_upload
from app.api.records.upload import ERROR_WEIGHT, ERRORS_SHOWN_MAX, Upload
from app.broker.producing.produce import Acks
from app.clock import SystemClock
from app.errors import InvalidRequest
from tests.support.http_application import application

MIB = 1024 * 1024
PRODUCE = "/v1/topics/orders/records"
BAD_LINES = b"1\n" * 20_000
PRODUCER = {"Producer-Id": "7", "Producer-Epoch": "0", "Producer-Sequence": "0"}


def list_of(element: bytes, count: int) -> bytes:
    return b'{"records":[' + b",".join([element] * count) + b"]}"


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


# ── JSON ──


@pytest.mark.parametrize("path", [PRODUCE, "/v1/transactions"])
async def test_every_request_with_records_has_this_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for module in ("app.api.json_bodies", "app.api.routes.produce"):
        monkeypatch.setattr(f"{module}.RECORDS_MAX", 1000)
    # Only of a body that is decoded in turns: others cannot have too many.
    monkeypatch.setattr("app.api.records.large_bodies.TURN_BYTES", 0)
    async with (
        application(tmp_path, SystemClock(), transaction_request_records_max=10) as app,
        client_of(app) as client,
    ):
        headers = {"Content-Type": "application/json"}
        answer = await client.post(path, content=list_of(b"{}", 1001), headers=headers)
        assert answer.status_code == 413, answer.text
        assert "more than 1000 records" in answer.json()["detail"]
        answer = await client.post(path, content=list_of(b"1", 10), headers=headers)
        assert (answer.status_code, "got `int`" in answer.text) == (400, True)


async def test_a_json_body_is_read_up_to_a_thousand_records_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[object] = []
    parse = json_records.parse_record

    def counted(text: Any) -> json_records.RecordIn:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr("app.api.records.large_records.parse_record", counted)
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        answer = await client.post(PRODUCE, content=list_of(b"{}", 3000))
    assert answer.status_code == 400
    assert len(answer.json()["errors"]) == len(parsed) == ERRORS_SHOWN_MAX


async def test_without_records_bodies_are_smaller(tmp_path: Path) -> None:
    names = {"topic": "orders", "group": "g", "user": "alice", "partition": "0", "mirror": "prod"}
    tried = 0
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        for operation in OPERATIONS.values():
            body = operation.body
            if not isinstance(body, JsonBody) or operation.path.startswith("/v1/_"):
                continue
            path = operation.path.replace(":path", "").format_map(
                {**names, "member_id": "m", "transactional_id": "t"}
            )
            large = b'{"none":"' + b"x" * 2 * MIB + b'"}'
            answer = await client.request(operation.method, path, content=large, headers=PRODUCER)
            tried += answer.status_code == 413
            # 403 and 409: this broker has neither users nor access rules.
            assert answer.status_code in (413, 403, 409), (operation.method, path, answer.text)
    assert tried > 15


@pytest.mark.parametrize("path", ["/v1/transactions", "/v1/transactions/t/settle"])
async def test_a_transaction_has_a_limit_on_its_leases_and_offsets(tmp_path: Path, path: str) -> None:
    offset = {"group": "g", "topic": "orders", "partition": 0, "offset": 1}
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        answer = await client.post(path, json={"offsets": [offset] * 10_001}, headers=PRODUCER)
        assert answer.status_code == 413, answer.text
        assert answer.json()["limit"] == 10_000
        answer = await client.post(path, json={"offsets": [offset] * 10_000}, headers=PRODUCER)
        assert answer.status_code in (400, 404, 409), answer.text


async def test_a_reset_names_each_topic_once(tmp_path: Path) -> None:
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        await client.put("/v1/topics/orders", json={"partitions": 3})
        body = {"to": "earliest", "topics": ["orders"] * 2}
        answer = await client.put("/v1/groups/g/offsets", json=body)
        assert answer.status_code == 400
        assert answer.json()["detail"] == "a topic is named twice; name each once"


async def test_a_reset_may_name_as_many_partitions_as_there_are_of_large_topics(tmp_path: Path) -> None:
    offsets = [{"topic": "orders", "partition": number, "offset": 42} for number in range(10_000)]
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        await client.put("/v1/topics/orders", json={"partitions": 3})
        answer = await client.put("/v1/groups/g/offsets", json={"offsets": offsets})
    # All of it was read: only then is there anything to say of one of them.
    assert (answer.status_code, "partition 3" in answer.text) == (404, True), answer.text


# ── NDJSON ──


async def test_lines_are_read_no_faster_than_the_client_reads_why_they_are_refused(tmp_path: Path) -> None:
    lines_max = ndjson_upload.SPOOLED_RECORDS_MAX // ERROR_WEIGHT
    sent = 0
    is_blocked = asyncio.Event()

    async def receive() -> Message:
        nonlocal sent
        sent += len(BAD_LINES) // 2
        assert sent < 10 * lines_max, "all of it is read"
        return {"type": "http.request", "body": BAD_LINES, "more_body": True}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            is_blocked.set()
            await asyncio.get_running_loop().create_future()

    async with application(tmp_path, SystemClock()) as app:
        scope = {
            "type": "http",
            "method": "POST",
            "path": PRODUCE,
            "raw_path": PRODUCE.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/x-ndjson"),
                (b"transfer-encoding", b"chunked"),
            ],
        }
        upload = asyncio.create_task(app(scope, receive, send))
        await is_blocked.wait()
        before = -1
        while sent != before:
            before = sent
            for _ in range(1000):
                await asyncio.sleep(0)
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
    assert lines_max <= sent < lines_max + 3 * len(BAD_LINES)


async def test_an_upload_of_one_batch_is_read_up_to_a_thousand_lines_that_are_refused(tmp_path: Path) -> None:
    sent = 0

    async def lines() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(10):
            sent += 1
            yield BAD_LINES

    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        headers = {"Content-Type": "application/x-ndjson", **PRODUCER}
        answer = await client.post(PRODUCE, content=lines(), headers=headers)
    assert answer.status_code == 400
    assert len(answer.json()["errors"]) == ERRORS_SHOWN_MAX
    assert sent < 10, "all of it is read"


async def test_an_answer_lists_a_thousand_errors_at_most(tmp_path: Path) -> None:
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        headers = {"Content-Type": "application/x-ndjson"}
        answer = await client.post(PRODUCE, content=b"1\n" * 3000, headers=headers)
    assert answer.status_code == 400
    assert len(answer.json()["errors"]) == ERRORS_SHOWN_MAX


async def test_an_error_that_waits_for_its_answer_does_not_keep_the_record(tmp_path: Path) -> None:
    async with application(tmp_path, SystemClock()) as app:
        broker = app.state.stele.broker
        upload = Upload(broker, await broker.ensure_topic("orders"), acks=Acks.ALL)
        with pytest.raises(InvalidRequest) as refused:
            json_records.decode_record(b"1")
        upload.add_error(refused.value)
        upload.append()
        (chunk,) = upload.take_chunks()
        error = chunk.errors[0]
        assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)


# ── codings ──


async def test_other_requests_are_served_between_empty_members_of_a_coded_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = 0
    pause = body_codings.pause

    async def counted() -> None:
        nonlocal pauses
        pauses += 1
        await pause()

    monkeypatch.setattr(body_codings, "pause", counted)
    body = gzip.compress(b"", mtime=0) * 500 + gzip.compress(json.dumps({"records": [{"value": 1}]}).encode())
    async with application(tmp_path, SystemClock()) as app, client_of(app) as client:
        answer = await client.post(PRODUCE, content=body, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 200, answer.text
    assert pauses > 500
