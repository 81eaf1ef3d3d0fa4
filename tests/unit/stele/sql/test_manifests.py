"""Container files of Avro, as fastavro writes them: what is read of them, and damaged ones."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from stele.sql import manifests

SCHEMA = {
    "type": "record",
    "name": "entry",
    "fields": [
        {"name": "status", "type": "int"},
        {"name": "bounds", "type": ["null", {"type": "map", "values": "bytes"}]},
        {
            "name": "data_file",
            "type": {
                "type": "record",
                "name": "r2",
                "fields": [{"name": "file_path", "type": "string"}, {"name": "record_count", "type": "long"}],
            },
        },
    ],
}
WANTED: dict[str, Any] = {"status": {}, "data_file": {"file_path": {}}}


def container(codec: str, count: int) -> bytes:
    stream = io.BytesIO()
    rows: list[Any] = [
        {
            "status": number % 3,
            "bounds": None if number % 2 else {"1": b"\0" * number},
            "data_file": {"file_path": f"s3://b/{number}.parquet", "record_count": number},
        }
        for number in range(count)
    ]
    fastavro.writer(stream, SCHEMA, rows, codec=codec, sync_interval=500)
    return stream.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_the_wanted_fields_of_all_blocks_are_read(codec: str) -> None:
    found = list(manifests.records(container(codec, 100), WANTED))
    assert found == [
        {"status": number % 3, "data_file": {"file_path": f"s3://b/{number}.parquet"}}
        for number in range(100)
    ]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_file_that_is_cut_off_or_damaged_is_an_error_that_says_so(codec: str) -> None:
    whole = container(codec, 20)
    for end in range(len(whole) - 1):
        try:
            assert len(list(manifests.records(whole[:end], WANTED))) < 20
        except ValueError as error:
            assert "a manifest of the table" in str(error)  # noqa: PT017 (it may also end between two blocks)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        try:
            list(manifests.records(bytes(damaged), WANTED))
        except ValueError as error:
            assert "manifest of the table" in str(error)  # noqa: PT017 (not each byte matters)


def test_a_block_that_becomes_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_BLOCK_BYTES_MAX", 100)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        list(manifests.records(container("deflate", 20), WANTED))
