"""The composition root: builds, starts and closes the parts of the broker.

``serve`` is what ``stele serve`` runs. One event loop (uvloop where there is
one) carries HTTP and TCP; when all listeners accept connections, it prints one line::

    stele ready http=127.0.0.1:8080 binary=127.0.0.1:9009 kafka=127.0.0.1:9092 registry=127.0.0.1:8081 data=/var/lib/stele
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from pydantic import ValidationError
from stele.wire.record_batch import load_codec

from . import logs, process_memory
from .broker.listeners import Endpoint
from .cdc.supervisor import CdcSupervisor
from .clock import SystemClock
from .composition import (
    CATALOG,
    SharedParts,
    embedded_engine,
    open_broker,
    open_groups,
    open_shared,
    open_transactions,
    start_problem,
)
from .errors import SteleError
from .iceberg.supervisor import IcebergTables
from .mirrors.supervisor import KafkaAccess, Mirrors
from .network.accept_loop import AcceptOptions
from .network.admission import (
    Admission,
    open_files_for_connections,
    raise_open_files_limit,
    warn_of_few_files,
)
from .network.binding import bind, listen
from .registry.service import SchemaRegistry
from .replication import ReplicaBucket, open_bucket, open_replica
from .restoring import prepare_directory
from .security import audit
from .security.credentials import key_id_of
from .security.forwarding import forwarding_key
from .security.policy import UnsafeSettings, check_exposure, is_loopback
from .security.service import SecurityStores, check_login_settings, open_security
from .security.tls.listener_tls import InvalidTlsFiles, ListenerTls
from .security.tls.reload import TlsReload
from .security.tls.settings import listener_tls, peer_tls
from .settings import ListenerName, Settings, unknown_settings, unknown_variables
from .sql.snapshots import Snapshots
from .sql.statements import SqlStatements
from .storage.setup_problems import InvalidStorage
from .tcp.binary.connection import PLAINTEXT_ANSWER, BinaryConnection
from .tcp.binary.forwarding import serve_frame
from .tcp.binary.handlers.context import BinaryListener
from .tcp.kafka.connection import KafkaConnection
from .tcp.kafka.context import KafkaListener
from .tcp.kafka.sessions.fetch_sessions import FetchSessionCache
from .tcp.kafka.share_forwarding import ForwardedFrames, end_sessions_of_dead
from .tcp.kafka.spans import KafkaSpans
from .tcp.kafka.trace import RequestTracer, Tracer
from .tcp.server import TcpServer
from .tracing import TracesMissingError, start_traces

if TYPE_CHECKING:
    from .api.forwarding import Forwarding, FrameForwarding, KafkaFrameForwarding
    from .api.registry.server import RegistryServer
    from .api.server import HttpListener, HttpServer
    from .broker.broker import Broker
    from .broker.forwarding import Forwarder
    from .groups.services import GroupServices
    from .security.service import Security
    from .security.tls.peer_tls import PeerTls
    from .storage.replica.replicator import Replicator
    from .tracing import Traces
    from .transactions.services import Transactions

logger = logging.getLogger(__name__)


def _load_http_servers() -> tuple[type[HttpServer], type[RegistryServer]]:
    """Import the servers, and what requests would import, in a thread: that takes half of a start."""
    from .api.registry.server import RegistryServer
    from .api.server import HttpServer

    load_codec()

    return HttpServer, RegistryServer


def _load_forwarding() -> tuple[type[Forwarding], type[FrameForwarding], type[KafkaFrameForwarding]]:
    """Import what forwards in a thread, as ``HttpServer``."""
    from .api.forwarding import Forwarding, FrameForwarding, KafkaFrameForwarding

    return Forwarding, FrameForwarding, KafkaFrameForwarding


def _join(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(host: str) -> str:
    """An address that reaches a listener from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _own_url(settings: Settings, listener: _Port, scheme: str, tls_scheme: str) -> str:
    """Return the URL by which the broker's own connector reaches a listener."""
    host, port = listener.address
    if listener.tls is None:
        return f"{scheme}://{_join((_reachable(host), port))}"
    # A certificate names the host that clients know. It is trusted as it is, whatever its issuer.
    where = _join((settings.advertised_host or _reachable(host), port))
    return f"{tls_scheme}://{where}?ca_file={quote(str(listener.tls.options.certificate_file.absolute()))}"


