"""Write to a compacted topic until a pass over it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from .waiting import Pauses

# Only ends a test that failed.
DEADLINE_S = 300
# The cleaner has a low priority: beside a writer that never rests it may not get a core for minutes.
WRITES_MAX = 25


def write_until(has_passed: Callable[[], bool], write: Callable[[], object]) -> None:
    """Call ``write`` until ``has_passed``; after ``WRITES_MAX`` calls only wait for it."""
    deadline_s = time.monotonic() + DEADLINE_S
    writes = 0
    pauses = Pauses()
    while not has_passed():
        assert time.monotonic() < deadline_s, f"no pass within {DEADLINE_S} s"
        if writes < WRITES_MAX:
            write()
            writes += 1
        else:
            pauses.pause()
