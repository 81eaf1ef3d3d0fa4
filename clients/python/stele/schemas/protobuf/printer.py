"""Prints a descriptor as ``.proto`` text: one text per schema, whatever its author's spacing and order of options.

The text has no comments. Fields and nested messages keep their order, because the index of a message
in the framing of a value counts the messages before it, those of maps and groups among them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.text_encoding import CEscape, CUnescape

from .scalars import shortest

_MAX_FIELD = 1 << 29
_MAX_INT = (1 << 31) - 1
# Names of types that a parser would read as something else at the beginning of a declaration.
_WORDS = {
    *(name[5:].lower() for name in FieldDescriptorProto.Type.keys()),  # noqa: SIM118 - no dict
    *("enum", "export", "extend", "extensions", "local", "map", "message", "oneof", "option", "optional"),
    *("repeated", "required", "reserved", "returns", "stream"),
}


def printed(
    file: FileDescriptorProto, pool: DescriptorPool, names: set[str], *, normalized: bool = False
) -> str:
    """Return the text of a file; ``pool`` has the options that it uses, ``names`` all names that it sees.

    ``normalized`` also sorts what has no meaning by its order: imports, fields, reserved names, enum values.
    """
    return _Printer(file, pool, names, normalized=normalized).text()


def declared(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the full names of everything that a file declares, and of its packages."""
    package = file.package
    while package:
        yield package
        package = package.rpartition(".")[0]
    for service in file.service:
        yield _join(file.package, service.name)
        yield from (_join(file.package, service.name, method.name) for method in service.method)
    yield from _declared(file.package, file.message_type, file.enum_type, file.extension)


def _declared(
    scope: str,
    messages: Iterable[DescriptorProto],
    enums: Iterable[EnumDescriptorProto],
    extensions: Iterable[FieldDescriptorProto],
) -> Iterator[str]:
    for enum in enums:
        yield _join(scope, enum.name)
        yield from (_join(scope, value.name) for value in enum.value)
    yield from (_join(scope, extension.name) for extension in extensions)
    for message in messages:
        inside = _join(scope, message.name)
        yield inside
        yield from (_join(inside, part.name) for part in (*message.field, *message.oneof_decl))
        yield from _declared(inside, message.nested_type, message.enum_type, message.extension)


def _join(*names: str) -> str:
    return ".".join(name for name in names if name)


