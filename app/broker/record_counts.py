"""Count the records of a batch at or after an offset, and find the next offset.

The header of a batch without holes tells both. If compaction has removed records from the batch, the header
tells only their number, and the batch is decoded unless it is wanted as a whole.
"""

from __future__ import annotations

from contextlib import aclosing

from stele.wire import record_batch as rb

from ..errors import CorruptLog
from ..work_budget import WorkBudget
from .fetch import Fetched, batch_in_turns


async def count_records(
    fetched: Fetched, header: rb.BatchHeader, offset: int, wanted: int
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
        async with aclosing(batch_in_turns(fetched, header, offset, WorkBudget())) as slices:
            async for records in slices:
                if count + len(records) >= wanted:
                    return wanted, records[wanted - count - 1].offset + 1
                count += len(records)
    except CorruptLog:
        pass
    return count, header.next_offset
