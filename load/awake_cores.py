"""Keep the cores of this machine awake while something is measured.

A core without work halts, and in a virtual machine that gives it back to the host: what wakes it finds cold caches and
takes several times as long, all of which counts as CPU time of the process that was woken. How much it is depends on
the machine alone, and it is gone as soon as anything else runs there. Nothing that waits for a disk can be measured
so: the host may need the same cores to serve it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

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


@contextmanager
def awake_cores() -> Generator[None]:
    """Run a process on each core that uses it whenever nothing else does (Linux).

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
