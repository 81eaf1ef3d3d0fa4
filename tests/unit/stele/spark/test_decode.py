"""Raw batches → Arrow: every field of every record, and nothing of what was not asked for."""

from __future__ import annotations

import struct
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pip install 'stele-broker[spark]'")
pytest.importorskip("pyspark", reason="pip install 'stele-broker[spark]'")

from pyspark.sql.pandas import types as spark_arrow
from stele.spark.options import OptionError
from stele.spark.schema import COLUMNS, read_columns, spark_schema
from stele.wire import record_batch as rb
from stele.wire.arrow import ARROW_BYTES_MAX, ROWS_WANTED, Decoder, arrow_schema_of
from stele.wire.compression import Compression

SCHEMA = spark_schema(include_headers=True)


def arrow_schema(schema: Any) -> Any:
    return arrow_schema_of([(field.name, field.nullable) for field in schema.fields])


def batch(base_offset: int, count: int, compression: Compression = Compression.NONE) -> bytes:
    builder = rb.BatchBuilder(compression=compression)
    for i in range(base_offset, base_offset + count):
        builder.append(
            timestamp_ms=1_000 + i,
            key=None if i % 3 == 0 else b"k%d" % i,
            value=None if i % 5 == 0 else b"\xff%d" % i,
            headers=[("a", b"\x00"), ("b", None)] if i % 2 else [],
        )
    built = builder.build()
    rb.assign_offsets(built, 0, base_offset, 1)
    return bytes(built)


def rows(batches: bytes, start: int, end: int) -> list[dict[str, Any]]:
    decoder = Decoder(topic="orders", partition=3, schema=arrow_schema(SCHEMA))
    return [row for part in decoder.decode(batches, start, end) for row in part.to_pylist()]


def expected(i: int) -> tuple[object, ...]:
    return (
        None if i % 3 == 0 else b"k%d" % i,
        None if i % 5 == 0 else b"\xff%d" % i,
        "orders",
        3,
        i,
        1_000 + i,
        0,
        [{"key": "a", "value": b"\x00"}, {"key": "b", "value": None}] if i % 2 else None,
    )


def shown(row: dict[str, Any]) -> tuple[object, ...]:
    fields = dict(row)
    fields["timestamp"] = round(fields["timestamp"].timestamp() * 1000)
    return tuple(fields.values())


@pytest.mark.parametrize("compression", Compression)
def test_every_field_of_every_record_comes_out(compression: Compression) -> None:
    batches = batch(10, 20, compression) + batch(30, 7, compression)
    assert [shown(row) for row in rows(batches, 10, 37)] == [expected(i) for i in range(10, 37)]


def test_records_outside_of_the_range_are_left_out() -> None:
    batches = batch(10, 20) + batch(30, 7) + batch(37, 1)
    assert [row["offset"] for row in rows(batches, 15, 33)] == list(range(15, 33))


def test_a_range_without_records_gives_no_rows() -> None:
    assert rows(batch(10, 5), 15, 20) == []
    assert rows(b"", 0, 5) == []


def test_a_batch_that_the_broker_has_stamped_gives_its_time_to_all_records() -> None:
    stamped = bytearray(batch(0, 3))
    rb.set_log_append_time(stamped, rb.read_header(stamped), 77_000)
    found = rows(batch(3, 2) + bytes(stamped), 0, 9)
    assert [(shown(row)[5], row["timestampType"]) for row in found] == [
        (1_003, 0),
        (1_004, 0),
        (77_000, 1),
        (77_000, 1),
        (77_000, 1),
    ]


def test_a_corrupt_batch_is_refused() -> None:
    broken = bytearray(batch(0, 3))
    broken[-1] ^= 1
    with pytest.raises(rb.CorruptBatchError, match="CRC"):
        rows(bytes(broken), 0, 3)


