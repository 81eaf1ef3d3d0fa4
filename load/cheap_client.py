"""Drive a broker at the least CPU time that a client can take.

The client sends prepared bytes and discards the answers in the kernel, without copying them. It knows their size.
The first and the last answers of each connection are read and checked. Linux only.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .kafka_frames import check_fetch, check_produce, connect

Kind = Literal["produce", "fetch", "http"]

TIMEOUT_S = 30
_LENGTH_BYTES = 4
# The kernel drops the bytes instead of copying them (``man 7 tcp``), and returns when all of them have come.
_DISCARD = socket.MSG_WAITALL | socket.MSG_TRUNC


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """Equal requests that one client process sends on several connections.

    It sends them for ``seconds`` from ``start_s`` on, a time of ``time.monotonic``, which all processes share.
    ``answer_bytes`` is the size of each answer.
    """

    kind: Kind
    host: str
    port: int
    request: bytes
    answer_bytes: int
    connections: int
    in_flight: int
    cores: frozenset[int]
    start_s: float
    seconds: float


class Driven(NamedTuple):
    """The requests of a client process between two points of time."""

    requests: int
    started_s: float
    ended_s: float


def drive(work: Drive) -> Driven:
    """Keep ``in_flight`` requests under way on each connection.

    When the time is over, await their answers.

    Raises:
        ConnectionError: the broker closed a connection, or an answer did not come within ``TIMEOUT_S``.
        ErrorAnswered: an answer that was checked is an error.
    """
    os.sched_setaffinity(0, work.cores)
    window = work.request * work.in_flight
    window_bytes = work.answer_bytes * work.in_flight
    buffer = bytearray(window_bytes)
    with ExitStack() as stack:
        connections = [stack.enter_context(_connected(work)) for _ in range(work.connections)]
        for connection in connections:
            connection.sendall(window)
            _read_checked(connection, work, buffer)
        time.sleep(max(0.0, work.start_s - time.monotonic()))
        monotonic = time.monotonic
        started_s = monotonic()
        end_s = started_s + work.seconds
        for connection in connections:
            connection.sendall(window)
        windows = len(connections)
        while monotonic() < end_s:
            for connection in connections:
                if connection.recv_into(buffer, window_bytes, _DISCARD) != window_bytes:
                    raise ConnectionError("the broker closed the connection, or did not answer in time")
                connection.sendall(window)
            windows += len(connections)
        for connection in connections:
            _read_checked(connection, work, buffer)
        return Driven(windows * work.in_flight, started_s, monotonic())


def _connected(work: Drive) -> socket.socket:
    connection = connect(work.host, work.port)
    # A timeout of Python's would make the socket non-blocking, which cannot wait for all bytes in one call.
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT_S, 0))
    return connection


def _read_checked(connection: socket.socket, work: Drive, buffer: bytearray) -> None:
    """Read the answers of one window, and check each."""
    if connection.recv_into(buffer, len(buffer), socket.MSG_WAITALL) != len(buffer):
        raise ConnectionError("the broker closed the connection, or did not answer in time")
    for start in range(0, len(buffer), work.answer_bytes):
        _check(work.kind, bytes(buffer[start : start + work.answer_bytes]))


def _check(kind: Kind, answer: bytes) -> None:
    if kind == "http":
        if not answer.startswith(b"HTTP/1.1 20"):
            raise ConnectionError(f"refused: {answer!r}")
        return
    (length,) = struct.unpack_from(">i", answer)
    if length != len(answer) - _LENGTH_BYTES:
        raise ConnectionError(f"an answer has {length + _LENGTH_BYTES} bytes instead of {len(answer)}")
    if kind == "produce":
        check_produce(answer[_LENGTH_BYTES:])
    elif not check_fetch(answer[_LENGTH_BYTES:]):
        raise ConnectionError("a fetch got no records")
