"""What the schema compiler does for the binary protocol; ``tests/unit/tcp/kafka/test_schema.py`` has the rest."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Any

import pytest
from stele.wire import schema
from stele.wire.messages import MessageError
from stele.wire.messages.codec import body_reader, frame_writer, label_of
from stele.wire.schema import Float64, Int8, Int32, Label, UInt16, frozen_message


class Colour(IntEnum):
    RED = 1


def read_colour(number: int) -> Colour:
    try:
        return Colour(number)
    except ValueError as error:
        raise MessageError(f"colour {number} does not exist") from error


Pair = tuple[Annotated[str, Label("pair name")], Annotated[str | None, Label("pair value")]]


@frozen_message
class Inner:
    number: Int8
    pairs: Sequence[Pair] = ()


@frozen_message
class Example:
    colour: Annotated[Colour, "int8", read_colour]
    inner: Inner
    wait_ms: Int32 = 0
    names: Sequence[str] | None = None
    data: bytes = b""
    one: Annotated[Int32, Label("the one")] = 1


@frozen_message
class Numbers:
    port: UInt16
    share: Float64


EXAMPLE = Example(
    colour=Colour.RED,
    inner=Inner(number=2, pairs=[("é", None), ("b", "c")]),
    wait_ms=3,
    names=["n"],
    data=b"d",
)
FIELDS = bytes.fromhex(
    "01 02 00000002 00000002 c3a9 ffffffff 00000001 62 00000001 63 00000003 00000001 00000001 6e 00000001 64 00000001"
)


def test_a_frame_is_its_length_a_prefix_and_the_fields_in_order() -> None:
    frame = frame_writer(Example, 0x7F, 1)(EXAMPLE)
    assert frame == (len(FIELDS) + 6).to_bytes(4) + b"\x7f\x01" + FIELDS


def test_a_body_is_read_as_what_was_written_numbers_made_into_values() -> None:
    read: Any = body_reader(Example)(b"?" + FIELDS, 1)
    assert read == EXAMPLE
    assert read.colour is Colour.RED


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("", "colour needs 1 bytes and 0 are left in the frame"),
        ("01", "number needs 1 bytes and 0 are left in the frame"),
        ("01 02 0000", "pair count needs 4 bytes and 2 are left in the frame"),
        ("01 02 00000001", "pair count is 1, more than the frame can hold"),
        ("01 02 ffffffff", "pair count is -1, more than the frame can hold"),
        ("01 02 00000001 fffffffe 00000000", "pair name length is negative: -2"),
        ("01 02 00000001 00000000 00000001", "pair value needs 1 bytes and 0 are left in the frame"),
        ("01 02 00000000 0000", "wait needs 4 bytes and 2 are left in the frame"),
        ("01 02 00000000 00000000 fffffffe", "name count is negative: -2"),
        ("01 02 00000000 00000000 00000001 00000001 ff", "name is not valid UTF-8"),
        ("01 02 00000000 00000000 ffffffff 00000002 00", "data needs 2 bytes and 1 are left in the frame"),
        ("01 02 00000000 00000000 ffffffff 00000000", "the one needs 4 bytes and 0 are left in the frame"),
        ("09 02 00000000 00000000 ffffffff 00000000 00000000", "colour 9 does not exist"),
        ("01 02 00000000 00000000 ffffffff 00000000 00000000 00", "1 bytes trail the message"),
    ],
)
def test_an_error_names_the_field_that_is_not_there(body: str, error: str) -> None:
    with pytest.raises(MessageError) as raised:
        body_reader(Example)(bytes.fromhex(body), 0)
    assert str(raised.value) == error


def test_a_field_is_named_without_its_unit_and_an_array_without_its_plural() -> None:
    assert [label_of(declared) for declared in schema.fields_of(Example)] == [
        "colour",
        "inner",
        "wait",
        "name",
        "data",
        "the one",
    ]


@pytest.mark.parametrize("hint", [Sequence[str | None], Sequence[Annotated[Colour, "int8", read_colour]]])
def test_the_items_of_an_array_are_neither_null_nor_converted(hint: Any) -> None:
    cls = frozen_message(type("Strange", (), {"__annotations__": {"field": hint}, "__module__": __name__}))
    with pytest.raises(TypeError, match="the items of an array"):
        schema.fields_of(cls)


def test_kafka_versions_have_tuples_unsigned_numbers_and_fractions_too() -> None:
    for flexible in (False, True):
        for message in (Numbers(port=65_535, share=0.25), Inner(number=1, pairs=[("a", None), ("b", "c")])):
            out = bytearray()
            schema.writer(type(message), 0, flexible)(message, out)
            assert schema.read_message(type(message), 0, flexible, bytes(out)) == (message, len(out))
