"""No turn of the loop is long for a frame with many elements, whatever its type: as ``kafka/test_long_turns``."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from stele.wire import messages as m

from app.groups.leases.lease import LEASE_PARTITIONS_MAX, Lease, LeasedPartition
from app.network.admission import Admission
from app.security.policy import ListenerSecurity
from app.tcp.binary.connection import BinaryConnection
from app.tcp.binary.handlers.context import BinaryListener
from app.tcp.kafka.context import KafkaListener
from app.tcp.server import TcpServer
from tests.support.acls import authorizer_over
from tests.support.binary_samples import GROUP, TOPIC, sample
from tests.support.kafka_application import kafka_listener
from tests.support.long_messages import long_messages
from tests.support.turns import CallsOfTurns, CpuOfTurns, longest_turn

# A turn makes fewer calls than this for each element: it may add up all of them, but handle some only.
CALLS_PER_ELEMENT_MAX = 5
ELEMENTS = 4_000
# No turn is meant to be longer than 10 ms; a busy machine takes two or three times as long, also of CPU time.
CPU_S_MAX = 0.03
# Of a topic; each is an element of a request.
PARTITIONS_MAX = 10_000


@asynccontextmanager
async def served(listener: BinaryListener) -> AsyncGenerator[tuple[str, int]]:
    server = TcpServer(
        "binary",
        lambda registry: BinaryConnection(
            listener=listener, settings=listener.broker.settings, registry=registry
        ),
        admission=Admission("binary", connections_max=10, open_files_max=1 << 20),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    server.start(listening)
    try:
        yield listening.getsockname()
    finally:
        await server.stop(1000)


async def binary_listener(kafka: KafkaListener, *, has_rules: bool) -> BinaryListener:
    security = ListenerSecurity(listener="binary")
    if has_rules:
        security = replace(security, authorizer=await authorizer_over(allows_without_acl=True))
    return BinaryListener(
        broker=kafka.broker,
        groups=kafka.groups,
        transactions=kafka.transactions,
        host="localhost",
        port=9093,
        security=security,
    )


def long_requests(kind: type[m.Request], elements: int) -> Iterator[tuple[str, list[m.Request]]]:
    """Yield requests to send one after the other, the last of them with many elements or with many in its response."""
    request = sample(kind)
    partitions = min(elements, PARTITIONS_MAX)
    for which, long in long_messages(request, elements):
        yield which, [cast("m.Request", long)]
    match request:
        case m.FetchRequest():
            asked = [m.FetchPartition(topic=TOPIC, partition=n, offset=0) for n in range(partitions)]
            yield "partitions that exist", [replace(request, partitions=asked)]
        case m.MetadataRequest():
            yield "all topics", [m.MetadataRequest(topics=None)]
        case m.PollRequest():
            yield "topics that are one", [replace(request, topics=[TOPIC] * elements)]
            yield "all partitions", [replace(request, max_partitions=m.ANY_NUMBER)]
        case m.JoinGroupRequest():
            yield "all partitions", [request]
        case m.AckRequest() | m.NackRequest() | m.ExtendRequest():
            leased = [
                LeasedPartition(topic=TOPIC, partition=n, offset=0, next_offset=1)
                for n in range(min(elements, LEASE_PARTITIONS_MAX))
            ]
            token = Lease(group=GROUP, lease_id="made-up", partitions=leased).token()
            yield "lease", [sample(m.PollRequest), replace(request, lease=token)]
        case m.CreateTopicRequest() | m.AlterTopicRequest():
            configs = [(f"name-{number}", "value") for number in range(elements)]
            yield "configurations", [replace(request, configs=configs)]
        case _:
            # It has no arrays. What it may have of records is handled in parts: ``test_work_beside_the_loop``.
            pass


KINDS = [
    pytest.param(kind, id=kind.__name__) for kind in m.REQUESTS.values() if [*long_requests(kind, ELEMENTS)]
]


async def longest_turns(
    tmp_path: Path, kind: type[m.Request], elements: int, measure: type[CallsOfTurns | CpuOfTurns]
) -> dict[str, float]:
    async with kafka_listener(tmp_path) as kafka:
        configs = {"stele.storage": "memory"}
        await kafka.broker.create_topic(TOPIC, partitions=min(elements, PARTITIONS_MAX), configs=configs)
        async with served(await binary_listener(kafka, has_rules=True)) as address:
            seen: dict[str, float] = {}
            for which, requests in long_requests(kind, elements):
                frames = [request.encode() for request in requests]
                # The best of three: other work on the machine is not the broker's.
                times = 3 if measure is CpuOfTurns else 1
                seen[which] = min([await longest_turn(address, frames, measure) for _ in range(times)])
    return seen


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_frame_takes_short_turns(tmp_path: Path, kind: type[m.Request]) -> None:
    seen = await longest_turns(tmp_path, kind, ELEMENTS, CallsOfTurns)
    assert max(seen.values(), default=0) < CALLS_PER_ELEMENT_MAX * ELEMENTS, seen


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
async def test_the_largest_frames_take_short_turns(tmp_path: Path, kind: type[m.Request]) -> None:
    seen = await longest_turns(tmp_path, kind, m.REQUEST_ELEMENTS_MAX - 10, CpuOfTurns)
    assert max(seen.values(), default=0) < CPU_S_MAX, seen
