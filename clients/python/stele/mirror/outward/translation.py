"""Which offsets the records of one partition have in the target. Pure.

A translation is a list of pairs: from the second offset on, the records of the target are those from the first offset on
of this broker, one for one, up to the next pair. There is one for each hole, and for each time that a mirror began.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right


class Translation:
    """The pairs of one partition, in their order."""

    def __init__(self) -> None:
        self._sources: array[int] = array("q")
        self._targets: array[int] = array("q")

    @property
    def is_empty(self) -> bool:
        return not self._sources

    @property
    def last_target(self) -> int:
        """Where the last pair begins in the target; 0 without a pair."""
        return self._targets[-1] if self._targets else 0

    def note(self, source: int, target: int) -> None:
        """Add a pair, in place of those that begin there or later: their records were never written."""
        self.cut(target - 1)
        self._sources.append(source)
        self._targets.append(target)

    def cut(self, end: int) -> None:
        """Forget the pairs that begin after ``end``."""
        while self._targets and self._targets[-1] > end:
            self._sources.pop()
            self._targets.pop()

    def source_of(self, target: int) -> int:
        """Return the offset of a record of the target, or of the next one if it ends there."""
        at = max(0, bisect_right(self._targets, target) - 1)
        return self._sources[at] + target - self._targets[at]

    def target_of(self, source: int, end: int) -> int:
        """Return where a consumer that goes on at ``source`` goes on in the target, which ends at ``end``."""
        at = bisect_right(self._sources, source) - 1
        if at < 0:
            return self._targets[0] if self._targets else end
        limit = self._targets[at + 1] if at + 1 < len(self._targets) else end
        return min(self._targets[at] + source - self._sources[at], limit)

    def continues(self, source: int, target: int) -> bool:
        """Return whether a record has these offsets without another pair."""
        return not self.is_empty and self.source_of(target) == source
