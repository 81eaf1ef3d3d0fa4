"""Python values ↔ the bytes of a schema.

========  ================================================================================
Avro      dicts, lists, ``datetime``, ``Decimal`` and others; see
          ``stele.schemas.avro.python_values``. Dataclasses and pydantic models are
          serialized, too
JSON      the values of JSON, or instances of the class that the schema is of
Protobuf  messages of a generated class; dicts in the JSON form of ``stele.schemas``
========  ================================================================================

With the form ``json``, all values are in the JSON form of ``stele.schemas``, which is exact both ways.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, cast

import msgspec

from ..schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from ..schemas.framing import FIRST_MESSAGE, NotFramed, split_indexes
from .definitions import Schema
from .frames import Framed

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from ..schemas.avro import AvroSchema
    from ..schemas.protobuf import ProtobufSchema

T = TypeVar("T")

Form = Literal["python", "json"]
Decode = Callable[[Framed], Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class Encoding(NamedTuple, Generic[T]):
    """``encode`` returns the bytes of a value; ``indexes`` say which message of a Protobuf schema it is."""

    encode: Callable[[T], bytes]
    indexes: tuple[int, ...] | None = None


# ── schemas ──


def parse(schema: Schema, references: Mapping[str, str]) -> ParsedSchema:
    """Parse a schema; ``references`` are the texts that it uses, by name. May take long the first time.

    Raises:
        InvalidSchema: it is not valid, or its type is not known here.
    """
    # Imported when they are needed, because of their libraries.
    match schema.type:
        case "AVRO":
            from ..schemas import avro

            # The registry decides which names and defaults it takes.
            return avro.parse(schema.text, references, registered=True)
        case "JSON":
            from ..schemas import json_schema

            return cast("ParsedSchema", json_schema.parse(schema.text, references))
        case "PROTOBUF":
            from ..schemas import protobuf

            return protobuf.parse(schema.text, references)
        case _:  # pyright: ignore[reportUnnecessaryComparison] (of another registry)
            raise InvalidSchema(f"schemas of the type {schema.type!r} are not known here")


def schema_of(source: Schema | str | type) -> Schema:
    """Return the schema of an Avro text or of a class; a Protobuf one without its references.

    Raises:
        ValueError: the class has none.
    """
    if isinstance(source, Schema):
        return source
    if isinstance(source, str):
        return Schema(source)
    if is_message(source):
        return Schema(file_of(source).text, "PROTOBUF")
    document = {"$schema": _DRAFT, **_adapter(source).json_schema()}
    return Schema(msgspec.json.encode(document).decode(), "JSON")


def full_name_of(parsed: ParsedSchema | None, cls: type | None) -> str | None:
    """Return the name of the record or message, after which a subject may be named."""
    if cls is not None and hasattr(cls, "DESCRIPTOR"):
        return cast("Any", cls).DESCRIPTOR.full_name
    return None if parsed is None else parsed.full_name


def is_message(cls: type) -> bool:
    """Return whether a class is that of a Protobuf message."""
    return hasattr(cls, "DESCRIPTOR") and hasattr(cls, "SerializeToString")


def _adapter(cls: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(cls)
    except PydanticUserError as error:
        raise ValueError(
            f"{cls!r} has no schema; use a pydantic model, a dataclass or a class of a Protobuf message: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A file that a class of a message was generated from, with those that it imports."""

    name: str
    text: str
    imports: tuple[ProtoFile, ...]


# What every registry has.
_KNOWN_FILES = ("confluent/", "google/protobuf/", "google/type/")


def file_of(cls: type) -> ProtoFile:
    """Return the file of a class of a Protobuf message."""
    return _file(cast("Any", cls).DESCRIPTOR.file)


def _file(descriptor: Any) -> ProtoFile:
    return ProtoFile(
        name=descriptor.name,
        # As other clients send it; a registry returns it as text.
        text=base64.b64encode(descriptor.serialized_pb).decode(),
        imports=tuple(
            _file(imported)
            for imported in descriptor.dependencies
            if not imported.name.startswith(_KNOWN_FILES)
        ),
    )


# ── values → bytes ──


