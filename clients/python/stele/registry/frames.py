"""Which schema a key or value was written with: the prefix of the bytes, or a header of the record."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ..schemas import framing
from ..serializers import Headers

# The id of a schema, or its GUID.
SchemaKey = int | str

_ID_MAX = 2**31 - 1


class Framed(NamedTuple):
    """A payload and its schema; ``in_header`` is what followed the GUID in the header, None for a prefix."""

    schema: SchemaKey
    payload: bytes
    in_header: bytes | None = None


def prefix(schema_id: int, indexes: tuple[int, ...] | None) -> bytes:
    """Return what precedes each payload."""
    return framing.join(schema_id, b"" if indexes is None else framing.join_indexes(indexes, b""))


def header(guid: str, indexes: tuple[int, ...] | None, *, is_key: bool) -> tuple[str, bytes]:
    """Return the header of each record."""
    name = framing.KEY_HEADER if is_key else framing.VALUE_HEADER
    return name, framing.join_header(UUID(guid), indexes)


def unframe(data: bytes, headers: Headers, *, is_key: bool) -> Framed:
    """Return the payload of a key or value, and its schema. A header precedes a prefix.

    Raises:
        NotFramed: there is neither.
    """
    if headers:
        name = framing.KEY_HEADER if is_key else framing.VALUE_HEADER
        for key, value in headers:
            if key == name and value is not None:
                if value[:1] == b"\0":
                    schema_id, rest = framing.split(value)
                    return Framed(schema_id, data, rest)
                guid, rest = framing.split_header(value)
                return Framed(str(guid), data, rest)
    schema_id, payload = framing.split(data)
    if not 0 < schema_id <= _ID_MAX:
        # Small numbers in eight bytes are common keys.
        raise framing.NotFramed(f"no schema has the id {schema_id}")
    return Framed(schema_id, payload)


def schema_key(data: bytes, headers: Headers, *, is_key: bool) -> SchemaKey | None:
    """Return the schema of a key or value; None if it names none."""
    try:
        return unframe(data, headers, is_key=is_key).schema
    except framing.NotFramed:
        return None
