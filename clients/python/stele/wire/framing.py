"""Frames of the binary protocol: ``[length:4][type:1][body]``, big-endian.

``length`` counts the whole frame, itself included (ADR-0009), so the smallest
frame is 5 bytes. ``FrameReader`` turns a stream that arrives in any pieces into
frames; it copies a frame only when the frame spans two pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

LENGTH_BYTES = 4
FRAME_OVERHEAD_BYTES = 5
FRAME_BYTES_MIN = FRAME_OVERHEAD_BYTES
# One frame must fit in memory next to its neighbours; a batch is at most ~1 MiB by default.
FRAME_BYTES_MAX = 16 * 1024 * 1024

_LENGTH = struct.Struct(">I")
_LENGTH_TYPE = struct.Struct(">IB")


class FrameError(ValueError):
    """The stream cannot be cut into frames any more: answer once, then close."""


def encode_frame(frame_type: int, body: bytes | bytearray | memoryview) -> bytes:
    return _LENGTH_TYPE.pack(FRAME_OVERHEAD_BYTES + len(body), frame_type) + body


class FrameReader:
    """Cuts a byte stream into frames, without I/O.

    The caller feeds what the transport delivered and takes the frames that are
    complete. A length outside ``[5, frame_bytes_max]`` raises before anything is
    allocated for it.
    """

    __slots__ = ("_frame_bytes_max", "_partial")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._partial = bytearray()
        self._frame_bytes_max = frame_bytes_max

    @property
    def has_partial_frame(self) -> bool:
        """True while a frame has begun and not ended."""
        return bool(self._partial)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield ``(type, body)`` for every frame completed by ``data``.

        Exhaust the iterator before feeding again.

        Raises:
            FrameError: a length no frame may have. The frames before it were yielded.
        """
        buffer: bytes = data
        if self._partial:
            self._partial += data
            buffer = bytes(self._partial) if self._is_complete() else b""
            if not buffer:
                return
            self._partial.clear()
        position, end = 0, len(buffer)
        while end - position >= LENGTH_BYTES:
            (length,) = _LENGTH.unpack_from(buffer, position)
            self._check(length)
            if end - position < length:
                break
            yield buffer[position + 4], buffer[position + FRAME_OVERHEAD_BYTES : position + length]
            position += length
        if position < end:
            self._partial += memoryview(buffer)[position:]

    def _is_complete(self) -> bool:
        if len(self._partial) < LENGTH_BYTES:
            return False
        (length,) = _LENGTH.unpack_from(self._partial)
        self._check(length)
        return len(self._partial) >= length

    def _check(self, length: int) -> None:
        if not FRAME_BYTES_MIN <= length <= self._frame_bytes_max:
            raise FrameError(
                f"frame length is {length}; it must be between {FRAME_BYTES_MIN} and "
                f"{self._frame_bytes_max} bytes"
            )
