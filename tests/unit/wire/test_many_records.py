"""Records that are found with numpy are those of the codec, in all that they have."""

from __future__ import annotations

import random
import struct
from typing import Any

import crc32c
import pytest

pytest.importorskip("pyarrow", reason="pip install 'stele-broker[arrow]'")

from stele.wire import arrow, many_records
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

SCHEMA: Any = arrow.arrow_schema_of([(name, True) for name in arrow.ARROW])
TIMES = (-1, 0, 1, -(2**40), 2**40, 2**62, -(2**62))


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records per step are found so, too."""
    monkeypatch.setattr(many_records, "_RECORDS_PER_STEP_MIN", 0)


def decoded(batches: bytes, start: int = 0, end: int = 2**62) -> Any:
    decoder = arrow.Decoder(topic="orders", partition=3, schema=SCHEMA)
    return arrow.pa.Table.from_batches(decoder.decode(batches, start, end), schema=SCHEMA).combine_chunks()


def decoded_by_codec(batches: bytes, start: int = 0, end: int = 2**62) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_records, "_has_casts", lambda: False)
        return decoded(batches, start, end)


def random_batch(chance: random.Random, base_offset: int) -> bytearray:
    builder = rb.BatchBuilder(compression=chance.choice(list(Compression)))
    first_ms, delta = chance.choice((*TIMES, 1_700_000_000_000)), 0

    def field() -> bytes | None:
        size = chance.choice((0, 1, 11, 12, 13, 63, 64, 200, 9000))
        return chance.choice((None, chance.randbytes(size), chance.randbytes(size)))

    for _ in range(chance.randrange(1, 150)):
        ms = chance.choice((first_ms, first_ms + chance.randrange(-100, 10_000), *TIMES[:5]))
        builder.append(timestamp_ms=ms, key=field(), value=field(), offset_delta=delta)
        delta += chance.choice((1, 1, 1, 70, 3000)) if base_offset % 3 == 0 else 1
    batch = builder.build()
    rb.assign_offsets(batch, 0, base_offset, 1)
    if chance.random() < 0.3:
        rb.set_log_append_time(batch, rb.read_header(batch), chance.choice((5, 1_700_000_000_000)))
    return batch


@pytest.mark.parametrize("seed", range(10))
def test_what_is_found_is_what_the_codec_decodes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    batches = bytearray()
    offset = 0
    for _ in range(chance.randrange(2, 40)):
        batch = random_batch(chance, offset)
        batches += batch
        offset = rb.read_header(batch).next_offset
    expected = decoded_by_codec(bytes(batches))
    monkeypatch.setattr(arrow, "decode_slices", None)
    found = decoded(bytes(batches))
    found.validate(full=True)
    assert found.equals(expected)
    # A range of one batch is left to the codec.
    monkeypatch.undo()
    monkeypatch.setattr(many_records, "_RECORDS_PER_STEP_MIN", 0)
    start, end = sorted(chance.randrange(offset) for _ in range(2))
    part = decoded(bytes(batches), start, end)
    assert part["offset"].to_pylist() == [at for at in expected["offset"].to_pylist() if start <= at < end]


def sealed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[rb.CRC_START :])))
    return bytes(batch)


def test_bytes_that_are_no_records_are_refused_as_by_the_codec() -> None:
    chance = random.Random(0)
    rows: list[rb.Row] = [(1_000, b"k%d" % n, b"value %d" % n, []) for n in range(5)]
    good = bytes(rb.build_rows(rows))
    for _ in range(500):
        bad = bytearray(good)
        for _ in range(chance.choice((1, 1, 2, 5))):
            bad[chance.randrange(rb.HEADER_BYTES, len(bad))] = chance.choice((0, 1, 2, 127, 128, 255))
        batches = good + sealed(bad) + good
        try:
            expected = decoded_by_codec(batches)
        except rb.CorruptBatchError:
            with pytest.raises(rb.CorruptBatchError):
                decoded(batches)
        else:
            assert decoded(batches).equals(expected)


def test_records_with_headers_are_left_to_the_codec() -> None:
    plain = bytes(rb.build_rows([(1, b"k", b"v", [])]))
    batches = plain + bytes(rb.build_rows([(1, None, b"v", [("a", b"\0")])])) + plain
    assert decoded(batches)["headers"].to_pylist() == [None, [{"key": "a", "value": b"\0"}], None]
