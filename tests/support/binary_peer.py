"""A peer of the binary listener: a plain socket, so that a test sends and sees every byte."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Protocol, Self

from stele.wire import messages as m

# Nothing a test waits for takes this long; it only ends a test that failed.
TIMEOUT_S = 120.0


class BinaryAddress(Protocol):
    """The address of a broker, as ``BrokerProcess`` has it."""

    @property
    def host(self) -> str: ...
    @property
    def binary_port(self) -> int: ...


class Peer:
    """One connection."""

    def __init__(self, broker: BinaryAddress, *, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((broker.host, broker.binary_port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def frame(self) -> bytes:
        """The next answer, whole. Raises ``ConnectionError`` when the broker has closed."""
        while len(self._received) < 4 or len(self._received) < self._length():
            piece = self.socket.recv(1 << 20)
            if not piece:
                raise ConnectionError(f"closed by the broker, {len(self._received)} bytes into a frame")
            self._received += piece
        length = self._length()
        frame = bytes(self._received[:length])
        del self._received[:length]
        return frame

    def _length(self) -> int:
        (length,) = struct.unpack_from(">I", self._received)
        return length

    def frames(self, count: int) -> list[bytes]:
        return [self.frame() for _ in range(count)]

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.frame()

    def call(self, request: m.Request) -> m.Response | m.ErrorResponse:
        """``ask`` with the messages of ``stele.wire``."""
        return decode(self.ask(request.encode()))

    def rest(self) -> bytes:
        """Return everything until the broker closes the connection."""
        while piece := self.socket.recv(1 << 20):
            self._received += piece
        rest = bytes(self._received)
        self._received.clear()
        return rest

    def end(self) -> None:
        """Send no more, but continue to read."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Reset the connection, as a process that crashed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


def decode(frame: bytes) -> m.Response | m.ErrorResponse:
    return m.decode_response(frame[4], frame[5:])


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def framed(frame_type: int, body: bytes) -> bytes:
    return struct.pack(">IB", 5 + len(body), frame_type) + body


def produce_frame(topic: str, data: bytes) -> bytes:
    return framed(0x03, sized(topic.encode()) + sized(data))


def consume_frame(topic: str, offset: int, batch_size: int) -> bytes:
    return framed(0x01, sized(topic.encode()) + struct.pack(">qi", offset, batch_size))


FLUSH = framed(0x05, b"")
FLUSHED = bytes.fromhex("00 00 00 06 06 01")


def produced_offset(frame: bytes) -> int:
    """The offset in a PRODUCE ok frame; fails for any other."""
    assert frame[:6] == bytes.fromhex("00 00 00 0e 04 01"), frame
    return int.from_bytes(frame[6:], "big")


def error_text(frame: bytes, response_type: int) -> str:
    """The text of an ADR-0009 error frame; fails for any other."""
    length, frame_type, status, text_length = struct.unpack_from(">IBBi", frame)
    assert (frame_type, status) == (response_type, 0), frame
    assert (length, text_length) == (len(frame), len(frame) - 10), frame
    return frame[10:].decode()
