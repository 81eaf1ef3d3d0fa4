"""The markers that end transactions, byte for byte as Kafka writes them."""

from __future__ import annotations

import pytest
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch, read_marker


@pytest.mark.parametrize(("type_", "key"), [(MarkerType.ABORT, "00000000"), (MarkerType.COMMIT, "00000001")])
def test_a_marker_is_a_control_batch_of_78_bytes(type_: MarkerType, key: str) -> None:
    marker = EndTransactionMarker(type=type_, coordinator_epoch=7)
    batch = marker_batch(marker, producer_id=12, producer_epoch=3, timestamp_ms=1_000)
    header = rb.check_batch(batch)
    assert header.size == len(batch) == 78
    assert header.attributes == 0x30
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, -1)
    assert batch[61:].hex() == "20000000" + "08" + key + "0c" + "0000" + "00000007" + "00"
    assert read_marker(batch, header) == marker


def test_another_control_record_is_no_marker() -> None:
    builder = rb.BatchBuilder(is_control=True)
    builder.append(timestamp_ms=0, key=bytes.fromhex("00000002"), value=b"")
    batch = builder.build()
    assert read_marker(batch, rb.check_batch(batch)) is None


@pytest.mark.parametrize(
    ("key", "value"), [("0000", "000000000007"), ("00000001", "0000"), ("ffff0001", "000000000007")]
)
def test_a_damaged_marker_is_corrupt(key: str, value: str) -> None:
    builder = rb.BatchBuilder(is_control=True)
    builder.append(timestamp_ms=0, key=bytes.fromhex(key), value=bytes.fromhex(value))
    batch = builder.build()
    with pytest.raises(rb.CorruptBatchError):
        read_marker(batch, rb.check_batch(batch))
