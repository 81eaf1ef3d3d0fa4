"""Read one page of a partition's records, batch by batch.

The offset stands in a header of the answer, so it must be known before the records are encoded.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from stele.wire import record_batch as rb
from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.reading.decoded_bytes import DecodedReader
from ...broker.reading.fetch import (
    Fetched,
    PartitionFetch,
    batch_in_turns,
    batches_from,
    records_from,
)
from ...broker.reading.record_counts import DecodedLimit, count_records
from ...broker.reading.visible_batches import hidden_by
from ...work_budget import WorkBudget, pause

# Bytes of one read of a page: copying and checking them takes about 50 µs.
_PIECE_BYTES = 128 * 1024
# What all pages hold beyond their first pieces: 16 of the largest by default (STELE_FETCH_BYTES_MAX).
PAGES_BYTES_MAX = 128 * 1024 * 1024


class PageRoom:
    """The bytes that pages hold beyond their first pieces, as they are stored.

    A page is read before it is sent, and its client may read slowly or not at all. Without room it ends early.
    """

    def __init__(self, bytes_max: int = PAGES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.in_use = 0

    @property
    def is_full(self) -> bool:
        return self.in_use >= self._bytes_max

    def give_back(self, size: int) -> None:
        self.in_use -= size


@dataclass(slots=True, weakref_slot=True)
class RecordPage:
    """The result of one read: the visible records of ``[offset, next_offset)``.

    All batches of its pieces passed their CRC. They may be hidden (``visible_batches``). Each piece stands with the
    offset at which it was read; unless the page is read as a whole, those without records are left out.
    """

    partition: int
    offset: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    pieces: list[tuple[int, Fetched]]

    async def slices(self, reader: DecodedReader) -> AsyncGenerator[list[RecordView]]:
        """Yield the records of the page, one turn of the event loop at a time.

        No list is empty.

        Raises ``CorruptLog``, ``ReadMemoryFull``.
        """
        async with aclosing(self.parts(reader)) as parts:
            async for _, records in parts:
                yield records

    async def parts(self, reader: DecodedReader) -> AsyncGenerator[tuple[rb.BatchHeader, list[RecordView]]]:
        """Yield what ``slices`` does, each with the header of its batch."""
        turn = WorkBudget()
        for offset, piece in self.pieces:
            for header in batches_from(piece, offset, is_checked=True):
                async with aclosing(batch_in_turns(piece, header, offset, turn, reader)) as slices:
                    async for records in slices:
                        if records[-1].offset < self.next_offset:
                            yield header, records
                            continue
                        wanted = [record for record in records if record.offset < self.next_offset]
                        if wanted:
                            yield header, wanted
                        return


async def read_page(
    broker: Broker,
    request: PartitionFetch,
    *,
    limit: int,
    min_bytes: int,
    wait_ms: int,
    is_whole: bool,
    reader: DecodedReader,
    room: PageRoom | None = None,
) -> RecordPage:
    """Read a page in pieces, so that no large read holds the loop.

    The page has at most ``limit`` records and the bytes of ``request``: with ``is_whole`` of batches as they are
    stored, and the rest of its last batch, otherwise of batches decompressed. Only the first piece waits. The page
    ends before a corrupt batch, and after any piece if other pages leave no ``room``.

    Raises:
        CorruptLog: the first batch is corrupt.
        SteleError: the fetch of the first piece failed.
    """
    page = RecordPage(request.partition, request.offset, request.offset, -1, -1, -1, [])
    left = min(request.max_bytes, broker.settings.fetch_bytes_max)
    decoded = None if is_whole else DecodedLimit(left)
    wanted, turn = limit, WorkBudget()
    held: list[int] = []
    for number in itertools.count():
        offset = page.next_offset
        piece = replace(
            request,
            offset=offset,
            max_bytes=min(left, _PIECE_BYTES),
            # Some of them may be hidden. Then the next pieces are larger, or each would read one batch.
            until_offset=offset + (wanted << min(2 * number, 60)),
        )
        is_first = not number
        (fetched,) = await broker.fetch(
            [piece],
            max_bytes=left,
            min_bytes=min_bytes if is_first else 1,
            max_wait_ms=wait_ms if is_first else 0,
        )
        if fetched.error is not None and is_first:
            raise fetched.error
        if fetched.error is not None:
            break
        # Of each piece: the log grows meanwhile, and a page must not go on after the end that it tells.
        page.high_watermark, page.log_start_offset = fetched.high_watermark, fetched.log_start_offset
        page.last_stable_offset = fetched.last_stable_offset
        good = await _take(page, fetched, left, wanted, decoded, reader, turn, is_first=is_first)
        if good is None:
            break
        piece_of_page, count = good
        if count or is_whole:
            page.pieces.append((offset, piece_of_page))
            if room is not None and not is_first:
                if not held:
                    # For as long as its answer lives, which may end at any time.
                    weakref.finalize(page, lambda: room.give_back(sum(held))).atexit = False
                held.append(len(piece_of_page.batches))
                room.in_use += held[-1]
        left -= len(piece_of_page.batches)
        wanted -= count
        is_full = left <= 0 if decoded is None else decoded.left <= 0
        if is_full or len(piece_of_page.batches) < len(fetched.batches) or wanted <= 0:
            break
        if room is not None and room.is_full:
            break
        # Also at the end that this broker knows: with shared storage, only a read from there asks for a later one.
        await pause()
    return page


async def _take(
    page: RecordPage,
    fetched: Fetched,
    max_bytes: int,
    wanted: int,
    decoded: DecodedLimit | None,
    reader: DecodedReader,
    turn: WorkBudget,
    *,
    is_first: bool,
) -> tuple[Fetched, int] | None:
    """Return the batches with the next ``wanted`` records, and their number.

    Sets ``next_offset`` after the last of these records; without ``decoded``, after its batch.
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
            if not position and is_first:
                # Raises the error that has the corrupt range and the offset after it.
                next(records_from(fetched, page.offset))
            break
        if position + header.size > max_bytes and (position or not is_first):
            break
        await turn.visit()
        if is_hidden(header):
            position += header.size
            page.next_offset = header.next_offset
            continue
        if decoded is not None and header.record_count:
            fits = await decoded.fitting(fetched, header)
            if not fits:
                break
            if fits < header.record_count:
                # Nothing after it fits.
                wanted = min(wanted, count + fits)
        position += header.size
        have, end = await count_records(fetched, header, page.next_offset, wanted - count, reader)
        count += have
        page.next_offset = header.next_offset if decoded is None else end
    if not position:
        return None
    return (fetched if position == len(batches) else replace(fetched, batches=batches[:position])), count
