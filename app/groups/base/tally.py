"""Counts that are kept as things come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

_K = TypeVar("_K")


class Tally(Counter[_K]):
    """A counter without keys that count nothing."""

    def add(self, keys: Iterable[_K]) -> None:
        for key in keys:
            self[key] += 1

    def take(self, keys: Iterable[_K]) -> None:
        """Count one less of each key, which was added before."""
        for key in keys:
            left = self[key] - 1
            assert left >= 0
            if left:
                self[key] = left
            else:
                del self[key]
