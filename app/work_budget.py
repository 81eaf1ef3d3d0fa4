"""Limit how long one task may hold the event loop.

Everything runs on one loop (ADR-0006), so code that walks over many records or
partitions pauses after a bounded amount of work.
"""

from __future__ import annotations

import asyncio

# Records decoded in one turn of the loop; unless they are large, this takes some 10 µs.
RECORDS_PER_TURN = 64
TURN_BYTES = 256 * 1024
# Partitions visited in one turn of the loop; each takes about 10 µs at most.
PARTITIONS_PER_TURN = 50
_RECORDS_PER_PARTITION = RECORDS_PER_TURN / PARTITIONS_PER_TURN


async def pause() -> None:
    """Let the loop run other tasks."""
    await asyncio.sleep(0)


async def pause_among_partitions(done: int) -> None:
    """Pause if ``done`` is a multiple of ``PARTITIONS_PER_TURN``."""
    if done % PARTITIONS_PER_TURN == 0:
        await pause()


class WorkBudget:
    """The bytes, records and partitions that a task may process before it pauses."""

    __slots__ = ("_bytes", "_records")

    def __init__(self) -> None:
        self._bytes = TURN_BYTES
        self._records = RECORDS_PER_TURN

    def is_over(self, size: int, records: float = 1) -> bool:
        """Count work on ``records`` of ``size`` bytes in total; True if the budget is used up."""
        self._bytes -= size
        self._records -= records
        return self._bytes <= 0 or self._records <= 0

    async def visit(self, partitions: int = 1) -> None:
        """Count visits of partitions, or of something as small; pause if the budget is used up."""
        self._records -= partitions * _RECORDS_PER_PARTITION
        if self._records <= 0:
            await self.pause()

    async def pause(self) -> None:
        """Let the loop run other tasks, and renew the budget."""
        self._bytes, self._records = TURN_BYTES, RECORDS_PER_TURN
        await pause()

    async def spend(self, size: int, records: float = 1) -> None:
        """Count work, and pause if the budget is used up."""
        if self.is_over(size, records):
            await self.pause()
