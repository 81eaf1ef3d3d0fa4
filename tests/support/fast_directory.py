"""Where simulated histories keep their stores."""

from __future__ import annotations

from pathlib import Path


def fast_directory() -> str | None:
    """Return a directory in memory, if there is one: these stores are not to survive a loss of power."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None
