"""Responses in the order of their requests, whichever of them are ready first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

# The bytes of one response, whole or in parts.
Buffers = bytes | Sequence[bytes | bytearray]


def size_of(data: Buffers) -> int:
    """Return the size of a response in bytes."""
    return len(data) if isinstance(data, bytes) else sum(map(len, data))


class Place:
    """The place of one response in the order; ``data`` is None until it is known."""

    __slots__ = ("data", "size")

    def __init__(self, data: Buffers | None = None) -> None:
        self.data = data
        self.size = 0 if data is None else size_of(data)


class ResponseQueue:
    """Keeps the places of responses and releases them in order.

    ``is_direct`` is True while the next response has nothing to wait for: it need not
    go through the queue. ``waiting_bytes`` is the size of the responses that are known and wait for an
    earlier one. Both this and the number of places are bounded by the caller
    (``FlowControl``), which begins no request while they are at their limits.
    """

    # One per connection, most of them idle: no deque until a response must wait.
    __slots__ = ("_places", "is_direct", "waiting_bytes")

    def __init__(self) -> None:
        self._places: deque[Place] | None = None
        self.is_direct = True
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return 0 if self._places is None else len(self._places)

    def reserve(self) -> Place:
        """Return the next place, for a response that is not known yet."""
        place = Place()
        if self._places is None:
            self._places = deque()
            self.is_direct = False
        self._places.append(place)
        return place

    def append(self, data: Buffers) -> None:
        """Add a response that is known, after an earlier one that is not (not ``is_direct``)."""
        assert self._places is not None
        place = Place(data)
        self._places.append(place)
        self.waiting_bytes += place.size

    def fill(self, place: Place, data: Buffers) -> list[Buffers]:
        """Set the response of ``place`` and return, in order, those that may leave now."""
        place.data, place.size = data, size_of(data)
        self.waiting_bytes += place.size
        released: list[Buffers] = []
        places = self._places
        while places and (ready := places[0].data) is not None:
            self.waiting_bytes -= places.popleft().size
            released.append(ready)
        if not places:
            self._places = None
            self.is_direct = True
        return released

    def clear(self) -> None:
        """Forget all places; a response that is filled in later is never sent."""
        self._places = None
        self.is_direct = True
        self.waiting_bytes = 0
