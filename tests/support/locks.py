"""Locks for what parallel processes of test runs must not do at the same time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_process_at_a_time(name: str) -> Generator[None]:
    """Hold the lock ``name`` of this user and machine; waits until no other process holds it."""
    path = Path(tempfile.gettempdir()) / f"stele-tests-{os.getuid()}-{name}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
