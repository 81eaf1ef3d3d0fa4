"""The process from which ``tests.support.warm_processes`` forks: it has imported ``stele`` and the broker.

It has no threads, and no event loop has run in it. A request is one message: arguments, environment and
working directory as JSON, and the file descriptors of the three streams and of a socket, over which the
pid and then the exit code are sent.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import NamedTuple, NoReturn

# What a broker, with shared storage or without, and a command that calls one, have imported once they run.
_PRELOADED = (
    "stele.cli",
    "stele.cdc.connector",
    "stele.commands.cdc",
    "stele.commands.consume",
    "stele.commands.groups",
    "stele.commands.produce",
    "stele.commands.serve",
    "stele.commands.table",
    "stele.commands.top",
    "stele.commands.topics",
    "stele.tables.table",
    "stele.transport.http",
    "stele.transport.login",
    "stele.transport.scram",
    "stele.transport.tcp",
    "aiokafka.record._crecords",
    "anyio._backends._asyncio",
    "app.main",
    "app.api.registry.server",
    "app.api.server",
    "app.cluster.postgres.catalog",
    "app.shared_stores",
    "app.storage.replica.staging",
    "app.storage.shared.postgres_engine",
    "encodings.idna",
    "httpcore",
    "uvicorn.lifespan.off",
    "uvloop",
)
REQUEST_BYTES_MAX = 1 << 17
# A child that gets it writes the stacks of its threads to its stderr.
STACKS_SIGNAL = signal.SIGUSR2
ANSWER = struct.Struct("=i")
_STREAMS = 3


class _Request(NamedTuple):
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    streams: list[int]
    answers: socket.socket


def _ignore(number: int, frame: FrameType | None) -> None:
    """Handle SIGCHLD, which SIG_DFL would not write to the wakeup descriptor."""
    del number, frame


class _Server:
    """Forks a child per request, and reports the exit codes of its children."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: dict[int, socket.socket] = {}
        self._wakeups, self._wakeup_sender = socket.socketpair()
        self._wakeup_sender.setblocking(False)

    def run(self) -> _Request | None:
        """Serve until the other end closes, and return None. In a child, return its request at once."""
        # Ctrl-C goes to all processes of a terminal; the tests end the children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._wakeup_sender.fileno())
        while True:
            ready, _, _ = select.select([self._requests, self._wakeups], [], [])
            if self._wakeups in ready:
                self._wakeups.recv(4096)
                self._reap()
            if self._requests in ready:
                request = self._receive()
                if request is None or self._fork(request):
                    return request

    def _receive(self) -> _Request | None:
        data, descriptors, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES_MAX, _STREAMS + 1)
        if not data:
            return None
        *streams, answers = descriptors
        arguments, environment, directory = json.loads(data)
        return _Request(arguments, environment, directory, streams, socket.socket(fileno=answers))

    def _fork(self, request: _Request) -> bool:
        """Return whether this is the child."""
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            ends = [self._requests, self._wakeups, self._wakeup_sender, request.answers]
            for end in (*ends, *self._children.values()):
                end.close()
            return True
        for descriptor in request.streams:
            os.close(descriptor)
        self._children[pid] = request.answers
        with contextlib.suppress(BrokenPipeError):  # The process that asked is gone.
            request.answers.sendall(ANSWER.pack(pid))
        return False

    def _reap(self) -> None:
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                # Nobody reads the exit code of a process that its test has dropped.
                with self._children.pop(pid) as answers, contextlib.suppress(BrokenPipeError):
                    answers.sendall(ANSWER.pack(os.waitstatus_to_exitcode(status)))


def _become(request: _Request) -> None:
    """Take the streams, environment, working directory and arguments of the request."""
    for number, descriptor in enumerate(request.streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.directory)
    faulthandler.register(STACKS_SIGNAL, all_threads=True)
    sys.argv = [str(sys.modules["stele.cli"].__file__), *request.arguments]


def _run_hook() -> None:
    """Call ``MODULE:FUNCTION`` of ``TEST_BROKER_HOOK``, which changes what the process is about to run."""
    module, _, function = os.environ.pop("TEST_BROKER_HOOK", "").partition(":")
    if function:
        getattr(import_module(module), function)()


def _run_to_end(function: Callable[[], None]) -> NoReturn:
    """Run ``function``, and end as an interpreter would, but without freeing all objects one by one.

    That writes to the memory shared with the fork server, which copies it: more CPU time than the start of a broker.
    """
    code = 0
    try:
        function()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:  # noqa: BLE001 (an interpreter does so, too)
        traceback.print_exception(error)
        code = 1
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # The reader may have gone.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main() -> None:
    """Serve the socket whose descriptor is the only argument; in a child, run ``stele``."""
    cli, *_ = [import_module(name) for name in _PRELOADED]
    gc.collect()
    gc.freeze()
    request = _Server(socket.socket(fileno=int(sys.argv[1]))).run()
    if request is not None:
        _become(request)
        _run_hook()
        _run_to_end(cli.main)


if __name__ == "__main__":
    main()
