"""Which records of a compacted topic are refused, and which batches a thread looks at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from app.broker.producing.recompress import needs_preparation, preparation
from app.broker.producing.record_keys import check_keys
from app.errors import RECORD_ERRORS_MAX, InvalidBatch, MissingKey
from app.storage.topic_config import TopicConfig
from tests.support.batches import with_new_crc

NOW_MS = 1_800_000_000_000
COMPACTED = TopicConfig(cleanup_policy="compact")


def batch(
    keys: Sequence[bytes | None], *, codec: Compression = Compression.NONE, value: bytes | None = b"x"
) -> bytearray:
    builder = rb.BatchBuilder(compression=codec)
    for key in keys:
        builder.append(timestamp_ms=NOW_MS, key=key, value=value)
    return builder.build()


def check_on_loop(batches: bytearray) -> None:
    check_keys("orders", batches, rb.check_produced(batches))


def check_in_thread(batches: bytearray) -> None:
    preparation("orders", COMPACTED, NOW_MS).run(batches, rb.check_produced(batches))


@pytest.mark.parametrize("check", [check_on_loop, check_in_thread])
def test_every_record_without_a_key_is_named(check: object) -> None:
    assert callable(check)
    check(batch([b"a", b""]))
    with pytest.raises(MissingKey) as error:
        check(batch([b"a", None, b"c", None]))
    assert [record.index for record in error.value.record_errors] == [1, 3]
    assert (error.value.refused, error.value.topic) == (2, "orders")
    assert str(error.value) == (
        "record 1 was refused: it has no key, and topic 'orders' is compacted; send a key with every record"
        "; 1 more were refused; none of the batch was stored"
    )


@pytest.mark.parametrize("check", [check_on_loop, check_in_thread])
def test_the_indexes_are_those_of_the_batch_at_fault(check: object) -> None:
    assert callable(check)
    with pytest.raises(MissingKey) as error:
        check(batch([b"a", b"b"]) + batch([b"c", None]))
    assert [record.index for record in error.value.record_errors] == [1]


@pytest.mark.parametrize("check", [check_on_loop, check_in_thread])
def test_records_that_do_not_parse_are_refused(check: object) -> None:
    assert callable(check)
    torn = batch([b"a"])
    torn[rb.HEADER_BYTES] = 0x7F
    with pytest.raises(InvalidBatch):
        check(bytearray(with_new_crc(bytes(torn))))


def test_only_so_many_are_named_and_all_are_counted() -> None:
    with pytest.raises(MissingKey) as error:
        check_in_thread(batch([None] * (RECORD_ERRORS_MAX + 5), codec=Compression.LZ4))
    assert len(error.value.record_errors) == RECORD_ERRORS_MAX
    assert error.value.refused == RECORD_ERRORS_MAX + 5


@pytest.mark.parametrize(
    ("sent", "in_thread"),
    [
        (batch([b"a"]), False),
        (batch([b"a"] * 100), False),
        (batch([b"a"] * 101), True),
        (batch([b"a"], value=bytes(65_000)), False),
        (batch([b"a"], value=bytes(66_000)), True),
        (batch([b"a"], codec=Compression.ZSTD), True),
    ],
)
def test_only_small_batches_are_decoded_on_the_loop(sent: bytearray, in_thread: bool) -> None:
    headers = rb.check_produced(sent)
    assert needs_preparation(COMPACTED, headers, NOW_MS) is in_thread
    assert not needs_preparation(TopicConfig(), headers, NOW_MS)


def test_a_batch_whose_records_have_keys_is_stored_as_it_was_sent() -> None:
    for codec in Compression:
        sent = batch([b"a", b"b"], codec=codec)
        prepared = preparation("orders", COMPACTED, NOW_MS).run(bytearray(sent), rb.check_produced(sent))
        assert prepared.batches == sent
