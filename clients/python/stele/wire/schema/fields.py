"""Declarations of message classes and their fields."""

from __future__ import annotations

import functools
import re
import struct
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from reprlib import recursive_repr
from typing import Annotated, Any, TypeVar, cast, dataclass_transform, overload

Buffer = bytes | bytearray | memoryview
_T = TypeVar("_T")
_V = TypeVar("_V")

Bool = Annotated[bool, "bool"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
UInt16 = Annotated[int, "uint16"]
Float64 = Annotated[float, "float64"]
# 16 bytes; topic ids are only compared.
Uuid = Annotated[bytes, "uuid"]
# Not copied: a slice of the buffer that is read, or any buffer to write.
Records = Annotated[bytes | bytearray | memoryview, "records"]

# An array of structs that may stay encoded (``rows``).
Rows = Annotated[Sequence[_T], "rows"]

NO_UUID = bytes(16)

# The ``struct`` format of every type of fixed size.
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "uuid": "16s",
}


class MalformedMessage(ValueError):
    """The bytes are not a valid message; the peer is at fault."""


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a field in errors, if it differs from the attribute."""

    text: str


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse ``"3"``, ``"3+"`` or ``"3-5"``; ``""`` is no version."""
        match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
        if match is None:
            if text:
                raise ValueError(f"{text!r} is not a range of versions")
            return cls(0, -1)
        first = int(match[1])
        return cls(first, 32767 if match[2] else int(match[3] or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class _At:
    versions: Versions
    nullable: Versions | None
    tag: int | None


_ALWAYS = _At(Versions(0, 32767), None, None)
_NEVER = Versions(0, -1)


@overload
def at(versions: str = "0+", *, nullable: str | None = None, tag: int | None = None) -> Any: ...
@overload
def at(versions: str = "0+", *, default: _V, nullable: str | None = None, tag: int | None = None) -> _V: ...
def at(
    versions: str = "0+", *, default: Any = MISSING, nullable: str | None = None, tag: int | None = None
) -> Any:
    """Declare the versions of a field, those in which it may be null, and its tag.

    ``nullable`` None: as annotated. ``default`` is the value in versions without the field.
    """
    spec = _At(Versions.parse(versions), None if nullable is None else Versions.parse(nullable), tag)
    return field(default=default, metadata={"at": spec})


@dataclass_transform(kw_only_default=True, field_specifiers=(at,))
def message(cls: type[_T]) -> type[_T]:
    """Declare a message class: a slotted, keyword-only dataclass.

    There are hundreds, made at every start, so they share the methods that a dataclass would
    generate for each.
    """
    made: Any = dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)
    made.__eq__, made.__repr__, made.__hash__ = _equals, _shown, None
    return made


def _equals(this: Any, other: object) -> bool:
    if other.__class__ is not this.__class__:
        return NotImplemented
    return all(getattr(this, one.name) == getattr(other, one.name) for one in fields(this))


def _hashed(this: Any) -> int:
    return hash(tuple(getattr(this, one.name) for one in fields(this)))


@recursive_repr()
def _shown(this: Any) -> str:
    values = ", ".join(f"{one.name}={getattr(this, one.name)!r}" for one in fields(this))
    return f"{this.__class__.__qualname__}({values})"


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(at,))
def frozen_message(cls: type[_T]) -> type[_T]:
    """Declare a message class with immutable instances that can be hashed."""
    made: Any = dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)(cls)
    made.__eq__, made.__repr__, made.__hash__ = _equals, _shown, _hashed
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The wire type of a field, with the types inside it.

    ``kind`` is a key of ``FORMATS``, or ``string``, ``bytes``, ``records``,
    ``array`` (of ``item``), ``struct`` (the fields of ``cls``) or ``tuple`` (its
    ``parts``). ``convert`` turns a number that was read into a value, or raises. ``is_rows``: items of an array may stay
    encoded.
    """

    kind: str
    item: Type | None = None
    cls: type | None = None
    parts: tuple[Field, ...] = ()
    convert: Callable[[Any], Any] | None = None
    is_rows: bool = False

    @property
    def struct_class(self) -> type:
        assert self.cls is not None
        return self.cls

    @property
    def element(self) -> Type:
        assert self.item is not None
        return self.item


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Type
    versions: Versions
    nullable: Versions
    tag: int | None
    default: object
    label: str | None = None


@functools.cache
def fields_of(cls: type) -> tuple[Field, ...]:
    """Return the declared fields of a message class, in wire order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    declared_fields: list[Field] = []
    for declared in fields(cls):
        spec = cast("_At", declared.metadata.get("at", _ALWAYS))
        kind, is_optional, label = _read_hint(hints[declared.name])
        nullable = spec.nullable if spec.nullable is not None else (spec.versions if is_optional else _NEVER)
        if spec.tag is not None and spec.nullable is None:
            # The default None means that the field is omitted, not that null is written.
            nullable = _NEVER
        default = None if declared.default is MISSING else declared.default
        if declared.default is MISSING and spec.versions != _ALWAYS.versions:
            raise TypeError(f"{cls.__name__}.{declared.name} is not in all versions and needs a default")
        declared_fields.append(Field(declared.name, kind, spec.versions, nullable, spec.tag, default, label))
    return tuple(declared_fields)


