"""Run uvicorn on a bound socket, on the same event loop as the other listeners."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator, Sequence

import uvicorn

from ..broker.admission import Admission
from ..broker.broker import Broker
from ..broker.listeners import ListenerView
from ..groups.services import Groups
from ..monitor.sampler import Sampler
from ..tracing import Traces
from .application import create_application
from .cross_site import RefuseCrossSite
from .http_traffic import counted_protocol
from .request_ids import RequestIds
from .state import CdcView

# Events that ``stream_slots`` (an aborted answer) and ``Admission`` (a refused connection) log themselves.
_KNOWN = frozenset({"ASGI callable returned without completing response.", "Exceeded concurrency limit."})


def _is_news(record: logging.LogRecord) -> bool:
    return record.getMessage() not in _KNOWN


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers, because ``app.main`` closes all listeners together."""

    def __init__(
        self,
        broker: Broker,
        groups: Groups,
        cdc: CdcView,
        *,
        backlog: int,
        admission: Admission,
        listeners: Sequence[ListenerView] = (),
        traces: Traces | None = None,
    ) -> None:
        settings = broker.settings
        application = create_application(broker, groups, settings, cdc, listeners=listeners)
        if traces is not None:
            traces.instrument(application)
        super().__init__(
            uvicorn.Config(
                # Outermost, because the application answers a failure in its outermost layer.
                RequestIds(RefuseCrossSite(application, settings)),
                log_config=None,
                access_log=False,
                lifespan="off",
                http=counted_protocol(
                    application.state.http_traffic, admission, idle_timeout_ms=settings.idle_timeout_ms
                ),
                ws="none",
                backlog=backlog,
                h11_max_incomplete_event_size=None,
                timeout_graceful_shutdown=max(1, settings.shutdown_timeout_ms // 1000),
                server_header=False,
            )
        )
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        self.listening = asyncio.Event()
        self._sampler: Sampler = application.state.stele.sampler

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._sampler.start()
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._sampler.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
