"""Wait for what another process does, and nothing announces."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

CONDITION_TIMEOUT_S = 120.0
# Most waits are short. A look may cost a connection to PostgreSQL, or a request to each broker.
_FIRST_PAUSE_S = 0.01
_LAST_PAUSE_S = 0.25


class Pauses:
    """Pauses between two looks, which grow by half, up to a quarter of a second."""

    def __init__(self) -> None:
        self._next_s = _FIRST_PAUSE_S

    def pause(self) -> None:
        time.sleep(self._next_s)
        self._next_s = min(self._next_s * 1.5, _LAST_PAUSE_S)


def eventually(condition: Callable[[], bool], what: str, *, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
    """Return soon after the condition holds; fail if it does not in time."""
    end_s = time.monotonic() + timeout_s
    pauses = Pauses()
    while not condition():
        if time.monotonic() > end_s:
            pytest.fail(f"not within {timeout_s:g} s: {what}")
        pauses.pause()
