"""A cluster as a whole: its brokers, and connections to them that are opened when they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from ...wire.kafka.api import Api
from ..definition import Address
from ..errors import SourceError, SourceUnavailable
from ..properties import SourceConfig, parse
from .connection import Connection, open_connection

Purpose = Literal["fetch", "other"]


class _Slot:
    """A connection, and who may use it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.connection: Connection | None = None


class Source:
    """Calls brokers of a cluster by their ids, or any of them.

    ``configure`` is asked at each connection, so that a changed secret counts.
    """

    def __init__(
        self,
        servers: Sequence[Address],
        configure: Callable[[], SourceConfig],
        *,
        advertised: bool = True,
    ) -> None:
        """``advertised``: brokers are reached where they say, otherwise all at the first server."""
        self._servers = tuple(servers)
        self._advertised = advertised
        self._configure = configure
        self._brokers: dict[int, Address] = {}
        self._slots: dict[tuple[int | None, Purpose], _Slot] = {}
        self._next_server = 0
        # The id of the cluster, once its topics are known.
        self.id: str = ""
        # Of the last connection; the defaults before there was one.
        self.config: SourceConfig = parse({}, mirror="")

    @property
    def brokers(self) -> Iterable[int]:
        return tuple(self._brokers)

    async def know(self, brokers: dict[int, Address]) -> None:
        """Learn the addresses of the brokers; connections to those that have gone or moved are closed."""
        if not self._advertised:
            brokers = dict.fromkeys(brokers, self._servers[0])
        gone = [
            key
            for key in self._slots
            if key[0] is not None and self._brokers.get(key[0]) != brokers.get(key[0])
        ]
        self._brokers = brokers
        for key in gone:
            slot = self._slots.pop(key)
            if slot.connection is not None:
                slot.connection.abort()

    async def call(
        self,
        api: Api,
        request: object,
        *,
        broker: int | None = None,
        purpose: Purpose = "other",
        version_max: int | None = None,
        wait_s: float = 0.0,
    ) -> Any:
        """Send a request to one broker; None is any.

        Raises:
            SourceError: there is no response; the next call connects again.
            MirrorError: a property or a file cannot be used.
        """
        slot = self._slots.setdefault((broker, purpose), _Slot())
        async with slot.lock:
            connection = slot.connection
            if connection is None or not connection.is_usable:
                if connection is not None:
                    connection.abort()
                connection = slot.connection = await self._open(broker)
            return await connection.call(api, request, version_max=version_max, wait_s=wait_s)

    async def version_of(
        self, api: Api, *, broker: int, purpose: Purpose = "other", version_max: int | None = None
    ) -> int:
        """Return the version in which ``call`` would send. Raises as ``call``."""
        slot = self._slots.setdefault((broker, purpose), _Slot())
        async with slot.lock:
            if slot.connection is None or not slot.connection.is_usable:
                slot.connection = await self._open(broker)
            return slot.connection.version_of(api, version_max)

    async def _open(self, broker: int | None) -> Connection:
        self.config = self._configure()
        if broker is not None:
            if broker not in self._brokers:
                raise SourceUnavailable(f"broker {broker} is not among the brokers of the source")
            return await open_connection(self._brokers[broker], self.config)
        addresses = list(dict.fromkeys((*self._servers, *self._brokers.values())))
        failure: SourceError | None = None
        for _ in addresses:
            address = addresses[self._next_server % len(addresses)]
            try:
                return await open_connection(address, self.config)
            except SourceError as error:
                # The next one may be up.
                self._next_server += 1
                failure = failure or error
        raise failure or SourceUnavailable("the mirror has no address of the source")

    async def close(self) -> None:
        connections = [slot.connection for slot in self._slots.values() if slot.connection is not None]
        self._slots.clear()
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))
