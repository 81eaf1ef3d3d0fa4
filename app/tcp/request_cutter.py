"""Cuts the bytes of a connection into requests: pure, no sockets, no loop, no clock.

A protocol implements ``RequestCutter``. Its connection passes on what arrived
with ``receive`` and takes requests with ``next_request`` until that returns
None, or until the limits of the connection say stop. Requests that were not
taken stay in the cutter, as bytes; the connection stops reading from the peer
meanwhile, so they are never more than the peer had sent before.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

Request_co = TypeVar("Request_co", covariant=True)


class UnreadableStream(ValueError):
    """The bytes can no longer be cut into requests.

    The connection must end; the text says why.
    """


class RequestCutter(Protocol[Request_co]):
    """Bytes in, requests out."""

    def receive(self, data: bytes) -> None:
        """Add bytes received from the peer, in any pieces."""
        ...

    def next_request(self) -> Request_co | None:
        """Take the next whole request, or return None if more bytes are needed.

        Nothing is allocated for a size that a request announces before its bytes are here.

        Raises:
            UnreadableStream: the next bytes cannot begin a request. Everything held is discarded.
        """
        ...

    def has_request(self) -> bool:
        """Return True if ``next_request`` would return a request or raise."""
        ...

    def has_partial_request(self) -> bool:
        """Return True if a request is incomplete, and none is complete.

        Its last byte has not arrived.
        """
        ...

    def partial_bytes(self) -> int:
        """Return how many bytes are here of an incomplete request."""
        ...

    def discard(self) -> None:
        """Drop everything received, because nothing more of it is to be answered."""
        ...
