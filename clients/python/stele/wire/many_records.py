"""Find the records of many batches at once, with numpy instead of an object per record.

A record begins where the one before it ends, so those of a batch are found one after the other. But the first records
of all batches are found in one step, then the second ones, and so on: a step is some fifty calls of numpy, whether
there are two batches or a thousand.

What is rare is left to the codec: headers, and whatever is not as it should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from .arrow_types import Array, np, pa
from .record_batch import HEADER_BYTES, BatchHeader

# With fewer records per step, the codec is faster.
_RECORDS_PER_STEP_MIN = 64
# Of the numbers in a record, times alone have 64 bits.
_VARINT_BYTES_MAX, _TIME_BYTES_MAX = 5, 10
# Arrow's view of at most so many bytes has them itself.
_INLINE_BYTES = 12
# By size. That of null, -1, is the last one.
_FIRST_BYTES: Any = np.tri(_INLINE_BYTES + 2, _INLINE_BYTES, -1, np.uint8) * 255
_FIRST_BYTES[-1] = 0
_NULL = 1

Buffer: TypeAlias = bytes | memoryview


class Fields(NamedTuple):
    """Where the fields of records are, by the number of the record; a size is -1 for null."""

    starts: Any
    sizes: Any


class Records(NamedTuple):
    """Records in their order; ``batch`` is the number of that of each."""

    batch: Any
    offset_delta: Any
    timestamp_delta: Any
    key: Fields
    value: Fields


def find_records(batches: Sequence[Buffer], headers: Sequence[BatchHeader]) -> tuple[Any, Records] | None:
    """Find the records of batches without compression, which have these headers.

    Returns the array of bytes that fields are in, and the records; None if the codec has to find them.
    """
    number = np.array([header.record_count for header in headers], np.int64)
    total, steps = int(number.sum()), int(number.max(initial=0))
    if total < steps * _RECORDS_PER_STEP_MIN or not total or not _has_casts():
        return None
    data = np.frombuffer(b"".join((*batches, bytes(_INLINE_BYTES))), np.uint8)
    ends = np.cumsum([len(batch) for batch in batches])
    # Those with the most records first: the batches that still have some are the first ones.
    order = np.argsort(-number, kind="stable")
    place = np.concatenate([[0], ends[:-1]])[order] + HEADER_BYTES
    first = (np.cumsum(number) - number)[order]
    active = np.searchsorted(-number[order], -np.arange(steps), side="left").tolist()
    timestamp, offset, key, key_start, value, value_start = found = np.empty((6, total), np.int64)
    for step, width in enumerate(active):
        record = first[:width] + step
        length, at = _varints(data, place[:width])
        following = at + (length >> 1)
        attributes = data.take(at, mode="clip")
        timestamp[record], at = _varints(data, at + 1, _TIME_BYTES_MAX)
        offset[record], at = _varints(data, at)
        for field, start in ((key, key_start), (value, value_start)):
            size, at = _varints(data, at)
            field[record], start[record] = size, at
            at = at + (size >> 1)
        # No headers, and nothing after them.
        if (data.take(at, mode="clip") | attributes).any() or (following != at + 1).any():
            return None
        place[:width] = following
    # Of the sizes, the only odd number, which is negative, is that of null.
    sizes = found[2::2]
    if (place != ends[order]).any() or ((sizes & 1) > (sizes == _NULL)).any():
        return None
    batch, offsets = np.repeat(np.arange(len(number)), number), _signed(offset)
    last = np.array([header.last_offset_delta for header in headers])[batch]
    # They rise within a batch.
    if (offsets < 0).any() or (offsets > last).any() or (np.diff(offsets) < 1)[np.diff(batch) == 0].any():
        return None
    return data, Records(
        batch,
        offsets,
        _signed(timestamp),
        Fields(key_start, _signed(key)),
        Fields(value_start, _signed(value)),
    )


@cache
def _has_casts() -> bool:
    """Return whether Arrow makes bytes of views; older versions do not."""
    try:
        pa.nulls(0, pa.binary_view()).cast(pa.binary())
    except (AttributeError, pa.ArrowNotImplementedError):
        return False
    return True


def only(records: Records, kept: Any) -> Records:
    """Return the records for which ``kept`` is true."""
    if kept.all():
        return records
    batch, offset, timestamp, key, value = records
    fields = (Fields(field.starts[kept], field.sizes[kept]) for field in (key, value))
    return Records(batch[kept], offset[kept], timestamp[kept], *fields)


def _varints(data: Any, places: Any, bytes_max: int = _VARINT_BYTES_MAX) -> tuple[Any, Any]:
    """Return the bits of numbers, and the places after them; after one that is too long, the place is beyond all."""
    byte = data.take(places, mode="clip")
    places = places + 1
    more = byte > 0x7F
    if not more.any():
        return byte.astype(np.int64), places
    numbers = (byte & 0x7F).astype(np.int64)
    for shift in range(7, 7 * bytes_max, 7):
        byte = data.take(places, mode="clip")
        numbers |= ((byte & 0x7F) * more).astype(np.int64) << shift
        places += more
        more &= byte > 0x7F
        if not more.any():
            return numbers, places
    return numbers, places + len(data)


def _signed(numbers: Any) -> Any:
    """Return the numbers of their zigzag form, of which 64 bits may be used."""
    return (numbers.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(numbers & 1)


def binary_array(data: Any, fields: Fields) -> Array:
    """Return fields as an Arrow array; their bytes are copied out of ``data``."""
    starts, sizes = fields
    count = len(sizes)
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = np.maximum(sizes, 0)
    views[:, 3] = starts
    short = np.flatnonzero(sizes <= _INLINE_BYTES)
    if len(short):
        # A window at each place, and of it as many bytes as the field has.
        windows = np.ndarray((len(data) - _INLINE_BYTES + 1,), f"V{_INLINE_BYTES}", data, strides=(1,))
        inline = windows[starts[short]].view(np.uint8).reshape(-1, _INLINE_BYTES)
        views.view(np.uint8)[short, 4:] = inline & _FIRST_BYTES[sizes[short]]
    is_null = sizes < 0
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if is_null.any() else None
    buffers = [valid, pa.py_buffer(views), pa.py_buffer(data)]
    # Without the first four bytes of each, which only comparisons look at.
    return pa.Array.from_buffers(pa.binary_view(), count, buffers).cast(pa.binary())
