"""The fast path of a produce gives the same bytes and the same log as the generic one."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api_versions import ApiVersionsRequest
from stele.wire.kafka.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData

from app.broker.placement import Placement
from app.network.admission import Admission
from app.security.acl import Acl, AclFilter, Operation, ResourceType
from app.security.policy import ListenerSecurity
from app.security.principal import ANONYMOUS
from app.settings import Settings
from app.storage.topic_partition import TopicPartition
from app.tcp.kafka import connection as kafka_connection
from app.tcp.kafka import direct_produce
from app.tcp.kafka.connection import KafkaConnection
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.direct_produce import LENGTHS_MAX, PREFIX_BYTES_MAX, ROUTES_MAX, Routes
from app.tcp.kafka.route_learning import SKIPPED_MAX
from app.tcp.server import TcpServer
from tests.support.acls import authorizer_over
from tests.support.charges import Charge, noted_charges, set_quotas
from tests.support.kafka_application import kafka_listener, served
from tests.support.kafka_peer import read_response, request_frame

TOPICS = {"orders": 2, "a-topic-with-a-much-longer-name": 1, "stamped": 1, "compressed": 1}
CONFIGS = {
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compressed": {"compression.type": "gzip"},
}
NOT_CREATED = "missing"
LAST = 1_000_000
NOW_MS = 1_790_000_000_000


@dataclass(frozen=True, slots=True)
class Produce:
    """One request, of whose topic only the name is known before there is a broker."""

    version: int
    topic: str
    partition: int
    acks: int
    records: bytes | None
    client_id: str | None
    trailing: bytes = b""


def batch(count: int = 1, producer_id: int = rb.NO_PRODUCER_ID, base_sequence: int = -1) -> bytes:
    rows: list[rb.Row] = [(NOW_MS + number, b"k", b"v" * 20, []) for number in range(count)]
    epoch = -1 if producer_id == rb.NO_PRODUCER_ID else 0
    return bytes(
        rb.build_rows(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence)
    )


def _changed(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


def _compressed() -> bytes:
    builder = rb.BatchBuilder(compression=Compression.ZSTD)
    builder.append(timestamp_ms=NOW_MS, value=b"v" * 100)
    return bytes(builder.build())


# A timestamp that a topic refuses.
FUTURE = bytes(rb.build_rows([(NOW_MS * 2, None, b"v", [])]))

RECORDS: list[bytes | None] = [
    batch(),
    batch(),
    batch(5),
    batch(2) + batch(3),
    *(batch(2, 7, first) for first in (0, 2, 4, 2, 9)),
    _compressed(),
    bytes(rb.build_rows([(NOW_MS, None, b"v", [])], producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)),
    FUTURE,
    # A wrong checksum, an old format, no whole batch, too much, none.
    _changed(batch(), 17, b"\0\0\0\0"),
    _changed(batch(), 16, b"\1"),
    batch()[:-1],
    batch()[:30],
    batch() + b"\0",
    bytes(rb.build_rows([(NOW_MS, None, b"v" * 1_100_000, [])])),
    b"",
    None,
]  # fmt: skip


def _is_prepared_in_thread(produce: Produce) -> bool:
    """Return whether it may be refused by a thread.

    How many later requests begin before acks=0 closes the connection is chance then.
    """
    return produce.topic == "compressed" or produce.records is FUTURE


produces = st.builds(
    Produce,
    version=st.integers(3, 13),
    topic=st.sampled_from([*TOPICS, "orders", NOT_CREATED]),
    partition=st.sampled_from([0, 0, 0, 1, 5, -1]),
    acks=st.sampled_from([1, 1, -1, -1, 0, 3]),
    records=st.sampled_from(RECORDS),
    client_id=st.sampled_from(["a", "another client", "", None]),
    trailing=st.sampled_from([b"", b"", b"", b"\0"]),
).filter(lambda produce: produce.acks or not _is_prepared_in_thread(produce))


# Some are exceeded by most histories, some by none.
quotas_set = st.sampled_from(
    [
        {},
        {},
        {"producer_byte_rate": 1},
        {"producer_byte_rate": 50, "request_percentage": 1},
        {"producer_byte_rate": 1e12},
        {"consumer_byte_rate": 1},
    ]
)


def _frame(listener: KafkaListener, produce: Produce, correlation: int) -> bytes:
    topic_id = b"\0" * 16
    if produce.topic != NOT_CREATED:
        topic_id = listener.broker.topic(produce.topic).topic_id.bytes
    request = ProduceRequest(
        acks=produce.acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=produce.topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=produce.partition, records=produce.records)],
            )
        ],
    )
    frame = request_frame(request, produce.version, correlation=correlation, client_id=produce.client_id)
    return struct.pack(">i", len(frame) - 4 + len(produce.trailing)) + frame[4:] + produce.trailing


async def _exchange(listener: KafkaListener, frames: Sequence[bytes], *, is_generic: bool) -> list[bytes]:
    """Send the frames at once; return the responses, without that to a last request which ends the wait."""
    responses: list[bytes] = []
    async with served(listener, is_generic=is_generic) as address:
        reader, writer = await asyncio.open_connection(*address)
        last = request_frame(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3, correlation=LAST
        )
        writer.write(b"".join(frames) + last)
        while True:
            try:
                response = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            except asyncio.IncompleteReadError:
                # A produce with acks=0 that fails closes the connection.
                responses.append(b"closed")
                break
            if response[:4] == struct.pack(">i", LAST):
                break
            responses.append(response)
        writer.close()
    return responses


async def _state(listener: KafkaListener, path: Path) -> list[object]:
    """Return all that a produce changes: the bytes of the logs, and what is known of partitions and producers."""
    broker = listener.broker
    state: list[object] = [broker.counts]
    for name, partitions in TOPICS.items():
        for partition in range(partitions):
            producers = await broker.producers(*TopicPartition(name, partition))
            state += [
                broker.log_state(name, partition).high_watermark,
                broker.log_state(name, partition).log_end_offset,
                [(view.producer_id, view.epoch, view.last_sequence, view.last_offset) for view in producers],
            ]
            if name != "stamped":
                log = path / f"{name}-{partition}" / f"{0:020d}.log"
                state.append(log.read_bytes())
    return state


async def _outcome(
    path: Path, rounds: Sequence[Sequence[Produce]], quotas: Mapping[str, float], *, is_generic: bool
) -> tuple[list[bytes], list[object], list[Charge]]:
    """Return the responses, with the ids of the topics made equal, the state after all of them, and the charges."""
    responses: list[bytes] = []
    async with kafka_listener(path) as listener:
        await set_quotas(listener.broker.quotas, quotas)
        for name, partitions in TOPICS.items():
            await listener.broker.create_topic(
                name, placement=Placement(partitions=partitions), configs=CONFIGS.get(name, {})
            )
        with noted_charges(listener.broker.quotas) as charges:
            for produces in rounds:
                frames = [_frame(listener, produce, number) for number, produce in enumerate(produces)]
                for response in await _exchange(listener, frames, is_generic=is_generic):
                    for number, name in enumerate(TOPICS):
                        response = response.replace(
                            listener.broker.topic(name).topic_id.bytes, bytes((number,)) * 16
                        )
                    responses.append(_without_append_time(response))
                charges.now_ms += 700
        await listener.broker.flush()
        return responses, await _state(listener, path), sorted(charges.noted)


def _without_append_time(response: bytes) -> bytes:
    """Replace the times of stamped topics and of refusals, which are those of the clock."""
    response = re.sub(rb"later than \d+", b"later than now", response)
    stamp = response.find(b"\x00\x00\x01", 20)
    while stamp >= 0:
        (time_ms,) = struct.unpack_from(">q", response[: stamp + 8].ljust(stamp + 8, b"\0"), stamp)
        if 1_600_000_000_000 < time_ms < 2_500_000_000_000:
            response = _changed(response, stamp, b"\0" * 8)
        stamp = response.find(b"\x00\x00\x01", stamp + 1)
    return response


@settings(max_examples=5)
@given(
    rounds=st.lists(st.lists(produces, min_size=1, max_size=12), min_size=1, max_size=2), quotas=quotas_set
)
def test_both_ways_give_the_same_responses_logs_and_charges(
    rounds: list[list[Produce]], quotas: dict[str, float]
) -> None:
    with tempfile.TemporaryDirectory() as direct, tempfile.TemporaryDirectory() as generic:
        ours = asyncio.run(_outcome(Path(direct), rounds, quotas, is_generic=False))
        theirs = asyncio.run(_outcome(Path(generic), rounds, quotas, is_generic=True))
    assert ours == theirs


@pytest.mark.every(4)
@pytest.mark.parametrize("version", range(7, 14))
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("quotas", [{}, {"producer_byte_rate": 1e12, "request_percentage": 1e6}])
def test_the_usual_produce_takes_the_short_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, acks: int, quotas: dict[str, float]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("decoded on the generic path")

    async def produce() -> list[bytes]:
        async with kafka_listener(tmp_path) as listener:
            await listener.broker.create_topic("orders", placement=Placement(partitions=1))
            await set_quotas(listener.broker.quotas, quotas)
            usual = Produce(version, "orders", 0, acks, batch(), "a client")
            frames = [_frame(listener, usual, number) for number in range(5)]
            monkeypatch.setattr(kafka_connection.Served, "encode", refuse)
            return await _usual(listener, frames)

    responses = asyncio.run(produce())
    assert [int.from_bytes(response[:4]) for response in responses] == list(range(5))


@pytest.mark.parametrize("is_generic", [False, True])
@pytest.mark.parametrize("acks", [1, -1])
async def test_the_time_of_a_produce_is_charged_and_told_when_it_is_too_long(
    tmp_path: Path, acks: int, is_generic: bool
) -> None:
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        quotas = listener.broker.quotas
        await set_quotas(quotas, {"request_percentage": 1})
        frames = [_frame(listener, Produce(9, "orders", 0, acks, batch(), "a client"), 0)]
        with noted_charges(quotas) as charges:
            seconds = count(0, 5)
            quotas.clock_s = lambda: float(next(seconds))
            (response,) = await _exchange(listener, frames, is_generic=is_generic)
        _, answer = read_response(response, PRODUCE_API, 9)
        # The longest delay of this quota: one sample.
        assert answer.throttle_time_ms == 1000
        assert ("kafka", "request_percentage", ("ANONYMOUS", "a client"), 500.0) in charges.noted


async def _usual(listener: KafkaListener, frames: Sequence[bytes]) -> list[bytes]:
    async with _client_of(listener) as send:
        return await send(frames)


@asynccontextmanager
async def _client_of(
    listener: KafkaListener,
) -> AsyncGenerator[Callable[[Sequence[bytes]], Awaitable[list[bytes]]]]:
    """One connection, over which frames are sent."""
    server = TcpServer(
        "kafka",
        lambda registry: KafkaConnection(listener=listener, settings=Settings(), registry=registry),
        admission=Admission("kafka", connections_max=1, open_files_max=1 << 20),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    server.start(listening)
    try:
        reader, writer = await asyncio.open_connection(*listening.getsockname())

        async def send(frames: Sequence[bytes]) -> list[bytes]:
            writer.write(b"".join(frames))
            return [await reader.readexactly(int.from_bytes(await reader.readexactly(4))) for _ in frames]

        yield send
        writer.close()
    finally:
        await server.stop(1000)


async def test_the_short_way_is_open_as_long_as_the_rules_allow_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generic: list[str] = []
    write = Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="orders",
        principal=str(ANONYMOUS),
        operation=Operation.WRITE,
    )

    async def codes(send: Callable[[Sequence[bytes]], Awaitable[list[bytes]]], count: int) -> list[int]:
        frames = [_frame(listener, usual, number) for number in range(count)]
        # Correlation id, tagged fields, one topic with its name, one partition with its number; then the error code.
        position = 4 + 4 + 2 + len("orders") + 4 + 4
        return [int.from_bytes(response[position:][:2]) for response in await send(frames)]

    authorizer = await authorizer_over([write])
    usual = Produce(7, "orders", 0, 1, batch(), "a client")
    async with kafka_listener(tmp_path) as listener:
        await listener.broker.create_topic("orders", placement=Placement(partitions=1))
        listener = replace(listener, security=ListenerSecurity(listener="kafka", authorizer=authorizer))
        decode = kafka_connection.read_client_id

        def counted(*arguments: Any, **options: Any) -> Any:
            generic.append("decoded")
            return decode(*arguments, **options)

        monkeypatch.setattr(kafka_connection, "read_client_id", counted)
        async with _client_of(listener) as send:
            assert await codes(send, 5) == [ErrorCode.NONE] * 5
            assert len(generic) == 1, "the first request asks and logs, the others rely on it"
            await authorizer.acls.remove(AclFilter())
            assert await codes(send, 3) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
            assert len(generic) == 4
        assert listener.broker.log_state("orders", 0).log_end_offset == 5


def _named(*names: str, partition: int = 0) -> memoryview:
    """Return a produce of one batch for each of ``names``."""
    data = PartitionProduceData(index=partition, records=batch())
    topics = [TopicProduceData(name=name, partition_data=[data]) for name in names]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    return memoryview(bytearray(request_frame(request, 9)))[4:]


def test_a_connection_remembers_a_bounded_number_of_requests() -> None:
    routes = Routes()
    for number in range(ROUTES_MAX * 2):
        matched = routes.match(_named(f"t-{number}"), 1000)
        assert matched is not None
        assert matched[0].topic == f"t-{number}"
        assert bytes(matched[2]) == batch()
        assert routes.remembered <= ROUTES_MAX


def test_all_partitions_of_a_few_topics_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka sends a request for each partition."""
    learned = _counted(monkeypatch)
    routes, names = Routes(), ["t" * (number + 1) for number in range(LENGTHS_MAX)]
    for partition in range(1000):
        for name in names:
            matched = routes.match(_named(name, partition=partition), 1000)
            assert matched is not None
            route, named, records = matched
            assert (route.topic, named, bytes(records)) == (name, partition, batch())
    assert len(learned) == len(names)


def test_a_connection_does_not_remember_long_names() -> None:
    routes = Routes()
    assert routes.match(_named("x" * PREFIX_BYTES_MAX), 1000) is None
    assert routes.remembered == 0


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[memoryview]:
    """Return a list that grows with each request that is decoded for a route."""
    learned: list[memoryview] = []
    learn = direct_produce._learn

    def counted(frame: memoryview, request_timeout_ms: int) -> Any:
        learned.append(frame)
        return learn(frame, request_timeout_ms)

    monkeypatch.setattr(direct_produce, "_learn", counted)
    return learned


def test_a_client_with_another_layout_is_rarely_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    learned, routes = _counted(monkeypatch), Routes()
    for _ in range(10_000):
        assert routes.match(_named("a", "b"), 1000) is None
    assert len(learned) < 60
    usual = [routes.match(_named("a"), 1000) for _ in range(SKIPPED_MAX + 2)]
    assert usual[-1] is not None, "it comes back to the usual layout"
