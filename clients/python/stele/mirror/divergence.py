"""Whether a copy has the records of its source, and up to where, by the batches of both. No I/O.

Leader epochs tell most of it, but a source that was set back may have given the same epochs again, to other records. A
batch has a checksum of all that its producer sent, so equal checksums are equal batches. Compaction on either side may
have taken records out of one: then the two say nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..wire import record_batch as rb

# Set by compaction, which then has changed a time of the batch.
_DELETE_HORIZON = 0x40


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of batches in order: ``same_until`` is the end of the last one before the first difference that both have, -1 without.

    ``differs_at`` is the first offset of a batch that differs, -1 if none does.
    """

    same_until: int
    differs_at: int


def compare(ours: rb.Buffer, theirs: rb.Buffer) -> Comparison:
    """Compare batches, of which the last may be cut short.

    Raises ``CorruptBatchError``: those of one side are none.
    """
    theirs_by_base = {header.base_offset: header for header in _headers(theirs)}
    originals = [header for header in theirs_by_base.values() if _is_original(header)]
    same_until = -1
    for header in _headers(ours):
        other = theirs_by_base.get(header.base_offset)
        if other is not None and _content(other) == _content(header):
            same_until = header.next_offset
        elif _is_original(header) and any(
            one.base_offset < header.next_offset and header.base_offset < one.next_offset for one in originals
        ):
            return Comparison(same_until=same_until, differs_at=header.base_offset)
    return Comparison(same_until=same_until, differs_at=-1)


def _headers(records: rb.Buffer) -> list[rb.BatchHeader]:
    # A header that is whole is enough.
    headers: list[rb.BatchHeader] = []
    at = 0
    while len(records) - at >= rb.HEADER_BYTES:
        headers.append(rb.read_header(records, at))
        at += headers[-1].size
    return headers


def _is_original(header: rb.BatchHeader) -> bool:
    """Return whether compaction has left a batch as it was."""
    return header.record_count == header.last_offset_delta + 1 and not header.attributes & _DELETE_HORIZON


def _content(header: rb.BatchHeader) -> tuple[int, int, int]:
    return header.crc, header.last_offset_delta, header.size


async def common_end(
    start: int, end: int, read: Callable[[int], Awaitable[tuple[rb.Buffer, rb.Buffer]]]
) -> int | None:
    """Return the offset up to which copy and source are the same, None if they have nothing in common.

    ``read`` returns batches of both, from that with an offset on. They have some between ``start`` and ``end``, and from the first difference on all differs, as after a loss of the
    end. Where compaction hides whether they differ, they count as different: what is cut off is copied again.
    """
    found: int | None = None
    while start < end:
        middle = (start + end) // 2
        ours, theirs = await read(middle)
        same_until = compare(ours, theirs).same_until
        if same_until > middle:
            found = start = min(same_until, end)
        else:
            end = middle
    return found
