"""Read one page of a partition's records, batch by batch.

The offset stands in a header of the answer, so it must be known before the records are encoded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from stele.wire import record_batch as rb
from stele.wire.record_batch import RecordView

from ..broker.broker import Broker
from ..broker.fetch import Fetched, PartitionFetch, end_of, records_from, records_in_turns
from ..broker.record_counts import count_records
from ..broker.visible_batches import hidden_by, without_records
from ..work_budget import pause

# Bytes of one read of a page: copying and checking them takes about 50 µs.
_PIECE_BYTES = 128 * 1024


@dataclass(slots=True)
class RecordPage:
    """The result of one read: the visible records of ``[offset, next_offset)``.

    All its batches passed their CRC. They may be hidden (``visible_batches``).
    """

    partition: int
    offset: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    pieces: list[Fetched]

    async def slices(self) -> AsyncGenerator[list[RecordView]]:
        """Yield the records of the page, one turn of the event loop at a time.

        Raises ``CorruptLog``.
        """
        offset = self.offset
        for piece in self.pieces:
            async with aclosing(records_in_turns(piece, offset)) as slices:
                async for records in slices:
                    if records[-1].offset >= self.next_offset:
                        yield [record for record in records if record.offset < self.next_offset]
                        return
                    yield records
            # Its last batches may be hidden.
            offset = end_of(piece, offset)


async def read_page(
    broker: Broker, request: PartitionFetch, *, limit: int, min_bytes: int, wait_ms: int, is_whole: bool
) -> RecordPage:
    """Read a page in pieces, so that no large read holds the loop.

    The page has at most ``limit`` records (with ``is_whole``: and the rest of its last batch)
    and the bytes of ``request``. Only the first piece waits. The page ends before a corrupt batch.

    Raises:
        CorruptLog: the first batch is corrupt.
        SteleError: the fetch of the first piece failed.
    """
    page = RecordPage(request.partition, request.offset, request.offset, -1, -1, -1, [])
    left = min(request.max_bytes, broker.settings.fetch_bytes_max)
    wanted = limit
    while True:
        piece = replace(
            request,
            offset=page.next_offset,
            max_bytes=min(left, _PIECE_BYTES),
            # Some of them may be hidden. Then the next pieces are larger, or each would read one batch.
            until_offset=page.next_offset + (wanted << 2 * len(page.pieces)),
        )
        is_first = not page.pieces
        (fetched,) = await broker.fetch(
            [piece],
            max_bytes=left,
            min_bytes=min_bytes if is_first else 1,
            max_wait_ms=wait_ms if is_first else 0,
        )
        if fetched.error is not None and is_first:
            raise fetched.error
        if is_first:
            page.high_watermark, page.log_start_offset = fetched.high_watermark, fetched.log_start_offset
            page.last_stable_offset = fetched.last_stable_offset
        good = (
            None if fetched.error is not None else await _take(page, fetched, left, wanted, is_whole=is_whole)
        )
        if good is None:
            break
        piece_of_page, count = good
        page.pieces.append(piece_of_page)
        left -= len(piece_of_page.batches)
        wanted -= count
        if left <= 0 or len(piece_of_page.batches) < len(fetched.batches) or wanted <= 0:
            break
        await pause()
    return page


async def _take(
    page: RecordPage, fetched: Fetched, max_bytes: int, wanted: int, *, is_whole: bool
) -> tuple[Fetched, int] | None:
    """Return the batches with the next ``wanted`` records, and their number.

    Sets ``next_offset`` after the last of these records, with ``is_whole`` after its batch.
    The batches end before a corrupt one. Only the first batch of a page may be larger than
    ``max_bytes``. None if no batch fits or is valid.

    Raises:
        CorruptLog: the first batch of the page is corrupt.
    """
    position, count, batches = 0, 0, fetched.batches
    is_hidden = hidden_by(fetched)
    while position < len(batches) and count < wanted:
        try:
            header = rb.check_batch(batches, position)
        except rb.CorruptBatchError:
            if not position and not page.pieces:
                # Raises the error that has the corrupt range and the offset after it.
                next(records_from(fetched, page.offset))
            break
        if position + header.size > max_bytes and (position or page.pieces):
            break
        position += header.size
        if is_hidden(header):
            header = without_records(header)
        have, end = await count_records(fetched, header, page.next_offset, wanted - count)
        count += have
        page.next_offset = header.next_offset if is_whole else end
    if not position:
        return None
    return (fetched if position == len(batches) else replace(fetched, batches=batches[:position])), count
