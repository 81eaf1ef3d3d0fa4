"""Find the newest time of the records of a log that are not deleted."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire import record_batch as rb

from .age import newest_in_batch
from .reader import Extent, confirm_newest, headers
from .segment import Segment


def newest_time(segments: Sequence[Segment], *, from_offset: int) -> int:
    """Return the newest timestamp at or after ``from_offset``; for threads.

    It is -1 if there is none. The indexes have that of a whole segment. In the one where records were deleted before
    ``from_offset``, the headers tell, and in the batch where they were, the records.

    Raises ``CorruptLog``.
    """
    newest_ms = rb.NO_TIMESTAMP
    for segment in reversed(segments):
        if segment.next_offset <= from_offset:
            break
        confirm_newest(segment)
        if segment.max_timestamp <= newest_ms:
            continue
        if segment.base_offset >= from_offset:
            newest_ms = segment.max_timestamp
            continue
        for header in headers(segment, from_offset=from_offset):
            if header.last_offset < from_offset or header.max_timestamp <= newest_ms:
                continue
            if header.base_offset >= from_offset:
                newest_ms = header.max_timestamp
            else:
                raw = Extent(segment=segment, position=header.position, size=header.size).read()
                newest_ms = max(newest_ms, newest_in_batch(raw, from_offset=from_offset))
    return newest_ms
