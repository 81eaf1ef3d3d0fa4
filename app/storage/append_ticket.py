"""The result of an append: its offsets and its durability, now or later."""

from __future__ import annotations

import asyncio

from stele.wire.messages import Durability
from stele.wire.record_batch import NO_TIMESTAMP

# Before an engine has given an append its offsets.
NO_OFFSET = -1


class AppendTicket:
    """An append that is about to get its offsets and the requested durability.

    An engine that knows the offsets when ``append`` returns gives them to the constructor, and
    a future only if there is something to wait for. An engine that learns them later makes the
    ticket without offsets, calls ``place`` when it has them, and then ends the future; the
    order of appends is fixed when ``append`` returns. Until then the offsets are ``NO_OFFSET``.
    Its records are readable, and its producer's state includes it, before the future ends. An append
    that is refused or can no longer be placed ends the future with the error.

    ``is_repeat``: the batch was stored before, at these offsets, and not again.
    ``log_append_time_ms`` is -1 unless the topic stamps records on arrival.
    """

    __slots__ = (
        "_future",
        "base_offset",
        "durability",
        "is_repeat",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
    )

    def __init__(
        self,
        *,
        base_offset: int = NO_OFFSET,
        last_offset: int = NO_OFFSET,
        log_append_time_ms: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
        durability: Durability,
        future: asyncio.Future[None] | None = None,
        is_repeat: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.durability = durability
        self.is_repeat = is_repeat
        self._future = future

    @property
    def is_placed(self) -> bool:
        """True when the offsets are known; not later than ``done``, unless the append failed."""
        return self.base_offset >= 0

    def place(
        self,
        *,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        durability: Durability,
        is_repeat: bool = False,
    ) -> None:
        """Fill in what the engine has learned; for the engine, once, before it ends the future."""
        assert not self.is_placed
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.durability = durability
        self.is_repeat = is_repeat

    @property
    def done(self) -> bool:
        """True when there is nothing left to wait for.

        At once, unless there is a future.
        """
        return self._future is None or self._future.done()

    def wait_for(self, future: asyncio.Future[None] | None, durability: Durability) -> None:
        """For ``LogEngine``: the ticket is done, with this durability, when ``future`` ends."""
        self._future = future
        self.durability = durability

    @property
    def future(self) -> asyncio.Future[None] | None:
        """Ends when the durability is reached, or with an error of ``append``."""
        return self._future
