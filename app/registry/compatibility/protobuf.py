"""Why data of one Protobuf schema cannot be read with another.

The rules are those of Confluent's documentation and of "Updating A Message Type" in Protobuf's, with
fields paired by number, and messages by name:

- Messages, enums, constants and fields may be added, enums, constants and fields removed, fields and oneofs
  renamed. A message may move into another one or out of it, and all of them into another package.
- A field keeps its number, its encoding (``int32``, ``bool`` and enums share one, for example), the name
  of its message, and, if it is a number, whether it is repeated.
- Required fields stay, and stay required; no field becomes required.
- A oneof may be added, with one of the fields that were outside, and removed. A field may leave it,
  but not vanish from it; none that was outside may enter a oneof that was there.

Both sides of a message that contains itself are compared once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from stele.schemas.protobuf.schema import ProtobufSchema

# Types of FieldDescriptor by the encoding that they share, which is what a reader sees.
_ENCODINGS = {
    "varint": (3, 4, 5, 8, 13, 14),  # int64, uint64, int32, bool, uint32, enums
    "zigzag": (17, 18),
    "fixed32": (7, 15),
    "fixed64": (6, 16),
    "float": (2,),
    "double": (1,),
    "string": (9, 12),  # and bytes
    "group": (10,),
    "message": (11,),
}
_ENCODING = {kind: encoding for encoding, kinds in _ENCODINGS.items() for kind in kinds}
_MOST = 100


def incompatibilities(reader: ProtobufSchema, writer: ProtobufSchema) -> list[str]:
    """Return why data that was written with ``writer`` cannot be read with ``reader``; empty if it can."""
    return list(islice(_Comparison(reader, writer).found(), _MOST))


class _Comparison:
    def __init__(self, reader: ProtobufSchema, writer: ProtobufSchema) -> None:
        self._reader, self._writer = reader, writer
        self._seen: set[tuple[str, str]] = set()
        self._pending: deque[tuple[Descriptor, Descriptor]] = deque()

    def found(self) -> Iterator[str]:
        by_name: dict[str, Descriptor] = {}
        read = list(_messages(self._reader.file.message_types_by_name.values()))
        for message in read:
            # A message that moved is the first one with its name.
            by_name.setdefault(message.name, message)
        by_path = {_path(message): message for message in read}
        for written in _messages(self._writer.file.message_types_by_name.values()):
            message = by_path.get(_path(written)) or by_name.get(written.name)
            if message is None:
                yield f"message {_path(written)}: the reader has none of this name"
            else:
                self._compare(message, written)
        while self._pending:
            yield from self._of_message(*self._pending.popleft())

    def _compare(self, reader: Descriptor, writer: Descriptor) -> None:
        pair = (reader.full_name, writer.full_name)
        if pair not in self._seen:
            self._seen.add(pair)
            self._pending.append((reader, writer))

    def _of_message(self, reader: Descriptor, writer: Descriptor) -> Iterator[str]:
        place = f"message {_path(writer)}"
        read = {field.number: field for field in reader.fields}
        names = {field.name: field.number for field in reader.fields}
        written = {field.number: field for field in writer.fields}
        for number, field in written.items():
            at = f"{place}, field {field.name!r} = {number}"
            if names.get(field.name, number) != number:
                yield f"{at}: the reader has it under the number {names[field.name]}"
            if number in read:
                yield from self._of_field(at, read[number], field)
            elif field.is_required:
                yield f"{at}: it is required by the writer, and the reader has none"
        for number, field in read.items():
            if field.is_required and number not in written:
                yield f"{place}, field {field.name!r} = {number}: the reader requires it, and the writer has none"
        yield from _of_oneofs(place, reader, writer)

    def _of_field(self, at: str, reader: FieldDescriptor, writer: FieldDescriptor) -> Iterator[str]:
        read, written = _kind(reader), _kind(writer)
        if read != written:
            yield f"{at}: written as {written}, read as {read}"
            return
        if reader.is_required != writer.is_required:
            yield f"{at}: required by {'the reader' if reader.is_required else 'the writer'} alone"
        if reader.is_repeated != writer.is_repeated and read not in ("message", "group", "string"):
            yield f"{at}: repeated for {'the reader' if reader.is_repeated else 'the writer'} alone"
        message, other = reader.message_type, writer.message_type
        if message is None or other is None:
            return
        if read == "map":
            # The fields of an entry are its key and its value.
            for mine, theirs in zip(message.fields, other.fields, strict=True):
                yield from self._of_field(f"{at}, {theirs.name}", mine, theirs)
        elif message.name == other.name:
            self._compare(message, other)
        else:
            yield f"{at}: written as message {other.full_name}, read as message {message.full_name}"


def _of_oneofs(place: str, reader: Descriptor, writer: Descriptor) -> Iterator[str]:
    """Compare the oneofs: one that was renamed is known by its fields."""
    before = {field.number: _oneof(field) for field in writer.fields}
    after = {field.number: _oneof(field) for field in reader.fields}
    written, read = _members(before), _members(after)
    for name, members in written.items():
        gone = [number for number in members if number not in after]
        if gone and (name in read or any(after.get(number) for number in members)):
            yield f"{place}, oneof {name!r}: the reader has no longer its fields {_listed(gone)}"
    for name, numbers in read.items():
        members = [number for number in numbers if number in before]
        # Of several fields that were apart all may be set, and one that was in no oneof beside the oneof that was there.
        sources = {before[number] or number for number in members} | ({name} & written.keys())
        if len(sources) > 1:
            yield f"{place}, oneof {name!r}: of its fields {_listed(members)}, the writer may set several"


def _members(oneofs: Mapping[int, str | None]) -> dict[str, list[int]]:
    """Return the numbers of the fields of each oneof."""
    members: dict[str, list[int]] = {}
    for number, name in oneofs.items():
        if name:
            members.setdefault(name, []).append(number)
    return members


def _oneof(field: FieldDescriptor) -> str | None:
    """Return the oneof of a field; one that is made for an ``optional`` field of proto3 is none."""
    oneof = field.containing_oneof
    return (
        None
        if oneof is None or (len(oneof.fields) == 1 and oneof.name.lstrip("X") == f"_{field.name}")
        else oneof.name
    )


def _kind(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return "map"
    return _ENCODING[field.type]


def _messages(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    """Yield messages and those inside them, without those that are entries of maps."""
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from _messages(message.nested_types)


def _path(message: Descriptor) -> str:
    """Return the name of a message within its package."""
    return message.full_name.removeprefix(message.file.package + ".")


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
