"""The marker that ends a transaction in a partition: a control batch with one record.

A marker takes one offset, and readers of records never see it. Its batch has the
transactional and the control bit, no sequence, and this record::

    key    version:2 = 0   type:2 (0 abort, 1 commit)
    value  version:2 = 0   coordinator epoch:4

Source: Kafka's ``EndTransactionMarker`` (KIP-98).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from . import record_batch as rb

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


class MarkerType(IntEnum):
    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """The outcome of a transaction, and the epoch of the coordinator that ended it."""

    type: MarkerType
    coordinator_epoch: int


def marker_batch(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """Return the control batch of a marker, at offset 0.

    With ``NO_PRODUCER_ID`` it is of no transaction, and consumers only move past it.
    """
    builder = rb.BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=producer_id != rb.NO_PRODUCER_ID,
        is_control=True,
    )
    builder.append(
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_VERSION, marker.type),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return builder.build()


def read_marker(batch: rb.Buffer, header: rb.BatchHeader) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None if it is a control batch of another type.

    A control batch that compaction has emptied holds none.

    Raises:
        CorruptBatchError: the record does not parse, or its version is negative.
    """
    for record in rb.decode_records(batch, header):
        key, value = record.key or b"", record.value or b""
        if len(key) < _KEY.size:
            raise rb.CorruptBatchError("the key of a control record is cut short", position=header.position)
        version, number = _KEY.unpack_from(key)
        if version < 0:
            raise rb.CorruptBatchError(
                f"the version of a control record is {version}", position=header.position
            )
        if number not in (MarkerType.ABORT, MarkerType.COMMIT):
            return None
        if len(value) < _VALUE.size:
            raise rb.CorruptBatchError("a transaction marker is cut short", position=header.position)
        return EndTransactionMarker(type=MarkerType(number), coordinator_epoch=_VALUE.unpack_from(value)[1])
    return None