def _own_kafka(settings: Settings, listener: _Port, api_key: str) -> KafkaAccess:
    """Return how the broker's own mirrors reach its Kafka listener; as ``_own_url``."""
    host, port = listener.address
    properties: dict[str, str] = {}
    if listener.tls is not None:
        properties["ssl.ca.location"] = str(listener.tls.options.certificate_file.absolute())
    if api_key:
        properties |= {
            "sasl.mechanism": "PLAIN",
            "sasl.username": key_id_of(api_key),
            "sasl.password": api_key,
        }
    protocol = ("SASL_" if api_key else "") + ("PLAINTEXT" if listener.tls is None else "SSL")
    properties["security.protocol"] = protocol
    advertised = settings.advertised_host if listener.tls is not None else None
    return KafkaAccess(_join((advertised or _reachable(host), port)), properties)


def _warn_if_open(host: str, *, is_encrypted: bool) -> None:
    if not is_loopback(host):
        logger.warning(
            "LISTENING ON %s WITHOUT AUTHENTICATION%s, as STELE_ALLOW_ANONYMOUS_NETWORK says: every client that reaches "
            "this address can read, write and delete all topics",
            host,
            "" if is_encrypted else " OR ENCRYPTION",
        )


def _warn_of_plain_forwarding(settings: Settings, tls: Mapping[ListenerName, ListenerTls | None]) -> None:
    if settings.storage == "shared" and tls["http"] is None and (tls["binary"] or tls["kafka"]):
        logger.warning(
            "requests of groups that reach a TCP listener over TLS travel between brokers unencrypted, because "
            "they are forwarded to HTTP listeners without TLS: set STELE_HTTP_TLS_CERTIFICATE_FILE and "
            "STELE_HTTP_TLS_KEY_FILE at all brokers, or keep the network between brokers private"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Port:
    """The bound socket of a listener, so that port 0 is known before the start."""

    socket: socket.socket
    address: tuple[str, int]
    tls: ListenerTls | None

    @classmethod
    def bound(cls, host: str, port: int, listener: ListenerName, tls: ListenerTls | None) -> Self:
        listening = bind(host, port, listener)
        host, port, *_ = listening.getsockname()
        return cls(socket=listening, address=(host, port), tls=tls)


def _bound_ports(
    settings: Settings, tls: Mapping[ListenerName, ListenerTls | None]
) -> dict[ListenerName, _Port]:
    """Bind all listeners, but no optional one if another process has its port. Raises ``OSError``."""
    ports: dict[ListenerName, _Port] = {}
    for name in settings.listeners:
        is_optional = settings.is_optional(name)
        try:
            ports[name] = port = _Port.bound(settings.host, settings.listener(name).port, name, tls[name])
            if is_optional:
                # Two processes can bind a port, of which one can listen.
                listen(port.socket, name)
        except OSError as error:
            if not is_optional:
                raise
            if unused := ports.pop(name, None):
                unused.socket.close()
            logger.warning("this broker serves no schema registry: %s", error.strerror)
    return ports


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts that all listeners share."""

    shared: SharedParts | None
    peer_tls: PeerTls | None
    broker: Broker
    groups: GroupServices
    transactions: Transactions
    security: Security
    registry: SchemaRegistry
    bucket: ReplicaBucket | None
    replica: Replicator | None

    @classmethod
    async def opened(cls, settings: Settings, shared: SharedParts | None, peer_tls: PeerTls | None) -> Self:
        bucket = await open_bucket(settings)
        engine = None
        if shared is None:
            engine = embedded_engine(settings, None if bucket is None else bucket.reads)
        broker = await open_broker(settings, shared, engine)
        groups = await open_groups(broker, shared)
        transactions = await open_transactions(broker, groups, shared)
        catalog = settings.data_dir.absolute() / CATALOG
        stores = SecurityStores.of_file(catalog) if shared is None else shared.security_stores(catalog.parent)
        security = await open_security(settings, stores, SystemClock())
        registry = SchemaRegistry(broker)
        broker.set_contracts(registry.contracts)
        replica = None
        if bucket is not None and engine is not None:
            replica = await open_replica(bucket, engine, broker, groups)
        return cls(
            shared=shared,
            peer_tls=peer_tls,
            broker=broker,
            groups=groups,
            transactions=transactions,
            security=security,
            registry=registry,
            bucket=bucket,
            replica=replica,
        )

    def begin_close(self) -> None:
        """Refuse new work, so that the listeners can end what they have begun."""
        self.broker.begin_close()
        self.transactions.begin_close()
        self.groups.begin_close()

    async def close(self) -> None:
        await self.registry.close()
        await self.transactions.close()
        if self.replica is not None:
            # Nothing changes any more, and its last cut needs the stores.
            await self.replica.close()
        await self.groups.close()
        await self.security.close()
        if self.bucket is not None:
            # Before the broker waits for its threads: those that read from the bucket wait for the event loop.
            await self.bucket.reads.close()
        await self.broker.close()
        if self.bucket is not None:
            await self.bucket.store.close()
        if self.shared is not None:
            await self.shared.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """The limits of each listener."""

    settings: Settings
    accept: AcceptOptions
    open_files_max: int

    def admission(self, listener: str) -> Admission:
        return Admission(
            listener,
            connections_max=self.settings.connections_max,
            per_address_max=self.settings.connections_per_address_max,
            open_files_max=self.open_files_max,
        )


def _endpoints(settings: Settings, ports: Mapping[ListenerName, _Port]) -> dict[str, Endpoint]:
    """Return the addresses that clients get."""
    endpoints: dict[str, Endpoint] = {}
    for name, bound in ports.items():
        host, port = bound.address
        if name == "kafka":
            port = settings.advertised_kafka_port or port
        endpoints[name] = Endpoint(settings.advertised_host or host, port)
    return endpoints


async def _forwarding_over(
    parts: _Parts, binary: BinaryListener, kafka: KafkaListener
) -> tuple[Forwarder | None, Forwarding | None, BinaryListener, KafkaListener]:
    """Return what forwards requests between brokers, and the listeners with it."""
    shared = parts.shared
    if shared is None:
        return None, None, binary, kafka
    shared.cluster.observe_members(partial(end_sessions_of_dead, kafka))
    forwarder = await asyncio.to_thread(shared.forwarder, parts.peer_tls)
    make, of_binary, of_kafka = await asyncio.to_thread(_load_forwarding)
    key = forwarding_key(parts.security.credentials.secret)
    # Frames that another broker forwards are served here, with the groups or without.
    served = partial(serve_frame, binary)
    forwarding = make(forwarder, key, SystemClock(), str(shared.incarnation), served, ForwardedFrames(kafka))
    binary = replace(binary, forwarding=of_binary(forwarding))
    return forwarder, forwarding, binary, replace(kafka, forwarding=of_kafka(forwarding))


def _binary_server(listener: BinaryListener, limits: _Limits, tls: ListenerTls | None) -> TcpServer:
    return TcpServer(
        "binary",
        lambda server: BinaryConnection(listener=listener, settings=limits.settings, registry=server),
        admission=limits.admission("binary"),
        accept=replace(limits.accept, plaintext_answer=PLAINTEXT_ANSWER),
        tls=tls,
        unread=listener.broker.unread,
        pending_bytes_max=limits.settings.pending_request_bytes_max,
    )


def _kafka_listener(parts: _Parts) -> KafkaListener:
    settings = parts.broker.settings
    return KafkaListener(
        broker=parts.broker,
        groups=parts.groups,
        transactions=parts.transactions.coordinator,
        fetch_sessions=FetchSessionCache(
            slots=settings.fetch_sessions_max,
            partitions_max=settings.fetch_session_partitions_max,
            random_id=partial(random.randint, 1, 2**31 - 1),
            make_watch=parts.broker.watch,
        ),
        security=parts.security.listener("kafka"),
        **parts.broker.endpoints["kafka"]._asdict(),
    )


def _kafka_server(
    listener: KafkaListener, limits: _Limits, tls: ListenerTls | None, traces: Traces | None
) -> TcpServer:
    settings = limits.settings
    tracers: list[RequestTracer] = []
    if settings.trace_connections:
        tracers.append(Tracer(with_hex=settings.trace_hex))
    if traces is not None:
        tracers.append(KafkaSpans(traces.tracer()))
    return TcpServer(
        "kafka",
        lambda server: KafkaConnection(
            listener=listener, settings=settings, registry=server, tracers=tracers
        ),
        admission=limits.admission("kafka"),
        accept=limits.accept,
        tls=tls,
        unread=listener.broker.unread,
        pending_bytes_max=settings.pending_request_bytes_max,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listeners:
    """The TCP listeners, which accept connections, and those of HTTP by name, which do not yet."""

    tcp: tuple[TcpServer, ...]
    http: Mapping[ListenerName, HttpListener]
    forwarder: Forwarder | None


async def _start_listeners(
    parts: _Parts,
    ports: Mapping[ListenerName, _Port],
    limits: _Limits,
    cdc: CdcSupervisor,
    mirrors: Mirrors,
    sql: SqlStatements,
    iceberg: IcebergTables,
    traces: Traces | None,
) -> _Listeners:
    broker, security = parts.broker, parts.security
    binary_listener = BinaryListener(
        broker=broker,
        groups=parts.groups,
        transactions=parts.transactions.coordinator,
        security=security.listener("binary"),
        **broker.endpoints["binary"]._asdict(),
    )
    forwarder, forwarding, binary_listener, kafka_listener = await _forwarding_over(
        parts, binary_listener, _kafka_listener(parts)
    )
    binary = _binary_server(binary_listener, limits, ports["binary"].tls)
    kafka = _kafka_server(kafka_listener, limits, ports["kafka"].tls, traces)
    for server in (binary, kafka):
        security.credentials.observe_revocations(server.close_logins)
    binary.start(ports["binary"].socket)
    kafka.start(ports["kafka"].socket)
    http_server, registry_server = await asyncio.to_thread(_load_http_servers)
    http = http_server(
        broker,
        parts.groups,
        parts.transactions,
        cdc,
        admission=limits.admission("http"),
        accept=limits.accept,
        tls=ports["http"].tls,
        security=security.listener("http"),
        listeners=(binary, kafka),
        traces=traces,
        forwarding=forwarding,
        replica=parts.replica,
        schemas=parts.registry.values,
        mirrors=mirrors,
        sql=sql,
        iceberg=iceberg,
    )
    servers: dict[ListenerName, HttpListener] = {"http": http}
    await parts.registry.start()
    if "registry" in ports:
        servers["registry"] = registry_server(
            parts.registry,
            http,
            admission=limits.admission("registry"),
            accept=limits.accept,
            tls=ports["registry"].tls,
            security=security.listener("registry"),
            traces=traces,
        )
    return _Listeners(tcp=(binary, kafka), http=servers, forwarder=forwarder)


def _start_reload(settings: Settings, tls: Mapping[str, ListenerTls | PeerTls | None]) -> TlsReload:
    certificates = {name: found for name, found in tls.items() if found is not None}
    reload = TlsReload(certificates, interval_ms=settings.tls_reload_interval_ms)
    if certificates:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.reload_soon)
        reload.start()
    return reload


def _announce(settings: Settings, ports: Mapping[ListenerName, _Port]) -> None:
    addresses = " ".join(f"{name}={_join(port.address)}" for name, port in ports.items())
    # Programs that start a broker wait for this line.
    print(f"stele ready {addresses} data={settings.data_dir.absolute()}", flush=True)  # noqa: T201
    host, port = ports["http"].address
    url = f"http://{_join((_reachable(host), port))}/"
    logger.info("%s is the console, %sdocs the HTTP API; ctrl-c stops the broker", url, url)


async def run(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM, then close: listeners first, the log last.

    Raises:
        OSError: a listener cannot listen, or a disk failed.
        TracesMissingError: an extra is not installed.
        InvalidTlsFiles: a certificate or key cannot be used.
        UnsafeSettings: the listeners would be open to the network.
        InvalidStorage: the data directory is empty, and could not be restored as the settings ask for.
    """
    names = settings.listeners
    tls: dict[ListenerName, ListenerTls | None] = {name: listener_tls(settings, name) for name in names}
    brokers_tls = peer_tls(settings, tls["http"])
    check_exposure(settings, tls)
    check_login_settings(settings)
    if settings.storage == "embedded":
        await prepare_directory(settings)
    traces = await asyncio.to_thread(start_traces) if settings.otel_enable else None
    # Each log has a file.
    open_files = raise_open_files_limit()
    ports = _bound_ports(settings, tls)
    stopping = asyncio.Event()
    shared = open_shared(settings, stopping.set) if settings.storage == "shared" else None
    parts = await _Parts.opened(settings, shared, brokers_tls)
    broker, security = parts.broker, parts.security
    if not all(security.listener(name).is_required for name in names):
        _warn_if_open(settings.host, is_encrypted=None not in tls.values())
    _warn_of_plain_forwarding(settings, tls)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)

    broker.kafka_security_protocol = "PLAINTEXT" if tls["kafka"] is None else "SSL"
    broker.listeners = {"kafka": Endpoint(*ports["kafka"].address)}
    broker.endpoints = _endpoints(settings, ports)
    scheme = "http" if tls["http"] is None else "https"
    broker.http_url = f"{scheme}://{broker.endpoints['http'].joined}"
    warn_of_few_files(
        open_files,
        connections_max=settings.connections_max,
        partitions_max=0 if settings.storage == "shared" else settings.partitions_max,
    )
    limits = _Limits(
        settings=settings,
        accept=AcceptOptions(
            handshake_timeout_ms=settings.tls_handshake_timeout_ms,
            rate_max=settings.connections_accept_rate_max,
            address_delay_ms=broker.quotas.connect,
        ),
        open_files_max=open_files_for_connections(open_files),
    )
    own_url = _own_url(settings, ports["binary"], "stele", "stele+tls")
    cdc = CdcSupervisor(
        settings,
        own_url,
        security.process_key("cdc"),
        _own_url(settings, ports["registry"], "http", "https") if "registry" in ports else "",
    )
    mirrors = Mirrors(
        settings,
        broker,
        parts.groups,
        own_url,
        security.process_key("mirrors"),
        kafka=_own_kafka(settings, ports["kafka"], security.process_key("mirrors", "kafka")),
    )
    await mirrors.open()
    pool = None if shared is None else shared.stores.pool
    iceberg = IcebergTables(settings, broker, own_url, security.process_key("iceberg"), pool)
    sql = SqlStatements(broker, Snapshots(iceberg.catalog), parts.registry.values)
    iceberg.open()
    try:
        listeners = await _start_listeners(parts, ports, limits, cdc, mirrors, sql, iceberg, traces)
    except OSError:
        # A port was taken meanwhile. The logs are closed in order, or the next start would recover them.
        parts.begin_close()
        await parts.close()
        raise
    http = listeners.http
    serving = [
        asyncio.create_task(server.serve(sockets=[ports[name].socket])) for name, server in http.items()
    ]
    listening = asyncio.gather(*(server.listening.wait() for server in http.values()))
    await asyncio.wait((listening, *serving), return_when=asyncio.FIRST_COMPLETED)
    process_memory.end_start()
    reload = _start_reload(settings, {**tls, "brokers": brokers_tls})
    beside = (cdc, mirrors, iceberg)
    for work in beside:
        if shared is not None and work.is_able:
            work.run_by_lease(partial(shared.cluster.is_held, work.lease))
            shared.cluster.hold(work.lease, work)
    if listening.done():
        if shared is not None:
            # Clients are sent to this broker from now on.
            await shared.join(broker.endpoints)
        _announce(settings, ports)
        if shared is None:
            for work in beside:
                work.start()
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait((waiting, *serving), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    listening.cancel()
    logger.info("shutting down")
    if shared is not None:
        # First, so that clients and leases move while this broker still answers.
        await shared.leave()
    await reload.close()
    # Its processes are clients of the listeners, so they stop first.
    await asyncio.gather(*(work.close() for work in beside), sql.close())
    parts.begin_close()
    for server in http.values():
        server.should_exit = True
    stops = (server.stop(settings.shutdown_timeout_ms) for server in listeners.tcp)
    ending = [*map(asyncio.create_task, stops), *serving]
    try:
        # All of them, also if one has failed: the parts are closed after that.
        await asyncio.wait(ending)
        for task in ending:
            task.result()
    finally:
        if listeners.forwarder is not None:
            await listeners.forwarder.close()
        await parts.close()
    if traces is not None:
        await asyncio.to_thread(traces.close)


def serve(overrides: Mapping[str, object] | None = None) -> int:
    """Run a broker with the settings of the environment and ``overrides``.

    Returns the exit code: 2 if a setting is unknown or has an invalid value.
    """
    if unknown := unknown_settings(overrides or {}):
        return _fail("; ".join(unknown), 2)
    try:
        settings = Settings.model_validate(dict(overrides or {}))
    except ValidationError as error:
        problems = [f"setting {'_'.join(map(str, p['loc']))} is invalid: {p['msg']}" for p in error.errors()]
        return _fail("; ".join(problems), 2)
    logs.configure(level=settings.log_level, log_format=settings.log_format)
    for problem in unknown_variables(os.environ):
        logger.warning("%s", problem)
    try:
        if settings.audit_log_file is not None:
            audit.write_to(settings.audit_log_file)
        with process_memory.prepared_memory():
            _run(settings)
    except OSError as error:
        return _fail(start_problem(error, settings.data_dir), 1)
    except (SteleError, sqlite3.Error) as error:
        return _fail(str(error), 1)
    except (InvalidStorage, TracesMissingError, InvalidTlsFiles, UnsafeSettings) as error:
        return _fail(str(error), 2)
    return 0


def _fail(reason: str, code: int) -> int:
    sys.stderr.write(f"stele: {reason}\n")
    return code


def _run(settings: Settings) -> None:
    # Not at the top: a command that only reads settings does not need it.
    import uvloop

    uvloop.run(run(settings))
