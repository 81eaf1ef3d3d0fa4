"""What is sent to Kafka for batches of this broker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from stele.mirror.outward.batches import (
    Run,
    epoch_of,
    next_sequence,
    number_batch,
    outgoing,
    samples,
)
from stele.mirror.positions import NOTHING, LeftOut, NotCopyable
from stele.wire import record_batch as rb
from stele.wire.compression import Compression


def batch(
    offsets: Sequence[int],
    *,
    codec: Compression = Compression.NONE,
    value: bytes = b"v",
    header: str = "h",
    attributes: int = 0,
    producer: tuple[int, int, int] = (7, 1, 5),
) -> bytearray:
    builder = rb.BatchBuilder(
        compression=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
    )
    for offset in offsets:
        builder.append(
            timestamp_ms=1000 + offset,
            key=b"%d" % offset,
            value=value,
            headers=[(header, b"x")],
            offset_delta=offset - offsets[0],
        )
    made = builder.build()
    rb.assign_offsets(made, 0, offsets[0], 3)
    if attributes:
        made[21:23] = (int.from_bytes(made[21:23], "big") | attributes).to_bytes(2, "big")
    return made


def keys(made: bytearray) -> list[bytes | None]:
    return [record.key for record in rb.decode_records(made)]


def test_one_batch_keeps_its_bytes_but_for_its_producer() -> None:
    given = batch(range(5, 9), codec=Compression.ZSTD)
    ((made, count, runs),), refusal = outgoing(given, 5, NOTHING, keeps_offsets=True)
    assert (refusal, count, runs) == (None, 4, [Run(5, 4)])
    number_batch(made, 11, epoch := epoch_of("cluster"), 5)
    header = rb.check_batch(made)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, epoch, 5)
    assert (header.base_offset, header.partition_leader_epoch) == (0, -1)
    assert made[rb.HEADER_BYTES :] == given[rb.HEADER_BYTES :]


def test_clusters_have_epochs_that_no_producer_has() -> None:
    epochs = [epoch_of(f"cluster-{number}") for number in range(100)]
    assert len(set(epochs)) > 98
    assert all(1 << 14 <= epoch < 1 << 15 for epoch in epochs)


def test_sequence_numbers_go_on_at_zero_as_kafka_counts_them() -> None:
    last = 2**31 - 1
    assert next_sequence(rb.read_header(batch(range(3), producer=(1, 1, 7)))) == 10
    assert next_sequence(rb.read_header(batch(range(3), producer=(1, 1, last - 1)))) == 1


def test_batches_are_joined_up_to_what_the_target_takes() -> None:
    given = b"".join(batch([number], value=bytes(10_000)) for number in range(10))
    made, _ = outgoing(given, 0, NOTHING, keeps_offsets=True, joined_bytes_max=35_000)
    assert [count for _, count, _ in made] == [3, 3, 3, 1]
    assert all(len(one) <= 35_000 for one, _, _ in made)
    # One that is larger alone is as it was.
    made, _ = outgoing(given, 0, NOTHING, keeps_offsets=True, joined_bytes_max=1_000)
    assert [count for _, count, _ in made] == [1] * 10


def test_small_batches_of_one_codec_are_joined() -> None:
    given = b"".join(
        [
            *(batch([number]) for number in range(10)),
            *(batch([number], codec=Compression.GZIP) for number in range(10, 20)),
            batch([20], value=bytes(40_000), codec=Compression.GZIP),
            batch([21], value=bytes(64_000)),
            batch([22]),
        ]
    )
    sent, refusal = outgoing(given, 0, NOTHING, keeps_offsets=True)
    assert refusal is None
    # 40000 zeros are a small batch.
    assert [one.runs for one in sent] == [[Run(0, 10)], [Run(10, 11)], [Run(21, 1)], [Run(22, 1)]]
    assert [key for one in sent for key in keys(one.batch)] == [b"%d" % number for number in range(23)]
    times = [record.timestamp for one in sent for record in rb.decode_records(one.batch)]
    assert times == [1000 + number for number in range(23)]


@pytest.mark.parametrize(
    ("second", "left_out", "words"),
    [
        (batch([3]), NOTHING, "offset 2 has no record"),
        (batch([2, 4]), NOTHING, "an offset from 2 on has no record"),
        (batch([2], attributes=0x10), NOTHING, "offset 2 is of a transaction"),
        (batch([2], attributes=0x30), NOTHING, "offset 2 is of a transaction"),
        (batch([2, 3]), LeftOut(before=3), "an offset from 2 on has no record"),
    ],
)
def test_what_comes_before_an_offset_that_kafka_would_not_give_is_sent(
    second: bytearray, left_out: LeftOut, words: str
) -> None:
    first = batch([0, 1]) if left_out is NOTHING else b""
    sent, refusal = outgoing(first + second, 2 - len(first and [0, 1]), left_out, keeps_offsets=True)
    assert [one.runs for one in sent] == ([[Run(0, 2)]] if first else [])
    assert words in str(refusal)
    assert "--offsets translate" in str(refusal)


def test_translated_batches_have_what_consumers_get() -> None:
    given = b"".join(
        [
            batch([4, 6, 7]),
            batch([8], attributes=0x30),
            batch([9], attributes=0x10),
            batch([10], attributes=0x10),
            batch([12], attributes=0x08),
        ]
    )
    (one,), refusal = outgoing(given, 0, LeftOut(before=5, aborted=frozenset({9})), keeps_offsets=False)
    assert refusal is None
    assert (one.records, one.runs) == (4, [Run(6, 2), Run(10, 1), Run(12, 1)])
    header = rb.check_batch(one.batch)
    assert (header.record_count, header.last_offset_delta, header.attributes) == (4, 3, 0)
    assert outgoing(batch([8], attributes=0x30), 0, NOTHING, keeps_offsets=False) == ([], None)
    # A part of a batch was copied already.
    (rest,), _ = outgoing(batch([3, 5, 7]), 4, NOTHING, keeps_offsets=False)
    assert rest.runs == [Run(5, 1), Run(7, 1)]
    assert outgoing(batch([3, 4]), 0, LeftOut(before=5), keeps_offsets=False) == ([], None)


def test_the_broker_s_times_become_those_of_the_records() -> None:
    given = batch([0, 1])
    rb.set_log_append_time(given, rb.read_header(given), 5_000)
    (one,), _ = outgoing(given, 0, NOTHING, keeps_offsets=True)
    assert [record.timestamp for record in rb.decode_records(one.batch)] == [5_000, 5_000]
    assert not rb.read_header(one.batch).is_log_append_time


def test_names_of_headers_that_are_no_text_stay_as_they_are() -> None:
    odd = batch([1], header="abc").replace(b"abc", b"\xff\xfe\xfd")
    given = batch([0]) + odd + batch([2])
    sent, refusal = outgoing(given, 0, NOTHING, keeps_offsets=True)
    assert refusal is None
    assert [one.runs for one in sent] == [[Run(0, 1)], [Run(1, 1)], [Run(2, 1)]]
    assert b"\xff\xfe\xfd" in sent[1].batch
    with pytest.raises(NotCopyable, match="not UTF-8"):
        outgoing(
            batch([1, 3], header="abc").replace(b"abc", b"\xff\xfe\xfd"), 0, NOTHING, keeps_offsets=False
        )


def test_records_that_do_not_parse_are_refused() -> None:
    given = batch([1, 3])
    given[70:] = bytes(len(given) - 70)
    with pytest.raises(NotCopyable, match="offset 1 on do not parse"):
        outgoing(given, 0, NOTHING, keeps_offsets=False)


def test_samples_are_the_last_records() -> None:
    given = batch(range(30))
    found = list(samples(given, rb.read_header(given)))
    assert [(one.offset, one.timestamp, one.key) for one in found] == [
        (number, 1000 + number, b"%d" % number) for number in range(10, 30)
    ]
