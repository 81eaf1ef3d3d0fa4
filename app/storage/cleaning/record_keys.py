"""The keys of a batch, by the compiled codec.

``record_bounds`` reads the same in Python, an order of magnitude slower. It decides where the
codec refuses a batch: headers that no reader can decode do not stop a cleaner. Where the codec
accepts one, both find the same keys, except for a record whose attributes have the highest bit
set. No producer sets it; the codec takes the byte after it for a part of the attributes, as
every reader does that uses the codec.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from operator import lt
from typing import NamedTuple

from stele.wire import record_batch as rb
from stele.wire.record_batch import CorruptBatchError

from .record_bounds import KEPT_RECORDS_MAX, BatchRecords

# Between two slices a cleaner may give up the interpreter.
_RECORDS_PER_SLICE = 500


class KeySlice(NamedTuple):
    """Some records of a batch in their order, field by field."""

    offsets: list[int]
    keys: list[bytes | None]
    has_value: list[bool]

    def between(self, start: int, end: int) -> KeySlice:
        """The records from offset ``start`` on and before ``end``."""
        begin, stop = bisect_left(self.offsets, start), bisect_left(self.offsets, end)
        return KeySlice(self.offsets[begin:stop], self.keys[begin:stop], self.has_value[begin:stop])


def read_keys(plain: bytes, pause: Callable[[], object] = lambda: None) -> Iterable[KeySlice]:
    """The keys of ``plain``, the batch without its compression; every record was read when this returns.

    ``pause`` is called after each slice that is read.

    Raises:
        CorruptBatchError: records do not parse, or their offsets do not ascend from the
            batch's base offset to its last one.
    """
    # Its codec is none.
    header = rb.read_header(plain)
    if header.record_count > KEPT_RECORDS_MAX:
        return _SlowKeys(BatchRecords(plain, header, pause), header)
    held: list[KeySlice] = []
    try:
        for part in _decoded(plain, header):
            held.append(part)
            pause()
    except CorruptBatchError:
        return _SlowKeys(BatchRecords(plain, header, pause), header)
    return held


def _decoded(plain: bytes, header: rb.BatchHeader) -> Iterator[KeySlice]:
    next_offset = header.base_offset
    for records in rb.decode_slices(plain, header, _RECORDS_PER_SLICE):
        offsets = [record.offset for record in records]
        if offsets[0] < next_offset or not all(map(lt, offsets, offsets[1:])):
            raise CorruptBatchError("the offsets of its records do not ascend")
        next_offset = offsets[-1] + 1
        yield KeySlice(
            offsets, [record.key for record in records], [record.value is not None for record in records]
        )
    if next_offset > header.next_offset:
        raise CorruptBatchError("its records go on after its last offset")


class _SlowKeys:
    """Slices of what ``BatchRecords`` finds; read again by each iteration, so few are in memory."""

    def __init__(self, records: BatchRecords, header: rb.BatchHeader) -> None:
        self._records = records
        self._base_offset = header.base_offset

    def __iter__(self) -> Iterator[KeySlice]:
        base_offset = self._base_offset
        for part in self._records:
            yield KeySlice(
                [base_offset + record.offset_delta for record in part],
                [record.key for record in part],
                [record.has_value for record in part],
            )
