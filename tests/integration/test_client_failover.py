"""A URL with several brokers: a call goes to the next one when one cannot be reached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from stele import AsyncClient, BrokerUnavailableError, Client, ConnectionLostError, RequestTimedOutError
from stele.broker_process import BrokerProcess, run_broker
from stele.config import Endpoint
from stele.transport.async_tcp import STALLED_AFTER_S

from load.pausing import paused


@pytest.fixture
def pair() -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with run_broker() as first, run_broker() as second:
        for broker in (first, second):
            with Client(broker.binary_url) as client:
                client.create_topic("orders")
        yield first, second


def url_of(scheme: str, *brokers: BrokerProcess) -> str:
    urls = [broker.http_url if scheme == "http" else broker.binary_url for broker in brokers]
    endpoints = [Endpoint.parse(url) for url in urls]
    return f"{scheme}://{','.join(f'{one.host}:{one.port}' for one in endpoints)}"


def held(broker: BrokerProcess) -> int | None:
    with Client(broker.binary_url) as client:
        return client.list_offset("orders", 0, "latest")


def by_use(*pair: BrokerProcess) -> tuple[BrokerProcess, BrokerProcess]:
    """Return the broker that a client has begun with, which is a random one, and the other."""
    first, second = sorted(pair, key=lambda broker: -(held(broker) or 0))
    assert (held(first), held(second)) == (1, 0)
    return first, second


@pytest.mark.parametrize("scheme", ["http", "stele"])
def test_a_blocking_client_goes_on_with_the_next_broker_and_comes_back(
    pair: tuple[BrokerProcess, BrokerProcess], scheme: str
) -> None:
    first, second = pair
    with Client(url_of(scheme, first, second)) as client:
        client.produce("orders", b"1")
        first, second = by_use(first, second)
        first.kill()
        client.produce("orders", b"2")
        client.produce("orders", b"3")
        assert held(second) == 2
        first.start()
        second.kill()
        client.produce("orders", b"4")
        assert held(first) == 2


@pytest.mark.parametrize("scheme", ["http", "stele"])
def test_an_asyncio_client_goes_on_with_the_next_broker_and_comes_back(
    pair: tuple[BrokerProcess, BrokerProcess], scheme: str
) -> None:
    async def run() -> None:
        async with AsyncClient(url_of(scheme, *pair)) as client:
            await client.produce("orders", b"1")
            first, second = await asyncio.to_thread(by_use, *pair)
            await asyncio.to_thread(first.kill)
            await asyncio.gather(*(client.produce("orders", b"2") for _ in range(10)))
            assert await asyncio.to_thread(held, second) == 10
            await asyncio.to_thread(first.start)
            await asyncio.to_thread(second.kill)
            await client.produce("orders", b"3")
            assert await asyncio.to_thread(held, first) == 2

    asyncio.run(run())


@pytest.mark.parametrize("scheme", ["http", "stele"])
def test_a_blocking_client_that_got_no_answer_asks_the_next_broker(
    pair: tuple[BrokerProcess, BrokerProcess], scheme: str
) -> None:
    with Client(url_of(scheme, *pair), timeout_s=5) as client:
        client.produce("orders", b"1")
        first, second = by_use(*pair)
        with paused(first.pid):
            with pytest.raises(RequestTimedOutError):
                client.produce("orders", b"2")
            client.produce("orders", b"3")
        assert held(second) == 1


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["http", "stele"])
def test_an_asyncio_client_that_got_no_answer_asks_the_next_broker(
    pair: tuple[BrokerProcess, BrokerProcess], scheme: str
) -> None:
    async def run() -> None:
        async with AsyncClient(url_of(scheme, *pair), timeout_s=STALLED_AFTER_S + 5) as client:
            await client.produce("orders", b"1")
            first, second = await asyncio.to_thread(by_use, *pair)
            with paused(first.pid):
                with pytest.raises((RequestTimedOutError, ConnectionLostError)):
                    await client.produce("orders", b"2")
                await client.produce("orders", b"3")
            assert await asyncio.to_thread(held, second) == 1

    asyncio.run(run())


@pytest.mark.parametrize("scheme", ["http", "stele"])
def test_a_client_gives_up_when_no_broker_can_be_reached(scheme: str) -> None:
    with socket.socket() as closed, socket.socket() as other:
        closed.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        hosts = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in (closed, other))
        with (
            Client(f"{scheme}://{hosts}", connect_timeout_s=0.5) as client,
            pytest.raises(BrokerUnavailableError, match="no broker answers"),
        ):
            client.topics()


@pytest.mark.parametrize("scheme", ["http", "stele"])
def test_a_broker_that_does_not_answer_the_connection_leaves_time_for_the_others(scheme: str) -> None:
    with socket.socket() as full, run_broker() as broker:
        # Its backlog is full, so further connections wait in vain.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address), socket.socket() as waits:
            waits.setblocking(False)
            waits.connect_ex(address)
            live = Endpoint.parse(broker.http_url if scheme == "http" else broker.binary_url)
            url = f"{scheme}://127.0.0.1:{address[1]},{live.host}:{live.port}"
            with Client(url, connect_timeout_s=6.0) as client:
                assert client.topics() == []
