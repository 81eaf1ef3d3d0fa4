"""Wait for what another process does, and nothing announces."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

CONDITION_TIMEOUT_S = 120.0
_LOOK_S = 0.02


def eventually(condition: Callable[[], bool], what: str, *, timeout_s: float = CONDITION_TIMEOUT_S) -> None:
    """Return as soon as the condition holds; fail if it does not in time."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            pytest.fail(f"not within {timeout_s:g} s: {what}")
        time.sleep(_LOOK_S)
