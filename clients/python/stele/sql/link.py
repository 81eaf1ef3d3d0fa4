"""Exchange frames with the broker, over standard input and output."""

from __future__ import annotations

import threading
from typing import BinaryIO, TypeVar

from ..wire import sql_frames as frames

_F = TypeVar("_F", bound=frames.ToProcess)
# A large answer goes in pieces of this size, so that the broker holds no more of it.
_PIECE_BYTES = 256 * 1024


class BrokerGone(Exception):
    """The broker has closed its end; the process ends, too."""


class Denied(Exception):
    """The broker does not answer, and knows the reason; the statement ends."""


class Link:
    """The two pipes; threads of DuckDB ask through it while the main thread sends rows."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._lock = threading.Lock()

    def receive(self, *kinds: type[_F]) -> _F:
        """Wait for a frame of ``kinds``. Raises ``BrokerGone``."""
        length = self._read(frames.LENGTH.size)
        frame = frames.decode_to_process(self._read(frames.LENGTH.unpack(length)[0]))
        assert isinstance(frame, kinds), f"{type(frame).__name__} came at a wrong time"
        return frame

    def send(self, frame: frames.ToBroker) -> None:
        with self._lock:
            self._send(frame)

    def ask(self, frame: frames.ToBroker, kind: type[_F]) -> _F:
        """Send ``frame`` and return the answer, which is of ``kind``. Raises ``Denied``."""
        with self._lock:
            self._send(frame)
            answer = self.receive(kind, frames.Drop)
        if isinstance(answer, frames.Drop):
            raise Denied
        return answer

    def send_data(self, body: bytes) -> None:
        for start in range(0, len(body), _PIECE_BYTES):
            self.send(frames.Data(body[start : start + _PIECE_BYTES]))

    def _send(self, frame: frames.ToBroker) -> None:
        try:
            self._sink.write(frames.encode(frame))
            self._sink.flush()
        except (BrokenPipeError, ValueError) as error:
            raise BrokerGone from error

    def _read(self, size: int) -> bytes:
        data = self._source.read(size)
        if len(data) < size:
            raise BrokerGone
        return data
