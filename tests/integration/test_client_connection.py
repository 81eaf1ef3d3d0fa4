"""What the transports do when the other end is slow, silent, wrong or gone (row A7)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from stele import (
    AsyncClient,
    BrokerUnavailableError,
    Client,
    ConnectionLostError,
    NewRecord,
    RequestTimedOutError,
    SteleClientError,
    UnknownTopicError,
)
from stele.broker_process import BrokerProcess
from stele.errors import ProtocolError
from stele.transport import async_tcp
from stele.transport.base import backoff
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.framing import FrameReader

from load.server_start import free_ports

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def peer(handle: Handler) -> AsyncGenerator[str]:
    """A server on a real socket that behaves as ``handle`` does; its URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"stele://127.0.0.1:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def requests_of(reader: asyncio.StreamReader) -> AsyncGenerator[m.Request]:
    frames = FrameReader()
    while data := await reader.read(65536):
        for kind, body in frames.feed(data):
            yield m.decode_request(kind, body)


# ── pipelining ──


async def test_answers_find_their_requests_in_order_and_in_pieces() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = b""
        async for request in requests_of(reader):
            assert isinstance(request, m.ProduceRequest)
            answers += m.ProduceResponse(offset=int(request.data)).encode()
            if int(request.data) == 99:
                break
        for start in range(0, len(answers), 7):
            writer.write(answers[start : start + 7])
            await writer.drain()
            await asyncio.sleep(0)

    async with peer(handle) as url, AsyncClient(url) as client:
        offsets = await asyncio.gather(*(client.simple_produce("t", b"%d" % i) for i in range(100)))
        assert offsets == list(range(100))


async def test_a_cancelled_caller_does_not_shift_the_answers_of_others() -> None:
    release = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for request in requests_of(reader):
            assert isinstance(request, m.ProduceRequest)
            await release.wait()
            writer.write(m.ProduceResponse(offset=int(request.data)).encode())

    async with peer(handle) as url, AsyncClient(url) as client:
        tasks = [asyncio.create_task(client.simple_produce("t", b"%d" % i)) for i in range(20)]
        await asyncio.sleep(0.01)
        for task in tasks[::3]:
            task.cancel()
        release.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [o for o in outcomes if isinstance(o, int)] == [i for i in range(20) if i % 3]
        assert await client.simple_produce("t", b"77") == 77


async def test_a_long_poll_does_not_delay_other_calls(stele_broker_session: BrokerProcess) -> None:
    async with AsyncClient(stele_broker_session.binary_url) as client:
        await client.produce("long-poll", b"x")
        polls = [asyncio.create_task(client.fetch("long-poll", offset=1, wait_ms=600_000)) for _ in range(3)]
        for _ in range(10):
            await client.ping()
        assert not any(poll.done() for poll in polls)
        await client.produce("long-poll", b"y")
        assert [len((await poll).records) for poll in polls] == [1, 1, 1]


async def test_more_calls_than_may_be_unanswered_wait_their_turn(
    stele_broker_session: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_tcp, "UNANSWERED_MAX", 10)
    async with AsyncClient(stele_broker_session.binary_url) as client:
        calls = [asyncio.create_task(client.simple_produce("turns", b"%d" % i)) for i in range(300)]
        await asyncio.sleep(0)
        calls[150].cancel()
        offsets = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(offset, int) for offset in offsets) == 299


class Half:
    """The asyncio client, or the blocking one in threads."""

    def __init__(self, client: AsyncClient | Client) -> None:
        self._client = client

    def call(self, method: str, *arguments: Any) -> Awaitable[Any]:
        function = getattr(self._client, method)
        if isinstance(self._client, AsyncClient):
            return function(*arguments)
        return asyncio.to_thread(function, *arguments)

    async def all_share(self, count: int) -> None:
        """Wait until ``count`` callers wait for the look-up of another caller, which is under way."""
        if isinstance(self._client, AsyncClient):
            # The others began in the turn of the loop in which the first one did.
            return
        (look_up,) = self._client._lookups._calls.values()
        await asyncio.to_thread(wait_until, lambda: len(look_up._condition._waiters) == count)  # pyright: ignore[reportAttributeAccessIssue,reportUnknownArgumentType]


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.001)


