"""Responses of other brokers have a bound, and a refused signature is an error that may be retried."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast
from uuid import uuid4

import pytest

from app.broker.cluster import SharedCluster
from app.broker.forwarding import SIGNATURE_REFUSED_STATUS, ForwardedRequest, Forwarder
from app.cluster.membership import Member, MemberEndpoint
from app.errors import NotCoordinator


@asynccontextmanager
async def forwarder_to(response: bytes) -> AsyncGenerator[tuple[Forwarder, Member]]:
    """A forwarder, and a broker that answers a request with this response."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        endpoint = MemberEndpoint(host, port)
        # What is told to one broker depends on no lease.
        forwarder = Forwarder(cast("SharedCluster", None), broker_id=1, tls=None)
        yield forwarder, Member(broker_id=2, incarnation=uuid4(), rack=None, endpoints={"http": endpoint})
        await forwarder.close()
        await ended.wait()


@pytest.mark.parametrize(("bytes_max", "is_read"), [(None, True), (3000, True), (2999, False)])
async def test_a_response_that_is_too_large_is_not_read_to_its_end(
    bytes_max: int | None, is_read: bool
) -> None:
    request = ForwardedRequest(
        method="DELETE", target="/x", headers=(), body=b"", response_bytes_max=bytes_max
    )
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000
    async with forwarder_to(answer) as (forwarder, member):
        if is_read:
            response = await forwarder.tell(member, request)
            assert (response.status, len(response.body)) == (200, 3000)
        else:
            with pytest.raises(NotCoordinator):
                await forwarder.tell(member, request)


async def test_a_refused_signature_may_be_retried_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    answer = b"HTTP/1.1 %d Unauthorized\r\nContent-Length: 0\r\n\r\n" % SIGNATURE_REFUSED_STATUS
    request = ForwardedRequest(method="POST", target="/v1/groups/g/poll", headers=(), body=b"{}")
    async with forwarder_to(answer) as (forwarder, member):
        with caplog.at_level(logging.WARNING), pytest.raises(NotCoordinator) as raised:
            await forwarder.tell(member, request)
    assert raised.value.broker_id == 2
    assert "compare the clocks of the brokers" in caplog.text
