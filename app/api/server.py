"""The HTTP door's server: uvicorn on a socket that is bound already, beside the other doors on one loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn

from ..broker.broker import Broker
from ..groups.services import Groups
from .application import create_application
from .state import CdcView


class HttpServer(uvicorn.Server):
    """uvicorn, with the signals left to the composition root, since the doors close together."""

    def __init__(self, broker: Broker, groups: Groups, cdc: CdcView, *, backlog: int) -> None:
        settings = broker.settings
        super().__init__(
            uvicorn.Config(
                create_application(broker, groups, settings, cdc),
                log_config=None,
                access_log=False,
                lifespan="off",
                http="httptools",
                ws="none",
                backlog=backlog,
                limit_concurrency=settings.connections_max,
                h11_max_incomplete_event_size=None,
                timeout_graceful_shutdown=max(1, settings.shutdown_timeout_ms // 1000),
                server_header=False,
            )
        )
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
