"""The Kafka listener in this process, over a broker without a socket."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from app.broker.broker import Broker
from app.clock import SystemClock
from app.cluster.sqlite.catalog import SqliteCatalog
from app.cluster.sqlite.groups import SqliteGroupStore
from app.groups.coordinator import GroupCoordinator
from app.groups.leases.manager import LeaseManager
from app.groups.services import Groups
from app.groups.share_queue import ShareQueue
from app.groups.table import GroupTable
from app.network.admission import Admission
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine
from app.tcp.kafka.connection import KafkaConnection
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.sessions.fetch_sessions import FetchSessionCache
from app.tcp.kafka.sessions.idle_answers import Room
from app.tcp.kafka.trace import RequestTracer
from app.tcp.server import TcpServer
from app.transactions.coordinator import TransactionCoordinator
from tests.support.engines import QUIET
from tests.support.simulated_time import RealFilesInSimulatedTime


@asynccontextmanager
async def kafka_listener(path: Path) -> AsyncGenerator[KafkaListener]:
    """Serve the Kafka protocol over a broker of its own, opened in ``path``."""
    settings, clock = Settings(data_dir=path), SystemClock()
    engine = EmbeddedEngine(RealFilesInSimulatedTime(), path, clock=clock, options=QUIET)
    await engine.open()
    catalog = SqliteCatalog(path / "metadata.sqlite")
    broker = Broker(engine=engine, catalog=catalog, clock=clock, settings=settings)
    await broker.open()
    await engine.start()
    store = SqliteGroupStore(path / "groups.sqlite")
    coordinator = GroupCoordinator(
        GroupTable(store=store, clock=clock, settings=settings, topic=broker.topic)
    )
    await coordinator.open()
    transactions = TransactionCoordinator(broker=broker, groups=coordinator, clock=clock, settings=settings)
    await transactions.open()
    sessions = FetchSessionCache(
        slots=settings.fetch_sessions_max,
        partitions_max=settings.fetch_session_partitions_max,
        random_id=partial(random.randint, 1, 2**31 - 1),
        make_watch=broker.watch,
    )
    try:
        yield KafkaListener(
            broker=broker,
            groups=Groups(
                coordinator,
                LeaseManager(broker=broker, coordinator=coordinator, clock=clock),
                ShareQueue(broker=broker, shares=coordinator.shares),
            ),
            transactions=transactions,
            host="localhost",
            port=9092,
            fetch_sessions=sessions,
        )
    finally:
        await transactions.close()
        await coordinator.close()
        await broker.close()


class _Silent:
    """A tracer that does nothing: where there is one, a Produce takes the generic path."""

    def request(self, *_: object) -> None: ...
    def response(self, *_: object) -> None: ...
    def unanswered(self, *_: object) -> None: ...
    def closed(self, *_: object) -> None: ...


class _Waiting:
    """A broker that finds nothing in memory, so that every fetch waits for its batches."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def fetch_now(self, *_: object, **__: object) -> None:
        return None


def slow(listener: KafkaListener) -> KafkaListener:
    """Return ``listener`` with reads that all wait, and without room for answers of idle partitions."""
    return replace(listener, broker=cast("Broker", _Waiting(listener.broker)), idle_answers=Room(0))


@asynccontextmanager
async def served(listener: KafkaListener, *, is_generic: bool = False) -> AsyncGenerator[tuple[str, int]]:
    """Accept connections; yield the address. With ``is_generic`` no Produce takes the fast path."""
    tracers = (cast("RequestTracer", _Silent()),) if is_generic else ()
    server = TcpServer(
        "kafka",
        lambda registry: KafkaConnection(
            listener=listener, settings=Settings(), registry=registry, tracers=tracers
        ),
        admission=Admission("kafka", connections_max=10, open_files_max=1 << 20),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    server.start(listening)
    try:
        yield listening.getsockname()
    finally:
        await server.stop(1000)
