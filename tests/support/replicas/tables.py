"""Stores of a broker: rows that are written in a thread of their own, in the order of submission.

The image of a store is a file of pages, one for each row, as far as the replica can see.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

_T = TypeVar("_T")

PAGE_BYTES = 128
_DELAYS_S = (0.0, 0.0, 0.0001, 0.003, 0.02)

Rows = dict[str, Any]


def image_of(rows: Rows) -> bytes:
    """Return the file of a store."""
    pages: list[bytes] = []
    for key, value in rows.items():
        page = json.dumps([key, value]).encode()
        assert len(page) <= PAGE_BYTES
        pages.append(page.ljust(PAGE_BYTES))
    return b"".join(pages)


def rows_of(image: bytes) -> Rows:
    pages = (image[at : at + PAGE_BYTES] for at in range(0, len(image), PAGE_BYTES))
    return dict(json.loads(page) for page in pages)


class SimulatedTable:
    """``rows`` are those that last; ``submitted`` has what is still to be written, too."""

    def __init__(self, name: str, random: Random, rows: Rows | None = None) -> None:
        self.name = name
        self.rows: Rows = dict(rows or {})
        self.submitted: Rows = dict(self.rows)
        self.version = 0
        self.locked = 0.0
        # Called before a job of the replica is submitted.
        self.before_submit: Callable[[], object] = lambda: None
        self._random = random
        self._queue: deque[Callable[[], None]] = deque()

    def write(self, key: str, value: object) -> asyncio.Future[None]:
        """Set a row, or remove it with None; it lasts when the future is done."""
        _set(self.submitted, key, value)
        return self._in_thread(lambda: self._write(key, value))

    def _write(self, key: str, value: object) -> None:
        _set(self.rows, key, value)
        self.version += 1

    def submit(self, call: Callable[[], bool]) -> asyncio.Future[bool]:
        self.before_submit()
        return self._in_thread(call)

    def kill(self) -> None:
        """Lose what is not written."""
        self._queue.clear()

    def _in_thread(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        def work() -> None:
            try:
                result = call()
            except sqlite3.Error as error:
                if not future.done():
                    future.set_exception(error)
                    # Nobody may wait for it any longer.
                    future.exception()
            else:
                if not future.done():
                    future.set_result(result)

        self._queue.append(work)
        if len(self._queue) == 1:
            self._call_next()
        return future

    def _call_next(self) -> None:
        asyncio.get_running_loop().call_later(self._random.choice(_DELAYS_S), self._run_next)

    def _run_next(self) -> None:
        if not self._queue:
            # It was killed.
            return
        self._queue[0]()
        self._queue.popleft()
        if self._queue:
            self._call_next()

    def may_fail(self, what: str) -> None:
        if self._random.random() < self.locked:
            raise sqlite3.OperationalError(what)


def _set(rows: Rows, key: str, value: object) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


class SimulatedImages:
    """Has the interface of ``StoreImages``, for a table."""

    def __init__(self, table: SimulatedTable) -> None:
        self.name = table.name
        self._table = table
        self._held: bytes | None = None
        self._version = -1

    def begin(self) -> bool:
        self._held = None
        self._table.may_fail("database is locked")
        if self._table.version == self._version:
            return False
        self._version = self._table.version
        self._held = image_of(self._table.rows)
        return True

    def image(self) -> bytes:
        self._table.may_fail("disk I/O error")
        assert self._held is not None, "begin comes first"
        held, self._held = self._held, None
        return held

    def forget(self) -> None:
        self._version = -1

    def close(self) -> None:
        """Do nothing: the table is closed by its broker."""
