"""Find the records of a batch and their keys, without decoding the rest.

A record that stays in a cleaned batch keeps its bytes, but for its length and its
timestamp delta (``stele.wire.record_batch`` has the table). So a cleaner needs no
more of a record than where its fields stand, and headers that no reader could
decode do not stop it.

This is Python because the compiled codec reports neither where a record stands nor
what its attributes are. ``record_keys`` uses the codec where it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from stele.wire import record_batch as rb
from stele.wire.record_batch import CorruptBatchError

# Between two slices a cleaner may give up the interpreter.
RECORDS_PER_SLICE = 100
# Bounds of more records than this are not all kept in memory at once: some 200 bytes each, 2 MB.
KEPT_RECORDS_MAX = 10_000

# Seven bits in each byte: a number of 64 bits takes ten.
_VARINT_BYTES_MAX = 10


class RecordBounds(NamedTuple):
    """One record. Positions are bytes of the buffer that it was found in.

    ``timestamp_delta`` is in ms. ``start`` is where the length stands,
    ``attributes`` the byte after it, ``rest`` the offset delta.
    """

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool
    start: int
    attributes: int
    rest: int
    end: int


class BatchRecords:
    """All records of one batch, checked; iterating yields slices of at most ``RECORDS_PER_SLICE``.

    ``plain`` is the batch as no codec has it. A batch of very many records is read
    again by each iteration instead of being held.
    """

    __slots__ = ("_header", "_pause", "_slices", "plain")

    def __init__(
        self, batch: bytes, header: rb.BatchHeader, pause: Callable[[], object] = lambda: None
    ) -> None:
        """Read every record of ``batch``; ``pause`` is called after each slice that is read or yielded.

        Raises:
            CorruptBatchError: the body does not decompress within its bounds, or
                records do not parse, or their offsets do not ascend from the batch's
                base offset to its last one.
        """
        self.plain = rb.plain_batch(batch, header)
        self._header = header
        self._pause = pause
        self._slices: list[list[RecordBounds]] | None = None
        if header.record_count <= KEPT_RECORDS_MAX:
            held: list[list[RecordBounds]] = []
            for records in _slices(self.plain, header):
                held.append(records)
                pause()
            self._slices = held
        else:
            for _ in _slices(self.plain, header):
                pause()

    def __iter__(self) -> Iterator[list[RecordBounds]]:
        slices = _slices(self.plain, self._header) if self._slices is None else self._slices
        for records in slices:
            yield records
            self._pause()


def _slices(plain: bytes, header: rb.BatchHeader) -> Iterator[list[RecordBounds]]:
    """Slices of the records of an uncompressed batch.

    Raises:
        CorruptBatchError: they do not parse, or their offsets do not ascend from the
            batch's base offset to its last one.
    """
    position, left, last_delta = rb.HEADER_BYTES, header.record_count, -1
    while left:
        records = read_bounds(plain, position, min(left, RECORDS_PER_SLICE))
        for record in records:
            if record.offset_delta <= last_delta:
                raise CorruptBatchError("the offsets of its records do not ascend", position=record.start)
            last_delta = record.offset_delta
        left -= len(records)
        position = records[-1].end
        yield records
    if last_delta > header.last_offset_delta or position != len(plain):
        raise CorruptBatchError("its records go on after its last offset or its end", position=position)


def read_bounds(buffer: bytes, position: int, count: int) -> list[RecordBounds]:
    """``count`` records of uncompressed ``buffer`` from byte ``position`` on.

    Raises:
        CorruptBatchError: they do not parse.
    """
    found: list[RecordBounds] = []
    limit = len(buffer)
    start = position
    try:
        for _ in range(count):
            start = position
            # Numbers of one byte are nearly all there are; a call would take longer than reading them.
            number = buffer[position]
            position += 1
            if number > 0x7F:
                number, position = read_varint(buffer, position - 1)
            attributes = position
            end = position + ((number >> 1) ^ -(number & 1))
            if not attributes < end <= limit:
                raise CorruptBatchError("a record's length does not fit", position=start)
            number = buffer[position + 1]
            position += 2
            if number > 0x7F:
                number, position = read_varint(buffer, position - 1)
            timestamp_delta = (number >> 1) ^ -(number & 1)
            rest = position
            number = buffer[position]
            position += 1
            if number > 0x7F:
                number, position = read_varint(buffer, position - 1)
            offset_delta = (number >> 1) ^ -(number & 1)
            number = buffer[position]
            position += 1
            if number > 0x7F:
                number, position = read_varint(buffer, position - 1)
            if number & 1:
                # Any negative length stands for null.
                key = None
            else:
                key_end = position + (number >> 1)
                if key_end >= end:
                    raise CorruptBatchError("a key is longer than its record", position=start)
                key = buffer[position:key_end]
                position = key_end
            number = buffer[position]
            position += 1
            if number > 0x7F:
                number, position = read_varint(buffer, position - 1)
            # At least the number of headers follows.
            if position + (0 if number & 1 else number >> 1) >= end:
                raise CorruptBatchError("a value is longer than its record", position=start)
            found.append(
                RecordBounds(offset_delta, timestamp_delta, key, not number & 1, start, attributes, rest, end)
            )
            position = end
    except IndexError:
        raise CorruptBatchError("a record is cut short", position=start) from None
    return found


def read_varint(buffer: bytes, position: int) -> tuple[int, int]:
    """``(number, position after it)``; still zigzag-encoded."""
    number = shift = 0
    for at in range(position, position + _VARINT_BYTES_MAX):
        byte = buffer[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7
    raise CorruptBatchError("a number has more than ten bytes", position=position)


def write_varint(number: int) -> bytes:
    """``number``, of 64 bits with a sign, zigzag-encoded."""
    number = ((number << 1) ^ (number >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
