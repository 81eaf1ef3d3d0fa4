"""A connection to a source that is slow, silent, wrong or hostile: bounded, and a clear error."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest
from stele.mirror.definition import Address
from stele.mirror.errors import (
    SourceError,
    SourceLacks,
    SourceMalformed,
    SourceRefused,
    SourceUnavailable,
)
from stele.mirror.properties import parse
from stele.mirror.source import reads
from stele.mirror.source.cluster import Source
from stele.mirror.source.connection import RESPONSE_BYTES_MAX, Connection, open_connection
from stele.mirror.source.reads import FetchFrom
from stele.records import TopicPartition
from stele.wire import schema
from stele.wire.kafka.api import Api
from stele.wire.kafka.api_versions import API_VERSIONS_API, ApiVersion, ApiVersionsResponse
from stele.wire.kafka.fetch import FETCH_API
from stele.wire.kafka.metadata import METADATA_API, MetadataRequest, MetadataResponse
from stele.wire.kafka.offsets import LIST_OFFSETS_API

CONFIG = parse({"request.timeout.ms": "1000"}, mirror="test")
SERVED = (API_VERSIONS_API, METADATA_API, FETCH_API, LIST_OFFSETS_API)
Answer = Callable[[int, int, int], bytes]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def response(api: Api, version: int, correlation_id: int, message: object) -> bytes:
    flexible = api.is_flexible(version)
    out = bytearray(struct.pack(">i", correlation_id))
    if flexible and not api.has_plain_response_header:
        out += b"\0"
    schema.writer(api.response, version, flexible)(message, out)
    return framed(bytes(out))


def versions_of(*apis: Api) -> ApiVersionsResponse:
    keys = [
        ApiVersion(api_key=api.key, min_version=api.versions[0], max_version=api.versions[1]) for api in apis
    ]
    return ApiVersionsResponse(error_code=0, api_keys=keys)


@asynccontextmanager
async def served(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncGenerator[Address]:
    """Run a server; its connections end with it."""
    tasks: list[asyncio.Task[None]] = []

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(cast("asyncio.Task[None]", asyncio.current_task()))
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    async with server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def broker(answer: Answer, *, agrees: bool = True) -> AsyncGenerator[Address]:
    """A server that agrees on versions, and then sends ``answer(api key, version, correlation id)``.

    An empty answer closes the connection.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            key, version, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
            if agrees and key == API_VERSIONS_API.key:
                data = response(API_VERSIONS_API, version, correlation_id, versions_of(*SERVED))
            else:
                data = answer(key, version, correlation_id)
            if not data:
                return
            writer.write(data)

    async with served(serve) as address:
        yield address


def always(data: bytes) -> Answer:
    return lambda key, version, correlation_id: data


async def fails(answer: Answer, error: type[SourceError], words: str) -> Connection:
    """Call with this answer; the connection is closed by the error, and returned."""
    async with broker(answer) as address:
        connection = await open_connection(address, CONFIG)
        with pytest.raises(error, match=words):
            await connection.call(METADATA_API, MetadataRequest(topics=None))
        assert not connection.is_usable
        await connection.wait_closed()
        return connection


async def refuses(answer: Answer, error: type[SourceError], words: str) -> None:
    """Connect to what gives this answer to everything."""
    async with broker(answer, agrees=False) as address:
        with pytest.raises(error, match=words):
            await open_connection(address, CONFIG)


# ── garbage ──


@pytest.mark.parametrize("size", [-1, 0, 3, RESPONSE_BYTES_MAX + 1, 2**31 - 1, -(2**31)])
async def test_a_size_out_of_bounds_allocates_nothing(size: int) -> None:
    connection = await fails(
        always(struct.pack(">i", size) + b"x" * 100), SourceMalformed, f"response of {size} bytes"
    )
    assert connection._frame is None  # pyright: ignore[reportPrivateUsage]


async def test_a_large_response_that_never_ends_is_given_up() -> None:
    answer = struct.pack(">i", RESPONSE_BYTES_MAX) + b"\0" * 100_000
    await fails(always(answer), SourceUnavailable, "did not answer Metadata within 1 s")


async def test_silence_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with served(serve) as address:
        with pytest.raises(SourceUnavailable, match="did not answer ApiVersions"):
            await open_connection(address, CONFIG)


async def test_the_response_to_another_request_ends_the_connection() -> None:
    await fails(
        lambda key, version, correlation: response(
            METADATA_API, version, correlation + 1, MetadataResponse(brokers=(), topics=())
        ),
        SourceMalformed,
        "another request",
    )


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    def answer(key: int, version: int, correlation_id: int) -> bytes:
        sound = response(METADATA_API, version, correlation_id, MetadataResponse(brokers=(), topics=()))
        return sound + framed(b"12345678")

    async with broker(answer) as address:
        connection = await open_connection(address, CONFIG)
        await connection.call(METADATA_API, MetadataRequest(topics=None))
        await connection.wait_closed()
        with pytest.raises(SourceMalformed, match="nobody asked for"):
            await connection.call(METADATA_API, MetadataRequest(topics=None))


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"\xff" * 40, b"\0" + b"\0" * 4 + b"\xff\xff\xff\xff\x0f" * 5, b"\0" * 5 + b"\x80" * 60],
    ids=["empty", "a byte", "ones", "a large count", "endless varint"],
)
async def test_a_body_that_does_not_parse_ends_the_connection(body: bytes) -> None:
    await fails(
        lambda key, version, correlation: framed(struct.pack(">i", correlation) + body),
        SourceMalformed,
        "Metadata that does not parse",
    )


