"""Pause processes on this machine with SIGSTOP, and let them continue."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TIMEOUT_S = 120.0
_LOOK_S = 0.001
# Letters of /proc: stopped, and two for a thread that has ended.
_STANDING_STILL = {"T", "Z", "X"}


def pause(pid: int) -> None:
    """Stop a process, and return when none of its threads runs.

    That is also so when it has ended. The signal takes effect when one of the threads gets a CPU to receive it. On a
    busy machine the others keep running until then.

    Raises:
        ProcessLookupError: there is no such process.
        TimeoutError: some thread still runs; the process is left as it is.
    """
    os.kill(pid, signal.SIGSTOP)
    give_up_s = time.monotonic() + _TIMEOUT_S
    while not _STANDING_STILL.issuperset(_thread_states(pid)):
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"process {pid} has not stopped within {_TIMEOUT_S:g} s of SIGSTOP")
        time.sleep(_LOOK_S)


def resume(pid: int) -> None:
    """Let a paused process continue."""
    os.kill(pid, signal.SIGCONT)


@contextmanager
def paused(pid: int) -> Generator[None]:
    """Pause a process for the length of a block."""
    try:
        pause(pid)
        yield
    finally:
        resume(pid)


def _thread_states(pid: int) -> Iterator[str]:
    """Yield the letter of each thread; none if the process has gone."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # After the name in parentheses, which may contain anything.
            yield stat.read_text().rpartition(")")[2].split()[0]
