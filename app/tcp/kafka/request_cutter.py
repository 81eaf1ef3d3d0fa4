"""Cuts a stream of the Kafka protocol into requests (layout in ``headers``)."""

from __future__ import annotations

from stele.wire.kafka.headers import REQUEST_BYTES_MIN, SIZE

from ..request_cutter import UnreadableStream


class KafkaRequestCutter:
    """Implements ``RequestCutter``: a request is its frame without the size.

    Frames are slices of what was received, not copies. They are writable, because
    the broker places the offsets in the batches in them.
    """

    __slots__ = ("_buffer", "_frame_bytes_max", "_frame_bytes_min", "_position")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_min = REQUEST_BYTES_MIN
        # What is before the position was handed out as slices, which keep the buffer from growing.
        self._buffer = bytearray()
        self._position = 0

    def limit(self, frame_bytes_max: int, *, frame_bytes_min: int = REQUEST_BYTES_MIN) -> None:
        """Change the bounds of the frames from the next one on.

        Bare SASL tokens may be empty.
        """
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_min = frame_bytes_min

    def receive(self, data: bytes) -> None:
        if self._position:
            self._drop_taken()
        self._buffer += data

    def next_request(self) -> memoryview | None:
        buffer, position = self._buffer, self._position
        end = len(buffer)
        start = position + SIZE.size
        if start <= end:
            (size,) = SIZE.unpack_from(buffer, position)
            if not self._frame_bytes_min <= size <= self._frame_bytes_max:
                self.discard()
                raise UnreadableStream(
                    f"a request of {size} bytes; it must have {self._frame_bytes_min} to "
                    f"{self._frame_bytes_max} (frame_bytes_max, less before a login); is this a Kafka client without TLS?"
                )
            if start + size <= end:
                if start + size == end:
                    self.discard()
                else:
                    self._position = start + size
                return memoryview(buffer)[start : start + size]
        if position:
            self._drop_taken()
        return None

    def has_request(self) -> bool:
        buffer, start = self._buffer, self._position + SIZE.size
        if start > len(buffer):
            return False
        (size,) = SIZE.unpack_from(buffer, self._position)
        return start + size <= len(buffer) or not self._frame_bytes_min <= size <= self._frame_bytes_max

    def has_partial_request(self) -> bool:
        return self._position < len(self._buffer) and not self.has_request()

    def partial_bytes(self) -> int:
        return len(self._buffer) - self._position

    def discard(self) -> None:
        self._buffer = bytearray()
        self._position = 0

    def _drop_taken(self) -> None:
        self._buffer = bytearray(memoryview(self._buffer)[self._position :])
        self._position = 0
