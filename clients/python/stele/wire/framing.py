"""Frames of the binary protocol: ``[length:4][type:1][body]``, big-endian.

``length`` counts the whole frame, including itself (ADR-0009), so the smallest frame
has 5 bytes. ``FrameReader`` splits a byte stream into frames; it copies a frame only if
the frame spans two reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

LENGTH_BYTES = 4
FRAME_OVERHEAD_BYTES = 5
FRAME_BYTES_MIN = FRAME_OVERHEAD_BYTES
# Several frames must fit in memory at once; a batch is at most 1 MiB by default.
FRAME_BYTES_MAX = 16 * 1024 * 1024

_LENGTH = struct.Struct(">I")


class FrameError(ValueError):
    """The stream can no longer be split into frames: respond once, then close."""


class FrameReader:
    """Splits a byte stream into frames, without I/O.

    The caller feeds received bytes and takes the complete frames. A length outside
    ``[5, frame_bytes_max]`` raises before anything is allocated for it.
    """

    __slots__ = ("_frame_bytes_max", "_partial")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._partial = bytearray()
        self._frame_bytes_max = frame_bytes_max

    @property
    def has_partial_frame(self) -> bool:
        """Whether the stream so far ends inside a frame."""
        return bool(self._partial)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield ``(type, body)`` of every frame that ``data`` completes.

        Exhaust the iterator before feeding again.

        Raises:
            FrameError: the length is invalid. The frames before it were yielded.
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
