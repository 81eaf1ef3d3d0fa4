"""A FastAPI application gets producers and consumers in one line, over either transport (rows A4, A7)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from pydantic import BaseModel
from stele import AsyncClient, AsyncConsumer, AsyncProducer, Client
from stele.broker_process import BrokerProcess
from stele.fastapi import add_error_handler, consumer_for, producer_for, stele_client, stele_lifespan
from stele.serializers import json_type
from stele.shared import close_shared, shared_client


class Order(BaseModel):
    customer: str
    amount: int


_order = json_type(Order)
TOPIC = "fastapi-orders"
Orders = Annotated[AsyncProducer[Order], Depends(producer_for(TOPIC, serializer=_order.encode))]
PastOrders = Annotated[
    AsyncConsumer[Order],
    Depends(consumer_for(TOPIC, deserializer=_order.decode, start="earliest", follow=False)),
]
Patient = Annotated[AsyncProducer[bytes | str], Depends(producer_for("live"))]
Quick = Annotated[AsyncProducer[bytes | str], Depends(producer_for("live", delivery_timeout_s=0.2))]
Broker = Annotated[AsyncClient, Depends(stele_client)]


def application() -> FastAPI:
    app = FastAPI(lifespan=stele_lifespan)
    add_error_handler(app)

    @app.post("/orders")
    async def place(order: Order, orders: Orders) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        receipt = await orders.send_and_wait(order, key=order.customer)
        return {"offset": receipt.offset, "durability": receipt.durability.label}

    @app.get("/orders")
    async def past(orders: PastOrders) -> list[Order]:  # pyright: ignore[reportUnusedFunction]
        return [record.value async for record in orders if record.value is not None]

    @app.get("/client")
    async def client(client: Broker) -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        await client.ping()
        return {"url": client.url, "is_shared": str(client is shared_client())}

    return app


@asynccontextmanager
async def running(app: FastAPI) -> AsyncGenerator[httpx.AsyncClient]:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as caller,
    ):
        yield caller


def configure(monkeypatch: pytest.MonkeyPatch, broker: BrokerProcess, transport: str) -> str:
    monkeypatch.delenv("STELE_URL", raising=False)
    monkeypatch.setenv("STELE_CLIENT_TCP_ENABLED", "true" if transport == "tcp" else "false")
    monkeypatch.setenv("STELE_CLIENT_TCP_HOST", broker.host)
    monkeypatch.setenv("STELE_CLIENT_TCP_PORT", str(broker.binary_port))
    monkeypatch.setenv("STELE_CLIENT_HTTP_URL", broker.http_url)
    return broker.binary_url if transport == "tcp" else broker.http_url


@pytest.mark.parametrize("transport", ["tcp", "http"])
async def test_routes_produce_and_consume_over_the_configured_transport(
    stele_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    url = configure(monkeypatch, stele_broker, transport)
    async with running(application()) as caller:
        for amount in range(3):
            answer = await caller.post("/orders", json={"customer": "ann", "amount": amount})
            assert answer.json() == {"offset": amount, "durability": "synced"}
        assert (await caller.get("/orders")).json() == [{"customer": "ann", "amount": n} for n in range(3)]
        assert (await caller.get("/client")).json() == {"url": url, "is_shared": "True"}
    with Client(url) as client:
        assert [record.key for record in client.fetch(TOPIC).records] == [b"ann"] * 3


@pytest.mark.parametrize("transport", ["tcp", "http"])
async def test_the_application_lives_while_the_broker_does_not(
    stele_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    configure(monkeypatch, stele_broker, transport)
    app = FastAPI(lifespan=stele_lifespan)
    add_error_handler(app)

    @app.post("/")
    async def place(producer: Patient) -> int:  # pyright: ignore[reportUnusedFunction]
        return (await producer.send_and_wait(b"x", partition=0)).offset

    @app.post("/quick")
    async def place_quickly(producer: Quick) -> int:  # pyright: ignore[reportUnusedFunction]
        return (await producer.send_and_wait(b"x", partition=0)).offset

    async with running(app) as caller:
        assert (await caller.post("/")).json() == 0
        stele_broker.kill()
        answer = await caller.post("/quick")
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"
        assert answer.json()["retriable"] is True
        stele_broker.start()
        assert (await caller.post("/")).status_code == 200


async def test_a_refused_request_is_no_503(
    stele_broker_session: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, stele_broker_session, "tcp")
    app = FastAPI(lifespan=stele_lifespan)
    add_error_handler(app)

    @app.get("/")
    async def read(client: Broker) -> None:  # pyright: ignore[reportUnusedFunction]
        await client.fetch("no-such-topic")

    async with running(app) as caller:
        answer = await caller.get("/")
    assert answer.status_code == 500
    assert "no-such-topic" in answer.json()["detail"]


async def test_one_client_for_a_url(stele_broker_session: BrokerProcess) -> None:
    url = stele_broker_session.binary_url
    client = shared_client(url)
    assert shared_client(url) is client
    assert shared_client(stele_broker_session.http_url) is not client
    await client.ping()
    await close_shared()
    assert shared_client(url) is not client
    await close_shared()
