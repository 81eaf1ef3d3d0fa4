"""Lossless conversion of PostgreSQL's text of a value to JSON.

======================================  =================================================
boolean, integers, oid                  ``true``, ``42``
real, double precision                  ``1.5``; ``"NaN"`` and ``"Infinity"`` as strings
numeric, money                          a string, as written: ``"12.30"``
json, jsonb                             the JSON itself
bytea                                   a string in base64
timestamp, timestamptz, date            ISO 8601, timestamptz in UTC: ``2026-11-21T10:00:00.5Z``
arrays                                  arrays of these, nested as they are
everything else (text, uuid, enums, …)  PostgreSQL's own text, as a string
======================================  =================================================

The session must have the settings of ``SESSION_SETTINGS``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

Encoder: TypeAlias = Callable[[bytes], bytes]

SESSION_SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    # A copy that policies would filter fails instead.
    "row_security": "off",
    # The only write is that of the run number, which must be on disk.
    "synchronous_commit": "local",
}

_encode_text = msgspec.json.Encoder().encode
# What stands in a JSON string as it is.
_PLAIN = bytes(byte for byte in range(0x20, 0x80) if byte not in b'"\\')
# Deeper than any array of PostgreSQL (6), and far below the recursion limit.
_DEPTH_MAX = 32


class ArrayError(ValueError):
    """The text is not an array."""


def text(value: bytes) -> bytes:
    """Encode as a JSON string; bytes that are not UTF-8 (in SQL_ASCII) as ``\\xff``."""
    return _encode_text(value.decode("utf-8", "backslashreplace"))


def inner_texts(values: Sequence[bytes]) -> Sequence[bytes]:
    """Return what is between the quotes of texts that are encoded as JSON strings."""
    if not b"".join(values).translate(None, _PLAIN):
        return values
    return [text(value)[1:-1] for value in values]


def as_is(value: bytes) -> bytes:
    return value


def boolean(value: bytes) -> bytes:
    return b"true" if value == b"t" else b"false"


def floating(value: bytes) -> bytes:
    return b'"%s"' % value if value[-1:] in b"Ny" else value


def quoted(value: bytes) -> bytes:
    """Encode text that needs no escapes as a JSON string."""
    return b'"%s"' % value


def binary(value: bytes) -> bytes:
    return b'"%s"' % base64.b64encode(bytes.fromhex(value[2:].decode("ascii")))


def timestamp(value: bytes) -> bytes:
    # infinity and years BC have no common form in ISO 8601.
    if value[-1:] in b"Cy":
        return text(value)
    return b'"%s"' % value.replace(b" ", b"T", 1)


def timestamp_utc(value: bytes) -> bytes:
    if not value.endswith(b"+00"):
        return text(value)
    return b'"%sZ"' % value[:-3].replace(b" ", b"T", 1)


# OIDs of pg_type, which are the same in every PostgreSQL.
ENCODERS: dict[int, Encoder] = {
    16: boolean,
    17: binary,
    20: as_is,
    21: as_is,
    23: as_is,
    26: as_is,
    114: as_is,
    700: floating,
    701: floating,
    1114: timestamp,
    1184: timestamp_utc,
    1700: quoted,
    2950: quoted,
    3802: as_is,
}


class ArrayForm(NamedTuple):
    """How arrays are written: ``null`` is an element without a value, ``join`` makes an array of its elements."""

    null: bytes
    join: Callable[[list[bytes]], bytes]


def _join(items: list[bytes]) -> bytes:
    return b"[%s]" % b",".join(items)


_JSON_ARRAY = ArrayForm(b"null", _join)


def array(element: Encoder, delimiter: bytes = b",", form: ArrayForm = _JSON_ARRAY) -> Encoder:
    """Return the encoder of arrays with the encoder of their elements."""
    separator = delimiter[0]

    def encode(value: bytes) -> bytes:
        # Bounds that do not start at 1 come first: [0:1]={…}
        start = value.index(b"=") + 1 if value[:1] == b"[" else 0
        encoded, end = _array(value, start, element, separator, form, 0)
        if end != len(value):
            raise ArrayError(f"an array with {len(value) - end} bytes after its end")
        return encoded

    return encode


def _array(
    value: bytes, position: int, element: Encoder, separator: int, form: ArrayForm, depth: int
) -> tuple[bytes, int]:
    """Return the array at ``position`` in its form, and the position after it."""
    if value[position : position + 1] != b"{" or depth > _DEPTH_MAX:
        raise ArrayError("an array that does not begin with a brace, or is too deep")
    position += 1
    items: list[bytes] = []
    if value[position : position + 1] == b"}":
        return form.join(items), position + 1
    while True:
        if position >= len(value):
            raise ArrayError("an array without an end")
        first = value[position]
        if first == 0x7B:  # {
            item, position = _array(value, position, element, separator, form, depth + 1)
        elif first == 0x22:  # "
            content, position = _quoted(value, position + 1)
            item = element(content)
        else:
            end = position
            while end < len(value) and value[end] != separator and value[end] != 0x7D:
                end += 1
            content = value[position:end]
            item = form.null if content == b"NULL" else element(content)
            position = end
        items.append(item)
        if position >= len(value):
            raise ArrayError("an array without an end")
        if value[position] == 0x7D:  # }
            return form.join(items), position + 1
        if value[position] != separator:
            raise ArrayError("an array with something between its elements")
        position += 1


def _quoted(value: bytes, position: int) -> tuple[bytes, int]:
    parts = bytearray()
    while True:
        if position >= len(value):
            raise ArrayError("a quoted element without an end")
        byte = value[position]
        if byte == 0x22:
            return bytes(parts), position + 1
        if byte == 0x5C:  # \
            position += 1
            if position >= len(value):
                raise ArrayError("a quoted element without an end")
            byte = value[position]
        parts.append(byte)
        position += 1
