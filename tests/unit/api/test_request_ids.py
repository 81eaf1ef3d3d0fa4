"""A request that a shutdown cancels is answered with a problem document."""

from __future__ import annotations

import asyncio
import json

from starlette.types import Message, Receive, Scope, Send

from app.api.request_ids import RequestIds

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
