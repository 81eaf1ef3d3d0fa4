"""Count the turns of the event loop, and measure the longest."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
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


class CallsOfTurns:
    """Counts the calls in each turn of the loop while it is open, of functions in Python and in C.

    These are the same in each run. Work of one such function over many items is not seen: see ``CpuOfTurns``.
    """

    def __init__(self) -> None:
        self.most: float = 0
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._loop.call_soon(self._end)
        sys.setprofile(self._called)

    def _called(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self._count += 1

    def _end(self) -> None:
        self.most, self._count = max(self.most, self._count), 0
        if self._is_open:
            self._loop.call_soon(self._end)

    def close(self) -> None:
        sys.setprofile(None)
        self._is_open = False


class CpuOfTurns:
    """Measures the CPU time of each turn of the loop while it is open, in seconds, without garbage collection."""

    def __init__(self) -> None:
        self.most: float = 0
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        # What the tests hold is not the broker's.
        gc.collect()
        gc.disable()
        self._began_s = time.thread_time()
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        self.most = max(self.most, time.thread_time() - self._began_s)
        if self._is_open:
            self._loop.call_soon(self._end)
            self._began_s = time.thread_time()

    def close(self) -> None:
        gc.enable()
        self._is_open = False


async def longest_turn(
    address: tuple[str, int], frames: Sequence[bytes], measure: Callable[[], CallsOfTurns | CpuOfTurns]
) -> float:
    """Send frames that begin with their length, and return the longest turn until all are answered, or refused.

    A thread sends and receives, so that the turns are those of the broker.
    """
    turns = measure()
    try:
        await asyncio.to_thread(_ask, address, frames)
    finally:
        turns.close()
    return turns.most


def _ask(address: tuple[str, int], frames: Sequence[bytes]) -> None:
    with socket.create_connection(address) as peer:
        for frame in frames:
            peer.sendall(frame)
            # That of the binary protocol counts itself.
            own = 4 if int.from_bytes(frame[:4]) == len(frame) else 0
            left = int.from_bytes(peer.recv(4, socket.MSG_WAITALL)) - own
            while left > 0 and (piece := peer.recv(min(left, 1 << 20))):
                left -= len(piece)
