"""TCP proxies whose connections stall or break.

All proxies run on one event loop in a thread of its own; tests call them from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, Self, TypeVar

_T = TypeVar("_T")
_CHUNK = 1 << 16

Address = tuple[str, int]


class Cut(Enum):
    """How a link is cut."""

    # Connections are reset, and new ones are closed at once.
    RESET = "reset"
    # Nothing gets through in either direction; what was sent arrives when the link is mended.
    STALL = "stall"
    # As STALL, but connections are reset when the link is mended.
    HOLE = "hole"


class LinkLoop:
    """The thread of all links, within a ``with``."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="links", daemon=True)
        self._links: list[Link] = []

    def add(self, link: Link) -> None:
        self._links.append(link)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _cancel_all(self) -> None:
        for link in self._links:
            link.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Transports close their sockets in a later round.
        await asyncio.sleep(0)

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


class Link:
    """A proxy in front of ``target``, which may be set later.

    ``port`` is where it listens on the loopback interface. ``hits`` counts what cuts have met: connections that were
    reset, refused or had to wait, and data that had to wait.
    """

    def __init__(self, loop: LinkLoop, name: str, target: Address | None = None) -> None:
        self.name = name
        self.target = target
        self.hits = 0
        self._loop = loop
        self._open = asyncio.Event()
        self._open.set()
        self._cut: Cut | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = loop.call(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]
        loop.add(self)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK)

    def cut(self, how: Cut) -> None:
        """Cut the link until ``mend``."""
        self._loop.call(self._set(how))

    def mend(self) -> None:
        self._loop.call(self._set(None))

    def drop(self) -> None:
        """End the connections that there are; others are served as before."""
        self._loop.call(self._drop())

    async def _drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _set(self, how: Cut | None) -> None:
        before, self._cut = self._cut, how
        if how is Cut.RESET or (how is None and before is Cut.HOLE):
            self._reset()
        if how in (Cut.STALL, Cut.HOLE):
            self._open.clear()
        else:
            self._open.set()

    def close(self) -> None:
        """Stop to listen and end all connections; to be called on the loop."""
        self._server.close()
        self._reset()

    def _reset(self) -> None:
        self.hits += len(self._writers)
        for writer in self._writers:
            writer.transport.abort()

    async def passable(self) -> None:
        """Wait while the link stalls."""
        if not self._open.is_set():
            self.hits += 1
            await self._open.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._cut is Cut.RESET:
                self.hits += 1
            await self.passable()
            if self._cut is Cut.RESET or self.target is None or writer.is_closing():
                return
            await self.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the target; the caller closes the connection."""
        assert self.target is not None
        reader, writer = await asyncio.open_connection(*self.target, limit=_CHUNK)
        self._writers.add(writer)
        return reader, writer

    def forget(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until it ends."""
        server_reader, server_writer = await self.connect()
        try:
            both = [
                asyncio.create_task(self._copy(reader, server_writer)),
                asyncio.create_task(self._copy(server_reader, writer)),
            ]
            try:
                await asyncio.wait(both)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        finally:
            self.forget(server_writer)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_CHUNK):
                await self.passable()
                writer.write(data)
                await writer.drain()
        except OSError:
            # The other direction has nothing to say to an end that is gone.
            writer.transport.abort()
            return
        await self._open.wait()
        with suppress(OSError):
            writer.write_eof()


class LinkGroup:
    """Links that are cut together: all between one pair of parts."""

    def __init__(self, name: str, *links: Link) -> None:
        self.name = name
        self.links = links

    @property
    def hits(self) -> int:
        return sum(link.hits for link in self.links)

    def cut(self, how: Cut) -> None:
        for link in self.links:
            link.cut(how)

    def mend(self) -> None:
        for link in self.links:
            link.mend()
