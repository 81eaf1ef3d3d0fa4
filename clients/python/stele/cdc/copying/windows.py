"""Where a chunk of a copy meets the stream. No I/O.

A chunk is read in a snapshot of its own while changes stream, and a message is written to the WAL after it. When the
message arrives, the stream has passed every transaction that the snapshot saw, because those had committed before the
message was written. What it passed in addition has changed rows after the snapshot: those rows are left out of the chunk,
since the topic has something newer. So the rest of the chunk, put where the message is, is what the table had there.

The snapshot is compared by transaction ids. By positions in the WAL it cannot be: a transaction is visible some time after
its commit is in the WAL, with synchronous replication much later (ADR-0016). The method is that of DBLog (Andreakis and
Papapanagiotou, 2020), with ids instead of two watermarks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, Self

from ..records.events import Event

_XIDS = 1 << 32
# Of transactions that the stream has passed; one that is still invisible after that many more is waited for.
PASSED_MAX = 100_000


class Snapshot(NamedTuple):
    """What a transaction sees: ids below ``first``, and those below ``next`` that are not ``running``.

    Ids have 64 bits; those of the stream have the lower 32.
    """

    first: int
    next: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of ``pg_current_snapshot()``, ``10:20:10,14``. Raises ValueError."""
        first, after, running = text.split(":")
        return cls(int(first), int(after), frozenset(int(xid) for xid in running.split(",") if xid))

    def sees(self, xid: int) -> bool:
        """Return whether the transaction with this id of the stream had committed."""
        # The one of its ids with 64 bits that is next to the snapshot.
        whole = self.next + ((xid - self.next + _XIDS // 2) % _XIDS - _XIDS // 2)
        return whole < self.first or (whole < self.next and whole not in self.running)


class Passed:
    """The transactions that the stream has passed, of those that may be invisible in the next snapshot."""

    def __init__(self, next_xid: int) -> None:
        """``next_xid``: all transactions that the stream has passed already have smaller ids, of 64 bits."""
        self._floor = next_xid
        self._xids: OrderedDict[int, None] = OrderedDict()

    def add(self, xid: int) -> None:
        self._xids[xid] = None
        if len(self._xids) > PASSED_MAX:
            self._xids.popitem(last=False)
            # Which of those that run was passed is not known any longer.
            self._floor = -1

    def awaited(self, snapshot: Snapshot) -> int | None:
        """Return a transaction that must be visible before a chunk is read; None if there is none.

        The stream may have passed it: then its changes are in the topic already, and not in the snapshot.
        """
        if self._floor < 0:
            self._floor = snapshot.next
        for xid in snapshot.running:
            if xid < self._floor or xid % _XIDS in self._xids:
                return xid
        return None


class Window:
    """The rows of a chunk until the stream has reached them, in the order of their keys."""

    def __init__(self, token: bytes, snapshot: Snapshot, rows: Iterable[Event]) -> None:
        self.token = token
        self.snapshot = snapshot
        self._rows = {row.key: row for row in rows}

    def passed(self, keys: Iterable[bytes | None]) -> None:
        """Leave out the rows that a transaction changed which the snapshot does not see; None stands for all."""
        for key in keys:
            if key is None:
                self._rows.clear()
            else:
                self._rows.pop(key, None)

    def rows(self) -> list[Event]:
        """Return what is left."""
        return list(self._rows.values())
