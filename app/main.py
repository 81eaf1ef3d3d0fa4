"""The composition root: storage → cluster → broker → listeners, and the life of the process.

``serve`` is what ``stele serve`` runs. One event loop (uvloop where there is
one) carries HTTP and TCP; when all listeners accept connections, it prints one line::

    stele ready http=127.0.0.1:8080 binary=127.0.0.1:9009 kafka=127.0.0.1:9092 data=/var/lib/stele
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import random
import signal
import socket
import sqlite3
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from . import logs
from .broker.admission import Admission, open_files_for_connections, raise_open_files_limit
from .broker.broker import Broker
from .broker.listeners import Endpoint
from .cdc.supervisor import CdcSupervisor
from .clock import Clock, SystemClock
from .cluster.sqlite import SqliteCatalog
from .cluster.sqlite_groups import SqliteGroupStore
from .errors import SteleError
from .groups.coordinator import GroupCoordinator
from .groups.lease_manager import LeaseManager
from .groups.offsets_topic import OffsetsTopic
from .groups.services import Groups
from .settings import Settings
from .storage.cleaner import CleanerOptions
from .storage.embedded import EmbeddedEngine, EngineOptions
from .storage.engine import LogEngine
from .storage.files import RealFiles
from .tcp.binary.connection import BinaryConnection
from .tcp.binary.handlers.context import BinaryListener
from .tcp.kafka.connection import KafkaConnection
from .tcp.kafka.fetch_sessions import FetchSessionCache
from .tcp.kafka.handlers.context import KafkaListener
from .tcp.kafka.spans import KafkaSpans
from .tcp.kafka.trace import RequestTracer, Tracer
from .tcp.server import TcpServer
from .tracing import TracesMissingError, start_traces

if TYPE_CHECKING:
    from .api.server import HttpServer

logger = logging.getLogger(__name__)

CATALOG = "metadata.sqlite"
GROUPS = "groups.sqlite"
# Connections that wait to be accepted.
_BACKLOG = 1024


def _embedded_engine(settings: Settings, path: Path, clock: Clock) -> LogEngine:
    """The engine that keeps its files in ``path``, on this machine."""
    return EmbeddedEngine(
        RealFiles(),
        path,
        clock=clock,
        options=EngineOptions(
            flush_interval_ms=settings.log_flush_interval_ms,
            flush_bytes=settings.log_flush_bytes,
            checkpoint_interval_ms=settings.log_checkpoint_interval_ms,
            retention_interval_ms=settings.log_retention_check_interval_ms,
            sync_threads=settings.log_sync_threads,
            open_segments_max=settings.open_segments_max,
            cleaner=CleanerOptions(
                is_enabled=settings.log_cleaner_enable,
                dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size,
                bytes_per_s=settings.log_cleaner_io_max_bytes_per_second,
                interval_ms=settings.log_cleaner_backoff_ms,
            ),
        ),
    )


async def open_broker(settings: Settings) -> Broker:
    """A broker over the data directory of ``settings``, its partitions recovered.

    Raises:
        DataDirLocked: another broker has the directory.
        StorageError, OSError: the disk does not allow it.
    """
    clock = SystemClock()
    path = settings.data_dir.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = _embedded_engine(settings, path, clock)
    start = await engine.open()
    if not start.was_clean and not start.is_new:
        logger.warning("the last run did not shut down cleanly; recovering the logs in %s", path)
    broker = Broker(engine=engine, catalog=SqliteCatalog(path / CATALOG), clock=clock, settings=settings)
    await broker.open()
    await engine.start()
    return broker


async def open_groups(broker: Broker) -> Groups:
    """The groups of ``broker``, as they were left. Raises ``GroupStoreFailed``."""
    settings = broker.settings
    clock = SystemClock()
    coordinator = GroupCoordinator(
        store=SqliteGroupStore(settings.data_dir.absolute() / GROUPS),
        clock=clock,
        settings=settings,
        topic=broker.readable_topic,
    )
    # Before the coordinator opens: a group may have committed offsets of this topic, too.
    broker.serve_virtual(OffsetsTopic(coordinator, cluster_id=broker.cluster_id))
    await coordinator.open()
    broker.observe_deletions(coordinator.forget_topic)
    broker.observe_topics(coordinator.topics_changed)
    return Groups(coordinator, LeaseManager(broker=broker, coordinator=coordinator, clock=clock))


def _load_http_server() -> type[HttpServer]:
    """Return ``HttpServer``; importing it takes half of a start, so call this in a thread."""
    from .api.server import HttpServer

    return HttpServer


def _listen(host: str, port: int, listener: str) -> socket.socket:
    """A bound socket, so that port 0 is known before anything is announced.

    Raises:
        OSError: with the listener and the address in its words.
    """
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, proto)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise OSError(
            error.errno,
            f"the {listener} listener cannot listen on {host}:{port}: {error.strerror}; "
            "choose another port or address",
        ) from error
    return listening


def _address(listening: socket.socket) -> tuple[str, int]:
    host, port, *_ = listening.getsockname()
    return host, port


def _join(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(host: str) -> str:
    """An address that reaches a listener from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _warn_if_open(host: str) -> None:
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback:
        logger.warning(
            "LISTENING ON %s WITHOUT AUTHENTICATION OR ENCRYPTION: every client that reaches this address can "
            "read, write and delete all topics; bind to 127.0.0.1, or restrict access with a firewall",
            host,
        )


