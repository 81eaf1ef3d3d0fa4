"""Objects ↔ the bytes of a value, apart from how they travel.

A serializer is any callable ``(object) -> bytes``, a deserializer any callable
``(bytes) -> object``; what they raise becomes SerializationError and
DeserializationError. A value of None is a tombstone and reaches neither.
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
    """Bytes as they are, text as UTF-8: what a producer uses unless told otherwise."""
    return value.encode() if isinstance(value, str) else value


def bytes_deserializer(data: bytes) -> bytes:
    return data


def str_serializer(value: str) -> bytes:
    return value.encode()


def str_deserializer(data: bytes) -> str:
    """Raises UnicodeDecodeError for bytes that are not UTF-8."""
    return data.decode()


def json_serializer(value: object) -> bytes:
    """Compact JSON of what msgspec can encode: plain types, dataclasses, structs, datetimes, UUIDs…"""
    return msgspec.json.encode(value)


def json_deserializer(data: bytes) -> Any:
    return msgspec.json.decode(data)


@dataclass(frozen=True, slots=True)
class JsonType(Generic[T]):
    """Both directions for one type; pass it as serializer and as deserializer's ``decode``."""

    encode: Serializer[T]
    decode: Deserializer[T]


def json_type(cls: type[T]) -> JsonType[T]:
    """JSON that is checked against ``cls`` when it is read.

    A pydantic model is recognised by its methods, so pydantic is not imported here.
    """
    if hasattr(cls, "model_validate_json"):
        validate = cast("Callable[[bytes], T]", cls.model_validate_json)  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType]
        return JsonType(_encode_model, validate)
    decoder = msgspec.json.Decoder(cls)
    return JsonType(msgspec.json.encode, decoder.decode)


def _encode_model(model: Any) -> bytes:
    return cast("str", model.model_dump_json()).encode()
