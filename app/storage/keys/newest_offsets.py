"""The offsets of the newest records of a partition, one per key.

They are sorted, so a reader can go from one to the next and skip what lies between.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from ...errors import CorruptLog
from ..disk.pace import Pacing

OFFSET_BYTES = 8
# Sorting a list of as many numbers holds the interpreter for less than a millisecond.
_SORTED_AT_ONCE = 4096


class NewestOffsets:
    """The offsets from ``start_offset`` to before ``end_offset`` of the newest records of their keys.

    ``corrupt_ranges`` could not be read, in the order of their offsets: newer records
    may have been in them. Immutable.
    """

    __slots__ = ("_offsets", "corrupt_ranges", "end_offset", "start_offset")

    def __init__(
        self,
        offsets: array[int] | memoryview[int],
        *,
        start_offset: int = 0,
        end_offset: int,
        corrupt_ranges: Sequence[CorruptLog] = (),
    ) -> None:
        """``offsets`` ascend; they are not copied."""
        self._offsets = offsets
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.corrupt_ranges = tuple(corrupt_ranges)

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, offset: int) -> bool:
        at = bisect_left(self._offsets, offset)
        return at < len(self._offsets) and self._offsets[at] == offset

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets)

    def at_or_after(self, offset: int) -> int | None:
        """Return the first of the offsets that is not below ``offset``; None if all are."""
        at = bisect_left(self._offsets, offset)
        return self._offsets[at] if at < len(self._offsets) else None

    def count_between(self, start: int, end: int) -> int:
        """Return how many of the offsets are in ``[start, end)``."""
        return bisect_left(self._offsets, end) - bisect_left(self._offsets, start)

    def next_from(self, offset: int) -> int:
        """Return the first of the offsets that is not below ``offset``; the end offset if all are.

        Raises:
            CorruptLog: a range before it could not be read.
        """
        following = self.at_or_after(offset)
        for damage in self.corrupt_ranges:
            if damage.next_offset > offset and (following is None or damage.offset <= following):
                raise damage
        return self.end_offset if following is None else following

    def within(self, start: int, end: int) -> NewestOffsets:
        """Return those of the offsets that are in ``[start, end)``, which is within the bounds, without a copy."""
        first, last = bisect_left(self._offsets, start), bisect_left(self._offsets, end)
        return NewestOffsets(
            memoryview(self._offsets)[first:last],
            start_offset=start,
            end_offset=end,
            corrupt_ranges=[damage for damage in self.corrupt_ranges if start <= damage.offset < end],
        )

    def between(self, start: int, end: int) -> Sequence[int]:
        """Return those of the offsets that are in ``[start, end)``."""
        return self._offsets[bisect_left(self._offsets, start) : bisect_left(self._offsets, end)]

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, roughly."""
        return len(self._offsets) * OFFSET_BYTES


def sorted_offsets(offsets: Iterable[int], *, start: int, end: int, count: int, pace: Pacing) -> array[int]:
    """Sort ``count`` offsets in ``[start, end)`` in a thread.

    It does not hold the interpreter for long.

    The offsets are spread over buckets of about equal ranges, which are sorted one by one.
    Takes twice the memory of the result.
    """
    bucket_count = max(1, count // (_SORTED_AT_ONCE // 4))
    width = max(1, -(-(end - start) // bucket_count))
    buckets = [array("Q") for _ in range(bucket_count)]
    for number, offset in enumerate(offsets):
        buckets[(offset - start) // width].append(offset)
        if number % 256 == 0:
            pace(0)
    result = array("Q")
    for number, bucket in enumerate(buckets):
        result.extend(sorted(bucket))
        buckets[number] = array("Q")
        pace(0)
    return result
