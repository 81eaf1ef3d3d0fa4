"""Run uvicorn's server on connections of the accept loop, in the event loop of all listeners."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from ..broker.broker import Broker
from ..broker.listeners import ListenerView
from ..groups.services import GroupServices
from ..monitor.loop_probe import LoopProbe
from ..monitor.sampler import Sampler
from ..network.accept_loop import AcceptLoop, AcceptOptions
from ..network.admission import Admission
from ..network.pending_bytes import PendingBytes
from ..registry.values import SchemaValues
from ..security.policy import ListenerSecurity
from ..security.tls.listener_tls import ListenerTls
from ..settings import Settings
from ..sql.statements import SqlStatements
from ..tracing import Traces
from ..transactions.services import Transactions
from .application import create_application
from .authentication import Authenticate
from .cluster_document import broker_report
from .direct_produce import DirectProduce
from .errors import ProblemEncoder, encode_problem
from .forwarding import AcceptForwarded, ForwardGroups, Forwarding
from .http.cross_site import RefuseCrossSite
from .http.request_ids import RequestIds
from .http.traffic import CountedProtocol, HttpTraffic, counted_protocol, refuse
from .routes.iceberg_catalog import iceberg_errors, mount_iceberg
from .routes.status import VERSION
from .state import CdcView, IcebergView, MirrorsView, ReplicaView

_PLAINTEXT_TEXT = b"This port speaks TLS; use https:// in the URL.\n"
# What a plaintext client at a listener with TLS gets to read.
_PLAINTEXT_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_PLAINTEXT_TEXT), _PLAINTEXT_TEXT)
)


class HttpListener(uvicorn.Server):
    """uvicorn without its signal handlers.

    ``app.main`` closes all listeners together.
    """

    def __init__(
        self,
        app: ASGIApp,
        traffic: HttpTraffic,
        settings: Settings,
        *,
        admission: Admission,
        accept: AcceptOptions,
        tls: ListenerTls | None = None,
        security: ListenerSecurity | None = None,
        refusing: ASGIApp = refuse,
        problem_encoder: ProblemEncoder = encode_problem,
    ) -> None:
        """``refusing`` answers clients that were not admitted, ``problem_encoder`` writes what is refused before ``app``."""
        self._make_protocol = counted_protocol(
            traffic,
            admission,
            idle_timeout_ms=settings.idle_timeout_ms,
            frame_timeout_ms=settings.frame_timeout_ms,
            pending=PendingBytes(settings.pending_request_bytes_max),
            login_timeout_ms=security.login_timeout_ms
            if security is not None and security.is_required
            else None,
            refusing=refusing,
            problem_encoder=problem_encoder,
        )
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                http=self._make_protocol,
                ws="none",
                # Otherwise a client on this machine could choose the address that failed logins are counted by.
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, settings.shutdown_timeout_ms // 1000),
                server_header=False,
            )
        )
        self.listening = asyncio.Event()
        self._accept = traffic.accept = AcceptLoop(
            traffic.name,
            self._make,
            admission=admission,
            options=replace(accept, plaintext_answer=_PLAINTEXT_ANSWER),
            tls=tls,
        )

    def _make(self, host: str, refusal: str | None) -> CountedProtocol:
        protocol = self._make_protocol(self.config, self.server_state, self.lifespan.state)
        protocol.host, protocol.refusal = host, refusal
        return protocol

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn starts with no socket of its own: connections come from the accept loop.
        # It has Starlette's anyio import its backend, which the first streaming response would do otherwise.
        await run_in_threadpool(bool)
        await super().startup([])
        for listening in sockets or ():
            self._accept.start(listening)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accept.close()
        await super().shutdown([])

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpServer(HttpListener):
    """The HTTP listener."""

    def __init__(
        self,
        broker: Broker,
        groups: GroupServices,
        transactions: Transactions,
        cdc: CdcView,
        *,
        admission: Admission,
        accept: AcceptOptions,
        tls: ListenerTls | None = None,
        security: ListenerSecurity | None = None,
        listeners: Sequence[ListenerView] = (),
        traces: Traces | None = None,
        forwarding: Forwarding | None = None,
        replica: ReplicaView | None = None,
        schemas: SchemaValues,
        mirrors: MirrorsView | None = None,
        sql: SqlStatements | None = None,
        iceberg: IcebergView | None = None,
    ) -> None:
        settings = broker.settings
        # Its listener is a server of its own; all are sampled and shown together.
        self.registry_traffic = HttpTraffic("registry")
        if "registry" in broker.endpoints:
            listeners = (*listeners, self.registry_traffic)
        application = create_application(
            broker,
            groups,
            transactions,
            settings,
            cdc,
            listeners=listeners,
            security=security,
            replica=replica,
            schemas=schemas,
            mirrors=mirrors,
            sql=sql,
            iceberg=iceberg,
        )
        mount_iceberg(application)
        self.application, state = application, application.state
        # Traces are made by the application, of every request.
        served: ASGIApp = (
            DirectProduce(application, state.stele, state.http_traffic, state.request_counts, settings)
            if traces is None
            else application
        )
        inner: ASGIApp = served if forwarding is None else ForwardGroups(served, forwarding)
        authenticated: ASGIApp = inner
        if security is not None:
            authenticate = Authenticate(
                inner,
                security,
                application.state.sessions,
                is_metrics_open=settings.metrics_anonymous_enable,
            )
            if security.credentials is not None:
                security.credentials.observe_revocations(authenticate.revoke)
            authenticated = authenticate
            if forwarding is not None:
                authenticated = AcceptForwarded(inner, authenticate, security, forwarding)
        if traces is not None:
            traces.instrument(application)
        super().__init__(
            # Outermost, because the application answers a failure in its outermost layer.
            iceberg_errors(RequestIds(RefuseCrossSite(authenticated, settings))),
            state.http_traffic,
            settings,
            admission=admission,
            accept=accept,
            tls=tls,
            security=security,
        )
        self._sampler: Sampler = state.stele.sampler
        self._loop_probe: LoopProbe = state.stele.loop_probe
        broker.cluster.report_by(partial(broker_report, broker, self._sampler, VERSION))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._sampler.start()
        self._loop_probe.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._loop_probe.stop()
        await self._sampler.stop()
        await super().shutdown(sockets)