def encoding_of(
    parsed: ParsedSchema, cls: type[Any] | None, form: Form, message: str | None = None
) -> Encoding[Any]:
    """Return how values are encoded; ``cls`` is what they are instances of.

    ``message`` names the message of a Protobuf schema that they are; without it and without a class, it
    is the first one.

    Raises:
        InvalidSchema: the schema has no such message.
    """
    if parsed.type == "PROTOBUF":
        return _protobuf_encoding(cast("ProtobufSchema", parsed), cls, message)
    if form == "json":
        return Encoding(parsed.encode)
    if parsed.type == "AVRO":
        encode_python = cast("AvroSchema", parsed).encode_python

        def encode_avro(value: Any) -> bytes:
            return encode_python(_plain(value))

        return Encoding(encode_avro)
    if cls is None:
        return Encoding(parsed.encode)
    adapter = _adapter(cls)

    def encode(value: Any) -> bytes:
        from pydantic_core import PydanticSerializationError

        try:
            data = adapter.dump_json(value, by_alias=True, warnings="error")
        except PydanticSerializationError as error:
            raise InvalidValue("", str(error)) from error
        # Checks it.
        parsed.decode(data)
        return data

    return Encoding(encode)


def _plain(value: Any) -> Any:
    """Return the fields of a dataclass or a pydantic model as a dict; other values as they are."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(by_alias=True)


def _protobuf_encoding(parsed: ProtobufSchema, cls: type[Any] | None, message: str | None) -> Encoding[Any]:
    name = message if cls is None else full_name_of(None, cls)
    try:
        indexes = FIRST_MESSAGE if name is None else parsed.indexes(name)
        # There may be none.
        parsed.message(indexes)
    except InvalidValue as error:
        raise InvalidSchema(error.reason) from error
    if cls is None:
        return Encoding(partial(parsed.encode, indexes=indexes), indexes)

    def encode(message: Any) -> bytes:
        from google.protobuf.message import EncodeError

        if not isinstance(message, cls):
            raise InvalidValue("", f"a {cls.__name__} is needed, not a {type(message).__name__}")
        try:
            return message.SerializeToString()
        except EncodeError as error:
            raise InvalidValue("", str(error)) from error

    return Encoding(encode, indexes)


# ── bytes → values ──


def decode_of(
    writer: ParsedSchema, into: type[Any] | None, reader: ParsedSchema | None, form: Form
) -> Decode:
    """Return how payloads of a schema are decoded: into a class, and those of Avro as a reader's schema has them.

    Raises:
        InvalidSchema: it describes no value of the class, or none that ``reader`` could read.
    """
    if into is not None and is_message(into):
        return _message_decoder(writer, into)
    if reader is not None and (writer.type, reader.type) != ("AVRO", "AVRO"):
        raise InvalidSchema(f"it is of type {writer.type}; only values of Avro are read with another schema")
    adapter = None if into is None else _adapter(into)
    if writer.type == "JSON" and adapter is not None:
        return lambda framed: _checked(adapter.validate_json, framed.payload)
    decode = _decoder(writer, reader, form)
    return decode if adapter is None else lambda framed: _checked(adapter.validate_python, decode(framed))


def _decoder(writer: ParsedSchema, reader: ParsedSchema | None, form: Form) -> Decode:
    if writer.type == "PROTOBUF":
        return _protobuf_decoder(cast("ProtobufSchema", writer))
    if writer.type == "AVRO":
        avro, read_with = cast("AvroSchema", writer), cast("AvroSchema | None", reader)
        read = avro.decode if form == "json" else avro.decode_python
        return lambda framed: read(framed.payload, read_with)
    return lambda framed: writer.decode(framed.payload)


def _checked(validate: Callable[[Any], T], value: Any) -> T:
    from pydantic import ValidationError

    try:
        return validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        pointer = "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in first["loc"])
        raise InvalidValue(pointer, first["msg"]) from error


def _indexes(framed: Framed) -> tuple[tuple[int, ...], bytes]:
    """Return which message of a Protobuf schema a payload is, and its bytes."""
    try:
        if framed.in_header is None:
            return split_indexes(framed.payload)
        return split_indexes(framed.in_header)[0], framed.payload
    except NotFramed as error:
        raise InvalidValue("", str(error)) from None


def _protobuf_decoder(writer: ProtobufSchema) -> Decode:
    def decode(framed: Framed) -> Any:
        indexes, payload = _indexes(framed)
        return writer.decode(payload, indexes)

    return decode


def _message_decoder(writer: ParsedSchema, cls: type[T]) -> Decode:
    """Return how payloads become messages of a class, whose name must be that of the written message."""
    from google.protobuf.message import DecodeError

    if writer.type != "PROTOBUF":
        raise InvalidSchema(f"it is of type {writer.type}, and describes no {cls.__name__}")
    written, expected = cast("ProtobufSchema", writer), full_name_of(None, cls)

    def decode(framed: Framed) -> Any:
        indexes, payload = _indexes(framed)
        found = written.message(indexes).full_name
        if found != expected:
            raise InvalidValue("", f"it is a {found}, and not a {expected}")
        try:
            return cast("Any", cls).FromString(payload)
        except DecodeError as error:
            raise InvalidValue("", str(error)) from error

    return decode
