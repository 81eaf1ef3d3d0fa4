"""``.txnindex`` files: the transactions that a segment's markers have aborted.

The layout is Apache Kafka's.

A segment without such a marker has no file. An entry has 34 bytes, big-endian, in the order of
the markers::

    version:2 = 0   producer id:8   first offset:8   last offset:8   last stable offset:8

``last offset`` is that of the marker. ``last stable offset`` is the one after the marker: the
first offset of the oldest transaction that was still open, or else the offset after the marker.
Transactions with a later marker begin at or after it, so a search for the transactions that
overlap a range ends with the first entry whose last stable offset is past the range.

Example: producer 7 wrote offsets 10 to 14, its abort marker has offset 15, nothing else is open:
``0000 | …07 | …0a | …0f | …10``.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

_ENTRY = struct.Struct(">hqqqq")
TRANSACTION_INDEX_SUFFIX = ".txnindex"
ENTRY_BYTES = _ENTRY.size
assert ENTRY_BYTES == 34

_VERSION = 0
_FIELDS = 4
# Where the last offset is among them.
_LAST = 2
# Entries of which the lowest first offset is kept: a search passes over them at once if they begin after its range.
BLOCK_ENTRIES = 128


class AbortedEntry(NamedTuple):
    """See the module."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment, in memory (32 bytes each).

    While a transaction is open for long, the last stable offset of all entries after its beginning is low, and does not
    end a search.
    """

    __slots__ = ("_lowest", "_numbers")

    def __init__(self, entries: Iterable[AbortedEntry] = ()) -> None:
        self._numbers = array("q")
        # The lowest first offset of each block.
        self._lowest = array("q")
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    def __getitem__(self, number: int) -> AbortedEntry:
        return AbortedEntry(*self._numbers[number * _FIELDS : (number + 1) * _FIELDS])

    @property
    def last_offset(self) -> int:
        """The offset of the newest marker; -1 without one."""
        return self[len(self) - 1].last_offset if self else -1

    def append(self, entry: AbortedEntry) -> None:
        # Before the entry, because a thread may search meanwhile.
        if len(self) % BLOCK_ENTRIES == 0:
            self._lowest.append(entry.first_offset)
        elif entry.first_offset < self._lowest[-1]:
            self._lowest[-1] = entry.first_offset
        self._numbers.extend(entry)

    def entries(self) -> list[AbortedEntry]:
        return [self[number] for number in range(len(self))]

    def collect(self, from_offset: int, end_offset: int, found: list[AbortedEntry]) -> bool:
        """Add the entries that overlap ``[from_offset, end_offset)`` to ``found``.

        Returns True if later segments can have no further one.
        """
        count, numbers = len(self), self._numbers
        at = bisect_left(range(count), from_offset, key=lambda number: numbers[number * _FIELDS + _LAST])
        while at < count:
            following = min(count, (at // BLOCK_ENTRIES + 1) * BLOCK_ENTRIES)
            if self._lowest[at // BLOCK_ENTRIES] >= end_offset:
                # Last stable offsets never fall.
                at = following - 1
            for number in range(at, following):
                entry = self[number]
                if entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return True
            at = following
        return False

    def to_bytes(self) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self.entries())

    @classmethod
    def from_bytes(cls, data: bytes, *, base_offset: int, next_offset: int) -> TransactionIndex | None:
        """Return the index in ``data``; None if it cannot belong to a segment with these offsets."""
        if len(data) % ENTRY_BYTES:
            return None
        index = cls()
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedEntry(*fields)
            is_valid = (
                version == _VERSION
                and entry.producer_id >= 0
                and 0 <= entry.first_offset < entry.last_offset
                and base_offset <= entry.last_offset < next_offset
                and 0 <= entry.last_stable_offset <= entry.last_offset + 1
            )
            if not is_valid:
                return None
            index.append(entry)
        if any(a.last_offset >= b.last_offset for a, b in pairwise(index.entries())):
            return None
        return index


def overlapping(indexes: Iterable[TransactionIndex], from_offset: int, end_offset: int) -> list[AbortedEntry]:
    """Return the entries that overlap ``[from_offset, end_offset)``, by first offset.

    The first of ``indexes`` is that of the segment with ``from_offset``; the others follow it.
    """
    found: list[AbortedEntry] = []
    for index in indexes:
        if index.collect(from_offset, end_offset, found):
            break
    return sorted(found, key=lambda entry: entry.first_offset)
