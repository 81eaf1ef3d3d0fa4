"""Measure how long a coroutine holds the event loop; what it waits for is not counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

_T = TypeVar("_T")


class HeldTime:
    """Time on the event loop, added up over the steps of a request."""

    __slots__ = ("_clock_s", "seconds")

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self.seconds = 0.0

    def call(self, work: Callable[[], _T]) -> _T:
        """Call ``work``, and count its time."""
        start_s = self._clock_s()
        try:
            return work()
        finally:
            self.seconds += self._clock_s() - start_s

    async def run(self, work: Awaitable[_T]) -> _T:
        """Await ``work``, and count the time of its steps."""
        return await _Timed(self, work)


class _Timed(Awaitable[_T]):
    def __init__(self, held: HeldTime, work: Awaitable[_T]) -> None:
        self._held = held
        self._work = work

    def __await__(self) -> Generator[Any, Any, _T]:
        return _Steps(self._held, self._work.__await__())


class _Steps(Generator[Any, Any, _T]):
    """Passes on every step of ``steps``, and counts its time."""

    def __init__(self, held: HeldTime, steps: Generator[Any, Any, _T]) -> None:
        self._held = held
        self._steps = steps

    def send(self, value: Any, /) -> Any:
        return self._held.call(lambda: self._steps.send(value))

    def throw(self, kind: Any, value: Any = None, trace: Any = None, /) -> Any:
        error = kind if value is None else value
        return self._held.call(lambda: self._steps.throw(error))