def _warn_of_few_files(limit: int, connections_max: int) -> None:
    allowed = open_files_for_connections(limit)
    if allowed < connections_max:
        logger.warning(
            "the process may open %d files, so each listener refuses connections once %d files are open, although "
            "connections_max is %d; raise the limit (ulimit -Hn, LimitNOFILE= of systemd) or lower connections_max",
            limit,
            allowed,
            connections_max,
        )


async def run(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM, then close: listeners first, the log last. Raises ``TracesMissingError``."""
    traces = await asyncio.to_thread(start_traces) if settings.otel_enable else None
    http_socket = _listen(settings.host, settings.http_port, "HTTP")
    binary_socket = _listen(settings.host, settings.binary_port, "binary")
    kafka_socket = _listen(settings.host, settings.kafka_port, "Kafka")
    _warn_if_open(settings.host)
    broker = await open_broker(settings)
    groups = await open_groups(broker)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)

    http_address, binary_address = _address(http_socket), _address(binary_socket)
    kafka_address = _address(kafka_socket)
    broker.listeners = {"kafka": Endpoint(*kafka_address)}
    broker.endpoints = {
        "http": Endpoint(settings.advertised_host or http_address[0], http_address[1]),
        "binary": Endpoint(settings.advertised_host or binary_address[0], binary_address[1]),
        "kafka": Endpoint(
            settings.advertised_host or kafka_address[0], settings.advertised_kafka_port or kafka_address[1]
        ),
    }
    open_files = raise_open_files_limit()
    _warn_of_few_files(open_files, settings.connections_max)
    admit = partial(
        Admission,
        connections_max=settings.connections_max,
        open_files_max=open_files_for_connections(open_files),
    )
    listener = BinaryListener(broker=broker, groups=groups, **broker.endpoints["binary"]._asdict())
    binary = TcpServer(
        "binary",
        lambda server: BinaryConnection(listener=listener, settings=settings, registry=server),
        admission=admit("binary"),
    )
    kafka_listener = KafkaListener(
        broker=broker,
        groups=groups.coordinator,
        fetch_sessions=FetchSessionCache(
            slots=settings.fetch_sessions_max,
            partitions_max=settings.fetch_session_partitions_max,
            random_id=partial(random.randint, 1, 2**31 - 1),
            make_watch=broker.watch,
        ),
        **broker.endpoints["kafka"]._asdict(),
    )
    tracers: list[RequestTracer] = []
    if settings.trace_connections:
        tracers.append(Tracer(with_hex=settings.trace_hex))
    if traces is not None:
        tracers.append(KafkaSpans(traces.tracer()))
    kafka = TcpServer(
        "kafka",
        lambda server: KafkaConnection(
            listener=kafka_listener, settings=settings, registry=server, tracers=tracers
        ),
        admission=admit("kafka"),
    )
    await binary.start(binary_socket)
    await kafka.start(kafka_socket)
    http_server = await asyncio.to_thread(_load_http_server)
    cdc = CdcSupervisor(settings, f"stele://{_join((_reachable(binary_address[0]), binary_address[1]))}")
    http = http_server(
        broker,
        groups,
        cdc,
        backlog=_BACKLOG,
        admission=admit("http"),
        listeners=(binary, kafka),
        traces=traces,
    )
    http_task = asyncio.create_task(http.serve(sockets=[http_socket]))
    listening = asyncio.create_task(http.listening.wait())
    await asyncio.wait((listening, http_task), return_when=asyncio.FIRST_COMPLETED)
    # The objects created so far live as long as the process; a collection that visits them blocks the loop for 20 ms.
    gc.collect()
    gc.freeze()
    if http.listening.is_set():
        print(  # noqa: T201 - programs that start a broker wait for this line
            f"stele ready http={_join(http_address)} binary={_join(binary_address)} "
            f"kafka={_join(kafka_address)} data={settings.data_dir.absolute()}",
            flush=True,
        )
        cdc.start()
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait((waiting, http_task), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    logger.info("shutting down")
    # The CDC connector is a client of the listeners, so it stops first.
    await cdc.close()
    broker.begin_close()
    groups.begin_close()
    http.should_exit = True
    await asyncio.gather(
        binary.stop(settings.shutdown_timeout_ms), kafka.stop(settings.shutdown_timeout_ms), http_task
    )
    await groups.close()
    await broker.close()
    if traces is not None:
        await asyncio.to_thread(traces.close)


def serve(overrides: Mapping[str, object] | None = None) -> int:
    """Run a broker with the settings of the environment and ``overrides``; returns the exit code."""
    try:
        settings = Settings.model_validate({**Settings().model_dump(), **(overrides or {})})
    except ValidationError as error:
        problems = [f"setting {'.'.join(map(str, p['loc']))} is invalid: {p['msg']}" for p in error.errors()]
        return _fail("; ".join(problems), 2)
    logs.configure(level=settings.log_level, log_format=settings.log_format)
    try:
        _run(settings)
    except OSError as error:
        file = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{file}", 1)
    except (SteleError, sqlite3.Error) as error:
        return _fail(str(error), 1)
    except TracesMissingError as error:
        return _fail(str(error), 2)
    return 0


def _fail(reason: str, code: int) -> int:
    sys.stderr.write(f"stele: {reason}\n")
    return code


def _run(settings: Settings) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(run(settings))
    else:
        uvloop.run(run(settings))
