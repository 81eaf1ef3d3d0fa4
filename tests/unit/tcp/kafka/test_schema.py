"""The compiler of declared messages, on declarations of its own: what they mean on the wire."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

import pytest
from stele.wire import schema
from stele.wire.schema import (
    NO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    MalformedMessage,
    Records,
    Uuid,
    Versions,
    at,
    message,
)
from stele.wire.schema.compiler import GATHERED_BYTES_MIN


@message
class Numbers:
    flag: Bool
    tiny: Int8
    small: Int16
    medium: Int32
    large: Int64
    id: Uuid


@message
class Texts:
    text: str
    perhaps: str | None
    data: bytes
    maybe: bytes | None


@message
class Inner:
    name: str
    since_2: Int8 = at("2+", default=7)


@message
class Lists:
    numbers: Sequence[Int16]
    ids: Sequence[Uuid]
    names: Sequence[str]
    inner: Sequence[Inner]
    nothing: Sequence[Int32] | None


@message
class Changing:
    always: Int8
    only_1: Int8 = at("1", default=11)
    until_2: Int8 = at("0-2", default=12)
    since_2: str | None = at("2+", default="x", nullable="3+")


@message
class Child:
    a: Int8
    b: Int8


@message
class Parent:
    child: Child
    perhaps: Child | None


@message
class Tagged:
    plain: Int8
    first: Int32 = at(default=-1, tag=0)
    third: str = at(default="", tag=2)
    struct: Child | None = at(default=None, tag=5)
    later: Sequence[Inner] = at("2+", default=(), tag=200)


@message
class Carrying:
    before: Int8
    records: Records | None
    after: Int8


def written(value: Any, version: int = 0, *, flexible: bool = False) -> bytes:
    out = bytearray()
    schema.writer(cast("type[Any]", type(value)), version, flexible)(value, out)
    return bytes(out)


def back(value: Any, version: int = 0, *, flexible: bool = False) -> Any:
    data = written(value, version, flexible=flexible)
    found, end = schema.read_message(cast("type[Any]", type(value)), version, flexible, data)
    assert end == len(data)
    return found


def read(cls: type[Any], data: str | bytes, version: int = 0, *, flexible: bool = False) -> Any:
    data = bytes.fromhex(data) if isinstance(data, str) else data
    found, end = schema.read_message(cls, version, flexible, data)
    assert end == len(data)
    return found


# ── what is declared ──


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0+", Versions(0, 32767)),
        ("3", Versions(3, 3)),
        ("3-5", Versions(3, 5)),
        ("12+", Versions(12, 32767)),
        ("", Versions(0, -1)),
    ],
)
def test_a_range_of_versions_is_read(text: str, expected: Versions) -> None:
    assert Versions.parse(text) == expected
    assert [version in expected for version in (expected.first - 1, expected.last + 1)] == [False, False]


@pytest.mark.parametrize("text", ["x", "3-", "-3", "3+5", "3 +", "3-5-7", "+"])
def test_an_invalid_range_of_versions_is_an_error_where_it_is_declared(text: str) -> None:
    with pytest.raises(ValueError, match="is not a range of versions"):
        at(text)


def test_a_field_that_some_versions_lack_needs_a_default() -> None:
    @message
    class Lacking:
        field: Int8 = at("2+")

    with pytest.raises(TypeError, match=r"Lacking\.field is not in all versions and needs a default"):
        schema.fields_of(Lacking)


@pytest.mark.parametrize("hint", [int, float, dict, "Sequence", list[int], str | int, Sequence[float]])
def test_a_field_of_no_wire_type_is_an_error(hint: object) -> None:
    cls = message(type("Strange", (), {"__annotations__": {"field": hint}, "__module__": __name__}))
    with pytest.raises((TypeError, NameError)):
        schema.fields_of(cls)


def test_codecs_are_compiled_once() -> None:
    assert schema.reader(Numbers, 0, True) is schema.reader(Numbers, 0, True)
    assert schema.writer(Numbers, 0, True) is schema.writer(Numbers, 0, True)


# ── bytes ──


def test_numbers_are_big_endian_and_the_same_in_both_encodings() -> None:
    value = Numbers(flag=True, tiny=-1, small=0x1234, medium=-2, large=2**62, id=bytes(range(16)))
    classic = "01 ff 1234 fffffffe 4000000000000000 000102030405060708090a0b0c0d0e0f"
    assert written(value) == bytes.fromhex(classic)
    assert written(value, flexible=True) == bytes.fromhex(classic + "00")
    assert back(value) == back(value, flexible=True) == value
    assert read(Numbers, bytes([7]) + bytes(31)).flag is True


def test_texts_have_lengths_and_null_is_another_thing_than_empty() -> None:
    full = Texts(text="aß", perhaps="b", data=b"\0\xff", maybe=b"c")
    none = Texts(text="", perhaps=None, data=b"", maybe=None)
    assert written(full) == bytes.fromhex("0003 61c39f 0001 62 00000002 00ff 00000001 63")
    assert written(full, flexible=True) == bytes.fromhex("04 61c39f 02 62 03 00ff 02 63 00")
    assert written(none) == bytes.fromhex("0000 ffff 00000000 ffffffff")
    assert written(none, flexible=True) == bytes.fromhex("01 00 01 00 00")
    for value in (full, none):
        assert back(value) == back(value, flexible=True) == value


def test_lists_have_counts_and_nested_messages_their_versions() -> None:
    value = Lists(
        numbers=[1, -1], ids=[b"0123456789abcdef"], names=["a", ""], inner=[Inner(name="b")], nothing=None
    )
    uuid = b"0123456789abcdef".hex()
    assert written(value) == bytes.fromhex(
        f"00000002 0001 ffff 00000001 {uuid} 00000002 0001 61 0000 00000001 0001 62 ffffffff"
    )
    assert written(value, 2, flexible=True) == bytes.fromhex(
        f"03 0001 ffff 02 {uuid} 03 02 61 01 02 02 62 07 00 00 00"
    )
    assert back(value) == back(value, 2, flexible=True) == value


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 126, 127, 128, 16_383, 16_384, 32_767])
def test_lengths_and_counts_of_every_size_come_back(size: int) -> None:
    texts = Texts(text="x" * size, perhaps="y" * size, data=bytes(size), maybe=bytes(size))
    lists = Lists(
        numbers=[5] * size, ids=[NO_UUID] * min(size, 200), names=["n"] * size, inner=[], nothing=[9] * size
    )
    for value in (texts, lists):
        assert back(value) == back(value, flexible=True) == value


def test_fields_are_there_in_their_versions_and_have_their_defaults_in_the_others() -> None:
    value = Changing(always=1, only_1=2, until_2=3, since_2="y")
    assert written(value, 0) == bytes.fromhex("01 03")
    assert written(value, 1) == bytes.fromhex("01 02 03")
    assert written(value, 2) == bytes.fromhex("01 03 0001 79")
    assert written(value, 3) == bytes.fromhex("01 0001 79")
    assert back(value, 0) == Changing(always=1, only_1=11, until_2=3, since_2="x")
    assert back(value, 3) == Changing(always=1, only_1=11, until_2=12, since_2="y")


def test_null_is_read_only_in_the_versions_that_allow_it() -> None:
    assert read(Changing, "01 ffff", 3).since_2 is None
    with pytest.raises(MalformedMessage, match="since_2 is null"):
        read(Changing, "01 03 ffff", 2)
    for data in ("ffff", "fffe"):
        with pytest.raises(MalformedMessage, match="text is null, or its length is negative"):
            read(Texts, data + "ffff 00000000 ffffffff")
    with pytest.raises(MalformedMessage, match="text is null"):
        read(Texts, "00 00 01 00 00", flexible=True)


def test_a_nested_message_that_may_be_null_has_a_byte_that_says_so() -> None:
    both = Parent(child=Child(a=1, b=2), perhaps=Child(a=3, b=4))
    one = Parent(child=Child(a=1, b=2), perhaps=None)
    assert written(both) == bytes.fromhex("0102 01 0304")
    assert written(both, flexible=True) == bytes.fromhex("0102 00 01 0304 00 00")
    assert written(one) == bytes.fromhex("0102 ff")
    for value in (both, one):
        assert back(value) == back(value, flexible=True) == value


# ── tagged fields ──


def test_tagged_fields_are_written_in_order_and_only_if_not_default() -> None:
    assert written(Tagged(plain=9), flexible=True) == bytes.fromhex("09 00")
    full = Tagged(plain=9, first=1, third="t", struct=Child(a=1, b=2), later=[Inner(name="n")])
    assert written(full, 2, flexible=True) == bytes.fromhex(
        "09 04 00 04 00000001 02 02 02 74 05 03 0102 00 c801 05 02 02 6e 07 00"
    )
    assert back(full, 2, flexible=True) == full
    assert back(full, 0, flexible=True) == Tagged(plain=9, first=1, third="t", struct=Child(a=1, b=2))


def test_tagged_fields_are_in_flexible_versions_only() -> None:
    assert written(Tagged(plain=9, first=1)) == b"\x09"


def test_tagged_fields_come_in_any_order_and_unknown_ones_are_skipped() -> None:
    data = "09 04 07 02 aaaa 02 02 02 74 ff01 00 00 04 00000001"
    assert read(Tagged, data, flexible=True) == Tagged(plain=9, first=1, third="t")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("09 01 00 03 000000", id="smaller than its type"),
        pytest.param("09 01 00 05 0000000100", id="larger than its type"),
        pytest.param("09 01 00 04 000001", id="cut short"),
        pytest.param("09 01 02 01 05", id="a text longer than the field"),
        pytest.param("09 01 09 05 aa", id="unknown, and longer than the message"),
        pytest.param("09 02 00 04 00000001", id="fewer than were said"),
        pytest.param("09", id="no count"),
    ],
)
def test_tagged_fields_that_do_not_fit_are_malformed(data: str) -> None:
    with pytest.raises(MalformedMessage):
        read(Tagged, data, flexible=True)


@pytest.mark.parametrize("kind", [Tagged, Inner])
def test_tagged_fields_count_as_elements(kind: type[Tagged | Inner]) -> None:
    plain = b"\x09" if kind is Tagged else b"\x02n"
    unknown = b"\x50\0"

    def data(count: int) -> bytes:
        return plain + schema.varint(count) + unknown * count

    assert isinstance(read(kind, data(schema.ELEMENTS_MAX), flexible=True), kind)
    with pytest.raises(MalformedMessage, match="with tagged fields there are more than 100000 elements"):
        read(kind, data(schema.ELEMENTS_MAX + 1), flexible=True)


# ── records ──


def test_records_are_neither_copied_when_read_nor_when_gathered_unless_they_are_small() -> None:
    buffer = bytearray(bytes.fromhex("01 00000003 aabbcc 02"))
    found, _ = schema.read_message(Carrying, 0, False, memoryview(buffer))
    buffer[5] = 0xDD
    assert bytes(found.records or b"") == bytes.fromhex("ddbbcc")

    for records in (bytes(GATHERED_BYTES_MIN - 1), bytes(GATHERED_BYTES_MIN)):
        parts: list[bytes | bytearray] = []
        value = Carrying(before=1, records=records, after=2)
        schema.gathering_writer(Carrying, 0, True)(value, bytearray(b"head"), parts)
        assert any(part is records for part in parts) == (len(records) == GATHERED_BYTES_MIN)
        assert b"".join(parts) == b"head" + written(value, flexible=True)
    assert back(Carrying(before=1, records=None, after=2)).records is None


# ── varints, lengths ──


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2**28, "8080808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_varints_have_seven_bits_a_byte(value: int, data: str) -> None:
    assert schema.varint(value) == bytes.fromhex(data)
    assert schema.read_varint(bytes.fromhex(data) + b"\xff", 0) == (value, len(data) // 2)


@pytest.mark.parametrize("data", ["ffffffff1f", "8080808080", "808080808001", "ffffffff7f"])
def test_a_varint_of_more_than_32_bits_is_malformed(data: str) -> None:
    with pytest.raises(MalformedMessage):
        schema.read_varint(bytes.fromhex(data), 0)


@pytest.mark.parametrize(
    ("cls", "data", "flexible"),
    [
        pytest.param(Texts, "7fff 61", False, id="a text behind the end"),
        pytest.param(Texts, "ffffffff0f 61", True, id="a text of four gibibytes"),
        pytest.param(Lists, "7fffffff 0001", False, id="two thousand million numbers"),
        pytest.param(Lists, "00000003 0001 0002", False, id="one number too few"),
        pytest.param(Lists, "80000000", False, id="the least count"),
        pytest.param(Lists, "ffffffff0f 0001", True, id="four thousand million numbers"),
        pytest.param(Lists, "01 05 00", True, id="ids that are not there"),
        pytest.param(Texts, "ff", False, id="half a length"),
        pytest.param(Texts, "0001 ff 0000 00000000 00000000", False, id="not UTF-8"),
        pytest.param(Numbers, "01", False, id="numbers cut short"),
    ],
)
def test_what_is_not_there_is_malformed(cls: type[Any], data: str, flexible: bool) -> None:
    with pytest.raises(MalformedMessage):
        read(cls, data, flexible=flexible)


def test_a_text_has_the_same_limit_in_both_encodings() -> None:
    for size, is_allowed in ((32_767, True), (32_768, False)):
        data = schema.varint(size + 1) + b"x" * size + bytes.fromhex("00 01 00 00")
        if is_allowed:
            assert len(read(Texts, data, flexible=True).text) == size
        else:
            with pytest.raises(MalformedMessage, match="text is longer than the 32767 bytes of a string"):
                read(Texts, data, flexible=True)


def test_the_elements_of_all_lists_are_counted_together() -> None:
    half = schema.ELEMENTS_MAX // 2

    def data(*, more: int) -> bytes:
        numbers = struct.pack(">i", half) + bytes(2 * half)
        names = struct.pack(">i", half + more) + bytes(2 * (half + more))
        return numbers + struct.pack(">i", 0) + names + struct.pack(">i", 0) + b"\xff" * 4

    assert len(read(Lists, data(more=0)).names) == half
    with pytest.raises(MalformedMessage, match="with names there are more than"):
        read(Lists, data(more=1))


@pytest.mark.parametrize(
    "value",
    [
        Numbers(flag=False, tiny=128, small=0, medium=0, large=0, id=NO_UUID),
        Numbers(flag=False, tiny=0, small=-32_769, medium=0, large=0, id=NO_UUID),
        Texts(text="x" * 32_768, perhaps=None, data=b"", maybe=None),
    ],
)
def test_a_number_that_does_not_fit_its_field_is_an_error_of_the_writer(value: Any) -> None:
    with pytest.raises(struct.error):
        written(value)
