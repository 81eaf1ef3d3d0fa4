"""A request whose handler fails or is cancelled gets an answer.

The id of one that fails is in the answer and in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from app.api.application import _bug
from app.api.http.request_ids import RequestIds
from app.broker.counts import Counts
from app.logs import JsonFormatter


async def test_a_failure_is_answered_and_logged_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonFormatter().format(record))

    app = FastAPI()
    app.add_exception_handler(Exception, partial(_bug, Counts()))

    @app.get("/broken")
    async def broken() -> None:  # pyright: ignore[reportUnusedFunction]
        raise RuntimeError("the reason")

    handler = Keep()
    logging.getLogger("app.api.application").addHandler(handler)
    try:
        transport = httpx.ASGITransport(RequestIds(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
            answer = await http.get("/broken", headers={"X-Request-Id": "mine"})
    finally:
        logging.getLogger("app.api.application").removeHandler(handler)
    assert (answer.status_code, answer.json()["request_id"]) == (500, "mine")
    assert answer.headers["x-request-id"] == "mine"
    (line,) = map(json.loads, lines)
    assert line["request_id"] == "mine"
    assert "RuntimeError: the reason" in line["exception"]


SCOPE: Scope = {"type": "http", "method": "POST", "path": "/v1/topics/orders/records", "headers": []}


async def _receive() -> Message:
    return {"type": "http.request"}


async def _cancelled(*, has_begun: bool) -> tuple[list[Message], bool]:
    """Return what a request sends that is cancelled while it waits, and whether the cancellation went on."""
    sent: list[Message] = []
    waits = asyncio.Event()

    async def send(message: Message) -> None:
        sent.append(message)

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        if has_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        waits.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(RequestIds(wait)(SCOPE, _receive, send))
    await waits.wait()
    task.cancel()
    await asyncio.wait((task,))
    return sent, task.cancelled()


async def test_a_cancelled_request_is_answered_with_broker_closing() -> None:
    (start, body), went_on = await _cancelled(has_begun=False)
    assert not went_on
    assert start["status"] == 503
    problem = json.loads(body["body"])
    assert problem["type"] == "/problems/broker-closing"
    assert problem["retriable"]
    assert b"x-request-id" in dict(start["headers"])


async def test_an_answer_that_has_begun_is_cut_off() -> None:
    sent, went_on = await _cancelled(has_begun=True)
    assert went_on
    assert [message["type"] for message in sent] == ["http.response.start"]
