"""Kafka messages as declared classes, and the compiler that turns them into codecs.

A message is a class whose annotations are its fields in wire order and whose
``at(…)`` says in which versions a field is there::

    @message
    class Topic:
        name: str | None = at(nullable="10+")
        topic_id: Uuid = at("10+", default=NO_UUID)

``reader`` and ``writer`` compile one version of a class into one straight-line
function: neighbouring fields of fixed size become one ``struct`` call, nested
classes become nested loops, and no version is asked for at run time. The
compiled functions are cached.

Encoding, big-endian (https://kafka.apache.org/protocol, KIP-482 for *flexible* versions):

============  ==========================  =======================================
type          classic                     flexible
============  ==========================  =======================================
bool, intN    1, 2, 4 or 8 bytes          the same
Uuid          16 bytes                    the same
str           length:2, UTF-8; -1 null    varint of length + 1; 0 null
bytes         length:4; -1 null           varint of length + 1; 0 null
Sequence[T]   count:4; -1 null            varint of count + 1; 0 null
class         its fields                  its fields, then tagged fields
class | None  1 byte (-1 null), fields    the same
============  ==========================  =======================================

Tagged fields are ``count, then (tag, size, bytes)`` in varints; unknown ones are skipped.

Every length and count is held against the bytes that are left before anything
of that size is made, so a decoder never allocates more than its input warrants.
An object takes some fifty times the bytes that it is read from, so a message may
have ``ELEMENTS_MAX`` elements in its arrays, whatever its size. A string has at
most ``STRING_BYTES_MAX`` bytes, in flexible versions too, as in Kafka: what came in
one version can be told in every other.
"""

from __future__ import annotations

import functools
import re
import struct
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, TypeVar, cast, dataclass_transform, overload

Buffer = bytes | bytearray | memoryview
_T = TypeVar("_T")
_V = TypeVar("_V")