@asynccontextmanager
async def opened(kind: str, url: str) -> AsyncGenerator[Half]:
    if kind == "asyncio":
        async with AsyncClient(url) as client:
            yield Half(client)
    else:
        with Client(url) as blocking:
            yield Half(blocking)


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_the_batches_of_a_call_do_not_wait_for_each_others_responses(kind: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        partitions: list[int] = []
        async for request in requests_of(reader):
            assert isinstance(request, m.ProduceBatchRequest)
            partitions.append(request.partition)
            if len(partitions) == 3:
                break
        assert partitions == [2, 0, 1]
        writer.write(b"".join(stored(partition).encode() for partition in partitions))
        await reader.read()

    async with peer(handle) as url, opened(kind, url) as half:
        receipts = await half.call("produce_many", "t", [NewRecord(b"x", partition=p) for p in (2, 0, 1)])
        assert [receipt.partition for receipt in receipts] == [2, 0, 1]


def stored(partition: int) -> m.ProduceBatchResponse:
    return m.ProduceBatchResponse(
        partition=partition,
        base_offset=0,
        last_offset=0,
        log_append_time_ms=-1,
        log_start_offset=0,
        durability=m.Durability.SYNCED,
    )


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_callers_that_look_up_a_topic_at_once_share_a_request_and_its_error(kind: str) -> None:
    is_asked, may_end = asyncio.Event(), asyncio.Event()
    requested: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for request in requests_of(reader):
            assert isinstance(request, m.MetadataRequest)
            requested.extend(request.topics or ())
            is_asked.set()
            await may_end.wait()
            topics = [m.TopicMetadata(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="t")]
            writer.write(m.MetadataResponse(cluster_id="c", brokers=[], topics=topics).encode())

    async with peer(handle) as url, opened(kind, url) as half:
        callers = [asyncio.ensure_future(half.call("partition_count", "t")) for _ in range(4)]
        await is_asked.wait()
        await half.all_share(3)
        may_end.set()
        errors = await asyncio.gather(*callers, return_exceptions=True)
    assert requested == ["t"]
    assert [type(error) for error in errors] == [UnknownTopicError] * 4
    assert len({id(error) for error in errors}) == 4


# ── a peer that is wrong ──


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def wrong_type(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async for _ in requests_of(reader):
        writer.write(m.FlushResponse().encode())


async def torn_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async for _ in requests_of(reader):
        writer.write(m.ProduceResponse(offset=1).encode()[:-1].replace(b"\x0e", b"\x0d", 1))


@pytest.mark.parametrize("handle", [garbage, wrong_type, torn_body])
async def test_a_peer_of_another_protocol_raises(handle: Handler) -> None:
    async with peer(handle) as url:
        async with AsyncClient(url) as client:
            with pytest.raises(ProtocolError):
                await client.simple_produce("t", b"x")
        with Client(url) as blocking, pytest.raises(ProtocolError):
            await asyncio.to_thread(blocking.simple_produce, "t", b"x")


async def test_an_unknown_request_raises_with_the_brokers_text() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for _ in requests_of(reader):
            writer.write(m.ErrorResponse(response_type=0, message="type 0x03 is unknown").encode())

    async with peer(handle) as url, AsyncClient(url) as client:
        with pytest.raises(SteleClientError, match="type 0x03 is unknown"):
            await client.simple_produce("t", b"x")


async def test_an_http_url_of_another_server_raises(stele_broker_session: BrokerProcess) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        await writer.drain()

    async with peer(handle) as url, AsyncClient(url.replace("stele", "http")) as client:
        with pytest.raises(ProtocolError, match="HTTP listener"):
            await client.topics()
    binary_listener = stele_broker_session.binary_url.replace("stele", "http")
    async with AsyncClient(binary_listener) as client:
        with pytest.raises(SteleClientError):
            await client.topics()


# ── a peer that is silent ──


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_a_silent_peer_is_a_time_out_with_an_unknown_outcome() -> None:
    async with peer(silent) as url:
        for address in (url, url.replace("stele", "http")):
            async with AsyncClient(address) as client:
                with pytest.raises(RequestTimedOutError) as caught:
                    await client.produce("t", b"x", timeout_s=0.1)
                assert caught.value.retriable
                assert caught.value.is_outcome_unknown
            with Client(address) as blocking, pytest.raises(RequestTimedOutError):
                await asyncio.to_thread(blocking.produce, "t", b"x", timeout_s=0.1)


async def test_a_stalled_connection_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_tcp, "STALLED_AFTER_S", 0.05)
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await silent(reader, writer)
        async for _ in requests_of(reader):
            writer.write(m.ProduceResponse(offset=5).encode())

    async with peer(handle) as url, AsyncClient(url) as client:
        with pytest.raises(RequestTimedOutError):
            await client.call(_simple_produce(), timeout_s=0.1)
        assert await client.simple_produce("t", b"x") == 5


def _simple_produce():
    from stele.operations.produce import SimpleProduce

    return SimpleProduce(topic="t", data=b"x")


# ── a peer that is gone ──


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def test_a_broken_connection_raises_and_a_produce_is_not_repeated() -> None:
    produced = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal produced
        async for request in requests_of(reader):
            produced += isinstance(request, m.ProduceBatchRequest)
            return

    async with peer(handle) as url:
        async with AsyncClient(url) as client:
            with pytest.raises(ConnectionLostError) as caught:
                await client.produce("t", b"x")
            assert caught.value.is_outcome_unknown
            assert produced == 1
        with Client(url) as blocking, pytest.raises(ConnectionLostError):
            await asyncio.to_thread(blocking.produce, "t", b"x")
        assert produced == 2


async def test_a_read_is_repeated_on_a_new_connection() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        async for _ in requests_of(reader):
            if connections % 2:
                return
            writer.write(m.ListOffsetsResponse(offset=7, timestamp_ms=-1, leader_epoch=0).encode())

    async with peer(handle) as url:
        async with AsyncClient(url) as client:
            assert await client.list_offset("t") == 7
        with Client(url) as blocking:
            assert await asyncio.to_thread(blocking.list_offset, "t") == 7


@pytest.mark.parametrize("scheme", ["stele", "http"])
async def test_without_a_broker_a_call_fails_within_its_timeout_and_names_a_remedy(scheme: str) -> None:
    (port,) = free_ports(1)
    url = f"{scheme}://127.0.0.1:{port}"
    async with AsyncClient(url, connect_timeout_s=0.2) as client:
        with pytest.raises(BrokerUnavailableError, match=r"no broker answers at 127\.0\.0\.1") as caught:
            await client.produce("t", b"x")
        assert caught.value.retriable
        assert not caught.value.is_outcome_unknown
        outcomes = await asyncio.gather(*(client.ping() for _ in range(50)), return_exceptions=True)
        assert all(isinstance(outcome, BrokerUnavailableError) for outcome in outcomes)
    with Client(url, connect_timeout_s=0.2) as blocking, pytest.raises(BrokerUnavailableError):
        await asyncio.to_thread(blocking.produce, "t", b"x")


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["stele", "http"])
async def test_an_application_works_again_when_the_broker_is_back(
    stele_broker: BrokerProcess, scheme: str
) -> None:
    url = stele_broker.binary_url if scheme == "stele" else stele_broker.http_url
    async with AsyncClient(url, connect_timeout_s=2) as client:
        with Client(url, connect_timeout_s=2) as blocking:
            await client.produce("t", b"0")
            await asyncio.to_thread(blocking.produce, "t", b"1")
            for kill in (stele_broker.kill, stele_broker.stop):
                await asyncio.to_thread(kill)
                for _ in range(2):
                    with pytest.raises(SteleClientError) as caught:
                        await client.produce("t", b"lost")
                    assert caught.value.retriable
                    with pytest.raises(SteleClientError) as caught:
                        await asyncio.to_thread(blocking.produce, "t", b"lost")
                    assert caught.value.retriable
                await asyncio.to_thread(stele_broker.start)
                await client.produce("t", b"again")
                await asyncio.to_thread(blocking.produce, "t", b"again")
            values = [record.value for record in (await client.fetch("t")).records]
    assert values == [b"0", b"1", b"again", b"again", b"again", b"again"]


