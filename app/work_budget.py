"""Limit how long one task may hold the event loop.

Everything runs on one loop (ADR-0006), so code that walks over many records or
partitions pauses after a bounded amount of work.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Generic, TypeAlias, TypeVar

from .turns import Turns

# Records decoded in one turn of the loop; unless they are large, this takes some 10 µs.
RECORDS_PER_TURN = 64
TURN_BYTES = 256 * 1024
# Partitions visited in one turn of the loop; each takes about 10 µs at most.
PARTITIONS_PER_TURN = 50
_RECORDS_PER_PARTITION = RECORDS_PER_TURN / PARTITIONS_PER_TURN
# What an item of a request takes of which little is made, such as a part of a response, compared with a visit.
SMALL_VISIT = 0.1
# Small pieces of work (members, partitions) of about 1 µs in one step, and the steps that ``Ongoing`` takes in one turn.
_PIECES_PER_STEP = 500
_STEPS_AT_ONCE = 4
# Items that are sorted or merged in one step.
_SORTED_PER_STEP = 1000

# Tasks that go on in one turn of the loop after a pause.
STEPS_PER_TURN = 4

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")
T = TypeVar("T")
# Work without I/O that yields after each step, and returns its outcome.
Steps: TypeAlias = Generator[None, None, T]


@lru_cache(maxsize=1)
def _turns_of(_loop: asyncio.AbstractEventLoop) -> Turns:
    return Turns(STEPS_PER_TURN)


async def pause() -> None:
    """Let the loop run other tasks; of those that pause at the same time, some go on in each of its turns."""
    turns = _turns_of(asyncio.get_running_loop())
    if turns.take():
        await asyncio.sleep(0)
    else:
        await _turn(turns)


async def take_turn(turns: Turns) -> None:
    """Return in a turn of the loop that has room for one more of ``turns``: in this one if it has."""
    if not turns.take():
        await _turn(turns)


async def _turn(turns: Turns) -> None:
    turn = asyncio.get_running_loop().create_future()
    turns.call(lambda: turn.done() or turn.set_result(None))
    await turn


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

    async def visit(self, partitions: float = 1) -> None:
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


async def visited(
    items: Iterable[T], visits: float = 1, budget: WorkBudget | None = None
) -> AsyncGenerator[T]:
    """Yield ``items``, each as many ``visits`` of something as small as a partition, with pauses.

    Other requests may change what they are about meanwhile. A loop inside another one has its ``budget``.
    """
    budget = budget or WorkBudget()
    for item in items:
        await budget.visit(visits)
        yield item


async def by_key(items: Iterable[T], key: Callable[[T], K]) -> tuple[dict[K, T], set[K]]:
    """Return the last item of each key, in the order of the first, and the keys of several items; with pauses."""
    of_key: dict[K, T] = {}
    repeated: set[K] = set()
    async for item in visited(items, SMALL_VISIT):
        of = key(item)
        if of in of_key:
            repeated.add(of)
        of_key[of] = item
    return of_key, repeated


def drained(items: list[T]) -> Iterator[T]:
    """Yield ``items`` in order and free each, because to free half a million at once takes 40 ms."""
    items.reverse()
    while items:
        yield items.pop()


def sorted_in_steps(items: Sequence[T], key: Callable[[T], Any]) -> Steps[list[T]]:
    """Sort ``items`` like ``sorted``."""
    if len(items) <= _SORTED_PER_STEP:
        return sorted(items, key=key)
    runs: list[list[T]] = []
    for first in range(0, len(items), _SORTED_PER_STEP):
        runs.append(sorted(items[first : first + _SORTED_PER_STEP], key=key))
        yield
    ordered: list[T] = []
    for item in heapq.merge(*runs, key=key):
        ordered.append(item)
        if len(ordered) % _SORTED_PER_STEP == 0:
            yield
    return ordered


async def sorted_in_turns(items: Sequence[T], key: Callable[[T], Any]) -> list[T]:
    """Sort ``items`` like ``sorted``, with pauses."""
    return await in_turns(sorted_in_steps(items, key))


class Pace:
    """Says when work in ``Steps`` has to yield."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _PIECES_PER_STEP

    def is_due(self, pieces: int = 1) -> bool:
        """Count pieces of work of about 1 µs each; True if a step is over."""
        self._left -= pieces
        if self._left > 0:
            return False
        self._left = _PIECES_PER_STEP
        return True


def in_one_step(steps: Steps[T]) -> T | None:
    """Do the first step of the work; return its outcome if that is all of it, and None if there is more."""
    try:
        next(steps)
    except StopIteration as ended:
        return ended.value
    return None


def mapped(make: Callable[[S], T], items: Iterable[S], *, pieces: int = 1) -> Steps[list[T]]:
    """Return what ``make`` returns for each item, which takes that many pieces."""
    pace = Pace()
    made: list[T] = []
    for item in items:
        made.append(make(item))
        if pace.is_due(pieces):
            yield
    return made


def at_once(steps: Steps[T]) -> T:
    """Do all of the work in this turn of the loop, because there is little of it; return its outcome."""
    try:
        while True:
            next(steps)
    except StopIteration as ended:
        return ended.value


async def in_turns(steps: Steps[T]) -> T:
    """Do the work with a pause after each step; return its outcome."""
    try:
        while True:
            next(steps)
            await pause()
    except StopIteration as ended:
        return ended.value


def in_background(steps: Steps[None]) -> None:
    """Do a step of the work now, and each of the others in a later turn of the loop. It must not raise."""
    if next(steps, True) is None:
        loop = asyncio.get_running_loop()
        loop.call_soon(_turns_of(loop).call, partial(in_background, steps))


class Ongoing(Generic[T]):
    """Work in ``Steps`` that may take several turns of the loop."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._outcome: list[T] = []

    def go_on(self) -> bool:
        """Do as much as one turn allows; True if all is done."""
        try:
            for _ in range(_STEPS_AT_ONCE):
                next(self._steps)
        except StopIteration as ended:
            self._outcome.append(ended.value)
        return bool(self._outcome)

    @property
    def outcome(self) -> T:
        """What the work returned; it must be done."""
        return self._outcome[0]
