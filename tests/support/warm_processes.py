"""Processes of ``stele`` that are forked from one that has imported it already.

The tests start hundreds of brokers and commands, and nearly all CPU time of a start goes into imports.
``WarmProcess`` is a process of its own, with pid, signals, exit code, streams, environment and working
directory as ``subprocess.Popen`` would give it; only the interpreter is not a new one.

As a pytest plugin, this module makes ``run_broker`` start brokers in this way. A test that is marked
``cold_start`` is about the start: its brokers get a new interpreter, as those of users do.

Every process that runs tests has a fork server of its own, from the first use until it ends.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pytest
from stele.broker_process import BrokerProcess, Process

from .fork_server import ANSWER, REQUEST_BYTES_MAX, STACKS_SIGNAL

_ROOT = Path(__file__).parents[2]
_spawn_cold = BrokerProcess.spawn
_living: weakref.WeakSet[WarmProcess] = weakref.WeakSet()


@functools.cache
def _requests() -> socket.socket:
    """Start the fork server of this process; return the socket for its requests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=_ROOT)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES_MAX)

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


class WarmProcess:
    """``stele ARGUMENTS`` in a forked process, with the methods of ``subprocess.Popen`` that tests use.

    A stream is inherited (None), or a file descriptor, a file, ``subprocess.PIPE`` or ``subprocess.DEVNULL``.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        environment = dict(os.environ if env is None else env)
        _check(environment)
        self.args = ["stele", *arguments]
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        request = json.dumps([list(arguments), environment, str(cwd or Path.cwd())]).encode()
        with ExitStack() as ends:
            given = [_open(stream, number, ends) for number, stream in enumerate((stdin, stdout, stderr))]
            self._answers, theirs = socket.socketpair()
            ends.enter_context(theirs)
            descriptors = [theirs_of for theirs_of, _ in given]
            socket.send_fds(_requests(), [request], [*descriptors, theirs.fileno()])
            self.stdin, self.stdout, self.stderr = (ours for _, ours in given)
        self.pid = self._receive()
        _living.add(self)

    def _receive(self) -> int:
        answer = self._answers.recv(ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < ANSWER.size:
            raise RuntimeError("the fork server has ended; its stderr is among the output of the tests")
        (number,) = ANSWER.unpack(answer)
        return number

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal. Raises ``subprocess.TimeoutExpired``."""
        code = self._wait(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._is_answered(timeout):
            with self._lock:
                if self.returncode is None:
                    self.returncode = self._receive()
                    self._answers.close()
        return self.returncode

    def _is_answered(self, timeout: float | None) -> bool:
        poll = select.poll()  # Not select.select: a test may have more than 1024 files open.
        try:
            poll.register(self._answers, select.POLLIN)
        except ValueError:
            # Another thread has just received the answer, and closed the socket.
            return True
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, input: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:  # noqa: A002
        """Write ``input``, read both streams to their ends, and wait. Raises ``subprocess.TimeoutExpired``."""
        with ThreadPoolExecutor(3) as pool:
            written = pool.submit(self._write, input)
            read = [pool.submit(_read_to_end, stream) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                self.wait()
                raise
            written.result()
            out, err = [future.result() for future in read]
        return out, err

    def _write(self, data: bytes) -> None:
        if self.stdin is not None:
            try:
                with self.stdin:
                    self.stdin.write(data)
            except BrokenPipeError:
                # Like Popen: a process need not read everything.
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def _check(environment: Mapping[str, str]) -> None:
    """Refuse settings for the interpreter, because it is running already."""
    for name, value in environment.items():
        if name.startswith("PYTHON") and name != "PYTHONUNBUFFERED":
            assert os.environ.get(name) == value, f"{name} needs @pytest.mark.cold_start"


def _open(stream: int | IO[bytes] | None, number: int, ends: ExitStack) -> tuple[int, IO[bytes] | None]:
    """Return the descriptor for the process, closed with ``ends`` if made here, and our end of a pipe."""
    if stream is None:
        return number, None
    if stream == subprocess.DEVNULL:
        return ends.enter_context(Path(os.devnull).open("r+b", buffering=0)).fileno(), None
    if stream == subprocess.PIPE:
        reading, writing = os.pipe()
        ours, theirs = (writing, reading) if number == 0 else (reading, writing)
        ends.callback(os.close, theirs)
        return theirs, open(ours, "wb" if number == 0 else "rb")  # noqa: PTH123 (a descriptor)
    return (stream if isinstance(stream, int) else stream.fileno()), None


def _read_to_end(stream: IO[bytes] | None) -> bytes:
    if stream is None:
        return b""
    with stream:
        return stream.read()


def show_stacks() -> None:
    """Let every process that lives write the stacks of its threads to its stderr."""
    for process in list(_living):
        process.send_signal(STACKS_SIGNAL)


def run_stele(
    *arguments: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end. Raises ``subprocess.TimeoutExpired``, after it has killed the process."""
    pipe = subprocess.PIPE
    process = WarmProcess(arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=cwd)
    out, err = process.communicate(stdin, timeout)
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


# ── the plugin ──


def _spawn_warm(
    self: BrokerProcess, arguments: list[str], stderr: IO[bytes], environment: Mapping[str, str]
) -> Process:
    del self
    return WarmProcess(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env=environment
    )


def use_warm_processes() -> None:
    """Let ``BrokerProcess`` start brokers in this way, in a program that is no test."""
    BrokerProcess.spawn = _spawn_warm


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cold_start: its brokers are started by a new interpreter")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    BrokerProcess.spawn = _spawn_cold if item.get_closest_marker("cold_start") else _spawn_warm
