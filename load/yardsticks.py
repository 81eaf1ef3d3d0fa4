"""Serve the yardsticks: servers that do part of the work and store nothing.

Run as ``python -m load.yardsticks answers REQUEST_BYTES`` with the answer on stdin, or ``echo``; the port is printed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

import uvloop


@contextmanager
def yardstick_process(kind: str, request_bytes: int = 0, answer: bytes = b"") -> Generator[tuple[int, int]]:
    """One of the servers below in a process of its own; gives its port and process id."""
    command = [sys.executable, "-m", "load.yardsticks", kind, str(request_bytes)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as given:
            given.write(answer)
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class _Echo(asyncio.Protocol):
    """Answers with what it gets, and keeps nothing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Answers(_Echo):
    """Answers all whole requests of a fixed size, and looks at none of them."""

    def __init__(self, request_bytes: int, answer: bytes) -> None:
        self._request_bytes, self._answer = request_bytes, answer
        self._missing = request_bytes

    def data_received(self, data: bytes) -> None:
        left = self._missing - len(data)
        if left > 0:
            self._missing = left
            return
        whole, begun = divmod(-left, self._request_bytes)
        self._missing = self._request_bytes - begun
        self._transport.write(self._answer * (whole + 1))


async def _serve(protocol: Callable[[], asyncio.Protocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    kind, request_bytes = sys.argv[1], int(sys.argv[2])
    answer = sys.stdin.buffer.read()
    uvloop.run(_serve(_Echo if kind == "echo" else lambda: _Answers(request_bytes, answer)))


if __name__ == "__main__":
    main()
