"""Arrays whose items stay encoded mean what others do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from stele.wire import schema
from stele.wire.schema import (
    EncodedRows,
    Int8,
    Int32,
    Int64,
    MalformedMessage,
    PartlyEncoded,
    Rows,
    at,
    message,
)
from stele.wire.schema.compiler import ROWS_BYTES_MIN


@message
class Item:
    number: Int32
    since_1: Int8 = at("1+", default=3)
    offset: Int64
    tagged: Int32 = at("2+", default=0, tag=0)


@message
class Plain:
    name: str
    items: Sequence[Item]
    end: Int8


@message
class InRows:
    name: str
    items: Rows[Item]
    end: Int8


@message
class Named:
    name: str


@message
class NamedRows:
    items: Rows[Named]


VERSIONS = [(0, False), (1, False), (2, True)]
MANY = ROWS_BYTES_MIN // 12 + 1


def _items(count: int) -> list[Item]:
    return [Item(number=number, since_1=3, offset=number << 40) for number in range(count)]


def _written(cls: type[Any], value: Any, version: int, flexible: bool) -> bytes:
    out = bytearray()
    schema.writer(cls, version, flexible)(value, out)
    return bytes(out)


def _read(cls: type[Any], data: bytes | memoryview, version: int, flexible: bool) -> Any:
    return schema.read_message(cls, version, flexible, data)


@pytest.mark.parametrize(("version", "flexible"), VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 2, MANY, 5000])
def test_rows_are_read_and_written_as_other_arrays(version: int, flexible: bool, count: int) -> None:
    items = _items(count)
    data = _written(Plain, Plain(name="a", items=items, end=5), version, flexible)
    made, position = _read(InRows, memoryview(data), version, flexible)
    assert isinstance(made.items, EncodedRows) == (len(data) >= ROWS_BYTES_MIN)
    assert made.items == items
    assert (made.name, made.end, position) == ("a", 5, len(data))
    assert _written(InRows, made, version, flexible) == data
    if count > 2 and isinstance(made.items, EncodedRows):
        rows = cast("EncodedRows[Item]", made.items)
        assert rows[1] == items[1]
        assert rows[-2:] == items[-2:]
        assert b"".join(rows.rows) in data
        assert len(set(map(len, rows.rows))) == 1


def test_items_with_tagged_fields_are_decoded() -> None:
    items = _items(MANY)
    items[3].tagged = 17
    data = _written(InRows, InRows(name="a", items=items, end=5), 2, True)
    made, position = _read(InRows, data, 2, True)
    assert not isinstance(made.items, EncodedRows)
    assert made.items == items
    assert position == len(data)


def test_items_of_several_sizes_are_decoded() -> None:
    items = [Named(name="x" * number) for number in range(100)]
    made, _ = _read(NamedRows, _written(NamedRows, NamedRows(items=items), 0, False), 0, False)
    assert made.items == items
    assert not isinstance(made.items, EncodedRows)


@pytest.mark.parametrize(("version", "flexible"), VERSIONS)
def test_malformed_rows_are_what_other_malformed_arrays_are(version: int, flexible: bool) -> None:
    def outcome(cls: type[Any], data: bytes) -> object:
        try:
            made, position = _read(cls, data, version, flexible)
        except MalformedMessage:
            return None
        return made.name, list(made.items), made.end, position

    data = bytearray(_written(Plain, Plain(name="a", items=_items(MANY + 3), end=5), version, flexible))
    for size in range(len(data)):
        assert outcome(InRows, bytes(data[:size])) == outcome(Plain, bytes(data[:size])) is None
    for position in range(len(data)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
            before, data[position] = data[position], byte
            assert outcome(InRows, bytes(data)) == outcome(Plain, bytes(data))
            data[position] = before


@pytest.mark.parametrize(("version", "flexible"), VERSIONS)
def test_items_that_are_encoded_already_are_written_as_they_are(version: int, flexible: bool) -> None:
    items = _items(9)
    rows = [_written(Item, item, version, flexible) for item in items]
    parts: list[bytes | Item] = [b"".join(rows[:4]), items[4], items[5], b"", b"".join(rows[6:])]
    mixed = cast("list[Item]", PartlyEncoded(len(items), parts))
    whole = _written(InRows, InRows(name="a", items=items, end=5), version, flexible)
    assert _written(InRows, InRows(name="a", items=mixed, end=5), version, flexible) == whole
    gathered: list[bytes | bytearray] = []
    schema.gathering_writer(InRows, version, flexible)(
        InRows(name="a", items=mixed, end=5), bytearray(), gathered
    )
    assert b"".join(gathered) == whole
