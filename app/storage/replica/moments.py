"""The moments that a chain of cuts can restore.

A damaged cut hides only itself and those that build on it, so the search goes around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ..shared.store.object_store import ObjectNotFound
from .chain import CutChain, NoCut, cut_key
from .cut import CorruptCut, CutHeader


class Generation(NamedTuple):
    """The cuts of one start of a broker that a restore can go back to; moments in ms since the Unix epoch."""

    number: int
    first_ms: int
    last_ms: int
    cuts: int


class Moments:
    """The cuts of one chain as of now, in order. Methods raise ``ObjectStoreError``."""

    def __init__(self, chain: CutChain, sequences: Sequence[int]) -> None:
        self._chain = chain
        self._sequences = sequences
        self._headers: dict[int, CutHeader] = {}

    @classmethod
    async def of(cls, chain: CutChain) -> Moments:
        """Look at a bucket.

        Raises:
            NoCut: it has none.
            CorruptCut: it has something else.
        """
        sequences = await chain.sequences()
        if not sequences:
            raise NoCut(
                "there is no replica below this URL: no cut has been written yet, or the URL is wrong"
            )
        return cls(chain, sequences)

    async def newest(self) -> CutHeader:
        """Return the header of the newest cut that can be read.

        Raises:
            CorruptCut: none can be read.
        """
        _, header = await self._readable_before(len(self._sequences))
        if header is None:
            raise CorruptCut(f"all cuts from {cut_key(self._sequences[0])} on are damaged")
        return header

    async def oldest_readable(self) -> CutHeader | None:
        """Return the header of the oldest cut that can be read."""
        _, header = await self._readable_after(0, len(self._sequences))
        return header

    async def newest_readable_at(self, time_ms: int) -> CutHeader | None:
        """Return the header of the newest cut that can be read and is not after ``time_ms``; None without one."""
        place = await self._first_place(lambda header: header.time_ms > time_ms)
        _, header = await self._readable_before(place)
        return header

    async def newest_at(self, time_ms: int | None) -> int:
        """Return the newest cut whose moment is not after ``time_ms``; None stands for the end of time.

        Raises:
            NoCut: all are later.
            CorruptCut: it may be one that cannot be read.
        """
        newest = await self.newest()
        if time_ms is None:
            return await self._known_before(len(self._sequences), None)
        if time_ms < newest.oldest_ms:
            raise NoCut(_too_early(time_ms, newest.oldest_ms))
        place = await self._first_place(lambda header: header.time_ms > time_ms)
        if not place:
            first = await self.header(self._sequences[0])
            raise NoCut(_too_early(time_ms, first.time_ms))
        return await self._known_before(place, time_ms)

    async def _known_before(self, place: int, time_ms: int | None) -> int:
        """Return the last cut before ``place``; the one that can be read, if its moment is ``time_ms``."""
        last = self._sequences[place - 1]
        try:
            await self.header(last)
        except (CorruptCut, ObjectNotFound) as error:
            _, before = await self._readable_before(place)
            if before is None:
                raise CorruptCut(str(error)) from error
            if before.time_ms == time_ms:
                return before.sequence
            raise CorruptCut(
                f"{error}; the newest cut before it is of {shown_time(before.time_ms)}, {before.time_ms} in ms"
            ) from error
        return last

    async def generations(self) -> list[Generation]:
        """Return the generations that a restore can go back to, the newest first."""
        newest = await self.newest()
        found: list[Generation] = []
        end, last = len(self._sequences), newest
        while end:
            start = await self._first_place(
                lambda header, number=last.generation: header.generation >= number
            )
            _, first = await self._readable_after(start, end)
            if first is None or last.time_ms < newest.oldest_ms:
                break
            kept = start
            if first.time_ms < newest.oldest_ms:
                kept = await self._first_place(lambda header: header.time_ms >= newest.oldest_ms)
                _, first = await self._readable_after(kept, end)
            if first is not None and kept < end:
                found.append(Generation(last.generation, first.time_ms, last.time_ms, end - kept))
            end, before = await self._readable_before(start)
            if before is None:
                break
            end, last = end + 1, before
        return found

    async def header(self, sequence: int) -> CutHeader:
        """Return the header of a cut. Raises ``CorruptCut``, ``ObjectNotFound``."""
        if sequence not in self._headers:
            self._headers[sequence] = (await self._chain.read(sequence)).header
        return self._headers[sequence]

    async def _first_place(self, is_there: Callable[[CutHeader], bool]) -> int:
        """Return the first place whose header is as asked for; the headers of all later places are, too."""
        low, high = 0, len(self._sequences)
        while low < high:
            middle = (low + high) // 2
            place, header = await self._readable_before(middle + 1, low)
            if header is None:
                # From ``low`` to there none can be read.
                low = middle + 1
            elif is_there(header):
                high = place
            else:
                low = middle + 1
        return low

    async def _readable_before(self, end: int, start: int = 0) -> tuple[int, CutHeader | None]:
        for place in range(end - 1, start - 1, -1):
            if (header := await self._readable(place)) is not None:
                return place, header
        return start, None

    async def _readable_after(self, start: int, end: int) -> tuple[int, CutHeader | None]:
        for place in range(start, end):
            if (header := await self._readable(place)) is not None:
                return place, header
        return end, None

    async def _readable(self, place: int) -> CutHeader | None:
        try:
            return await self.header(self._sequences[place])
        except (CorruptCut, ObjectNotFound):
            return None


def shown_time(time_ms: int) -> str:
    """Format ms since the Unix epoch as RFC 3339 in UTC; as a number if it is outside the calendar."""
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"


def _too_early(time_ms: int, first_ms: int) -> str:
    return (
        f"the replica does not go back to {shown_time(time_ms)}: the first moment that can be restored is "
        f"{shown_time(first_ms)}"
    )
