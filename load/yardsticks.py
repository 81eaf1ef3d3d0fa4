"""Serve a yardstick: a server that does part of the work and stores nothing.

Run as ``python -m load.yardsticks REQUEST_BYTES`` with the answer on stdin; the port is printed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import uvloop


@contextmanager
def yardstick_process(request_bytes: int, answer: bytes) -> Generator[tuple[int, int]]:
    """The server in a process of its own; gives its port and process id."""
    command = [sys.executable, "-m", "load.yardsticks", str(request_bytes)]
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


class _Answers(asyncio.Protocol):
    """Answers all whole requests of a fixed size, and looks at none of them."""

    def __init__(self, request_bytes: int, answer: bytes) -> None:
        self._request_bytes, self._answer = request_bytes, answer
        self._missing = request_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        left = self._missing - len(data)
        if left > 0:
            self._missing = left
            return
        whole, begun = divmod(-left, self._request_bytes)
        self._missing = self._request_bytes - begun
        self._transport.write(self._answer * (whole + 1))


async def _serve(request_bytes: int, answer: bytes) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Answers(request_bytes, answer), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), sys.stdin.buffer.read()))
