"""Decode the records of one answer, and bound what they become.

The bytes of a page are those of its records as they are shown, so one whose values are decoded may end earlier than what
was read for it. Its offset to continue from stands in a header, so its values are decoded before the answer begins.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.reading.decoded_bytes import DecodedReader
from ...broker.reading.fetch import size_of
from ...errors import CorruptLog, ReadMemoryFull
from ...registry.values import Decoded, DecodedRecord, SchemaValues, TopicValues
from .form import RecordForm
from .page import PageRoom, RecordPage

# Of JSON that values become in an answer which cannot end early; the rest is shown as it is stored. What people write
# becomes a few times its bytes.
DECODED_BYTES_MAX = 64 * 1024 * 1024

# Records, and what is decoded of them.
Slices = AsyncGenerator[tuple[list[RecordView], Decoded]]


class AnswerDecoding:
    """Decodes the records of an answer with records of several topics; without ``schemas`` it decodes nothing."""

    def __init__(self, broker: Broker, schemas: SchemaValues | None) -> None:
        self._broker = broker
        self._schemas = schemas
        self._topics: dict[str, TopicValues] = {}
        self._left = DECODED_BYTES_MAX

    async def decoded(self, topic: str, records: Sequence[RecordView]) -> Decoded:
        """Return what is decoded of records of a topic."""
        if self._schemas is None or self._left <= 0:
            return ()
        values = self._topics.get(topic)
        if values is None:
            known = self._broker.topic_by_name(topic)
            if known is None:
                return ()
            values = self._topics[topic] = self._schemas.of(known)
        decoded = await values.decoded(records)
        self._left -= sum(record.size for record in decoded if record is not None)
        return decoded


async def decoded_slices(
    page: RecordPage,
    form: RecordForm,
    reader: DecodedReader,
    *,
    bytes_max: int,
    room: PageRoom,
    ended: Callable[[int], None],
) -> Slices:
    """Yield what ``page.slices`` does, and what is decoded of each slice.

    If the first slice has something to decode, all of the page is decoded before it is yielded, and the page ends before
    it has more than ``bytes_max``; ``ended`` gets its offset to continue from. Values that come later in a page of
    other records are decoded as it is sent, up to ``DECODED_BYTES_MAX``.

    Raises ``CorruptLog``, ``ReadMemoryFull``.
    """
    is_first, left = True, DECODED_BYTES_MAX
    async with aclosing(page.slices(reader)) as slices:
        async for records in slices:
            if is_first and form.may_decode(records):
                break
            decoded = await form.decoded(records) if left > 0 and not is_first else ()
            is_first = False
            left -= sum(record.size for record in decoded if record is not None)
            yield records, decoded
        else:
            return
    ahead = _Ahead(bytes_max, room)
    try:
        await ahead.decode(page, form, reader)
        ended(page.next_offset)
        async with aclosing(page.slices(reader)) as slices:
            async for records in slices:
                yield records, ahead.take(records)
    finally:
        ahead.give_back()


class _Ahead:
    """What is decoded of a page before it is sent, by offset."""

    def __init__(self, bytes_max: int, room: PageRoom) -> None:
        self._left = bytes_max
        self._room = room
        self._held = 0
        self._decoded: dict[int, DecodedRecord] = {}

    async def decode(self, page: RecordPage, form: RecordForm, reader: DecodedReader) -> None:
        """Decode the records of a page, and end it where it is full, after one record at least."""
        is_first = True
        # Who sends the records meets an error again, after those before it.
        with suppress(CorruptLog, ReadMemoryFull):
            async with aclosing(page.slices(reader)) as slices:
                async for records in slices:
                    decoded = await form.decoded(records)
                    for number, record in enumerate(records):
                        part = decoded[number] if decoded else None
                        size = size_of(record) if part is None else part.size
                        if not is_first and (size > self._left or self._room.is_full):
                            page.next_offset = record.offset
                            return
                        is_first = False
                        self._left -= size
                        if part is not None:
                            self._decoded[record.offset] = part
                            self._held += size
                            self._room.in_use += size

    def take(self, records: Sequence[RecordView]) -> Decoded:
        """Return what was decoded of records."""
        return [self._decoded.pop(record.offset, None) for record in records]

    def give_back(self) -> None:
        self._room.give_back(self._held)
