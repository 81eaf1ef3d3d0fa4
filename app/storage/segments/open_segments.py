"""Keeps a bounded number of sealed segments open for readers."""

from __future__ import annotations

from collections import OrderedDict

from .segment import Segment


class OpenSegments:
    """The most recently read sealed segments; the one read longest ago is released first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._segments: OrderedDict[Segment, None] = OrderedDict()

    def touch(self, segment: Segment) -> None:
        """``segment`` is about to be read."""
        if not segment.is_sealed or segment.is_pinned:
            return
        self._segments[segment] = None
        self._segments.move_to_end(segment)
        while len(self._segments) > self._limit:
            oldest, _ = self._segments.popitem(last=False)
            oldest.release()

    def forget(self, segment: Segment) -> None:
        """``segment`` is deleted or replaced."""
        self._segments.pop(segment, None)
