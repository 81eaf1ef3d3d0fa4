"""Conversion of objects to the bytes of a value, and back.

A serializer is any callable ``(object) -> bytes``, a deserializer any callable
``(bytes) -> object``. Their exceptions become SerializationError and
DeserializationError. A value of None is a tombstone and is not passed to either.
``json_type`` checks values against a type, for msgspec structs, dataclasses,
TypedDicts, pydantic models and plain Python types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")

Serializer = Callable[[T], bytes]
Deserializer = Callable[[bytes], T]


def bytes_serializer(value: bytes | str) -> bytes:
    """Return bytes as they are, text as UTF-8; the default of a producer."""
    return value.encode() if isinstance(value, str) else value


def bytes_deserializer(data: bytes) -> bytes:
    return data


def str_serializer(value: str) -> bytes:
    return value.encode()


def str_deserializer(data: bytes) -> str:
    """Decode UTF-8. Raises UnicodeDecodeError for other bytes."""
    return data.decode()


def json_serializer(value: object) -> bytes:
    """Encode as compact JSON: plain types, dataclasses, structs, datetimes, UUIDs and more."""
    return msgspec.json.encode(value)


def json_deserializer(data: bytes) -> Any:
    return msgspec.json.decode(data)


@dataclass(frozen=True, slots=True)
class JsonType(Generic[T]):
    """JSON codec of one type: ``encode`` is a serializer, ``decode`` a deserializer."""

    encode: Serializer[T]
    decode: Deserializer[T]


def json_type(cls: type[T]) -> JsonType[T]:
    """Return a JSON codec that validates values against ``cls`` when decoding.

    Pydantic models are recognised by their methods, so pydantic is not imported.
    """
    if hasattr(cls, "model_validate_json"):
        validate = cast("Callable[[bytes], T]", cls.model_validate_json)  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType]
        return JsonType(_encode_model, validate)
    decoder = msgspec.json.Decoder(cls)
    return JsonType(msgspec.json.encode, decoder.decode)


def _encode_model(model: Any) -> bytes:
    return cast("str", model.model_dump_json()).encode()
