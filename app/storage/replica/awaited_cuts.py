"""Who waits for a cut: the appends of topics with ``stele.acks=replicated``."""

from __future__ import annotations

import asyncio

from ...errors import NotReplicated


class AwaitedCuts:
    """Implements ``ReplicaCover``."""

    def __init__(self) -> None:
        # For those who come before the next mark, and those whose cut is under way.
        self._next: asyncio.Future[None] | None = None
        self._under_way: list[asyncio.Future[None]] = []
        # Why there will be no more cuts.
        self._end: str | None = None

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    def check(self) -> None:
        if self._end is not None:
            raise NotReplicated(self._end)

    def covered(self) -> asyncio.Future[None]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if self._end is not None:
                _refuse(self._next, self._end)
        return self._next

    def marked(self) -> None:
        """Note that the next cut has all that was appended until now; call it in the turn of the marks."""
        if self._next is not None:
            self._under_way.append(self._next)
            self._next = None

    def written(self) -> None:
        """Note that the bucket has all that was marked."""
        for future in self._under_way:
            if not future.done():
                future.set_result(None)
        self._under_way.clear()

    def end(self, reason: str) -> None:
        """Refuse all, from now on: there will be no more cuts."""
        self._end = reason
        self.marked()
        for future in self._under_way:
            _refuse(future, reason)
        self._under_way.clear()


def _refuse(future: asyncio.Future[None], reason: str) -> None:
    if not future.done():
        future.set_exception(NotReplicated(reason))
        # Nobody need ask.
        future.exception()
