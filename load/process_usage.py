"""CPU time and memory of other processes, as Linux counts them, and the cores that they use."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# It gets a core only while nothing else wants it, and ends with the process that started it.
_SPIN = """
import os, sys
parent = int(sys.argv[1])
os.sched_setaffinity(0, {int(sys.argv[2])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print(flush=True)
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


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
    return sum(_status_kib(process, "VmRSS:") for process in _process_tree(pid)) / 1024


def _status_kib(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(field))


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


class PeakMemory:
    """The highest resident memory of a process since ``reset``, in MiB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def reset(self) -> None:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    @property
    def mib(self) -> float:
        return _status_kib(self._pid, "VmHWM:") / 1024


@contextmanager
def pinned(cores: frozenset[int]) -> Generator[None]:
    """Have processes and threads that are started meanwhile inherit ``cores``."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def separate(pid: int) -> None:
    """Give all threads of a process a core, and this process and its children the others, if there are two."""
    first, *others = sorted(os.sched_getaffinity(0))
    if others:
        keep_on(pid, {first})
        os.sched_setaffinity(0, set(others))


def keep_on(pid: int, cores: set[int]) -> None:
    """Give all threads of a process these cores."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


@contextmanager
def apart(brokers: Sequence[int], others: Sequence[int]) -> Generator[None]:
    """Give brokers a core, and processes that would be elsewhere the other ones, where this one comes before them.

    What is measured then is what else a broker does, not how a kernel schedules busy processes on few cores.
    """
    cores = os.sched_getaffinity(0)
    for pid in brokers:
        separate(pid)
        os.sched_setaffinity(0, cores)
    first, *rest = sorted(cores)
    try:
        for pid in (os.getpid(), *others):
            keep_on(pid, set(rest) or {first})
        with first_on_its_core():
            yield
    finally:
        for pid in (os.getpid(), *brokers, *others):
            keep_on(pid, cores)


@contextmanager
def first_on_its_core() -> Generator[None]:
    """Let this process come before all others on its cores, those that it starts before that among them."""
    # It needs root.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def raise_open_files() -> None:
    """Let this process and its children have as many open files as may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def awake_cores() -> Generator[None]:
    """Run a process on each core that uses it whenever nothing else does (Linux).

    A core without work halts, and in a virtual machine that gives it back to the host: what wakes it finds cold caches
    and takes several times as long, all of which counts as CPU time of the process that was woken. Nothing that waits
    for a disk can be measured so: the host may need the same cores to serve it.

    Raises:
        RuntimeError: they cannot be kept awake here; stderr says why.
    """
    with ExitStack() as stack:
        spinning: list[subprocess.Popen[bytes]] = []
        for core in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, "-c", _SPIN, str(os.getpid()), str(core)]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            spinning.append(process)
        for process in spinning:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("the cores cannot be kept awake here")
        yield
