"""Batches of one record, built and read without the codec: the bytes and the records are those of the codec."""

from __future__ import annotations

import pytest
from stele.wire import record_batch as rb
from stele.wire.lone_record import build_lone, lone_record

ROWS: list[rb.Row] = [
    (1_790_000_000_000, b"k", b"v" * 100_000, []),
    (-1, None, b"v", []),
    (-5, b"", b"", [("", b"")]),
    (0, b"k" * 200, None, [("ä" * 100, None), ("b", b"x" * 20_000)]),
    (7, None, None, [(f"h{number}", b"") for number in range(70)]),
]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("producer", [(-1, -1, -1), (2**40, 3, 99)])
def test_a_batch_is_built_as_the_codec_builds_it(row: rb.Row, producer: tuple[int, int, int]) -> None:
    identity = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    built = build_lone(row, **identity)
    assert built == rb.build_rows([row], **identity)
    assert len(rb.check_produced(built)) == 1


@pytest.mark.parametrize("row", ROWS)
def test_the_parts_of_a_record_are_those_that_were_built(row: rb.Row) -> None:
    batch = memoryview(build_lone(row))
    timestamp_ms, key, value, headers = row
    parts = lone_record(
        batch,
        rb.HEADER_BYTES,
        base_offset=41,
        base_timestamp=timestamp_ms,
        append_time=None,
        headers_max=100,
    )
    assert parts is not None
    assert parts[:4] == (41, timestamp_ms, key, value)
    assert [(bytes(name or b"").decode(), content) for name, content in parts.headers] == headers


@pytest.mark.parametrize("row", ROWS)
def test_a_batch_that_is_cut_or_too_long_does_not_parse(row: rb.Row) -> None:
    batch = bytes(build_lone(row))
    for changed in (batch[:-1], batch + b"x", batch[: rb.HEADER_BYTES], batch[: rb.HEADER_BYTES + 2]):
        with pytest.raises((IndexError, ValueError)):
            lone_record(
                memoryview(changed),
                rb.HEADER_BYTES,
                base_offset=0,
                base_timestamp=0,
                append_time=None,
                headers_max=100,
            )
