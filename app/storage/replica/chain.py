"""The chain of cuts in a bucket.

::

    c/000000000041   base of generation 3
    c/000000000042   what has changed since
    c/000000000043   generation 4 begins; it says nothing else
    c/000000000044   base of generation 4

A cut takes its place with a PUT that only creates. So there is one chain, whoever writes: a broker whose place is taken
by another one has been overtaken, and writes nothing more. A start takes the next generation before it uploads anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...concurrency import several
from ..shared.store.object_store import LIST_MAX, ByteRange, ConditionalStore, ObjectNotFound, StoredObject
from .cut import CorruptCut, Cut, CutHeader, decode_cut
from .state import ReplicaState

_PREFIX = "c/"
# An object by which conditional writes are tried.
_CHECKED_KEY, _CHECKED = "check/conditional-writes", b"1"


class Overtaken(Exception):
    """Another broker has written the next cut."""


class NoCut(Exception):
    """The chain has no cut, or none that is old enough."""


class NotConditional(Exception):
    """The store has no conditional writes."""


def cut_key(sequence: int) -> str:
    return f"{_PREFIX}{sequence:012d}"


def _sequence_of(stored: StoredObject) -> int:
    digits = stored.key.removeprefix(_PREFIX)
    if len(digits) != 12 or not digits.isascii() or not digits.isdigit():
        raise CorruptCut(f"{stored.key!r} is no cut: another program has written below this URL")
    return int(digits)


class CutChain:
    """Reads and extends the chain in ``store``. Methods raise ``ObjectStoreError``, ``CorruptCut``."""

    def __init__(self, store: ConditionalStore) -> None:
        self._store = store

    async def check_conditional_writes(self) -> None:
        """Try what ``append`` relies on, with an object that stays; it may be repeated.

        Raises:
            NotConditional: it does not work.
        """
        # All brokers write the same bytes, so none is in the way of another, and none needs to remove it.
        await self._store.create(_CHECKED_KEY, _CHECKED)
        if await self._store.create(_CHECKED_KEY, _CHECKED):
            raise NotConditional(
                "the store of replicate_to replaces an object that a PUT with If-None-Match: * may only create, so that "
                "two brokers could write the same replica; use a store that has conditional writes"
            )

    async def sequences(self, *, after: int = -1) -> list[int]:
        """Return the sequences of all cuts, or of those after one, ascending."""
        found: list[int] = []
        last = cut_key(after) if after >= 0 else ""
        while page := await self._store.list_page(_PREFIX, after=last):
            found += map(_sequence_of, page)
            last = page[-1].key
            if len(page) < LIST_MAX:
                break
        return found

    async def read(self, sequence: int) -> Cut:
        """Return one cut. Raises ``ObjectNotFound``."""
        data = await self._store.get(cut_key(sequence))
        try:
            cut = await asyncio.to_thread(decode_cut, data)
        except CorruptCut as error:
            raise CorruptCut(f"{cut_key(sequence)}: {error}") from error
        if cut.header.sequence != sequence:
            raise CorruptCut(f"cut {sequence} says that it is cut {cut.header.sequence}")
        return cut

    async def newest(self) -> CutHeader | None:
        """Return the header of the cut that a broker goes on from; None if there is no cut."""
        while sequences := await self.sequences():
            try:
                return (await self.read(sequences[-1])).header
            except ObjectNotFound:
                # A broker that still writes has followed it, and keeps cuts for no longer than this took.
                continue
            except CorruptCut as error:
                raise CorruptCut(
                    f"{error}. Earlier moments can be restored: stele restore URL --list; to replicate from now on, name "
                    "another prefix"
                ) from error
        return None

    async def state_at(self, sequence: int) -> ReplicaState:
        """Return what a cut adds up to. Raises ``ObjectNotFound``."""
        last = await self.read(sequence)
        state, base = ReplicaState(), last.header.base
        # The first that is missing ends this, so a base that the chain cannot have costs nothing.
        for cut in await several(self.read, range(base, sequence)):
            await _apply(state, cut)
        await _apply(state, last)
        return state

    async def append(self, sequence: int, data: bytes, *, base: int | None = None) -> None:
        """Write the next cut; it may be repeated with the same bytes.

        ``base`` is the newest base before it. If it is gone, so may be a cut that took this place: another broker has
        deleted both, because its own cuts are past their retention.

        Raises:
            Overtaken: another broker has written it.
        """
        await self._create(sequence, data)
        if base is not None:
            try:
                await self._store.get_ranges(cut_key(base), [ByteRange(0, 1)])
            except ObjectNotFound:
                raise Overtaken(
                    f"cut {base}, on which cut {sequence} builds, is gone: another broker has deleted it, or a rule of the "
                    "bucket"
                ) from None

    async def _create(self, sequence: int, data: bytes) -> None:
        if await self._store.create(cut_key(sequence), data):
            return
        try:
            written = await self._store.get(cut_key(sequence))
        except ObjectNotFound:
            # It was deleted meanwhile, so others are far ahead.
            written = b""
        if written != data:
            raise Overtaken(f"another broker has written cut {sequence}")

    async def delete(self, sequences: Sequence[int]) -> None:
        await self._store.delete([cut_key(sequence) for sequence in sequences])


async def _apply(state: ReplicaState, cut: Cut) -> None:
    for number, _ in enumerate(state.apply_in_steps(cut), 1):
        if number % 50 == 0:
            await asyncio.sleep(0)
