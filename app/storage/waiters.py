"""Waiting for appends: a long poll is woken by one, and never looks by itself.

A waiter lives for one poll and names its partitions each time. A ``PartitionWatch``
outlives many polls: it remembers which of its partitions changed in between, so
that a reader of a thousand partitions need not look at all of them.

One append may end the waits of a thousand readers, and each then reads and answers. They go on in portions (``turns``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeAlias

from stele.wire.isolation_level import IsolationLevel

from ..turns import Turns
from ..work_budget import Pace, Steps, in_background
from .topic_partition import TopicPartition

# More than any reader waits for.
_ALL_BYTES = 1 << 62

# Waits that end in one turn of the loop. What follows one takes 0.05 to 0.3 ms.
WAKEUPS_PER_TURN = 8


class Wakeup(asyncio.Future[None]):
    """A reader's wait for news, or for the end of its time.

    Who sees that work awaits one may continue it without a task (``tcp.begun_work``): what follows needs none until
    it awaits something else.
    """

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns
        self._is_due = False

    def end(self) -> None:
        """End the wait, in this turn of the loop or in one of the next."""
        if not self._is_due:
            self._is_due = True
            self._turns.call(self._end_now)

    def _end_now(self) -> None:
        if not self.done():
            self.set_result(None)

    async def within(self, timeout_ms: int) -> None:
        """Wait for the end, or ``timeout_ms``."""
        timer = self.get_loop().call_later(timeout_ms / 1000, self.end)
        try:
            await self
        finally:
            timer.cancel()


class _Waiter:
    __slots__ = ("isolation", "missing_bytes", "wakeup")

    def __init__(self, turns: Turns, missing_bytes: int, isolation: IsolationLevel) -> None:
        self.wakeup = Wakeup(turns)
        self.missing_bytes = missing_bytes
        self.isolation = isolation

    def appended(self, _topic_partition: TopicPartition, size: int) -> None:
        self.missing_bytes -= size
        if self.missing_bytes <= 0:
            self.wakeup.end()

    def note_hidden(self, _topic_partition: TopicPartition) -> None:
        """It waits for what it can read."""


# In the order in which they came.
_ByPartition: TypeAlias = "dict[TopicPartition, dict[_Waiter | PartitionWatch, None]]"


class PartitionWatch:
    """Remembers which of its partitions changed: an append, a new log start offset, a deletion.

    Made by ``Waiters.watch`` and ended by ``close``. Partitions that do not exist (yet)
    may be watched. One ``wait`` at a time. With READ_COMMITTED a batch of an open transaction is
    no change, and the end of the transaction is; with ``notes_hidden`` such a batch is one, too, but ends no wait.
    """

    __slots__ = (
        "_by_partition",
        "_changed",
        "_hidden",
        "_is_closed",
        "_isolation",
        "_missing_bytes",
        "_names",
        "_notes_hidden",
        "_turns",
        "_wakeup",
    )

    def __init__(
        self,
        by_partition: _ByPartition,
        turns: Turns,
        *,
        notes_hidden: bool,
    ) -> None:
        self._by_partition = by_partition
        self._turns = turns
        self._notes_hidden = notes_hidden
        # Partitions with changes that end no wait.
        self._hidden: dict[TopicPartition, None] = {}
        self._names: set[TopicPartition] = set()
        self._changed: dict[TopicPartition, None] = {}
        self._wakeup: Wakeup | None = None
        self._missing_bytes = 0
        self._is_closed = False
        self._isolation = IsolationLevel.READ_UNCOMMITTED

    @property
    def isolation(self) -> IsolationLevel:
        """The isolation level of the next reads; READ_UNCOMMITTED at first, which suits both."""
        return self._isolation

    @isolation.setter
    def isolation(self, isolation: IsolationLevel) -> None:
        if self._isolation is IsolationLevel.READ_COMMITTED and isolation is not self._isolation:
            # Batches of open transactions may have come that were no change before.
            self._changed.update(dict.fromkeys(self._names))
        self._isolation = isolation

    def add(self, topic_partition: TopicPartition) -> None:
        if topic_partition not in self._names and not self._is_closed:
            self._names.add(topic_partition)
            self._by_partition.setdefault(topic_partition, {})[self] = None

    def discard(self, topic_partition: TopicPartition) -> None:
        if topic_partition in self._names:
            self._names.discard(topic_partition)
            self._changed.pop(topic_partition, None)
            self._hidden.pop(topic_partition, None)
            _leave(self._by_partition, topic_partition, self)

    def appended(self, topic_partition: TopicPartition, size: int) -> None:
        """``size`` bytes more are readable in the partition; 0 for another change."""
        self._changed[topic_partition] = None
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.interrupt()

    def note_hidden(self, topic_partition: TopicPartition) -> None:
        """A batch of an open transaction was appended, which READ_COMMITTED does not show."""
        if self._notes_hidden:
            self._hidden[topic_partition] = None

    def take(self) -> list[TopicPartition]:
        """The partitions that changed since they were last taken, oldest change first."""
        taken = list(self._changed | self._hidden) if self._hidden else list(self._changed)
        self._changed.clear()
        self._hidden.clear()
        return taken

    async def wait(self, *, min_bytes: int, timeout_ms: int) -> None:
        """Wait until ``min_bytes`` have come to the partitions, or ``timeout_ms``.

        Returns at once if there is something to take, and when interrupted or closed.
        """
        if self._changed or self._is_closed:
            return
        self.interrupt()
        self._missing_bytes = min_bytes
        self._wakeup = wakeup = Wakeup(self._turns)
        try:
            await wakeup.within(timeout_ms)
        finally:
            if self._wakeup is wakeup:
                self._wakeup = None

    def interrupt(self) -> None:
        """End the ``wait`` under way, if there is one."""
        if self._wakeup is not None:
            self._wakeup.end()

    def close(self) -> None:
        """End the watch of all partitions; if there are many, it takes several turns of the loop."""
        self._is_closed = True
        in_background(self._leave_all())
        self.interrupt()

    def _leave_all(self) -> Steps[None]:
        names, pace = self._names, Pace()
        while names:
            _leave(self._by_partition, names.pop(), self)
            if pace.is_due():
                yield
        self._changed.clear()
        self._hidden.clear()


def _leave(
    by_partition: _ByPartition,
    topic_partition: TopicPartition,
    one: _Waiter | PartitionWatch,
) -> None:
    waiting = by_partition.get(topic_partition)
    if waiting is not None:
        waiting.pop(one, None)
        if not waiting:
            del by_partition[topic_partition]


class Waiters:
    """The waiters and watches of all partitions of one engine.

    Those with READ_COMMITTED are called only when the last stable offset moves.
    """

    def __init__(self) -> None:
        self._by_partition: _ByPartition = {}
        self.turns = Turns(WAKEUPS_PER_TURN)
        self._append_observers: list[Callable[[TopicPartition], None]] = []
        self._followed: list[Callable[[], Iterable[TopicPartition]]] = []

    def observe_appends(
        self,
        observer: Callable[[TopicPartition], None],
        followed: Callable[[], Iterable[TopicPartition]] = tuple,
    ) -> None:
        """Call ``observer`` with each partition in which more is readable.

        It is called for both isolation levels. ``followed`` returns the partitions for which it waits now.
        """
        self._append_observers.append(observer)
        self._followed.append(followed)

    def waited(self) -> list[TopicPartition]:
        """Return the partitions waited for, watched or followed, some twice."""
        return [*self._by_partition, *chain.from_iterable(followed() for followed in self._followed)]

    def watch(self, *, notes_hidden: bool = False) -> PartitionWatch:
        """A watch that holds no partition yet."""
        return PartitionWatch(self._by_partition, self.turns, notes_hidden=notes_hidden)

    def appended(self, topic_partition: TopicPartition, size: int) -> None:
        """``size`` bytes more are readable in the partition."""
        if topic_partition in self._by_partition:
            self._notify(topic_partition, size)
        for observer in self._append_observers:
            observer(topic_partition)

    def _notify(self, topic_partition: TopicPartition, size: int) -> None:
        for waiter in self._by_partition.get(topic_partition, ()):
            waiter.appended(topic_partition, size)

    def appended_in_transaction(
        self, topic_partition: TopicPartition, size: int, *, is_stable_moved: bool
    ) -> None:
        """Report ``size`` more bytes while a transaction is or was open before the end.

        The last stable offset is not the end of the log, or was not.

        ``is_stable_moved``: it has moved, by no known number of bytes, so readers of committed records look again.
        """
        for waiter in self._by_partition.get(topic_partition, ()):
            if waiter.isolation is IsolationLevel.READ_UNCOMMITTED:
                waiter.appended(topic_partition, size)
            elif is_stable_moved:
                waiter.appended(topic_partition, _ALL_BYTES)
            else:
                waiter.note_hidden(topic_partition)
        for observer in self._append_observers:
            observer(topic_partition)

    def changed(self, topic_partition: TopicPartition) -> None:
        """Note that its log start offset moved: watches remember that, and no wait ends."""
        self._notify(topic_partition, 0)

    def wake(self, topic_partition: TopicPartition) -> None:
        """Let all waiters look again: the partition changed otherwise than by an append."""
        self._notify(topic_partition, _ALL_BYTES)

    def wake_all(self) -> None:
        for topic_partition in list(self._by_partition):
            self.wake(topic_partition)

    async def wait(
        self,
        partitions: Iterable[TopicPartition],
        *,
        min_bytes: int,
        timeout_ms: int,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        """Wait until ``min_bytes`` have come to the partitions, or ``timeout_ms``.

        With READ_COMMITTED, also when a transaction ends in one of them.
        """
        waiter = _Waiter(self.turns, min_bytes, isolation)
        names = list(partitions)
        for name in names:
            self._by_partition.setdefault(name, {})[waiter] = None
        try:
            await waiter.wakeup.within(timeout_ms)
        finally:
            for name in names:
                _leave(self._by_partition, name, waiter)
