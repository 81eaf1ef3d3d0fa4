"""Responses that take long to encode do not hold the event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from stele.wire.kafka.configs import (
    DESCRIBE_CONFIGS_API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from stele.wire.schema.compiler import ELEMENTS_PER_STEP

from app.network.admission import Admission
from app.security.policy import ListenerSecurity
from app.settings import Settings
from app.tcp.kafka.apis import Served
from app.tcp.kafka.connection import KafkaConnection
from app.tcp.kafka.context import KafkaListener
from app.tcp.server import TcpServer
from tests.support.kafka_peer import read_response, request_frame

UNKNOWN_TYPE = 99


def request_for(resources: int) -> bytes:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=UNKNOWN_TYPE, resource_name=str(number), configuration_keys=None
            )
            for number in range(resources)
        ]
    )
    return request_frame(request, 4)


async def ask(frame: bytes) -> bytes:
    """The response to ``frame`` from a connection whose broker is asked for nothing but unknown topics."""

    async def find_none(names: Iterable[str]) -> None:
        assert list(names) == []

    broker = SimpleNamespace(
        configs=None, quotas=SimpleNamespace(is_active=False), try_to_find_topics=find_none
    )
    listener = cast(
        "KafkaListener", SimpleNamespace(broker=broker, security=ListenerSecurity(listener="kafka"))
    )
    settings = Settings()
    server = TcpServer(
        "kafka",
        lambda registry: KafkaConnection(listener=listener, settings=settings, registry=registry),
        admission=Admission("kafka", connections_max=1, open_files_max=1 << 20),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    server.start(listening)
    try:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(size)
        writer.close()
        return answer
    finally:
        await server.stop(1000)


async def test_the_response_to_an_api_that_walks_is_written_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[None] = []
    encode_in_steps = Served.encode_in_steps

    def counted(self: Served, *arguments: Any) -> Iterator[None]:
        for step in encode_in_steps(self, *arguments):
            steps.append(step)
            yield step

    monkeypatch.setattr(Served, "encode_in_steps", counted)
    answer = await ask(request_for(1000))
    _, response = read_response(answer, DESCRIBE_CONFIGS_API, 4)
    assert [result.resource_name for result in response.results] == [str(n) for n in range(1000)]
    assert len(steps) == 1000 // ELEMENTS_PER_STEP