class _Printer:
    def __init__(
        self, file: FileDescriptorProto, pool: DescriptorPool, names: set[str], *, normalized: bool
    ) -> None:
        self._file = file
        self._pool = pool
        self._names = names
        self._normalized = normalized
        self._editions = file.syntax == "editions"
        self._lines: list[str] = []
        self._indent = ""

    def text(self) -> str:
        file = self._file
        if self._editions:
            self._lines.append(f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";')
        else:
            self._lines.append(f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._lines.append(f"package {file.package};")
        self._section(self._imports())
        self._section(f"option {option};" for option in self._options(file.options, file.package))
        self._lines.append("")
        self._types(file.package, [], [], file.message_type, file.enum_type, file.extension)
        for service in file.service:
            self._service(service)
        return "\n".join(self._lines).rstrip("\n") + "\n"

    def _section(self, lines: Iterable[str]) -> None:
        lines = list(lines)
        if lines:
            self._lines += ["", *lines]

    def _line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    @contextmanager
    def _block(self, head: str) -> Generator[None]:
        self._line(head + " {")
        self._indent += "  "
        yield
        self._indent = self._indent[2:]
        self._line("}")

    def _imports(self) -> list[str]:
        file = self._file
        kinds = {file.dependency[index]: "public " for index in file.public_dependency}
        kinds |= {file.dependency[index]: "weak " for index in file.weak_dependency}
        lines = [f"import {kinds.get(name, '')}{quoted(name)};" for name in file.dependency]
        lines += [f"import option {quoted(name)};" for name in file.option_dependency]
        return sorted(lines) if self._normalized else lines

    # ── messages ──

    def _types(
        self,
        scope: str,
        fields: Sequence[FieldDescriptorProto],
        oneofs: Sequence[Any],
        messages: Sequence[DescriptorProto],
        enums: Sequence[EnumDescriptorProto],
        extensions: Sequence[FieldDescriptorProto],
    ) -> None:
        """Print the contents of a message or a file in an order that keeps that of its messages.

        A map or a group makes a message where its field stands, so what makes messages is printed
        between the messages of the text, as far as their order needs it.
        """
        inside = {"." + _join(scope, message.name): message for message in messages}
        units = self._units(fields, inside)
        blocks: list[list[FieldDescriptorProto]] = []
        for extension in extensions:
            if not blocks or blocks[-1][0].extendee != extension.extendee:
                blocks.append([])
            blocks[-1].append(extension)
        makers = {
            name: index for index, unit in enumerate((*units, *blocks)) for name in self._made(unit, inside)
        }

        def print_to(stop: int, *, extended: bool) -> None:
            """Print the units, or the blocks of extensions, before ``stop`` that are not printed yet."""
            queue, write = (blocks, self._extend) if extended else (units, self._unit)
            while done[extended] < stop:
                write(queue[done[extended]], scope, oneofs, inside)
                done[extended] += 1

        done = {False: 0, True: 0}
        left = len(makers)
        for name, message in inside.items():
            if name not in makers:
                if not left:
                    print_to(len(units), extended=False)
                self._message(message, scope)
                continue
            left -= 1
            if makers[name] < len(units):
                print_to(makers[name] + 1, extended=False)
            else:
                print_to(makers[name] + 1 - len(units), extended=True)
        print_to(len(units), extended=False)
        for enum in enums:
            self._enum(enum, scope)
        print_to(len(blocks), extended=True)

    def _units(
        self, fields: Sequence[FieldDescriptorProto], inside: dict[str, DescriptorProto]
    ) -> list[list[FieldDescriptorProto]]:
        """Return the fields as the text declares them: one by one, and those of a oneof together."""
        units: dict[Any, list[FieldDescriptorProto]] = {}
        for field in fields:
            units.setdefault(_oneof(field) if _oneof(field) is not None else field.name, []).append(field)
        if self._normalized:
            by_number = sorted(
                (sorted(unit, key=lambda field: field.number) for unit in units.values()),
                key=lambda unit: unit[0].number,
            )
            made = [
                field.type_name for unit in units.values() for field in unit if self._made([field], inside)
            ]
            if made == [
                field.type_name for unit in by_number for field in unit if self._made([field], inside)
            ]:
                return by_number
        return list(units.values())

    def _made(self, fields: Iterable[FieldDescriptorProto], inside: dict[str, DescriptorProto]) -> set[str]:
        """Return the names of the messages that the declaration of these fields makes."""
        return {
            field.type_name
            for field in fields
            if field.type_name in inside and (_entry(field, inside) or self._is_group(field))
        }

    def _is_group(self, field: FieldDescriptorProto) -> bool:
        return field.type == FieldDescriptorProto.TYPE_GROUP and not self._editions

    def _message(self, message: DescriptorProto, scope: str) -> None:
        with self._block(f"{_visibility(message)}message {message.name}"):
            self._body(message, _join(scope, message.name))

    def _body(self, message: DescriptorProto, scope: str) -> None:
        for option in self._options(message.options, scope):
            self._line(f"option {option};")
        ranges = [(part.start, part.end - 1) for part in message.reserved_range]
        self._reserved(ranges, message.reserved_name, _MAX_FIELD - 1)
        for part in message.extension_range:
            options = _bracketed(self._options(part.options, scope))
            # The end of a message set is that of int32.
            self._line(
                f"extensions {_range(part.start, part.end - 1, {_MAX_FIELD - 1, _MAX_INT - 1})}{options};"
            )
        self._types(
            scope,
            message.field,
            message.oneof_decl,
            message.nested_type,
            message.enum_type,
            message.extension,
        )

    def _reserved(self, ranges: Iterable[tuple[int, int]], names: Iterable[str], most: int) -> None:
        ranges, names = list(ranges), list(names)
        if self._normalized:
            ranges, names = sorted(ranges), sorted(names)
        if ranges:
            self._line(f"reserved {', '.join(_range(start, end, {most}) for start, end in ranges)};")
        if names:
            self._line(f"reserved {', '.join(names if self._editions else map(quoted, names))};")

    def _unit(
        self,
        unit: Sequence[FieldDescriptorProto],
        scope: str,
        oneofs: Sequence[Any],
        inside: dict[str, DescriptorProto],
    ) -> None:
        index = _oneof(unit[0])
        if index is None:
            self._field(unit[0], scope, inside)
            return
        with self._block(f"oneof {oneofs[index].name}"):
            for option in self._options(oneofs[index].options, scope):
                self._line(f"option {option};")
            for field in unit:
                self._field(field, scope, inside)

    def _extend(
        self,
        block: Sequence[FieldDescriptorProto],
        scope: str,
        oneofs: Sequence[Any],
        inside: dict[str, DescriptorProto],
    ) -> None:
        with self._block(f"extend {self._name(block[0].extendee, scope)}"):
            for field in block:
                self._field(field, scope, inside)

    def _field(self, field: FieldDescriptorProto, scope: str, inside: dict[str, DescriptorProto]) -> None:
        label = ""
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            label = "repeated "
        elif field.label == FieldDescriptorProto.LABEL_REQUIRED:
            label = "required "
        elif field.proto3_optional or (self._file.syntax in ("", "proto2") and _oneof(field) is None):
            label = "optional "
        rest = f"= {field.number}{_bracketed(self._field_options(field, scope))}"
        if entry := _entry(field, inside):
            key, value = sorted(entry.field, key=lambda part: part.number)
            self._line(f"map<{self._type(key, scope)}, {self._type(value, scope)}> {field.name} {rest};")
        elif self._is_group(field) and field.type_name in inside:
            message = inside[field.type_name]
            with self._block(f"{label}group {message.name} {rest}"):
                self._body(message, _join(scope, message.name))
        else:
            self._line(f"{label}{self._type(field, scope)} {field.name} {rest};")

    def _field_options(self, field: FieldDescriptorProto, scope: str) -> list[str]:
        options = self._options(field.options, scope)
        if field.HasField("json_name") and field.json_name != _json_name(field.name) and not field.extendee:
            options.insert(0, f"json_name = {quoted(field.json_name)}")
        if field.HasField("default_value"):
            value = field.default_value
            if field.type == FieldDescriptorProto.TYPE_STRING:
                value = quoted(value)
            elif field.type == FieldDescriptorProto.TYPE_BYTES:
                value = f'"{CEscape(CUnescape(value), as_utf8=False)}"'
            elif field.type in (FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_FLOAT):
                # What wrote the descriptor may have used more digits than it needs.
                value = _number(float(value), single=field.type == FieldDescriptorProto.TYPE_FLOAT)
            options.insert(0, f"default = {value}")
        return options

    # ── enums, services ──

    def _enum(self, enum: EnumDescriptorProto, scope: str) -> None:
        with self._block(f"{_visibility(enum)}enum {enum.name}"):
            for option in self._options(enum.options, scope):
                self._line(f"option {option};")
            self._reserved(
                [(part.start, part.end) for part in enum.reserved_range], enum.reserved_name, _MAX_INT
            )
            values = list(enum.value)
            if self._normalized:
                # The first one is the default, and the first of several with one number is its name.
                values[1:] = sorted(values[1:], key=lambda value: value.number)
            for value in values:
                options = _bracketed(self._options(value.options, scope))
                self._line(f"{value.name} = {value.number}{options};")

    def _service(self, service: ServiceDescriptorProto) -> None:
        scope = _join(self._file.package, service.name)
        with self._block(f"service {service.name}"):
            for option in self._options(service.options, scope):
                self._line(f"option {option};")
            for method in service.method:
                asked = "stream " * method.client_streaming + self._name(method.input_type, scope)
                answered = "stream " * method.server_streaming + self._name(method.output_type, scope)
                head = f"rpc {method.name} ({asked}) returns ({answered})"
                options = self._options(method.options, scope)
                if not options:
                    self._line(head + ";")
                    continue
                with self._block(head):
                    for option in options:
                        self._line(f"option {option};")

    # ── names, options ──

    def _type(self, field: FieldDescriptorProto, scope: str) -> str:
        if field.type_name:
            return self._name(field.type_name, scope)
        return FieldDescriptorProto.Type.Name(field.type)[5:].lower()

    def _name(self, full: str, scope: str) -> str:
        """Return the shortest form of a name that means it in this scope."""
        parts = full.removeprefix(".").split(".")
        for start in range(len(parts) - 1, -1, -1):
            if parts[start] in _WORDS:
                continue
            # The compiler looks for the first part from the innermost scope outwards, and takes what it finds.
            at = scope
            while at and f"{at}.{parts[start]}" not in self._names:
                at = at.rpartition(".")[0]
            if at == ".".join(parts[:start]):
                return ".".join(parts[start:])
        return "." + ".".join(parts)

    def _options(self, options: Any, scope: str) -> list[str]:
        """Return the options of a declaration, sorted by name; those whose definition is unknown are left out."""
        data = options.SerializePartialToString()
        if not data:
            return []
        try:
            # The class of this pool knows the options that the schema's imports define.
            descriptor = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
            options = GetMessageClass(descriptor).FromString(data)
        except KeyError:
            pass
        found: list[tuple[bool, str, str]] = []
        for field, value in options.ListFields():
            name = f"({self._name(field.full_name, scope)})" if field.is_extension else field.name
            if name != "uninterpreted_option":
                values = value if field.is_repeated else [value]
                found += [(field.is_extension, name, self._value(field, part)) for part in values]
        return [f"{name} = {value}" for _, name, value in sorted(found, key=lambda part: part[:2])]

    def _value(self, field: Any, value: Any) -> str:
        if field.message_type is not None:
            return f"{{ {text_format.MessageToString(value, as_one_line=True, descriptor_pool=self._pool)} }}"
        if field.enum_type is not None:
            constant = field.enum_type.values_by_number.get(value)
            return constant.name if constant else str(value)
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, bytes):
            return f'"{CEscape(value, as_utf8=False)}"'
        if isinstance(value, float):
            return _number(value, single=field.type == FieldDescriptorProto.TYPE_FLOAT)
        return str(value).lower()


def _oneof(field: FieldDescriptorProto) -> int | None:
    """Return the index of the oneof of a field; ``optional`` in proto3 is none, although it has one."""
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None


def _entry(field: FieldDescriptorProto, inside: dict[str, DescriptorProto]) -> DescriptorProto | None:
    """Return the message of the entries of a field that is a map."""
    message = inside.get(field.type_name)
    return message if message is not None and message.options.map_entry and len(message.field) == 2 else None


def _json_name(name: str) -> str:
    return re.sub("_+(.?)", lambda match: match[1].upper(), name)


def _visibility(declaration: Any) -> str:
    return {1: "local ", 2: "export "}.get(declaration.visibility, "")


def _range(start: int, end: int, most: set[int]) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end in most else end}"


def _bracketed(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _number(value: float, *, single: bool) -> str:
    return repr(shortest(value) if single and math.isfinite(value) else value)


def quoted(text: str) -> str:
    """Return a text as a literal."""
    # A literal in double quotes has plain single ones.
    return '"' + CEscape(text.encode(), as_utf8=True).replace("\\'", "'") + '"'
