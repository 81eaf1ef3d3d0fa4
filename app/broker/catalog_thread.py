"""The catalog and the one thread that calls it, because its methods block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..cluster.catalog import Catalog

_T = TypeVar("_T")


class CatalogThread:
    """Runs calls to ``catalog`` one at a time, in the order in which they were made."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        # SQLite has one writer, and none of its work may run on the event loop.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-catalog")

    async def run(self, work: Callable[[Catalog], _T]) -> _T:
        """Run ``work`` with the catalog in its thread. Raises what ``work`` raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._catalog)

    def submit(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Hand ``work`` to the thread before this returns: it runs between the calls before and those after."""
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Finish the calls that were made, then close the catalog."""
        await self.run(lambda catalog: catalog.close())
        self._thread.shutdown()


async def whole(change: Coroutine[Any, Any, _T]) -> _T:
    """Run a change to its end, even if the caller is cancelled, however often.

    Half of it would differ from the catalog.
    """
    task = asyncio.ensure_future(change)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            # No caller needs its result.
            task.exception()
        raise cancelled
    return task.result()
