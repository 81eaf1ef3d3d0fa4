"""Responses of other brokers have a bound."""

from __future__ import annotations

import asyncio
from typing import cast
from uuid import uuid4

import pytest

from app.broker.cluster import SharedCluster
from app.broker.forwarding import ForwardedRequest, Forwarder
from app.cluster.membership import Member, MemberEndpoint
from app.errors import NotCoordinator


@pytest.mark.parametrize(("bytes_max", "is_read"), [(None, True), (3000, True), (2999, False)])
async def test_a_response_that_is_too_large_is_not_read_to_its_end(
    bytes_max: int | None, is_read: bool
) -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n")
        writer.write(b"x" * 3000)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        member = Member(
            broker_id=2, incarnation=uuid4(), rack=None, endpoints={"http": MemberEndpoint(host, port)}
        )
        # What is told to one broker depends on no lease.
        forwarder = Forwarder(cast("SharedCluster", None), broker_id=1, tls=None)
        request = ForwardedRequest(
            method="DELETE", target="/x", headers=(), body=b"", response_bytes_max=bytes_max
        )
        if is_read:
            response = await forwarder.tell(member, request)
            assert (response.status, len(response.body)) == (200, 3000)
        else:
            with pytest.raises(NotCoordinator):
                await forwarder.tell(member, request)
        await forwarder.close()
        await ended.wait()
