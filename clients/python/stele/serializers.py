"""Conversion of objects to the bytes of a value, and back.

A serializer is any callable ``(object) -> bytes``, a deserializer any callable
``(bytes) -> object``. Their exceptions become SerializationError and
DeserializationError. A value of None is a tombstone and is not passed to either.
``json_type`` checks values against a type, for msgspec structs, dataclasses,
TypedDicts, pydantic models and plain Python types. ``stele.registry`` makes those of
schemas in a registry.

A ``HeadedSerializer`` has headers for its records. A deserializer that needs the headers of a record,
or has to load something before it can read a value, is a ``PreparingDeserializer``, or an
``AsyncPreparingDeserializer`` for asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")

Serializer = Callable[[T], bytes]
Deserializer = Callable[[bytes], T]
Headers = Sequence[tuple[str, bytes | None]]
HeadedValue = tuple[bytes, Headers]


class HeadedSerializer(Generic[T]):
    """A serializer whose ``headers`` a producer adds to each record with a value."""

    headers: Headers = ()

    def __call__(self, value: T) -> bytes:
        raise NotImplementedError


class HeadedDeserializer(Generic[T]):
    """A deserializer of keys or values that looks at the headers of their records."""

    def __call__(self, data: bytes, headers: Headers = ()) -> T:
        raise NotImplementedError


class PreparingDeserializer(HeadedDeserializer[T]):
    """A deserializer that is asked to prepare for values before it gets them."""

    def prepare(self, values: Iterable[HeadedValue]) -> None:
        """Load what the values need.

        A value that cannot be read is an error of its call, not of this one.

        Raises:
            SteleClientError: it cannot be loaded now; the values are asked for again.
        """
        raise NotImplementedError


class AsyncPreparingDeserializer(HeadedDeserializer[T]):
    """The same for asyncio, where a call cannot wait."""

    async def prepare(self, values: Iterable[HeadedValue]) -> None:
        """Load what the values need; see ``PreparingDeserializer``."""
        raise NotImplementedError


def preparing(deserializer: object) -> PreparingDeserializer[Any] | None:
    """Return a deserializer that is asked to prepare; None for others."""
    if isinstance(deserializer, PreparingDeserializer):
        return cast("PreparingDeserializer[Any]", deserializer)
    return None


def async_preparing(deserializer: object) -> AsyncPreparingDeserializer[Any] | None:
    """Return a deserializer for asyncio that is asked to prepare; None for others."""
    if isinstance(deserializer, AsyncPreparingDeserializer):
        return cast("AsyncPreparingDeserializer[Any]", deserializer)
    return None


def headed(deserializer: Deserializer[T]) -> Callable[[bytes, Headers], T]:
    """Return a deserializer as a function of the bytes and the headers of their record."""
    if isinstance(deserializer, HeadedDeserializer):
        return cast("HeadedDeserializer[T]", deserializer)
    return lambda data, _: deserializer(data)


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
