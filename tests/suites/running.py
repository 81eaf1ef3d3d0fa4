"""Run one suite: its sources, its process, and its pytest in an environment of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from stele.broker_process import BrokerProcess

from .results import Outcome, of_junit
from .sources import Folder, GoModule, Sdist, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a suite.

    Its sources, a directory for what it needs, the broker, the ports kept for the suite, and a time limit.
    """

    ports: Sequence[int]
    sources: Path
    scratch: Path
    broker: BrokerProcess
    limit_s: float

    def execute(self, command: list[str], environment: Mapping[str, str], *, into: str = "output") -> Path:
        """Run ``command`` in the sources until it ends or its time is over; return its output."""
        return execute(command, self.sources, environment, self.scratch / into, limit_s=self.limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite of a client.

    ``settings`` are those of its broker, where ``{port}`` is the first of ``ports`` free ports in a row that the
    suite gets. ``limit_s`` is the most that it may take.
    """

    name: str
    source: GoModule | Sdist | Folder
    test: Callable[[Run], dict[str, Outcome]]
    limit_s: float
    ports: int = 0
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    known: Mapping[str, str] = field(default_factory=dict[str, str])
    # Go tests that end the whole process, and why.
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])


def execute(
    command: list[str], directory: Path, environment: Mapping[str, str], output: Path, *, limit_s: float
) -> Path:
    """Run ``command`` in a process group of its own, and end the whole group after ``limit_s``."""
    with output.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(limit_s)
        except BaseException as ended:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(ended, subprocess.TimeoutExpired):
                raise
            print(f"  its {limit_s:.0f} s are over; {output} has what it printed")
    return output


def free_range(count: int) -> Sequence[int]:
    """Return ``count`` free ports in a row."""
    while count:
        with ExitStack() as held:
            sockets = [held.enter_context(socket.socket()) for _ in range(count)]
            # On all addresses, as the proxies of sarama's suite do.
            sockets[0].bind(("", 0))
            first = sockets[0].getsockname()[1]
            with suppress(OSError, OverflowError):
                for number, other in enumerate(sockets[1:], 1):
                    other.bind(("", first + number))
                return range(first, first + count)
    return ()


def run_pytest(
    of: Run, requirements: list[str], arguments: list[str], environment: Mapping[str, str]
) -> dict[str, Outcome]:
    """Run pytest in an environment of its own."""
    python = of.scratch / "venv" / "bin" / "python"
    run([sys.executable, "-m", "venv", str(of.scratch / "venv")], of.scratch)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*install, "pytest", "pytest-timeout", *requirements], of.scratch)
    report = of.scratch / "report.xml"
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout=120",
        "--timeout-method=signal",
        f"--junitxml={report}",
    ]
    of.execute([*command, *arguments], environment)
    return of_junit(report)
