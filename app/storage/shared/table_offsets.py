"""The newest offsets of all keys of a log in shared storage; for threads."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from ...errors import CorruptLog
from ..cleaning.transactions import AbortedBatches
from ..disk.pace import Pace
from ..keys.growing_keys import GrowingKeys
from ..keys.key_index import ENTRY_BYTES, HASH_BYTES, KeyHasher
from .meta import RunRead
from .runs.builder import keyed_offsets, whole_run


@dataclass(slots=True, kw_only=True)
class TableOffsets:
    """The offsets of a table from ``start`` to before ``end``.

    ``aborted`` tells whose records do not count. A share is a part of all keys, as ``(number, of how many)``.
    """

    hasher: KeyHasher
    runs: list[RunRead]
    start: int
    end: int
    aborted: AbortedBatches
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    corrupt_ranges: list[CorruptLog] = field(default_factory=list[CorruptLog])

    def clear(self) -> None:
        self.offsets = array("Q")
        self.corrupt_ranges.clear()

    def put_entries(self, keys: GrowingKeys, block: bytes, share: tuple[int, int], pace: Pace) -> bool:
        for at in range(0, len(block), ENTRY_BYTES):
            if not at % (256 * ENTRY_BYTES):
                pace(0)
            hashed = block[at : at + HASH_BYTES]
            offset = int.from_bytes(block[at + HASH_BYTES : at + ENTRY_BYTES])
            if _is_in(hashed, share) and not keys.put(hashed, offset, pace):
                return False
        return True

    def put_records(
        self, keys: GrowingKeys, run: RunRead, data: bytearray, share: tuple[int, int], pace: Pace
    ) -> bool:
        for batch, header in whole_run(run, data):
            if header.base_offset >= self.end:
                break
            for offset, key in keyed_offsets(batch, header, pace, self.aborted):
                hashed = self.hasher.hash_of(key)
                if offset < self.end and _is_in(hashed, share) and not keys.put(hashed, offset, pace):
                    return False
        return True

    def take(self, keys: GrowingKeys, pace: Pace) -> None:
        for number, offset in enumerate(keys.offsets()):
            if number % 256 == 0:
                pace(0)
            if offset >= self.start:
                self.offsets.append(offset)


def _is_in(hashed: bytes, share: tuple[int, int]) -> bool:
    number, shares = share
    return shares == 1 or int.from_bytes(hashed[:2]) * shares >> 16 == number