Bool = Annotated[bool, "bool"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
# 16 bytes as they are: topic ids are compared, not looked at.
Uuid = Annotated[bytes, "uuid"]
# Not copied: a slice of what was read, or whatever buffer is written.
Records = Annotated[bytes | bytearray | memoryview, "records"]

NO_UUID = bytes(16)
STRING_BYTES_MAX = 32767
# Ten times the partitions of a large broker.
ELEMENTS_MAX = 100_000
# Reads and writes of one varint go no further: 32 bits.
_VARINT_BYTES_MAX = 5

_FORMATS = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uuid": "16s"}


class MalformedMessage(ValueError):
    """Bytes that are not the message they should be; the peer is at fault."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """From ``"3"``, ``"3+"``, ``"3-5"``; ``""`` is none."""
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


@overload
def at(versions: str = "0+", *, nullable: str | None = None, tag: int | None = None) -> Any: ...
@overload
def at(versions: str = "0+", *, default: _V, nullable: str | None = None, tag: int | None = None) -> _V: ...
def at(
    versions: str = "0+", *, default: Any = MISSING, nullable: str | None = None, tag: int | None = None
) -> Any:
    """Declare a field's versions, those in which it may be null (default: as annotated), and its tag.

    ``default`` stands in the versions that do not have the field.
    """
    spec = _At(Versions.parse(versions), None if nullable is None else Versions.parse(nullable), tag)
    return field(default=default, metadata={"at": spec})


@dataclass_transform(kw_only_default=True, field_specifiers=(at,))
def message(cls: type[_T]) -> type[_T]:
    """A class of wire fields: slotted, keyword-only, not yet compiled."""
    return dataclass(slots=True, kw_only=True)(cls)


# ── what a class declares ──


@dataclass(frozen=True, slots=True)
class Type:
    """The wire type of a field: a primitive's name, ``array`` or ``struct``, and what is inside."""

    kind: str
    item: Type | None = None
    cls: type | None = None

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


_NEVER = Versions(0, -1)


@functools.cache
def fields_of(cls: type) -> tuple[Field, ...]:
    """The declared fields of a message class, in wire order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found: list[Field] = []
    for declared in fields(cls):
        spec = cast("_At", declared.metadata.get("at", _ALWAYS))
        hint, is_optional = _without_none(hints[declared.name])
        nullable = spec.nullable if spec.nullable is not None else (spec.versions if is_optional else _NEVER)
        if spec.tag is not None and spec.nullable is None:
            # None as a default says that the field is left out, not that null is written.
            nullable = _NEVER
        default = None if declared.default is MISSING else declared.default
        if declared.default is MISSING and spec.versions != _ALWAYS.versions:
            raise TypeError(f"{cls.__name__}.{declared.name} is not in all versions and needs a default")
        found.append(Field(declared.name, _type_of(hint), spec.versions, nullable, spec.tag, default))
    return tuple(found)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [one for one in typing.get_args(hint) if one is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _type_of(hint: Any) -> Type:
    if typing.get_origin(hint) is Annotated:
        return Type(typing.get_args(hint)[1])
    if hint is str:
        return Type("string")
    if hint is bytes:
        return Type("bytes")
    if typing.get_origin(hint) is Sequence:
        return Type("array", item=_type_of(typing.get_args(hint)[0]))
    if is_dataclass(hint):
        return Type("struct", cls=cast("type", hint))
    raise TypeError(f"{hint!r} is not a wire type")


def least_bytes(kind: Type, version: int, flexible: bool) -> int:
    """The fewest bytes a value of this type takes."""
    if kind.kind in _FORMATS:
        return struct.calcsize(">" + _FORMATS[kind.kind])
    if kind.kind == "struct":
        present = [f for f in fields_of(kind.struct_class) if version in f.versions and f.tag is None]
        return flexible + sum(
            1 if f.type.kind == "struct" and version in f.nullable else least_bytes(f.type, version, flexible)
            for f in present
        )
    return 1 if flexible else (2 if kind.kind == "string" else 4)


# ── varints ──


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of 32 bits and the position behind it. Raises ``MalformedMessage``, ``IndexError``."""
    value = shift = 0
    for _ in range(_VARINT_BYTES_MAX):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
    raise MalformedMessage("a varint is longer than 32 bits")


def varint(value: int) -> bytes:
    """``value`` as an unsigned varint."""
    if value < 0x80:
        return _SMALL_VARINTS[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL_VARINTS = tuple(bytes((n,)) for n in range(0x80))


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """The position behind a section of tagged fields. Raises ``MalformedMessage``, ``IndexError``."""
    count, position = read_varint(buffer, position)
    for _ in range(count):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        if size > len(buffer) - position:
            raise MalformedMessage("a tagged field is longer than the message")
        position += size
    return position


def _is_short(what: str) -> MalformedMessage:
    return MalformedMessage(f"{what} goes on behind the end of the message")


def _is_null(what: str) -> MalformedMessage:
    return MalformedMessage(f"{what} is null, or its length is negative")


def _is_long(what: str) -> MalformedMessage:
    return MalformedMessage(f"{what} is longer than the {STRING_BYTES_MAX} bytes of a string")


def _is_many(what: str) -> MalformedMessage:
    return MalformedMessage(f"with {what} there are more than {ELEMENTS_MAX} elements in one message")


# ── the compiler ──


class _Code:
    """Lines of a function under construction, and the names they use."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.names: dict[str, object] = {
            "short": _is_short,
            "null": _is_null,
            "long": _is_long,
            "many": _is_many,
            "read_varint": read_varint,
            "varint": varint,
            "skip": skip_tagged_fields,
            "unpack": struct.unpack_from,
            "pack": struct.pack,
            "Malformed": MalformedMessage,
            "V": _SMALL_VARINTS,
        }
        self._depth = 1
        self._count = 0
        # Fields of fixed size that follow each other: (format, name or expression).
        self._run: list[tuple[str, str]] = []

    def new(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, value: object, prefix: str) -> str:
        for name, bound in self.names.items():
            if bound is value:
                return name
        name = self.new(prefix)
        self.names[name] = value
        return name

    def add(self, line: str) -> None:
        self.flush()
        self.lines.append("    " * self._depth + line)

    def indent(self) -> None:
        self.flush()
        self._depth += 1

    def dedent(self) -> None:
        self.flush()
        self._depth -= 1

    def put(self, form: str, name: str) -> None:
        self._run.append((form, name))

    def flush(self) -> None:
        if self._run:
            run, self._run = self._run, []
            self.emit_run(run)

    def emit_run(self, run: list[tuple[str, str]]) -> None:
        raise NotImplementedError

    def compile(self, head: str, name: str) -> Any:
        self.flush()
        source = "\n".join([head, *self.lines])
        exec(compile(source, f"<{name}>", "exec"), self.names)  # noqa: S102 - its own source, from declarations
        return self.names["codec"]

    def present(self, cls: type) -> tuple[list[Field], list[Field]]:
        """The fields of this version: the plain ones, and those with tags."""
        there = [f for f in fields_of(cls) if self.version in f.versions]
        return [f for f in there if f.tag is None], sorted(
            (f for f in there if f.tag is not None), key=lambda f: cast("int", f.tag)
        )


class _Reader(_Code):
    """Writes ``codec(b, p) -> (message, p)``."""

    def emit_run(self, run: list[tuple[str, str]]) -> None:
        layout = struct.Struct(">" + "".join(form for form, _ in run))
        names = ", ".join(name for _, name in run)
        unpack = self.new("unpack")
        self.names[unpack] = layout.unpack_from
        self.lines.append("    " * self._depth + f"{names}, = {unpack}(b, p)")
        self.lines.append("    " * self._depth + f"p += {layout.size}")

    def length(self, what: str, classic: str) -> str:
        """Read a length or count; -1 is null."""
        name = self.new("n")
        if self.flexible:
            self.add(f"{name} = b[p] - 1")
            self.add("p += 1")
            self.add(f"if {name} > 126:")
            self.add(f"    {name}, p = read_varint(b, p - 1)")
            self.add(f"    {name} -= 1")
        else:
            self.put(classic, name)
            self.add(f"if {name} < -1: raise null({what!r})")
        return name

    def value(self, kind: Type, what: str, *, nullable: bool) -> str:
        """Read a value into a new variable and return its name."""
        name = self.new()
        if kind.kind in _FORMATS:
            self.put(_FORMATS[kind.kind], name)
        elif kind.kind in ("string", "bytes", "records"):
            size = self.length(what, "h" if kind.kind == "string" else "i")
            self._null_or(size, name, what, nullable)
            if kind.kind == "string" and self.flexible:
                self.add(f"if {size} > {STRING_BYTES_MAX}: raise long({what!r})")
            self.add(f"e = p + {size}")
            self.add(f"if e > end: raise short({what!r})")
            made = {"string": "str(b[p:e], 'utf-8')", "bytes": "bytes(b[p:e])", "records": "b[p:e]"}
            self.add(f"{name} = {made[kind.kind]}")
            self.add("p = e")
            self.dedent()
        elif kind.kind == "array":
            self._array(kind.element, name, what, nullable)
        elif nullable:
            flag = self.new("n")
            self.put("b", flag)
            self._null_or(flag, name, what, nullable)
            self.add(f"{name} = {self.structure(kind.struct_class)}")
            self.dedent()
        else:
            made_by = self.structure(kind.struct_class)
            self.add(f"{name} = {made_by}")
        return name

    def _null_or(self, size: str, name: str, what: str, nullable: bool) -> None:
        """``if null: … else:``, the latter open."""
        self.add(f"if {size} < 0:")
        self.add(f"    {name} = None" if nullable else f"    raise null({what!r})")
        self.add("else:")
        self.indent()

    def _array(self, item: Type, name: str, what: str, nullable: bool) -> None:
        count = self.length(what, "i")
        self._null_or(count, name, what, nullable)
        least = least_bytes(item, self.version, self.flexible)
        self.add(f"if {count} * {least} > end - p: raise short({what!r})")
        self.add(f"room -= {count}")
        self.add(f"if room < 0: raise many({what!r})")
        if item.kind == "uuid":
            self.add(f"{name} = [bytes(b[q:q + 16]) for q in range(p, p + {count} * 16, 16)]")
            self.add(f"p += {count} * 16")
        elif item.kind in _FORMATS:
            self.add(f"{name} = list(unpack(f'>{{{count}}}{_FORMATS[item.kind]}', b, p))")
            self.add(f"p += {count} * {least}")
        else:
            self.add(f"{name} = []")
            self.add(f"for _ in range({count}):")
            self.indent()
            element = self.value(item, what, nullable=False)
            self.add(f"{name}.append({element})")
            self.dedent()
        self.dedent()

    def structure(self, cls: type) -> str:
        """Read the fields of a class; returns the expression that makes it."""
        plain, tagged = self.present(cls)
        arguments = [
            f"{f.name}={self.value(f.type, f.name, nullable=self.version in f.nullable)}" for f in plain
        ]
        if self.flexible:
            arguments += self._tags(tagged)
        self.flush()
        return f"{self.bind(cls, cls.__name__)}({', '.join(arguments)})"

    def _tags(self, tagged: list[Field]) -> list[str]:
        if not tagged:
            self.add("if b[p]: p = skip(b, p)")
            self.add("else: p += 1")
            return []
        names = {f.name: self.new("t") for f in tagged}
        for one in tagged:
            self.add(f"{names[one.name]} = {self.bind(one.default, 'default')}")
        count, tag, size, end = self.new("n"), self.new("g"), self.new("s"), self.new("e")
        self.add(f"{count}, p = read_varint(b, p)")
        self.add(f"for _ in range({count}):")
        self.indent()
        self.add(f"{tag}, p = read_varint(b, p)")
        self.add(f"{size}, p = read_varint(b, p)")
        self.add(f"{end} = p + {size}")
        self.add(f"if {end} > end: raise short('a tagged field')")
        word = "if"
        for one in tagged:
            self.add(f"{word} {tag} == {one.tag}:")
            self.indent()
            value = self.value(one.type, one.name, nullable=self.version in one.nullable)
            self.add(f"{names[one.name]} = {value}")
            self.dedent()
            word = "elif"
        self.add(f"else: p = {end}")
        self.add(f"if p != {end}: raise Malformed('a tagged field has another size than it says')")
        self.dedent()
        return [f"{name}={variable}" for name, variable in names.items()]


# Most arrays of numbers are short: replicas, partitions.
_ARRAY_SIZES = 16
_ARRAY_PACKERS = {
    form: [struct.Struct(f">{count}{form}").pack for count in range(_ARRAY_SIZES)] for form in "?bhiq"
}


class _Writer(_Code):
    """Writes ``codec(m, out)``, which appends to the bytearray ``out``.

    With ``gather`` it writes ``codec(m, out, parts)``: records are not copied but
    stand in the list ``parts``, between bytearrays of what is around them.
    """

    def __init__(self, version: int, flexible: bool, *, gather: bool = False) -> None:
        super().__init__(version, flexible)
        self.out = "out"
        self._gather = gather
        self.names["ARRAYS"] = _ARRAY_PACKERS

    def emit_run(self, run: list[tuple[str, str]]) -> None:
        pack = self.new("pack")
        self.names[pack] = struct.Struct(">" + "".join(form for form, _ in run)).pack
        expressions = ", ".join(expression for _, expression in run if expression)
        self.lines.append("    " * self._depth + f"{self.out} += {pack}({expressions})")

    def length(self, expression: str, classic: str) -> None:
        if not self.flexible:
            self.put(classic, expression)
            return
        name = self.new("n")
        self.add(f"{name} = {expression} + 1")
        self.add(f"{self.out} += V[{name}] if {name} < 128 else varint({name})")

    def value(self, kind: Type, expression: str, *, nullable: bool) -> None:
        if kind.kind in _FORMATS:
            self.put(_FORMATS[kind.kind], expression)
            return
        name = self.new()
        self.add(f"{name} = {expression}")
        if nullable:
            self.add(f"if {name} is None:")
            self.indent()
            if kind.kind == "struct":
                self.put("b", "-1")
            else:
                self.length("-1", "h" if kind.kind == "string" else "i")
            self.dedent()
            self.add("else:")
            self.indent()
        if kind.kind in ("string", "bytes", "records"):
            if kind.kind == "string":
                self.add(f"{name} = {name}.encode()")
            self.length(f"len({name})", "h" if kind.kind == "string" else "i")
            if kind.kind == "records" and self._gather:
                self.add(f"parts.append({self.out})")
                self.add(f"parts.append({name})")
                self.add(f"{self.out} = bytearray()")
            else:
                self.add(f"{self.out} += {name}")
        elif kind.kind == "array":
            self.length(f"len({name})", "i")
            if kind.element.kind in _FORMATS:
                self._primitives(_FORMATS[kind.element.kind], name)
            else:
                element = self.new()
                self.add(f"for {element} in {name}:")
                self.indent()
                self.value(kind.element, element, nullable=False)
                self.dedent()
        else:
            if nullable:
                self.put("b", "1")
            self.structure(kind.struct_class, name)
        if nullable:
            self.dedent()

    def _primitives(self, form: str, name: str) -> None:
        if form == "16s":
            self.add(f"{self.out} += b''.join({name})")
        else:
            packers = f"ARRAYS[{form!r}]"
            self.add(f"if len({name}) < {_ARRAY_SIZES}: {self.out} += {packers}[len({name})](*{name})")
            self.add(f"else: {self.out} += pack(f'>{{len({name})}}{form}', *{name})")

    def structure(self, cls: type, expression: str) -> None:
        plain, tagged = self.present(cls)
        for one in plain:
            self.value(one.type, f"{expression}.{one.name}", nullable=self.version in one.nullable)
        if self.flexible:
            if tagged:
                self._tags(tagged, expression)
            else:
                self.put("x", "")
        self.flush()

    def _tags(self, tagged: list[Field], expression: str) -> None:
        outer, parts = self.out, self.new("parts")
        self.add(f"{parts} = []")
        for one in tagged:
            value = f"{expression}.{one.name}"
            is_set = value if one.default == () else f"{value} != {self.bind(one.default, 'default')}"
            self.add(f"if {is_set}:")
            self.indent()
            inner = self.new("out")
            self.add(f"{inner} = bytearray()")
            self.out = inner
            self.value(one.type, value, nullable=self.version in one.nullable)
            self.flush()
            self.out = outer
            self.add(f"{parts}.append({varint(cast('int', one.tag))!r} + varint(len({inner})) + {inner})")
            self.dedent()
        self.add(f"{outer} += varint(len({parts}))")
        self.add(f"{outer} += b''.join({parts})")


@functools.cache
def reader(cls: type[_T], version: int, flexible: bool) -> Callable[[Buffer, int], tuple[_T, int]]:
    """``read(buffer, position) -> (message, position behind it)`` for one version.

    What is read may raise ``MalformedMessage``, ``IndexError``, ``struct.error``
    or ``UnicodeDecodeError``, all of which mean the first; see ``read_message``.
    """
    code = _Reader(version, flexible)
    code.add("end = len(b)")
    code.add(f"room = {ELEMENTS_MAX}")
    made = code.structure(cls)
    code.add(f"return {made}, p")
    return code.compile("def codec(b, p):", f"read {cls.__name__} v{version}")


@functools.cache
def gathering_writer(
    cls: type[_T], version: int, flexible: bool
) -> Callable[[_T, bytearray, list[bytes | bytearray]], None]:
    """``write(message, head, parts)``: as ``writer``, behind ``head``; records stand in ``parts`` uncopied."""
    code = _Writer(version, flexible, gather=True)
    code.structure(cls, "m")
    code.add("parts.append(out)")
    return code.compile("def codec(m, out, parts):", f"gather {cls.__name__} v{version}")


@functools.cache
def writer(cls: type[_T], version: int, flexible: bool) -> Callable[[_T, bytearray], None]:
    """``write(message, out)`` for one version; ``struct.error`` if a number does not fit its field."""
    code = _Writer(version, flexible)
    code.structure(cls, "m")
    code.add("return None")
    return code.compile("def codec(m, out):", f"write {cls.__name__} v{version}")


def read_message(
    cls: type[_T], version: int, flexible: bool, buffer: Buffer, position: int = 0
) -> tuple[_T, int]:
    """The message at ``position`` and the position behind it. Raises ``MalformedMessage``."""
    try:
        return reader(cls, version, flexible)(buffer, position)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(str(error)) from error
