"""How long one task may work before it lets the event loop serve the others.

Everything runs on one loop (ADR-0006), so whatever walks over many records or
partitions pauses after a bounded amount of work.
"""

from __future__ import annotations

import asyncio

# Records decoded in one turn of the loop, some 10 µs of work, unless they are large.
RECORDS_PER_TURN = 64
TURN_BYTES = 256 * 1024
# Partitions looked at in one turn of the loop, at most some 10 µs of work each.
PARTITIONS_PER_TURN = 50


async def pause() -> None:
    """Let the loop serve the others."""
    await asyncio.sleep(0)


async def pause_among_partitions(done: int) -> None:
    """Pause after every ``PARTITIONS_PER_TURN`` of the ``done`` partitions."""
    if done % PARTITIONS_PER_TURN == 0:
        await pause()


class WorkBudget:
    """What a long work may do until it lets the loop serve the others."""

    __slots__ = ("_bytes", "_records")

    def __init__(self) -> None:
        self._bytes = TURN_BYTES
        self._records = RECORDS_PER_TURN

    def is_over(self, size: int, records: float = 1) -> bool:
        """Count work on ``records`` of ``size`` bytes together; true when that was enough."""
        self._bytes -= size
        self._records -= records
        return self._bytes <= 0 or self._records <= 0

    async def pause(self) -> None:
        self._bytes, self._records = TURN_BYTES, RECORDS_PER_TURN
        await pause()

    async def spend(self, size: int, records: float = 1) -> None:
        """Count work, and pause when it was enough."""
        if self.is_over(size, records):
            await self.pause()
