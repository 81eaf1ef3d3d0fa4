"""Work in steps, done at once."""

from __future__ import annotations

from typing import TypeVar

from app.work_budget import Steps

_T = TypeVar("_T")


def counted(steps: Steps[_T]) -> tuple[int, _T]:
    """Return the number of steps, and the outcome."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return count, ended.value
        count += 1


def outcome_of(steps: Steps[_T]) -> _T:
    return counted(steps)[1]
