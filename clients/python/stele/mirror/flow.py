"""How much a mirror has under way, and how fast it reads."""

from __future__ import annotations

import asyncio

from .positions import PIECE_BYTES_USUAL

# Fetched and not yet stored, in all; each broker of the source may add one fetch.
BYTES_MAX = 64 << 20
_FETCHES_PER_S = 20


class Flow:
    """Shared by all that copies: a bound on memory, and the rate of the definition."""

    def __init__(self, rate: int | None, piece_bytes: int = PIECE_BYTES_USUAL) -> None:
        """``piece_bytes``: of an append, unless a batch has more."""
        self._rate = rate
        self.piece_bytes: int = piece_bytes
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._free_at_s = 0.0
        # Copied since the start, for the status.
        self.stored_bytes: int = 0

    @property
    def fetch_bytes_max(self) -> int:
        """The largest fetch; with a rate, a small part of a second's worth: what follows a pause comes at once."""
        return BYTES_MAX if self._rate is None else max(self._rate // _FETCHES_PER_S, 64 << 10)

    async def room(self) -> None:
        """Wait until there is room for another fetch, and the rate allows it."""
        await self._has_room.wait()
        if self._rate is not None:
            # Others may spend meanwhile; then the rate is kept on average.
            await asyncio.sleep(max(0.0, self._free_at_s - asyncio.get_running_loop().time()))

    def take(self, size: int) -> None:
        """Note fetched bytes."""
        self._bytes += size
        if self._bytes >= BYTES_MAX:
            self._has_room.clear()
        if self._rate is not None:
            now_s = asyncio.get_running_loop().time()
            self._free_at_s = max(self._free_at_s, now_s) + size / self._rate

    def give(self, size: int) -> None:
        """Note that fetched bytes are stored or dropped."""
        self._bytes -= size
        if self._bytes < BYTES_MAX:
            self._has_room.set()
