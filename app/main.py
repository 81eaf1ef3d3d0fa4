"""The composition root: builds, starts and closes the parts of the broker.

``serve`` is what ``stele serve`` runs. One event loop (uvloop where there is
one) carries HTTP and TCP; when all listeners accept connections, it prints one line::

    stele ready http=127.0.0.1:8080 binary=127.0.0.1:9009 kafka=127.0.0.1:9092 data=/var/lib/stele
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
import socket
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import ValidationError

from . import logs
from .broker.listeners import Endpoint
from .cdc.supervisor import CdcSupervisor
from .clock import SystemClock
from .composition import (
    CATALOG,
    SharedParts,
    open_broker,
    open_groups,
    open_shared,
    open_transactions,
)
from .errors import SteleError
from .network.accept_loop import AcceptOptions
from .network.admission import Admission, open_files_for_connections, raise_open_files_limit
from .network.binding import bind
from .security import audit
from .security.forwarding import forwarding_key
from .security.policy import UnsafeSettings, check_exposure, is_loopback
from .security.service import SecurityStores, check_login_settings, open_security
from .security.tls import InvalidTlsFiles, ListenerTls
from .security.tls_reload import TlsReload
from .security.tls_settings import listener_tls, peer_tls
from .settings import Settings
from .storage.setup_problems import InvalidStorage
from .tcp.binary.connection import PLAINTEXT_ANSWER, BinaryConnection
from .tcp.binary.forwarding import serve_frame
from .tcp.binary.handlers.context import BinaryListener
from .tcp.kafka.connection import KafkaConnection
from .tcp.kafka.fetch_sessions import FetchSessionCache
from .tcp.kafka.handlers.context import KafkaListener
from .tcp.kafka.spans import KafkaSpans
from .tcp.kafka.trace import RequestTracer, Tracer
from .tcp.server import TcpServer
from .tracing import TracesMissingError, start_traces

if TYPE_CHECKING:
    from .api.forwarding import Forwarding, FrameForwarding
    from .api.server import HttpServer
    from .broker.forwarding import Forwarder

logger = logging.getLogger(__name__)


def _load_http_server() -> type[HttpServer]:
    """Return ``HttpServer``.

    Importing it takes half of a start, so call this in a thread.
    """
    from .api.server import HttpServer

    return HttpServer


def _load_forwarding() -> tuple[type[Forwarding], type[FrameForwarding]]:
    """Return the parts of the HTTP listener that forward.

    Importing them takes as long as ``HttpServer``.
    """
    from .api.forwarding import Forwarding, FrameForwarding

    return Forwarding, FrameForwarding


def _address(listening: socket.socket) -> tuple[str, int]:
    host, port, *_ = listening.getsockname()
    return host, port


def _join(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(host: str) -> str:
    """An address that reaches a listener from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _own_url(settings: Settings, address: tuple[str, int], tls: ListenerTls | None) -> str:
    """The URL by which the broker's own connector reaches the binary listener."""
    host, port = address
    if tls is None:
        return f"stele://{_join((_reachable(host), port))}"
    # A certificate names the host that clients know. It is trusted as it is, whoever issued it.
    where = _join((settings.advertised_host or _reachable(host), port))
    return f"stele+tls://{where}?ca_file={quote(str(tls.options.certificate_file.absolute()))}"


