"""Begin a coroutine without a task, and make one only if it waits.

Most reads find what they look for in memory and end in their first step, or wait for new records and find those in
memory. A task, and the turns of the event loop that it takes to begin and to end it, would cost them more than their
work.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, Generic, NamedTuple, TypeVar

_T = TypeVar("_T")


class Begun(NamedTuple, Generic[_T]):
    """A coroutine that has begun, and what it awaits (``awaited``)."""

    work: Coroutine[Any, Any, _T]
    awaited: Any


def begin_now(work: Coroutine[Any, Any, _T]) -> tuple[Any, _T | None]:
    """Run the first step of ``work``.

    Return ``(None, result)`` if it ends there, ``(what it waits for, None)`` if not.

    The result must not be None. The first step has no task, so it must not ask for the current one, as
    ``asyncio.timeout`` and ``wait_for`` do.
    """
    try:
        return work.send(None), None
    except StopIteration as ended:
        return None, ended.value


@types.coroutine
def go_on(work: Coroutine[Any, Any, _T], first: Any) -> Generator[Any, Any, _T]:
    """Continue ``work`` in a task, after ``first`` that its first step waits for."""
    awaited = first
    while True:
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - a task that is cancelled cancels its work
            try:
                awaited = work.throw(error)
            except StopIteration as ended:
                return ended.value
        else:
            try:
                awaited = work.send(sent)
            except StopIteration as ended:
                return ended.value