async def test_a_web_server_is_no_source() -> None:
    page = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    await refuses(always(page), SourceMalformed, "is it a listener of Kafka")


async def test_a_broker_that_closes_at_once_is_not_reached() -> None:
    await refuses(always(b""), SourceUnavailable, "was closed")


async def test_nobody_listens() -> None:
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        await open_connection(Address("127.0.0.1", 1), CONFIG)
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        await open_connection(Address("no such host", 1), CONFIG)


async def test_tls_towards_a_plaintext_listener_is_explained() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"plaintext of any kind")
        await reader.read()

    async with served(serve) as address:
        with pytest.raises(SourceRefused, match="does not speak TLS"):
            await open_connection(address, parse({"security.protocol": "SSL"}, mirror="test"))


async def test_bytes_at_random_end_in_an_error_or_a_response() -> None:
    """Every answer is a random change of a sound one; nothing but a ``SourceError`` comes out."""
    rng = random.Random(11)
    partition = TopicPartition("t", 0)

    def answer(key: int, version: int, correlation_id: int) -> bytes:
        api = next(api for api in SERVED if api.key == key)
        out = bytearray(struct.pack(">i", correlation_id) + rng.randbytes(rng.choice((0, 1, 5, 40, 200))))
        if rng.random() < 0.5:
            out += bytes(rng.choice((1, 10, 60)))
        if rng.random() < 0.1:
            out[rng.randrange(len(out))] ^= 0xFF
        assert api
        return framed(bytes(out))

    async with broker(answer) as address:
        for _ in range(300):
            source = Source([address], lambda: CONFIG)
            await source.know({1: address})
            with suppress(SourceError):
                match rng.randrange(3):
                    case 0:
                        await reads.topics(source)
                    case 1:
                        await reads.offsets(source, 1, {partition: 0}, reads.LATEST)
                    case _:
                        begin = {partition: FetchFrom(bytes(16), 0, 0, -1)}
                        await reads.fetch(source, 1, begin, wait_ms=0, bytes_max=1000)
            await source.close()


# ── versions ──


async def test_the_highest_common_version_is_used() -> None:
    asked: list[tuple[int, int]] = []

    def answer(key: int, version: int, correlation_id: int) -> bytes:
        asked.append((key, version))
        if key == API_VERSIONS_API.key:
            if version > 0:
                # As Kafka 2.1, which does not know version 3.
                return framed(struct.pack(">ihi", correlation_id, 35, 0))
            metadata = ApiVersion(api_key=METADATA_API.key, min_version=0, max_version=7)
            fetch = ApiVersion(api_key=FETCH_API.key, min_version=100, max_version=200)
            found = ApiVersionsResponse(error_code=0, api_keys=[metadata, fetch])
            return response(API_VERSIONS_API, 0, correlation_id, found)
        return response(METADATA_API, version, correlation_id, MetadataResponse(brokers=(), topics=()))

    async with broker(answer, agrees=False) as address:
        connection = await open_connection(address, CONFIG)
        await connection.call(METADATA_API, MetadataRequest(topics=None))
        assert asked == [(18, 3), (18, 0), (3, 7)]
        with pytest.raises(
            SourceLacks, match=r"needs Fetch in versions 0 to 18, and .* serves versions 100 to 200"
        ):
            connection.version_of(FETCH_API)
        with pytest.raises(SourceLacks, match="does not serve it"):
            connection.version_of(LIST_OFFSETS_API)
        assert connection.is_usable
        connection.abort()


# ── callers ──


async def test_a_cancelled_call_does_not_give_its_response_to_the_next() -> None:
    has_come = asyncio.Event()

    def answer(key: int, version: int, correlation_id: int) -> bytes:
        has_come.set()
        return struct.pack(">i", 100)

    async with broker(answer) as address:
        connection = await open_connection(address, CONFIG)
        call = asyncio.create_task(connection.call(METADATA_API, MetadataRequest(topics=None)))
        await has_come.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert not connection.is_usable


async def test_the_next_call_of_a_source_connects_again_and_asks_the_next_server() -> None:
    calls: Iterator[int] = iter(range(100))

    def answer(key: int, version: int, correlation_id: int) -> bytes:
        if next(calls) == 0:
            return b""
        return response(METADATA_API, version, correlation_id, MetadataResponse(brokers=(), topics=()))

    async with broker(answer) as address:
        source = Source([Address("127.0.0.1", 1), address], lambda: CONFIG)
        with pytest.raises(SourceUnavailable):
            await reads.topics(source)
        assert await reads.topics(source) == []
        await source.close()
