"""Count the turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


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


class CallsPerTurn(Generic[_P, _R]):
    """Wraps a function, and counts the most of its calls between two turns of the loop."""

    def __init__(self, function: Callable[_P, _R]) -> None:
        self._function = function
        self._count = 0
        self.total = self.most = 0

    def __call__(self, *args: _P.args, **given: _P.kwargs) -> _R:
        if not self._count:
            asyncio.get_running_loop().call_soon(self._end)
        self._count += 1
        self.total += 1
        self.most = max(self.most, self._count)
        return self._function(*args, **given)

    def _end(self) -> None:
        self._count = 0
