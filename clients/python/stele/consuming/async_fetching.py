"""Fetches ahead for an asyncio consumer, the counterpart of ``fetching``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from .. import forks
from ..async_client import AsyncClient
from ..operations.fetch import Fetch, FetchOutcome
from .core import ConsumerCore

_Outcomes = Sequence[FetchOutcome]


class AsyncFetching:
    """The fetches of a consumer, one task per group of partitions.

    While the application handles records, the next ones are fetched.
    """

    def __init__(
        self,
        client: AsyncClient,
        core: ConsumerCore[Any],
        accept: Callable[[Fetch, _Outcomes], Coroutine[Any, Any, None]],
    ) -> None:
        self._client = client
        self._core = core
        self._accept = accept
        self._tasks: dict[tuple[int, ...], asyncio.Task[tuple[Fetch, _Outcomes]]] = {}
        self._is_stopped = False
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        # The tasks are of the parent's event loop.
        self._tasks = {}

    async def fetch(self, deadline_s: float | None) -> None:
        """Wait until a fetch has ended, at most until the deadline, and accept what has been fetched.

        Raises:
            SteleClientError: a fetch failed; calling it again fetches the same again.
        """
        self._launch()
        if not self._tasks:
            return
        timeout_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0)
        done, _ = await asyncio.wait(
            self._tasks.values(), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        for group in [group for group, task in self._tasks.items() if task in done]:
            await self._accept(*self._tasks.pop(group).result())
        self._launch()

    def _launch(self) -> None:
        if self._is_stopped:
            return
        wait_ms = self._core.options.wait_ms if self._core.options.follow else 0
        busy = {partition for group in self._tasks for partition in group}
        for group in self._core.groups():
            if busy.isdisjoint(group):
                fetch = self._core.fetch(group, wait_ms=wait_ms)
                self._tasks[group] = asyncio.get_running_loop().create_task(self._execute(fetch))

    async def _execute(self, fetch: Fetch) -> tuple[Fetch, _Outcomes]:
        return fetch, await self._client.call(fetch)

    async def drop(self, partition: int) -> None:
        """Cancel the fetch of a partition whose position has changed; its result would be dropped."""
        await self._cancel([group for group in self._tasks if partition in group])

    async def stop(self) -> None:
        """Cancel all fetches; no other one begins."""
        self._is_stopped = True
        await self._cancel(list(self._tasks))

    async def _cancel(self, groups: list[tuple[int, ...]]) -> None:
        tasks = [self._tasks.pop(group) for group in groups]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
