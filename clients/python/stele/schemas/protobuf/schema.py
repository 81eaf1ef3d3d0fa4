"""A Protobuf schema: its text, its messages and their indexes, and their values."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from ..definitions import InvalidSchema, InvalidValue
from .compiler import MAIN, compiled
from .json_form import JsonForm
from .printer import declared, printed, quoted

# Messages, fields and constants of a schema and its imports. To add them to a pool is one call, which holds the
# interpreter's lock for 5 ms.
MAX_NAMES = 20_000

_FIRST = (0,)


class ProtobufSchema:
    """A schema of type PROTOBUF. ``file`` describes it; the messages of its imports are known there."""

    type: Literal["PROTOBUF"] = "PROTOBUF"

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self._proto = files[-1]
        self._names = {name for file in files for name in declared(file)}
        if len(self._names) > MAX_NAMES:
            raise InvalidSchema(f"it and its imports declare more than {MAX_NAMES:,} names")
        self._pool = _pool(files)
        self._json = JsonForm(self._pool)
        self.file: FileDescriptor = self._pool.FindFileByName(self._proto.name)
        self._messages = _by_indexes(self.file)
        self.canonical: str = printed(self._proto, self._pool, self._names)

    def normalized(self) -> str:
        """Return the text without differences in the order of imports, fields, constants and reserved names."""
        return printed(self._proto, self._pool, self._names, normalized=True)

    @cached_property
    def serialized(self) -> str:
        """The base64 of its FileDescriptorProto, which clients ask for as ``format=serialized``."""
        return base64.b64encode(self._proto.SerializeToString(deterministic=True)).decode()

    @property
    def full_name(self) -> str | None:
        """The name of its first message; None if it declares none, as a file of enums."""
        return self.message().full_name if self._proto.message_type else None

    def message(self, indexes: Sequence[int] = _FIRST) -> Descriptor:
        """Return the message with these indexes: of a message in the file, of one inside that, and so on.

        Raises:
            InvalidValue: The schema has no such message.
        """
        message = self._messages.get(tuple(indexes))
        if message is None:
            raise InvalidValue("", f"the schema has no message with the indexes {list(indexes)}")
        return message

    def messages(self) -> dict[tuple[int, ...], str]:
        """Return the names of all messages that the schema declares by their indexes, those of maps among them."""
        return {indexes: message.full_name for indexes, message in self._messages.items()}

    def indexes(self, full_name: str) -> tuple[int, ...]:
        """Return the indexes of the message with this name.

        Raises:
            InvalidValue: The schema declares no such message; those of its imports have no indexes.
        """
        for indexes, name in self.messages().items():
            if name == full_name:
                return indexes
        raise InvalidValue("", f"the schema declares no message {full_name!r}")

    def encode(self, value: Any, indexes: Sequence[int] = _FIRST) -> bytes:
        """Return a value in its JSON form as the bytes of the message with these indexes.

        Raises:
            InvalidValue: The message does not describe it.
        """
        return self._json.encode(self.message(indexes), value)

    def decode(self, data: bytes | memoryview, indexes: Sequence[int] = _FIRST) -> Any:
        """Return the bytes of the message with these indexes as a value in its JSON form.

        Raises:
            InvalidValue: They are none, or JSON has no form for them, as for a timestamp in the year 10000.
        """
        return self._json.decode(self.message(indexes), data)

    def check(self, data: bytes | memoryview, indexes: Sequence[int] = _FIRST) -> None:
        """Look whether bytes are those of the message with these indexes; fields that it has not are none of its.

        Raises:
            InvalidValue: They are none: cut off, not UTF-8, or without a field that is required.
        """
        self._json.message(self.message(indexes), data)


def parsed(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Return a schema from its text or descriptor; for arguments and errors see ``parse`` of the package."""
    texts: dict[str, str] = {}
    for name, content in references.items():
        descriptor = _descriptor(content)
        texts[name] = content if descriptor is None else _described(descriptor, texts).canonical
    descriptor = _descriptor(text)
    if descriptor is None:
        return ProtobufSchema(_compiled(text, texts))
    # The compiler sees each schema, so that none breaks the rules that only the compiler knows.
    described = _described(descriptor, texts)
    schema = ProtobufSchema(_compiled(described.canonical, texts))
    if schema.canonical != described.canonical or schema.messages() != described.messages():
        raise InvalidSchema("no text describes what this descriptor does, with its messages in their order")
    return schema


def _compiled(text: str, references: Mapping[str, str]) -> list[FileDescriptorProto]:
    return list(FileDescriptorSet.FromString(compiled(text, references)).file)


def _descriptor(text: str) -> FileDescriptorProto | None:
    """Return what a text in base64 describes; None if it is ``.proto`` text, where each declaration has a ; or {."""
    text = "".join(text.split())
    if not re.fullmatch("[A-Za-z0-9+/]+={0,2}", text):
        return None
    try:
        descriptor = FileDescriptorProto.FromString(base64.b64decode(text))
    except (ValueError, DecodeError):
        return None
    return descriptor if descriptor.ListFields() else None


def _described(descriptor: FileDescriptorProto, references: Mapping[str, str]) -> ProtobufSchema:
    """Return a schema as its descriptor has it, without a look of the compiler at it."""
    # What it imports is compiled, because the options that it uses may be defined there.
    imports = "".join(f"import {quoted(name)};" for name in descriptor.dependency)
    files = _compiled(f'syntax = "proto3";{imports}', references)
    descriptor.name = MAIN
    try:
        return ProtobufSchema([*files[:-1], descriptor])
    except (DecodeError, LookupError, ValueError) as error:
        raise InvalidSchema(f"its descriptor is not valid: {error}") from None


def _pool(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    pool = DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file.SerializePartialToString())
    except TypeError as error:
        # It refuses some of what protoc accepts, as a message of 65536 bytes in memory, and invalid descriptors.
        raise InvalidSchema(str(error)) from None
    return pool


def _by_indexes(file: FileDescriptor) -> dict[tuple[int, ...], Descriptor]:
    top = list[Descriptor](file.message_types_by_name.values())
    return dict(_indexed(top, ()))


def _indexed(
    messages: Iterable[Descriptor], above: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Descriptor]]:
    for index, message in enumerate(messages):
        yield (*above, index), message
        yield from _indexed(message.nested_types, (*above, index))
