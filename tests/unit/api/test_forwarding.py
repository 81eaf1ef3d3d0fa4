"""Requests that claim to come from another broker: what is not signed costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.api.forwarding import AcceptForwarded, Forwarding, KafkaFrames
from app.broker.forwarding import Forwarder
from app.clock import SystemClock
from app.security.forwarding import HEADER, ForwardedClient, SignedRequest, forwarding_key, sign
from app.security.policy import ListenerSecurity
from app.security.principal import Principal

KEY = forwarding_key(b"s" * 32)
OTHER_KEY = forwarding_key(b"t" * 32)
ROOT = ForwardedClient(Principal("root"), "10.0.0.7")
POLL = SignedRequest(method="POST", target="/v1/groups/g/poll", body=b"{}")


def header(key: bytes, *, age_ms: int = 0) -> bytes:
    return sign(key, ROOT, POLL, SystemClock().now_ms() - age_ms)


# Signed by a broker whose clock is an hour behind or ahead.
APART = [header(KEY, age_ms=age_ms) for age_ms in (3_600_000, -3_600_000)]


async def statuses(values: Sequence[bytes], receive: Receive) -> list[int]:
    """The statuses of the responses to POLL with these headers; 200 if it was served."""
    found: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["stele.principal"] == ROOT.principal
        assert (await receive())["body"] == POLL.body
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def log_in(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the request claims to be forwarded")

    async def serve_frame(frame_type: int, body: bytes, client: ForwardedClient) -> bytes:
        raise AssertionError("it is no frame")

    # Only requests that are forwarded further need a forwarder, and these are no frames.
    forwarding = Forwarding(
        cast("Forwarder", None), KEY, SystemClock(), "this", serve_frame, cast("KafkaFrames", None)
    )
    accept = AcceptForwarded(serve, log_in, ListenerSecurity(listener="http"), forwarding)
    headers = [(HEADER, value) for value in values]
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": POLL.target,
        "query_string": b"",
        "headers": headers,
    }
    await accept(scope, receive, send)
    return found


@pytest.mark.parametrize(
    "values", [[b"forged"], [header(OTHER_KEY)], [header(KEY), header(KEY)], *([one] for one in APART)]
)
async def test_a_body_without_a_valid_signature_is_not_read(values: list[bytes]) -> None:
    """Otherwise any client could have a megabyte kept for each of its connections, without a login."""

    async def receive() -> Message:
        raise AssertionError("the body is read")

    assert await statuses(values, receive) == [401]


@pytest.mark.parametrize(("body", "status"), [(POLL.body, 200), (b"{ }", 401)])
async def test_a_signature_is_for_one_body(body: bytes, status: int) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    assert await statuses([header(KEY)], receive) == [status]
