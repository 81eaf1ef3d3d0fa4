"""A broker in this process, whose connections have no sockets.

What is measured is the CPU time of its requests and nothing else. The parts are those of ``stele serve``: the connections of all three protocols, the application of the HTTP API, the
engine over files. What a kernel does for a request (receive, send, poll) is left out, so a cost that is measured here
is a larger share of a request than it is of one over a socket.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from app.api.server import HttpServer
from app.broker.broker import Broker
from app.cdc.supervisor import CdcSupervisor
from app.clock import SystemClock
from app.composition import CATALOG, open_broker, open_groups, open_transactions
from app.network.accept_loop import AcceptOptions
from app.network.admission import Admission
from app.network.pending_bytes import PendingBytes
from app.security.policy import ListenerSecurity
from app.security.service import Security, SecurityStores, open_security
from app.security.tls.tls_settings import ListenerName
from app.settings import Settings
from app.tcp.binary.connection import BinaryConnection
from app.tcp.binary.handlers.context import BinaryListener
from app.tcp.connection import Connection
from app.tcp.deadlines import Deadlines
from app.tcp.kafka.connection import KafkaConnection
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.sessions.fetch_sessions import FetchSessionCache

HOST = "127.0.0.1"
_UNLIMITED = 1 << 30


class CountingTransport(asyncio.Transport):
    """Counts the bytes that the broker writes, and keeps the first of them."""

    def __init__(self) -> None:
        super().__init__({"peername": (HOST, 40_000), "sockname": (HOST, 9_092)})
        self.count = 0
        self.first = b""
        self.is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.count:
            self.first = bytes(data)
        self.count += len(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def write_eof(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


@dataclass(slots=True)
class _Registry:
    """Implements ``ConnectionRegistry``."""

    deadlines: Deadlines
    pending: PendingBytes = field(default_factory=lambda: PendingBytes(Settings().pending_request_bytes_max))

    def opened(self, connection: Connection[Any]) -> str | None:
        return None

    def closed(self, connection: Connection[Any]) -> None:
        pass


class Caller:
    """A client of one connection that sends the same bytes again and again."""

    def __init__(self, protocol: asyncio.Protocol, request: bytes) -> None:
        self.transport = CountingTransport()
        self._protocol = protocol
        self._request = request
        self._answer_bytes = 0
        protocol.connection_made(self.transport)

    async def learn(self) -> None:
        """Send one request, and take the size of its answer for that of all."""
        self._protocol.data_received(self._request)
        while not self._answer_bytes or self.transport.count > self._answer_bytes:
            self._answer_bytes = self.transport.count
            # An answer that comes in several pieces is whole by then.
            await asyncio.sleep(0.1)

    async def call(self, requests: int) -> float:
        """Send requests one after the other.

        Return the seconds of CPU time of this thread.
        """
        transport, receive, request = self.transport, self._protocol.data_received, self._request
        begin_ns = time.thread_time_ns()
        for _ in range(requests):
            wanted = transport.count + self._answer_bytes
            receive(request)
            while transport.count < wanted:
                if transport.is_over:
                    raise ConnectionError("the broker closed the connection")
                await asyncio.sleep(0)
        return (time.thread_time_ns() - begin_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcess:
    """A broker, and what makes connections to it."""

    broker: Broker
    security: Security
    groups: Any
    transactions: Any

    def caller(self, listener: ListenerName, request: bytes, *, checks_rules: bool) -> Caller:
        """Return a client of a listener that looks at access rules or does not."""
        guard = self.security.listener(listener) if checks_rules else ListenerSecurity(listener=listener)
        make = {"kafka": self._kafka, "binary": self._binary, "http": self._http}[listener]
        return Caller(make(guard), request)

    def _kafka(self, security: ListenerSecurity) -> asyncio.Protocol:
        settings = self.broker.settings
        listener = KafkaListener(
            broker=self.broker,
            groups=self.groups,
            transactions=self.transactions.coordinator,
            host=HOST,
            port=9_092,
            fetch_sessions=FetchSessionCache(
                slots=settings.fetch_sessions_max,
                partitions_max=settings.fetch_session_partitions_max,
                random_id=partial(random.randint, 1, 2**31 - 1),
                make_watch=self.broker.watch,
            ),
            security=security,
        )
        connection = KafkaConnection(listener=listener, settings=settings, registry=_Registry(Deadlines()))
        connection.peer_host = HOST
        return connection

    def _binary(self, security: ListenerSecurity) -> asyncio.Protocol:
        listener = BinaryListener(
            broker=self.broker,
            groups=self.groups,
            transactions=self.transactions.coordinator,
            host=HOST,
            port=9_009,
            security=security,
        )
        connection = BinaryConnection(
            listener=listener, settings=self.broker.settings, registry=_Registry(Deadlines())
        )
        connection.peer_host = HOST
        return connection

    def _http(self, security: ListenerSecurity) -> asyncio.Protocol:
        settings = self.broker.settings
        server = HttpServer(
            self.broker,
            self.groups,
            self.transactions,
            CdcSupervisor(settings, "", ""),
            admission=Admission("http", connections_max=_UNLIMITED, open_files_max=_UNLIMITED),
            accept=AcceptOptions(
                handshake_timeout_ms=settings.tls_handshake_timeout_ms,
                rate_max=settings.connections_accept_rate_max,
                address_delay_ms=self.broker.quotas.connect,
            ),
            security=security,
        )
        server.config.load()
        protocol = cast("Any", server.config.http_protocol_class)(
            config=server.config, server_state=server.server_state, app_state={}
        )
        protocol.host = HOST
        return protocol


@asynccontextmanager
async def broker_in_process(data_dir: Path) -> AsyncGenerator[InProcess]:
    """A broker over ``data_dir`` that checks access rules where a caller wants it."""
    settings = Settings(data_dir=data_dir, authorization="acls")
    catalog = settings.data_dir / CATALOG
    broker = await open_broker(settings)
    groups = await open_groups(broker)
    transactions = await open_transactions(broker, groups)
    security = await open_security(settings, SecurityStores.of_file(catalog), SystemClock())
    try:
        yield InProcess(broker=broker, security=security, groups=groups, transactions=transactions)
    finally:
        broker.begin_close()
        transactions.begin_close()
        groups.begin_close()
        await transactions.close()
        await groups.close()
        await security.close()
        await broker.close()
