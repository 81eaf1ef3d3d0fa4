"""Cuts a stream of the binary protocol into requests (ADR-0009, ADR-0010).

Frames are ``[length:4][type:1][body]``, big-endian; ``length`` counts the whole
frame. PRODUCE frames of ADR-0009 often arrive hundreds at a time, so those that
follow one another for one topic can be taken as a run (``take_values``).
"""

from __future__ import annotations

import struct

from stele.wire import messages as m
from stele.wire.framing import FRAME_BYTES_MIN, LENGTH_BYTES

from ..request_cutter import UnreadableStream

_LENGTH = struct.Struct(">I")
_LENGTH_TYPE = struct.Struct(">IB")
_PRODUCE = m.MessageType.PRODUCE_REQUEST


# One request: its message type and the bytes after that. A plain tuple, because a named one takes
# longer to make than the frame takes to cut.
Frame = tuple[int, bytes]


class BinaryRequestCutter:
    """Implements ``RequestCutter``."""

    __slots__ = ("_buffer", "_frame_bytes_max", "_needed", "_partial", "_position")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        # Frames are cut out of ``_buffer``, mostly what the transport delivered, uncopied. What is left of
        # it goes to ``_partial`` until the frame that begins there has ``_needed`` bytes.
        self._buffer = b""
        self._position = 0
        self._partial: bytearray | None = None
        self._needed = 0

    def limit(self, frame_bytes_max: int) -> None:
        """Refuse larger frames from now on."""
        self._frame_bytes_max = frame_bytes_max

    def receive(self, data: bytes) -> None:
        if self._position < len(self._buffer):
            self._keep_rest(0)
        if self._partial is None:
            self._buffer, self._position = data, 0
        else:
            self._partial += data

    def next_request(self) -> Frame | None:
        if self._partial is not None:
            if len(self._partial) < self._needed:
                return None
            self._buffer, self._position, self._partial = bytes(self._partial), 0, None
        buffer, position = self._buffer, self._position
        available = len(buffer) - position
        needed = LENGTH_BYTES
        if available >= LENGTH_BYTES:
            (needed,) = _LENGTH.unpack_from(buffer, position)
            if not FRAME_BYTES_MIN <= needed <= self._frame_bytes_max:
                self.discard()
                raise UnreadableStream(
                    f"frame length is {needed}; it counts the whole frame and must be between "
                    f"{FRAME_BYTES_MIN} and {self._frame_bytes_max} bytes; the connection is closed"
                )
            if needed <= available:
                end = position + needed
                if end == len(buffer):
                    self._buffer, self._position = b"", 0
                else:
                    self._position = end
                return buffer[position + LENGTH_BYTES], buffer[position + FRAME_BYTES_MIN : end]
        if available:
            self._keep_rest(needed)
        return None

    def take_values(self, topic: bytes, *, bytes_max: int, overhead_bytes: int) -> list[bytes]:
        """Take the values of the PRODUCE frames that follow for the same topic.

        ``topic`` is the topic with its length, as in the body of that frame. A frame
        ends the run if it differs at all, is incomplete, or if its value with
        ``overhead_bytes`` would bring the sum above ``bytes_max``.
        """
        values: list[bytes] = []
        buffer, position = self._buffer, self._position
        end = len(buffer)
        # The same topic is recognised by its bytes.
        fixed = FRAME_BYTES_MIN + len(topic) + LENGTH_BYTES
        while end - position >= fixed:
            length, frame_type = _LENGTH_TYPE.unpack_from(buffer, position)
            data_start = position + fixed
            if (
                frame_type != _PRODUCE
                or length > end - position
                or not buffer.startswith(topic, position + FRAME_BYTES_MIN)
                or _LENGTH.unpack_from(buffer, data_start - LENGTH_BYTES)[0] != length - fixed
                or length > self._frame_bytes_max
            ):
                break
            bytes_max -= length - fixed + overhead_bytes
            if bytes_max < 0:
                break
            values.append(buffer[data_start : position + length])
            position += length
        if position == end:
            self._buffer, self._position = b"", 0
        else:
            self._position = position
        return values

    def has_more(self) -> bool:
        """Return True if bytes were received after those of the request taken last."""
        return self._position < len(self._buffer)

    def has_request(self) -> bool:
        partial = self._partial
        if partial is not None and len(partial) < self._needed:
            return False
        buffer = self._buffer if partial is None else partial
        available = len(buffer) - self._position
        if available < LENGTH_BYTES:
            return False
        (length,) = _LENGTH.unpack_from(buffer, self._position)
        return length <= available or length > self._frame_bytes_max

    def has_partial_request(self) -> bool:
        has_bytes = self._partial is not None or self._position < len(self._buffer)
        return has_bytes and not self.has_request()

    def partial_bytes(self) -> int:
        partial = self._partial
        return len(self._buffer) - self._position if partial is None else len(partial)

    def discard(self) -> None:
        self._buffer, self._position, self._partial = b"", 0, None

    def _keep_rest(self, needed: int) -> None:
        self._partial, self._needed = bytearray(memoryview(self._buffer)[self._position :]), needed
        self._buffer, self._position = b"", 0
