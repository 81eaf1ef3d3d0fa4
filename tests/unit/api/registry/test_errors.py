"""How problems become errors of the registry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from app.api.errors import http_problem, problem_response
from app.api.registry.errors import MEDIA_TYPES, encode_error, registry_errors


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (http_problem(400, "what is wrong"), (400, "what is wrong")),
        (http_problem(401, "log in"), (40101, "log in")),
        (http_problem(403, "not yours"), (40301, "not yours")),
        (http_problem(404, "no such path"), (404, "HTTP 404 Not Found")),
        (http_problem(404, "Subject 'a' not found.", error_code=40401), (40401, "Subject 'a' not found.")),
        (http_problem(405, "no such method"), (405, "HTTP 405 Method Not Allowed")),
        (http_problem(503, "later"), (503, "later")),
    ],
)
def test_a_problem_becomes_a_code_and_a_message(problem: dict[str, Any], expected: tuple[int, str]) -> None:
    body, media_type = encode_error(problem)
    document = msgspec.json.decode(body)
    assert (document.pop("error_code"), document.pop("message"), document) == (*expected, {})
    assert media_type == MEDIA_TYPES[0]


async def sent_by(application: Any, accept: bytes) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await registry_errors(application)({"type": "http", "headers": [(b"accept", accept)]}, receive, send)
    return sent


@pytest.mark.parametrize(
    ("accept", "expected"),
    [(b"*/*", MEDIA_TYPES[0]), (b"application/json", MEDIA_TYPES[2]), (b"a/b", MEDIA_TYPES[0])],
)
async def test_a_problem_keeps_its_headers(accept: bytes, expected: str) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await problem_response(http_problem(429, "wait"), headers={"Retry-After": "7"})(scope, receive, send)

    start, body = await sent_by(application, accept)
    headers = dict(start["headers"])
    assert (start["status"], headers[b"retry-after"]) == (429, b"7")
    assert headers[b"content-type"] == expected.encode()
    assert headers[b"content-length"] == b"%d" % len(body["body"])
    assert msgspec.json.decode(body["body"]) == {"error_code": 429, "message": "wait"}


async def test_what_is_no_problem_passes() -> None:
    messages: list[Message] = [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]},
        {"type": "http.response.body", "body": b"[]", "more_body": True},
        {"type": "http.response.body", "body": b""},
    ]

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    assert await sent_by(application, b"") == messages
