"""Count the turns of the event loop."""

from __future__ import annotations

import asyncio


class Turns:
    """Counts the turns of the loop while it is open."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def close(self) -> None:
        self._task.cancel()
