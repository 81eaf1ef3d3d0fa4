"""Reload certificates while the broker runs: on SIGHUP, and when a file has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from pathlib import Path

from .listener_tls import InvalidTlsFiles, ListenerTls
from .peer_tls import PeerTls

logger = logging.getLogger(__name__)

_Signature = tuple[tuple[int, int, int] | None, ...]


class TlsReload:
    """Watches the files of all listeners with TLS, and those for other brokers."""

    def __init__(self, listeners: Mapping[str, ListenerTls | PeerTls], *, interval_ms: int) -> None:
        self._listeners = listeners
        self._interval_s = interval_ms / 1000
        self._seen = {name: _signature(tls.options.files) for name, tls in listeners.items()}
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look at the files at intervals, unless the interval is 0."""
        if self._listeners and self._interval_s:
            self._run(self._watch())

    def reload_soon(self) -> None:
        """Reload all listeners, whether or not their files have changed; for signal handlers."""
        self._run(self.reload())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reload(self, *, only_changed: bool = False) -> None:
        """Load the files again; log what cannot be loaded, and keep the old."""
        async with self._lock:
            for name, tls in self._listeners.items():
                # Before the files are read: a change in between is seen the next time.
                seen = await asyncio.to_thread(_signature, tls.options.files)
                if only_changed and seen == self._seen[name]:
                    continue
                self._seen[name] = seen
                try:
                    await asyncio.to_thread(tls.reload)
                except InvalidTlsFiles as error:
                    logger.error(
                        "%s: the TLS files cannot be reloaded, new connections get the old certificate: %s",
                        name,
                        error,
                    )
                else:
                    logger.info("%s: reloaded %s", name, ", ".join(map(str, tls.options.files)))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.reload(only_changed=True)

    def _run(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _signature(files: list[Path]) -> _Signature:
    """Return what changes when a file is written or replaced; None for one that is missing."""

    def of(file: Path) -> tuple[int, int, int] | None:
        try:
            stat = file.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    return tuple(of(file) for file in files)