def _read_hint(hint: Any) -> tuple[Type, bool, str | None]:
    """Return the type of an annotation, whether it allows None, and its label."""
    label = None
    if typing.get_origin(hint) is Annotated:
        inner, *metadata = typing.get_args(hint)
        label = next((item.text for item in metadata if isinstance(item, Label)), None)
        rest = [item for item in metadata if not isinstance(item, Label)]
        hint = Annotated[(inner, *rest)] if rest else inner
    hint, is_optional = _without_none(hint)
    return _type_of(hint), is_optional, label


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [member for member in typing.get_args(hint) if member is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _type_of(hint: Any) -> Type:
    if typing.get_origin(hint) is Annotated:
        inner, kind, *convert = typing.get_args(hint)
        if kind == "rows":
            return replace(_type_of(inner), is_rows=True)
        return Type(kind=kind, convert=convert[0] if convert else None)
    if hint is str:
        return Type(kind="string")
    if hint is bytes:
        return Type(kind="bytes")
    if typing.get_origin(hint) is Sequence:
        item, is_optional, _ = _read_hint(typing.get_args(hint)[0])
        if is_optional or item.convert is not None:
            raise TypeError(f"{hint!r}: the items of an array are never null, and plain")
        return Type(kind="array", item=item)
    if typing.get_origin(hint) is tuple:
        return Type(kind="tuple", parts=tuple(_part(item) for item in typing.get_args(hint)))
    if is_dataclass(hint):
        return Type(kind="struct", cls=cast("type", hint))
    raise TypeError(f"{hint!r} is not a wire type")


def _part(hint: Any) -> Field:
    kind, is_optional, label = _read_hint(hint)
    nullable = _ALWAYS.versions if is_optional else _NEVER
    return Field(label or "", kind, _ALWAYS.versions, nullable, None, None, label)


def least_bytes(kind: Type, version: int, flexible: bool, *, string_length: str = "h") -> int:
    """Return the smallest size of a value of this type, in bytes.

    ``string_length`` is the ``struct`` format of the length of a string.
    """
    if kind.kind in FORMATS:
        return struct.calcsize(">" + FORMATS[kind.kind])
    if kind.kind in ("struct", "tuple"):
        declared = kind.parts if kind.kind == "tuple" else fields_of(kind.struct_class)
        present = [f for f in declared if version in f.versions and f.tag is None]
        return (flexible and kind.kind == "struct") + sum(
            1
            if f.type.kind == "struct" and version in f.nullable
            else least_bytes(f.type, version, flexible, string_length=string_length)
            for f in present
        )
    if flexible:
        return 1
    return struct.calcsize(">" + (string_length if kind.kind == "string" else "i"))
