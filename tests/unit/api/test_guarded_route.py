"""Rights that end while a request is served."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from app.broker.placement import Placement
from app.clock import SystemClock
from app.security.acl import READ_TOPIC, Acl, AclFilter, Operation, ResourceType
from app.security.principal import ANONYMOUS
from tests.support.acls import authorizer_over
from tests.support.http_application import application

READ = Acl(
    resource_type=ResourceType.TOPIC,
    resource_name="orders",
    principal=str(ANONYMOUS),
    operation=Operation.READ,
)
PATH = "/v1/topics/orders/partitions/0/records"


@pytest.mark.parametrize("has_right", [True, False])
async def test_a_read_that_waits_brings_nothing_after_its_right_ends(has_right: bool, tmp_path: Path) -> None:
    """In octets, whose response is one piece; others are cut as streams are."""
    authorizer = await authorizer_over([READ])
    access = authorizer.access("http", ANONYMOUS, "127.0.0.1")
    async with application(tmp_path, SystemClock()) as app:
        broker = app.state.stele.broker
        await broker.create_topic("orders", placement=Placement(partitions=1))

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "stele.access": access}, receive, send)

        async def write(http: httpx.AsyncClient) -> None:
            answer = await http.post("/v1/topics/orders/records", json={"records": [{"value": "secret"}]})
            assert answer.status_code == 200

        async with (
            httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://b") as client,
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://b") as other,
        ):
            octets = {"Accept": "application/octet-stream"}
            reading = asyncio.create_task(client.get(PATH, params={"wait_ms": 60_000}, headers=octets))
            # Its right is checked before it waits.
            while not access.was_allowed(READ_TOPIC, "orders"):  # noqa: ASYNC110 - nothing tells of the check
                await asyncio.sleep(0)
            if not has_right:
                await authorizer.acls.remove(AclFilter())
            await write(other)
            answer = await reading
    assert answer.status_code == (200 if has_right else 403)
    assert (b"secret" in answer.content) is has_right


class _Witness:
    """Something that a request holds."""


async def test_a_request_is_freed_as_soon_as_it_is_answered(tmp_path: Path) -> None:
    """Without the garbage collector, which would have to run more often."""
    authorizer = await authorizer_over([READ])
    access = authorizer.access("http", ANONYMOUS, "127.0.0.1")
    async with application(tmp_path, SystemClock()) as app:
        await app.state.stele.broker.create_topic("orders", placement=Placement(partitions=1))
        statuses: list[int] = []

        async def receive() -> Message:
            raise AssertionError("the request has no body")

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        async def answer() -> weakref.ref[_Witness]:
            witness = _Witness()
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "GET",
                "scheme": "http",
                "path": PATH,
                "raw_path": PATH.encode(),
                "query_string": b"",
                "headers": [(b"accept", b"application/octet-stream")],
                "stele.access": access,
                "witness": witness,
            }
            await app(scope, receive, send)
            return weakref.ref(witness)

        await answer()
        gc.disable()
        try:
            held = await answer()
            assert held() is None
        finally:
            gc.enable()
        assert statuses == [200, 200]