def _warn_if_open(host: str, *, is_encrypted: bool) -> None:
    if not is_loopback(host):
        logger.warning(
            "LISTENING ON %s WITHOUT AUTHENTICATION%s, as STELE_ALLOW_ANONYMOUS_NETWORK says: every client that reaches "
            "this address can read, write and delete all topics",
            host,
            "" if is_encrypted else " OR ENCRYPTION",
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
    """Serve until SIGINT or SIGTERM, then close: listeners first, the log last.

    Raises:
        OSError: a listener cannot listen, or a disk failed.
        TracesMissingError: an extra is not installed.
        InvalidTlsFiles: a certificate or key cannot be used.
        UnsafeSettings: the listeners would be open to the network.
    """
    http_tls, binary_tls, kafka_tls = (
        listener_tls(settings, "http"),
        listener_tls(settings, "binary"),
        listener_tls(settings, "kafka"),
    )
    brokers_tls = peer_tls(settings, http_tls)
    check_exposure(settings, {"http": http_tls, "binary": binary_tls, "kafka": kafka_tls})
    check_login_settings(settings)
    traces = await asyncio.to_thread(start_traces) if settings.otel_enable else None
    # Before the logs are opened: each has a file.
    open_files = raise_open_files_limit()
    http_socket = bind(settings.host, settings.http_port, "http")
    binary_socket = bind(settings.host, settings.binary_port, "binary")
    kafka_socket = bind(settings.host, settings.kafka_port, "kafka")
    stopping = asyncio.Event()
    shared: SharedParts | None = open_shared(settings, stopping.set) if settings.storage == "shared" else None
    broker = await open_broker(settings, shared)
    groups = await open_groups(broker, shared)
    transactions = await open_transactions(broker, groups, shared)
    catalog = settings.data_dir.absolute() / CATALOG
    stores = SecurityStores.of_file(catalog) if shared is None else shared.security_stores(catalog.parent)
    security = await open_security(settings, stores, SystemClock())
    if not all(security.listener(name).is_required for name in ("http", "binary", "kafka")):
        _warn_if_open(settings.host, is_encrypted=None not in (http_tls, binary_tls, kafka_tls))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)

    http_address, binary_address = _address(http_socket), _address(binary_socket)
    kafka_address = _address(kafka_socket)
    broker.kafka_security_protocol = "PLAINTEXT" if kafka_tls is None else "SSL"
    broker.listeners = {"kafka": Endpoint(*kafka_address)}
    broker.endpoints = {
        "http": Endpoint(settings.advertised_host or http_address[0], http_address[1]),
        "binary": Endpoint(settings.advertised_host or binary_address[0], binary_address[1]),
        "kafka": Endpoint(
            settings.advertised_host or kafka_address[0], settings.advertised_kafka_port or kafka_address[1]
        ),
    }
    _warn_of_few_files(open_files, settings.connections_max)
    admit = partial(
        Admission,
        connections_max=settings.connections_max,
        per_address_max=settings.connections_per_address_max,
        open_files_max=open_files_for_connections(open_files),
    )
    accept = AcceptOptions(
        handshake_timeout_ms=settings.tls_handshake_timeout_ms,
        rate_max=settings.connections_accept_rate_max,
        address_delay_ms=broker.quotas.connect,
    )
    listener = BinaryListener(
        broker=broker,
        groups=groups,
        transactions=transactions.coordinator,
        security=security.listener("binary"),
        **broker.endpoints["binary"]._asdict(),
    )
    forwarder: Forwarder | None = None
    forwarding: Forwarding | None = None
    if shared is not None:
        forwarder = await asyncio.to_thread(shared.forwarder, brokers_tls)
        make_forwarding, make_frame_forwarding = await asyncio.to_thread(_load_forwarding)
        key = forwarding_key(security.credentials.secret)
        # Frames that another broker forwards are served here, with the groups or without.
        forwarding = make_forwarding(forwarder, key, SystemClock(), partial(serve_frame, listener))
        listener = replace(listener, forwarding=make_frame_forwarding(forwarding))
    binary = TcpServer(
        "binary",
        lambda server: BinaryConnection(listener=listener, settings=settings, registry=server),
        admission=admit("binary"),
        accept=replace(accept, plaintext_answer=PLAINTEXT_ANSWER),
        tls=binary_tls,
    )
    kafka_listener = KafkaListener(
        broker=broker,
        groups=groups,
        transactions=transactions.coordinator,
        fetch_sessions=FetchSessionCache(
            slots=settings.fetch_sessions_max,
            partitions_max=settings.fetch_session_partitions_max,
            random_id=partial(random.randint, 1, 2**31 - 1),
            make_watch=broker.watch,
        ),
        security=security.listener("kafka"),
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
        accept=accept,
        tls=kafka_tls,
    )
    for server in (binary, kafka):
        security.credentials.observe_revocations(server.close_logins)
    binary.start(binary_socket)
    kafka.start(kafka_socket)
    http_server = await asyncio.to_thread(_load_http_server)
    cdc = CdcSupervisor(settings, _own_url(settings, binary_address, binary_tls), security.cdc_key())
    http = http_server(
        broker,
        groups,
        transactions,
        cdc,
        admission=admit("http"),
        accept=accept,
        tls=http_tls,
        security=security.listener("http"),
        listeners=(binary, kafka),
        traces=traces,
        forwarding=forwarding,
    )
    http_task = asyncio.create_task(http.serve(sockets=[http_socket]))
    listening = asyncio.create_task(http.listening.wait())
    await asyncio.wait((listening, http_task), return_when=asyncio.FIRST_COMPLETED)
    # The objects created so far live as long as the process; a collection that visits them blocks the loop for 20 ms.
    gc.collect()
    gc.freeze()
    certificates = {
        name: tls
        for name, tls in (
            ("http", http_tls),
            ("binary", binary_tls),
            ("kafka", kafka_tls),
            ("brokers", brokers_tls),
        )
        if tls is not None
    }
    reload = TlsReload(certificates, interval_ms=settings.tls_reload_interval_ms)
    if certificates:
        loop.add_signal_handler(signal.SIGHUP, reload.reload_soon)
        reload.start()
    if shared is not None and cdc.is_wanted:
        cdc.run_by_lease(partial(shared.cluster.is_held, cdc.lease))
        shared.cluster.hold(cdc.lease, cdc)
    if shared is not None and http.listening.is_set():
        # Clients are sent to this broker from now on.
        await shared.join(broker.endpoints)
    if http.listening.is_set():
        print(  # noqa: T201 - programs that start a broker wait for this line
            f"stele ready http={_join(http_address)} binary={_join(binary_address)} "
            f"kafka={_join(kafka_address)} data={settings.data_dir.absolute()}",
            flush=True,
        )
        url = f"http://{_join((_reachable(http_address[0]), http_address[1]))}/"
        logger.info("%s is the console, %sdocs the HTTP API; ctrl-c stops the broker", url, url)
        if shared is None:
            cdc.start()
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait((waiting, http_task), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    logger.info("shutting down")
    if shared is not None:
        # First, so that clients and leases move while this broker still answers.
        await shared.leave()
    await reload.close()
    # The CDC connector is a client of the listeners, so it stops first.
    await cdc.close()
    broker.begin_close()
    transactions.begin_close()
    groups.begin_close()
    http.should_exit = True
    await asyncio.gather(
        binary.stop(settings.shutdown_timeout_ms), kafka.stop(settings.shutdown_timeout_ms), http_task
    )
    if forwarder is not None:
        await forwarder.close()
    await transactions.close()
    await groups.close()
    await security.close()
    await broker.close()
    if shared is not None:
        await shared.close()
    if traces is not None:
        await asyncio.to_thread(traces.close)


def serve(overrides: Mapping[str, object] | None = None) -> int:
    """Run a broker with the settings of the environment and ``overrides``.

    Returns the exit code.
    """
    try:
        settings = Settings.model_validate({**Settings().model_dump(), **(overrides or {})})
    except ValidationError as error:
        problems = [f"setting {'.'.join(map(str, p['loc']))} is invalid: {p['msg']}" for p in error.errors()]
        return _fail("; ".join(problems), 2)
    logs.configure(level=settings.log_level, log_format=settings.log_format)
    try:
        if settings.audit_log_file is not None:
            audit.write_to(settings.audit_log_file)
        _run(settings)
    except OSError as error:
        file = f": {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{file}", 1)
    except (SteleError, sqlite3.Error) as error:
        return _fail(str(error), 1)
    except (InvalidStorage, TracesMissingError, InvalidTlsFiles, UnsafeSettings) as error:
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
