"""CPU time and memory of other processes, as Linux counts them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process in seconds, to the nanosecond.

    Raises:
        OSError: there is no such process.
    """
    # Linux makes the clock of a process from its id so.
    return time.clock_gettime((~pid << 3) | 2)


def cpu_seconds(pid: int) -> float:
    """User and system time of the process tree, with children that have ended, which are counted in ticks."""
    seconds, ticks = 0.0, 0
    for process in _process_tree(pid):
        # The name in parentheses may hold anything; after it, cutime is the 14th field, then cstime.
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            seconds += process_cpu_s(process)
        except OSError:
            # It has ended in between; its parent has its time.
            continue
        ticks += sum(map(int, fields[13:15]))
    return seconds + ticks / _TICKS_PER_S


def resident_mb(pid: int) -> float:
    """Resident memory of the process tree."""
    kilobytes = 0
    for process in _process_tree(pid):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                kilobytes += int(line.split()[1])
    return kilobytes / 1024


def _process_tree(pid: int) -> Iterator[int]:
    """``pid`` and all that it started and that is still there."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = children.read_text().split()
        except FileNotFoundError:
            continue
        for child in found:
            yield from _process_tree(int(child))
