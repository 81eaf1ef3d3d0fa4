"""Count the records of a batch at or after an offset, and find the next offset.

The header of a batch without holes tells both. If compaction has removed records from the batch, the header
tells only their number, and the batch is decoded unless it is wanted as a whole.
"""

from __future__ import annotations

from contextlib import aclosing

from stele.wire import record_batch as rb

from ...errors import CorruptLog
from ...work_budget import WorkBudget
from .decoded_bytes import UNCOUNTED_BYTES, DecodedReader
from .fetch import Fetched, batch_in_turns


async def count_records(
    fetched: Fetched, header: rb.BatchHeader, offset: int, wanted: int, reader: DecodedReader
) -> tuple[int, int]:
    """Count the records of a batch at or after ``offset``, up to ``wanted``.

    ``wanted`` is at least 1.

    Returns the number, and the offset to continue from after them: that after the batch
    unless it has more. If records of the batch do not parse, those before the first of them count; the reader
    that decodes the batch reports the error.
    """
    if header.record_count == header.last_offset_delta + 1:
        first_offset = max(offset, header.base_offset)
        count = min(header.next_offset - first_offset, wanted)
        return count, first_offset + count
    if header.record_count <= wanted and offset <= header.base_offset:
        return header.record_count, header.next_offset
    count = 0
    try:
        async with aclosing(batch_in_turns(fetched, header, offset, WorkBudget(), reader)) as slices:
            async for records in slices:
                if count + len(records) >= wanted:
                    return wanted, records[wanted - count - 1].offset + 1
                count += len(records)
    except CorruptLog:
        pass
    return count, header.next_offset


class DecodedLimit:
    """Counts the bytes of batches as a client gets them, decompressed, up to a limit.

    The framing of a batch tells their number almost exactly. Where it may be less, only a batch that would not fit
    is unpacked to be sure, together with those before it.
    """

    def __init__(self, bytes_max: int) -> None:
        self.left = bytes_max
        self._is_empty = True
        self._turn = WorkBudget()
        self._guessed: list[tuple[Fetched, rb.BatchHeader, int]] = []

    def trial(self) -> DecodedLimit:
        """Return a limit with what is left of this one, to be tried."""
        trial = DecodedLimit(self.left)
        trial._is_empty = self._is_empty
        return trial

    def settle(self, trial: DecodedLimit) -> None:
        """Count what ``trial`` has counted."""
        self.left, self._is_empty = trial.left, trial._is_empty

    async def fitting(self, fetched: Fetched, header: rb.BatchHeader) -> int:
        """Return how many records of the next batch fit, at least one of the first batch.

        If not all do, the records of the batch are taken for equally large.
        """
        count = header.record_count
        if not count:
            return 0
        size = rb.plain_size_max(fetched.batches, header)
        if header.compression and size > self.left:
            for earlier, of, guess in self._guessed:
                self.left += guess - _exact_size(earlier, of, guess)
                await self._turn.spend(guess)
            self._guessed.clear()
            size = _exact_size(fetched, header, size)
        elif header.compression:
            self._guessed.append((fetched, header, size))
        if size > self.left:
            count = max(1, count * max(0, self.left) // size) if self._is_empty else 0
        self._is_empty = False
        self.left -= size
        return count


def _exact_size(fetched: Fetched, header: rb.BatchHeader, size_max: int) -> int:
    """Return the size of a batch decompressed, or ``size_max`` if that is near enough."""
    if size_max > UNCOUNTED_BYTES:
        return size_max
    try:
        return len(rb.plain_batch(fetched.batches, header))
    except rb.CorruptBatchError:
        # The reader that decodes it reports the error.
        return size_max
