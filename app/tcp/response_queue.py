"""Responses in the order of their requests, whichever of them are ready first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

# The bytes of one response, whole or in parts.
Buffers = bytes | Sequence[bytes | bytearray]


def size_of(data: Buffers) -> int:
    """Return the size of a response in bytes."""
    return len(data) if isinstance(data, bytes) else sum(map(len, data))


class PendingResponse:
    """One response in the order of requests; ``data`` is None until it is known."""

    __slots__ = ("data", "size")

    def __init__(self, data: Buffers | None = None) -> None:
        self.data = data
        self.size = 0 if data is None else size_of(data)


class ResponseQueue:
    """Releases responses in the order of their requests.

    ``is_direct`` is True while the next response has nothing to wait for: it need not
    go through the queue. ``waiting_bytes`` is the size of the responses that are known and wait for an
    earlier one. Both this and the number of responses are bounded by the caller
    (``FlowControl``), which begins no request while they are at their limits.
    """

    # One per connection, most of them idle: no deque until a response must wait.
    __slots__ = ("_pending", "is_direct", "waiting_bytes")

    def __init__(self) -> None:
        self._pending: deque[PendingResponse] | None = None
        self.is_direct = True
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return 0 if self._pending is None else len(self._pending)

    def reserve(self) -> PendingResponse:
        """Add a response that is not known yet."""
        response = PendingResponse()
        if self._pending is None:
            self._pending = deque()
            self.is_direct = False
        self._pending.append(response)
        return response

    def append(self, data: Buffers) -> int:
        """Add a known response after an unknown one (not ``is_direct``), and return its size in bytes."""
        assert self._pending is not None
        response = PendingResponse(data)
        self._pending.append(response)
        self.waiting_bytes += response.size
        return response.size

    def fill(self, response: PendingResponse, data: Buffers) -> list[Buffers]:
        """Set the data of ``response`` and return the responses that may leave, in order."""
        response.data, response.size = data, size_of(data)
        self.waiting_bytes += response.size
        released: list[Buffers] = []
        pending = self._pending
        while pending and (ready := pending[0].data) is not None:
            self.waiting_bytes -= pending.popleft().size
            released.append(ready)
        if not pending:
            self._pending = None
            self.is_direct = True
        return released

    def clear(self) -> None:
        """Forget all responses; one that is filled in later is never released."""
        self._pending = None
        self.is_direct = True
        self.waiting_bytes = 0
