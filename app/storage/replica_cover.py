"""Waits for the replica: what ``stele.acks=replicated`` promises."""

from __future__ import annotations

import asyncio
from typing import Protocol


class ReplicaCover(Protocol):
    """What an engine asks the replica."""

    def check(self) -> None:
        """Raise ``NotReplicated`` if no cut will be written."""
        ...

    def covered(self) -> asyncio.Future[None]:
        """Return a future that ends when a cut has everything that was appended before the call.

        It ends with ``NotReplicated`` if there will be none.
        """
        ...


def when_both(first: asyncio.Future[None] | None, second: asyncio.Future[None]) -> asyncio.Future[None]:
    """Return a future that ends with both, and with the error of either at once."""
    if first is None:
        first = second
    both: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ended(one: asyncio.Future[None]) -> None:
        if both.done():
            return
        if one.cancelled():
            both.cancel()
        elif (error := one.exception()) is not None:
            both.set_exception(error)
        elif first.done() and second.done():
            both.set_result(None)

    first.add_done_callback(ended)
    if second is not first:
        second.add_done_callback(ended)
    return both
