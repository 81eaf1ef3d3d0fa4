"""Serve the yardsticks: servers that do part of the work and store nothing.

Run as ``python -m load.yardsticks frames|answers|ndjson|relay|sendfile [ARGUMENTS]``; the port is printed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import uvicorn
import uvloop
from fastapi import FastAPI, Request

_LENGTH_TYPE = struct.Struct(">IB")
_LENGTH = struct.Struct(">I")
_PRODUCED = struct.Struct(">IBBq")


@contextmanager
def yardstick_server(kind: str, *arguments: str) -> Generator[int]:
    """One of the servers below in a process of its own; gives its port."""
    with yardstick_process(kind, *arguments) as (port, _):
        yield port


@contextmanager
def yardstick_process(kind: str, *arguments: str) -> Generator[tuple[int, int]]:
    """One of the servers below in a process of its own; gives its port and process id."""
    command = [sys.executable, "-m", "load.yardsticks", kind, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class _FrameParser(asyncio.Protocol):
    """Parses ADR-0009 PRODUCE frames in full and answers each with the next offset."""

    def __init__(self) -> None:
        self._partial = b""
        self._offset = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._partial + data
        position, end = 0, len(data)
        answers: list[bytes] = []
        while end - position >= 5:
            length, kind = _LENGTH_TYPE.unpack_from(data, position)
            if length > end - position:
                break
            topic_end = position + 9 + _LENGTH.unpack_from(data, position + 5)[0]
            topic = data[position + 9 : topic_end].decode()
            value = data[topic_end + 4 : topic_end + 4 + _LENGTH.unpack_from(data, topic_end)[0]]
            assert kind == 3
            assert topic
            assert value
            answers.append(_PRODUCED.pack(14, 4, 1, self._offset))
            self._offset += 1
            position += length
        self._partial = data[position:]
        assert self._transport is not None
        self._transport.write(b"".join(answers))


async def _serve_frames() -> None:
    server = await asyncio.get_running_loop().create_server(_FrameParser, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class _Answers(asyncio.Protocol):
    """Answers all whole requests of a fixed size, and looks at none of them."""

    def __init__(self, request_bytes: int, answer: bytes) -> None:
        self._request_bytes, self._answer = request_bytes, answer
        self._missing = request_bytes
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        left = self._missing - len(data)
        if left > 0:
            self._missing = left
            return
        whole, begun = divmod(-left, self._request_bytes)
        self._missing = self._request_bytes - begun
        self._transport.write(self._answer * (whole + 1))


async def _serve_answers(request_bytes: int, answer: bytes) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Answers(request_bytes, answer), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _serve_ndjson() -> None:
    app = FastAPI()

    async def parse(request: Request) -> dict[str, int]:
        decode = msgspec.json.Decoder().decode
        count = 0
        for line in (await request.body()).splitlines():
            decode(line)
            count += 1
        return {"records": count}

    app.add_api_route("/parse", parse, methods=["POST"])
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="warning", access_log=False, http="httptools", loop="uvloop")
    )
    server.run(sockets=[listening])


class _RelayEnd(asyncio.Protocol):
    """Gives what it receives to its other end.

    That is the connection that came before or after it.
    """

    waiting: _RelayEnd | None = None

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._other: _RelayEnd | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        other, _RelayEnd.waiting = _RelayEnd.waiting, None
        if other is None:
            _RelayEnd.waiting = self
        else:
            self._other, other._other = other, self

    def data_received(self, data: bytes) -> None:
        assert self._other is not None
        assert self._other._transport is not None
        self._other._transport.write(data)


async def _serve_relay() -> None:
    server = await asyncio.get_running_loop().create_server(_RelayEnd, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _serve_sendfile(path: Path) -> None:
    """For each connection: the whole file, by ``socket.sendfile``, again and again."""
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    while True:
        connection, _ = listening.accept()
        with connection, path.open("rb") as file:
            try:
                while True:
                    file.seek(0)
                    connection.sendfile(file)
            except (BrokenPipeError, ConnectionResetError):
                continue


def main() -> None:
    kind = sys.argv[1]
    if kind == "frames":
        uvloop.run(_serve_frames())
    elif kind == "ndjson":
        _serve_ndjson()
    elif kind == "answers":
        uvloop.run(_serve_answers(int(sys.argv[2]), Path(sys.argv[3]).read_bytes()))
    elif kind == "relay":
        uvloop.run(_serve_relay())
    elif kind == "sendfile":
        _serve_sendfile(Path(sys.argv[2]))
    else:
        print(f"no yardstick {kind!r}", file=sys.stderr)
        os._exit(2)


if __name__ == "__main__":
    main()
