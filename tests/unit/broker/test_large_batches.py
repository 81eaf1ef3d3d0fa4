"""Large records: the same as the codec decodes, in slices with a turn of the event loop between them."""

from __future__ import annotations

import pytest
from stele.wire import record_batch as rb

from app.broker.reading import large_batches
from app.broker.reading.decoded_bytes import DecodedBytes
from app.broker.reading.fetch import Fetched, records_in_turns
from app.broker.reading.large_batches import LARGE_BATCH_BYTES, record_of
from tests.support.turns import Turns

LARGE = bytes(range(256)) * (LARGE_BATCH_BYTES // 256 + 1)


def batch_of(
    *, key: bytes | None = b"k", value: bytes | None = LARGE, headers: int = 1, compression: int = 0
) -> bytearray:
    builder = rb.BatchBuilder(compression=rb.Compression(compression))
    given: list[tuple[str, bytes | None]] = [
        (f"ä{number}", b"h" if number else None) for number in range(headers)
    ]
    builder.append(timestamp_ms=1_234, key=key, value=value, headers=given)
    batch = builder.build()
    rb.assign_offsets(batch, 0, 41, 3)
    return batch


@pytest.mark.parametrize("stamped_ms", [None, 99])
@pytest.mark.parametrize(
    "given",
    [{}, {"key": None}, {"value": None, "key": LARGE}, {"headers": 0}, {"value": b""}, {"headers": 7}],
)
async def test_a_record_is_what_the_codec_makes_of_it(
    given: dict[str, object], stamped_ms: int | None
) -> None:
    batch = batch_of(**given)  # type: ignore[arg-type]
    if stamped_ms is not None:
        rb.set_log_append_time(batch, rb.read_header(batch), stamped_ms)
    header = rb.read_header(batch)
    record = await record_of(batch, header)
    (expected,) = rb.decode_records(batch)
    assert record is not None
    for name in ("offset", "timestamp", "timestamp_type", "key", "value", "headers"):
        assert getattr(record, name) == getattr(expected, name)


@pytest.mark.parametrize("compression", [0, 4])
async def test_the_loop_runs_between_slices_of_a_large_record(
    compression: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_batches, "COPIED_PER_TURN", LARGE_BATCH_BYTES // 100)
    read = Fetched(
        topic="orders",
        partition=0,
        high_watermark=42,
        last_stable_offset=42,
        batches=batch_of(compression=compression),
    )
    turns = Turns()
    reader = DecodedBytes(2**30).reader()
    values = [record.value async for records in records_in_turns(read, 41, reader) for record in records]
    turns.close()
    assert values == [LARGE]
    assert turns.count >= 100
    assert reader.held_bytes == 0


async def test_a_record_with_many_headers_is_left_to_the_codec() -> None:
    batch = batch_of(headers=1001)
    assert await record_of(batch, rb.read_header(batch)) is None


@pytest.mark.parametrize("cut", [1, 1000])
async def test_a_record_that_does_not_parse_is_a_corrupt_batch(cut: int) -> None:
    batch = batch_of()
    header = rb.read_header(batch)
    with pytest.raises(rb.CorruptBatchError):
        await record_of(batch[:-cut], header)
