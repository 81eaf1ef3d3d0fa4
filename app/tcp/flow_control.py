"""Decides when the next request of a connection may begin, and when to read from its peer."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from .response_queue import ResponseQueue

# Bytes that all reads in progress of one connection may return; a single read is always allowed.
READING_BYTES_MAX = 64 * 1024 * 1024


class FlowLimits(Protocol):
    """The settings that limit one connection; see ``settings`` for the reasons."""

    @property
    def pipelined_requests_max(self) -> int: ...
    @property
    def output_bytes_max(self) -> int: ...


class Block(IntEnum):
    """A reason why no request may begin. Each is a bit; they do not count."""

    BARRIER = 1
    """A request must end before the next may begin."""
    TURN = 2
    """The last requests were much work: the next waits for a turn, but the peer is read from."""
    OUTPUT = 4
    """The peer does not read its responses: the transport's buffer is full. The peer is read from, to notice its end."""
    READ = 8
    """A read has not looked at the log yet. The next request waits, but the peer is read from."""
    QUOTA = 16
    """The client has exceeded a quota and has to wait."""


# Computed once: operators of an enumeration are slow.
_NOT_READ = ~(int(Block.READ) | int(Block.TURN) | int(Block.OUTPUT))


class FlowControl:
    """The blocks and the limits of one connection.

    It only knows; the connection acts on it. ``reading_bytes`` is what the reads in
    progress may bring.
    """

    __slots__ = ("_blocks", "_limits", "_responses", "reading_bytes")

    def __init__(self, limits: FlowLimits, responses: ResponseQueue) -> None:
        self._limits = limits
        self._responses = responses
        self._blocks = 0
        self.reading_bytes = 0

    def block(self, reason: Block) -> None:
        self._blocks |= reason

    def unblock(self, reason: Block) -> None:
        self._blocks &= ~reason

    def is_blocked_by(self, reason: Block) -> bool:
        return bool(self._blocks & reason)

    def may_begin(self) -> bool:
        """Return True if the next request may begin."""
        return not self._blocks and (self._responses.is_direct or self._is_within_limits())

    def may_read(self) -> bool:
        """Return True if more may be read from the peer.

        It may not while a whole request waits.
        """
        return not self._blocks & _NOT_READ and (self._responses.is_direct or self._is_within_limits())

    def _is_within_limits(self) -> bool:
        limits, responses = self._limits, self._responses
        return (
            len(responses) < limits.pipelined_requests_max
            and responses.waiting_bytes < limits.output_bytes_max
            and self.reading_bytes < READING_BYTES_MAX
        )
