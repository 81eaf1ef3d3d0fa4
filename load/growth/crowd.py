"""Many connections to one listener, which all send the same requests and wait for the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .costs import TIMEOUT_S

_CONNECTS_AT_A_TIME = 100


class Crowd:
    """``mark`` is in each answer once."""

    def __init__(self, host: str, port: int, mark: bytes) -> None:
        self._host, self._port, self._mark = host, port, mark
        self._transports: list[asyncio.WriteTransport] = []
        self._missing = 0
        self._all = asyncio.Event()

    def __len__(self) -> int:
        return len(self._transports)

    async def open(self, count: int, request: bytes = b"") -> None:
        """Open connections, and have ``request`` answered over each of them, if there is one."""
        loop = asyncio.get_running_loop()
        for start in range(0, count, _CONNECTS_AT_A_TIME):
            some = (
                loop.create_connection(lambda: _Member(self._mark, self._got), self._host, self._port)
                for _ in range(start, min(start + _CONNECTS_AT_A_TIME, count))
            )
            opened = [transport for transport, _ in await asyncio.gather(*some)]
            self._transports += opened
            if request:
                self.expect(len(opened))
                for transport in opened:
                    transport.write(request)
                await self.answered()

    def send(self, request: bytes) -> None:
        for transport in self._transports:
            transport.write(request)

    def expect(self, answers: int) -> None:
        self._missing = answers
        self._all.clear()

    async def answered(self) -> None:
        """Return when all that was expected is there."""
        await asyncio.wait_for(self._all.wait(), TIMEOUT_S)

    async def leave(self) -> None:
        """End the streams of requests, and return when the broker has closed all connections for that."""
        self.expect(len(self))
        for transport in self._transports:
            transport.write_eof()
        await self.answered()
        self.close()

    def close(self) -> None:
        """Leave answers unread."""
        while self._transports:
            self._transports.pop().close()

    def _got(self, answers: int) -> None:
        self._missing -= answers
        if not self._missing:
            self._all.set()


class _Member(asyncio.Protocol):
    """Counts the answers on a connection, and its end."""

    def __init__(self, mark: bytes, on_marks: Callable[[int], None]) -> None:
        self._mark, self._on_marks = mark, on_marks
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if marks := data.count(self._mark):
            self._on_marks(marks)
        # Less than a mark, so that none counts twice.
        self._rest = data[data.rfind(self._mark) + len(self._mark) if marks else 0 :][-len(self._mark) + 1 :]

    def eof_received(self) -> None:
        self._on_marks(1)
