"""The three listeners in this process, over one broker with any engine."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from app.api.application import create_application
from app.api.authentication import Authenticate
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
from app.security.authorizer import Authorizer
from app.security.policy import ListenerSecurity
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine
from app.tcp.binary.connection import BinaryConnection
from app.tcp.binary.handlers.context import BinaryListener
from app.tcp.kafka.connection import KafkaConnection
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.sessions.fetch_sessions import FetchSessionCache
from app.tcp.server import TcpServer
from app.transactions.coordinator import TransactionCoordinator
from app.transactions.services import open_services
from tests.support.engines import QUIET
from tests.support.simulated_time import RealFilesInSimulatedTime

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The addresses of the TCP listeners, and a client of the HTTP API.

    Peers block, so run them in a thread.
    """

    broker: Broker
    engine: EmbeddedEngine
    http: httpx.AsyncClient
    binary_port: int
    kafka_port: int
    host: str = HOST
    kafka: KafkaListener
    binary: BinaryListener
    application: FastAPI


@asynccontextmanager
async def listeners(
    path: Path,
    engine_class: type[EmbeddedEngine] = EmbeddedEngine,
    *,
    authorizer: Authorizer | None = None,
    **given: Any,
) -> AsyncGenerator[Listeners]:
    """Serve all three protocols over a broker of its own to ``User:ANONYMOUS``.

    It is opened in ``path`` with the settings ``given``.
    """
    settings, clock = Settings(data_dir=path, **given), SystemClock()
    engine = engine_class(RealFilesInSimulatedTime(), path, clock=clock, options=QUIET)
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
    groups = Groups(
        coordinator,
        LeaseManager(broker=broker, coordinator=coordinator, clock=clock),
        ShareQueue(broker=broker, shares=coordinator.shares),
    )
    services = await open_services(broker, groups, transactions, clock)
    binary_socket, kafka_socket = socket.create_server((HOST, 0)), socket.create_server((HOST, 0))
    binary_port, kafka_port = binary_socket.getsockname()[1], kafka_socket.getsockname()[1]
    binary_listener = BinaryListener(
        broker=broker,
        groups=groups,
        transactions=transactions,
        host=HOST,
        port=binary_port,
        security=ListenerSecurity(listener="binary", authorizer=authorizer),
    )
    sessions = FetchSessionCache(
        slots=settings.fetch_sessions_max,
        partitions_max=settings.fetch_session_partitions_max,
        random_id=partial(random.randint, 1, 2**31 - 1),
        make_watch=broker.watch,
    )
    kafka_listener = KafkaListener(
        broker=broker,
        groups=groups,
        transactions=transactions,
        host=HOST,
        port=kafka_port,
        fetch_sessions=sessions,
        security=ListenerSecurity(listener="kafka", authorizer=authorizer),
    )
    admit = partial(Admission, connections_max=100, open_files_max=1000)
    binary = TcpServer(
        "binary",
        lambda server: BinaryConnection(listener=binary_listener, settings=settings, registry=server),
        admission=admit("binary"),
    )
    kafka = TcpServer(
        "kafka",
        lambda server: KafkaConnection(listener=kafka_listener, settings=settings, registry=server),
        admission=admit("kafka"),
    )
    binary.start(binary_socket)
    kafka.start(kafka_socket)
    security = ListenerSecurity(listener="http", authorizer=authorizer)
    application = create_application(broker, groups, services, settings, security=security)
    authenticate = Authenticate(application, security, application.state.sessions, is_metrics_open=False)
    transport = httpx.ASGITransport(authenticate)
    http = httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}")
    try:
        yield Listeners(
            broker=broker,
            engine=engine,
            http=http,
            binary_port=binary_port,
            kafka_port=kafka_port,
            kafka=kafka_listener,
            binary=binary_listener,
            application=application,
        )
    finally:
        await http.aclose()
        broker.begin_close()
        groups.begin_close()
        await binary.stop(settings.shutdown_timeout_ms)
        await kafka.stop(settings.shutdown_timeout_ms)
        await services.close()
        await groups.close()
        await broker.close()