def test_a_batch_of_control_records_is_no_data() -> None:
    control = bytearray(batch(0, 2))
    struct.pack_into(">h", control, 21, 0x20)
    import crc32c

    struct.pack_into(">I", control, 17, crc32c.crc32c(bytes(control[rb.CRC_START :])))
    assert [row["offset"] for row in rows(bytes(control) + batch(2, 1), 0, 3)] == [2]


def test_many_small_batches_become_few_large_ones() -> None:
    batches = b"".join(batch(i, 1) for i in range(ROWS_WANTED + 5))
    decoder = Decoder(topic="t", partition=0, schema=arrow_schema(SCHEMA))
    assert [len(part) for part in decoder.decode(batches, 0, ROWS_WANTED + 5)] == [ROWS_WANTED, 5]


# What one stored batch holds: the sizes of its values, and how many headers of two bytes each record has.
LARGE = {
    "records whose mean size hides the large ones": ([10] * 5000 + [900_000] * 40, 0),
    "records that are as large as a whole Arrow batch": ([ARROW_BYTES_MAX, 1, ARROW_BYTES_MAX - 1, 1], 0),
    "a record that is larger than an Arrow batch": ([100, ARROW_BYTES_MAX + 1, 100, 0, 0], 0),
    "headers that take more in Arrow than as stored": ([1] * 45, 20_000),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("kind", LARGE)
def test_an_arrow_batch_is_bounded_by_its_bytes_within_one_stored_batch(
    kind: str, compression: Compression
) -> None:
    sizes, header_count = LARGE[kind]
    builder = rb.BatchBuilder(compression=compression)
    for size in sizes:
        builder.append(timestamp_ms=1, value=b"v" * size, headers=[("", b"")] * header_count)
    decoder = Decoder(topic="t", partition=0, schema=arrow_schema(SCHEMA))
    found: list[int] = []
    # The first record of the large batch meets what is left of the one before.
    large = builder.build()
    rb.assign_offsets(large, 0, 1, 0)
    stored = bytes(rb.build_rows([(1, None, b"v", [])])) + large
    for part in decoder.decode(stored, 0, 1 + len(sizes)):
        found += [len(value.as_buffer()) for value in part.column("value")]
        # The other columns of a row take some forty bytes.
        assert part.nbytes <= ARROW_BYTES_MAX + 64 * len(part) or len(part) == 1
    assert found == [1, *sizes]


def test_times_that_no_calendar_holds_do_not_wrap_round() -> None:
    built = rb.build_rows([(2**62, None, b"v", [])])
    decoder = Decoder(topic="t", partition=0, schema=arrow_schema(SCHEMA).remove(7))
    (part,) = decoder.decode(bytes(built), 0, 1)
    assert part.column(5).cast("int64").to_pylist() == [(2**63 - 1) // 1000 * 1000]


def test_the_arrow_schema_is_the_one_that_spark_asks_for() -> None:
    convert: Any = spark_arrow.to_arrow_schema  # pyright: ignore[reportUnknownVariableType]
    assert arrow_schema(SCHEMA).equals(convert(SCHEMA, timezone="UTC"))
    assert [field.name for field in spark_schema(include_headers=False)] == list(COLUMNS)[:-1]


def test_a_schema_given_by_the_user_prunes_and_orders_columns() -> None:
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    wanted = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    assert read_columns(wanted, include_headers=False) == ("offset", "value")
    (part,) = Decoder(topic="t", partition=0, schema=arrow_schema(wanted)).decode(batch(1, 2), 0, 9)
    assert part.to_pylist() == [{"offset": 1, "value": b"\xff1"}, {"offset": 2, "value": b"\xff2"}]
    with pytest.raises(OptionError, match="asks for a column 'price'"):
        read_columns(StructType([StructField("price", LongType())]), include_headers=False)
    with pytest.raises(OptionError, match="asks for value as string, and it is binary; cast"):
        read_columns(StructType([StructField("value", StringType())]), include_headers=False)
    with pytest.raises(OptionError, match="with the option includeHeaders=true"):
        read_columns(SCHEMA, include_headers=False)
