"""A cut is read as it was written, or not at all."""

from __future__ import annotations

import gzip
from contextlib import suppress

import pytest

from app.storage.replica import cut as cuts
from app.storage.replica.chain import CutChain, cut_key
from app.storage.replica.cut import (
    ChunkSpan,
    CorruptCut,
    Cut,
    CutHeader,
    Deleted,
    PartitionChange,
    PartitionGone,
    RunSpan,
    SegmentRuns,
    StoreChange,
    Unused,
    decode_cut,
    encode_cut,
)
from tests.support.model_store import ModelStore

HEADER = CutHeader(
    sequence=7,
    base=3,
    generation=2,
    time_ms=1_763_664_052_224,
    cluster_id="IpjDPLO5TKOX8JAWvG_VJQ",
    incarnation="ab87c9bd-6d5c-4680-b3b5-1f3bccdb1bda",
    leader_epoch=4,
)
CHANGES = [
    PartitionChange(
        topic_id="4edb6b37-da62-4978-854e-801ab0a0abcf",
        partition=1,
        topic="orders",
        log_start_offset=10,
        holes_until=0,
        epochs=((0, 0), (4, 12)),
        kept_from=0,
        changed_from=0,
        segments=(SegmentRuns(0, 20, (RunSpan("d/x/1.99", 8, 70, 1, 0), RunSpan("d/x/2.99", 8, 30, 2, 14))),),
    ),
    PartitionGone(topic_id="4edb6b37-da62-4978-854e-801ab0a0abcf", partition=2),
    StoreChange(name="groups.sqlite", size=5, chunk_bytes=4, chunks=(ChunkSpan(1, "p/x/1.1", 0, 1, 3),)),
    Unused(objects=("d/x/0.1",), since_ms=5),
    Deleted(objects=("d/x/0.0",)),
]
DATA = encode_cut(HEADER, CHANGES)


def test_a_cut_is_read_as_it_was_written() -> None:
    assert decode_cut(DATA) == Cut(HEADER, CHANGES)


def test_a_cut_is_text_that_people_can_read() -> None:
    header, *_, end = gzip.decompress(DATA).decode().splitlines()
    assert header.startswith('{"sequence":7,"base":3,"generation":2')
    assert end == '{"is":"end","lines":6}'


def test_a_cut_whose_end_is_missing_is_refused() -> None:
    for length in range(len(DATA)):
        with pytest.raises(CorruptCut):
            decode_cut(DATA[:length])


def test_a_cut_with_another_byte_is_refused_or_the_same() -> None:
    # After the header of gzip, which says who wrote it and when.
    for position in range(10, len(DATA)):
        damaged = bytearray(DATA)
        damaged[position] ^= 0x10
        with suppress(CorruptCut):
            assert decode_cut(bytes(damaged)) == Cut(HEADER, CHANGES)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["null"],
        ['{"is":"end","lines":1}'],
        ["HEADER", '{"is":"end","lines":2}'],
        ["HEADER", '{"is":"other"}', '{"is":"end","lines":2}'],
        ["HEADER", '{"is":"gone","topic_id":"x"}', '{"is":"end","lines":2}'],
        ["HEADER", '{"is":"end","lines":1}', '{"is":"end","lines":2}'],
    ],
)
def test_text_that_is_no_cut_is_refused(lines: list[str]) -> None:
    text = "\n".join(lines).replace("HEADER", gzip.decompress(DATA).decode().splitlines()[0])
    with pytest.raises(CorruptCut):
        decode_cut(gzip.compress(text.encode()))


def test_a_cut_of_a_later_release_is_refused_with_its_format() -> None:
    text = gzip.decompress(DATA).replace(b'{"sequence":7', b'{"version":9,"sequence":7', 1)
    with pytest.raises(CorruptCut, match="a later release wrote the cut: its format is 9"):
        decode_cut(gzip.compress(text))


def test_what_a_cut_becomes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "CUT_BYTES_MAX", 1 << 20)
    with pytest.raises(CorruptCut, match="more than 1048576 bytes"):
        decode_cut(gzip.compress(b" " * (8 << 20)))


async def test_a_broker_that_cannot_go_on_from_a_damaged_cut_is_told_what_can_be_done() -> None:
    chain = CutChain(ModelStore({cut_key(7): DATA[:-9]}))
    with pytest.raises(
        CorruptCut, match=r"c/000000000007: .*Earlier moments can be restored: .*another prefix"
    ):
        await chain.newest()