async def test_a_call_waits_for_a_broker_that_is_just_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    refused_twice = asyncio.Event()

    def refusals() -> Generator[float]:
        """The pauses between attempts to connect, one asked for before each of them."""
        yield 0.01
        yield 0.01
        refused_twice.set()
        yield from backoff()

    monkeypatch.setattr(async_tcp, "backoff", refusals)
    async with AsyncClient(f"stele://127.0.0.1:{port}", connect_timeout_s=60) as client:
        waiting = asyncio.create_task(client.simple_produce("t", b"x"))
        await refused_twice.wait()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async for _ in requests_of(reader):
                writer.write(m.ProduceResponse(offset=3).encode())
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", port)
        assert await waiting == 3
        await client.close()
        server.close()
        await server.wait_closed()


# ── threads ──


@contextlib.contextmanager
def in_threads(count: int, run: Callable[[int], None]) -> Generator[None]:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            run(number)
        except BaseException as error:  # noqa: BLE001 (told below)
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(120)
    assert not failures, failures


@pytest.mark.parametrize("scheme", ["stele", "http"])
def test_one_blocking_client_serves_many_threads(stele_broker_session: BrokerProcess, scheme: str) -> None:
    broker = stele_broker_session
    topic = f"threads-{scheme}"
    with Client(broker.binary_url if scheme == "stele" else broker.http_url) as client:

        def produce(number: int) -> None:
            for i in range(30):
                client.produce(topic, f"{number} {i}", acks=1)

        with in_threads(8, produce):
            pass
        values = [(record.value or b"").decode() for record in client.fetch(topic).records]
    assert sorted(values) == sorted(f"{number} {i}" for number in range(8) for i in range(30))


def test_closing_wakes_a_thread_that_waits(stele_broker_session: BrokerProcess) -> None:
    client = Client(stele_broker_session.binary_url)
    client.produce("wakes", b"x")
    outcome: list[SteleClientError] = []

    def wait() -> None:
        try:
            client.fetch("wakes", offset=1, wait_ms=30_000)
        except SteleClientError as error:
            outcome.append(error)

    with in_threads(1, lambda _: wait()):
        while not client.transport._busy:  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType]
            time.sleep(0.001)
        client.close()
    assert len(outcome) == 1


def test_a_pipelined_call_has_an_outcome_for_every_operation(stele_broker: BrokerProcess) -> None:
    with Client(stele_broker.binary_url, connect_timeout_s=5) as client:
        assert client.simple_produce_many("t", [b"x"] * 1000) == list(range(1000))
        stele_broker.kill()
        outcomes = client.transport.call_all([_simple_produce()] * 3, timeout_s=20)
        assert [type(outcome) for outcome in outcomes] == [BrokerUnavailableError] * 3
        stele_broker.start()
        assert client.simple_produce("t", b"x") == 1000
