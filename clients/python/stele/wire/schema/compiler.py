"""The compiler, which turns one version of a declared class into a function.

``Reader`` and ``Writer`` walk the declaration and emit lines of source. Adjacent fields of
fixed size become one ``struct`` call. Both implement Apache Kafka's encoding; a protocol
with other lengths, limits or error texts overrides the methods under *overridable*.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, cast

from .fields import FORMATS, Field, MalformedMessage, Type, fields_of, least_bytes
from .rows import EncodedRows
from .varints import SMALL_VARINTS, read_varint, skip_fields, varint

STRING_BYTES_MAX = 32767
# Ten times the partitions of a large broker.
ELEMENTS_MAX = 100_000
# Of a request to a broker, which reads it in steps: to free the objects of more takes longer than a turn of its loop.
REQUEST_ELEMENTS_MAX = 50_000
# Of a message with fewer bytes, all items are decoded.
ROWS_BYTES_MIN = 256
# Elements that are read in one step, about 1 µs each. A message with fewer bytes has fewer elements.
ELEMENTS_PER_READ = 500


def _is_short(what: str) -> MalformedMessage:
    return MalformedMessage(f"{what} extends past the end of the message")


def _is_null(what: str) -> MalformedMessage:
    return MalformedMessage(f"{what} is null, or its length is negative")


def _is_long(what: str) -> MalformedMessage:
    return MalformedMessage(f"{what} is longer than the {STRING_BYTES_MAX} bytes of a string")


def _is_many(what: str, limit: int) -> MalformedMessage:
    return MalformedMessage(f"with {what} there are more than {limit} elements in one message; send several")


class Fixed(NamedTuple):
    """A value of fixed size: its format, variable or expression, and name in errors."""

    form: str
    name: str
    what: str


class Code:
    """Lines of a function under construction, and the names they use."""

    # The format of a string's length where versions are not flexible.
    string_length = "h"

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
            "skip": skip_fields,
            "unpack": struct.unpack_from,
            "pack": struct.pack,
            "Malformed": MalformedMessage,
            "V": SMALL_VARINTS,
        }
        self._depth = 1
        self._count = 0
        # Adjacent fields of fixed size.
        self._run: list[Fixed] = []

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

    def emit(self, line: str) -> None:
        """Add a line without flushing pending fields of fixed size first, unlike ``add``."""
        self.lines.append("    " * self._depth + line)

    def add(self, line: str) -> None:
        self.flush()
        self.emit(line)

    def indent(self) -> None:
        self.flush()
        self._depth += 1

    def dedent(self) -> None:
        self.flush()
        self._depth -= 1

    def put(self, form: str, name: str, what: str = "") -> None:
        self._run.append(Fixed(form, name, what))

    def flush(self) -> None:
        if self._run:
            run, self._run = self._run, []
            self.emit_run(run)

    def emit_run(self, run: list[Fixed]) -> None:
        raise NotImplementedError

    def compile(self, head: str, name: str) -> Any:
        self.flush()
        source = "\n".join([head, *self.lines])
        exec(compile(source, f"<{name}>", "exec"), self.names)  # noqa: S102 - its own source, from declarations
        return self.names["codec"]

    def begin_steps(self, elements: int) -> None:
        """Make the function a generator, whose first step has that many elements."""
        self.add(f"left = {elements}")
        # A message without arrays has no step to yield after.
        self.add("yield from ()")

    def step(self, elements: int, count: str = "1") -> None:
        """Count an element, or as many as ``count`` has, and yield after every ``elements`` or so."""
        self.add(f"left -= {count}")
        self.add("if left <= 0:")
        self.add(f"    left = {elements}")
        self.add("    yield")

    def present(self, cls: type) -> tuple[list[Field], list[Field]]:
        """Return the plain fields and the tagged fields of this version."""
        present = [f for f in fields_of(cls) if self.version in f.versions]
        return [f for f in present if f.tag is None], sorted(
            (f for f in present if f.tag is not None), key=lambda f: cast("int", f.tag)
        )

    def least_bytes(self, kind: Type) -> int:
        return least_bytes(kind, self.version, self.flexible, string_length=self.string_length)

    def is_nullable(self, declared: Field) -> bool:
        return self.version in declared.nullable


class Reader(Code):
    """Writes ``codec(b, p) -> (message, p)``.

    With ``in_steps`` that is a generator, which yields after every ``ELEMENTS_PER_READ`` elements of its arrays.
    """

    def __init__(self, version: int, flexible: bool, *, in_steps: bool = False) -> None:
        super().__init__(version, flexible)
        self._in_steps = in_steps
        self._elements_max = REQUEST_ELEMENTS_MAX if in_steps else ELEMENTS_MAX

    # ── overridable ──

    def what(self, declared: Field) -> str:
        """Return the name of a field in errors."""
        return declared.name

    def emit_run(self, run: list[Fixed]) -> None:
        layout = struct.Struct(">" + "".join(field.form for field in run))
        unpack = self.new("unpack")
        self.names[unpack] = layout.unpack_from
        self.emit(f"{', '.join(field.name for field in run)}, = {unpack}(b, p)")
        self.emit(f"p += {layout.size}")

    def open_sized(self, kind: Type, name: str, what: str, *, nullable: bool) -> None:
        """Read the length of a string or bytes, and set ``e`` to its end.

        The block stays open.
        """
        size = self.length(what, self.string_length if kind.kind == "string" else "i")
        self._null_or(size, name, what, nullable)
        if kind.kind == "string" and self.flexible:
            self.add(f"if {size} > {STRING_BYTES_MAX}: raise long({what!r})")
        self.add(f"e = p + {size}")
        self.add(f"if e > end: raise short({what!r})")

    def text(self, name: str, what: str) -> None:
        """Decode the bytes up to ``e``."""
        del what
        self.add(f"{name} = str(b[p:e], 'utf-8')")

    def open_array(self, item: Type, name: str, what: str, *, nullable: bool) -> str:
        """Read and bound the count of an array, in a block that stays open; returns its variable."""
        count = self.length(what, "i")
        self._null_or(count, name, what, nullable)
        self.add(f"if {count} * {self.least_bytes(item)} > end - p: raise short({what!r})")
        self.add(f"room -= {count}")
        self.add(f"if room < 0: raise many({what!r}, {self._elements_max})")
        return count

    # ── the walk ──

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
        """Read a value; return its variable, or an expression over variables."""
        name = self.new()
        if kind.kind in FORMATS:
            self.put(FORMATS[kind.kind], name, what)
            return name if kind.convert is None else f"{self.bind(kind.convert, 'convert')}({name})"
        if kind.kind == "tuple":
            values = [self.value(f.type, self.what(f), nullable=self.is_nullable(f)) for f in kind.parts]
            self.flush()
            return f"({', '.join(values)},)"
        if kind.kind in ("string", "bytes", "records"):
            self.open_sized(kind, name, what, nullable=nullable)
            if kind.kind == "string":
                self.text(name, what)
            else:
                self.add(f"{name} = bytes(b[p:e])" if kind.kind == "bytes" else f"{name} = b[p:e]")
            self.add("p = e")
            self.dedent()
        elif kind.kind == "array":
            self._array(kind, name, what, nullable)
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

    def _array(self, kind: Type, name: str, what: str, nullable: bool) -> None:
        item = kind.element
        count = self.open_array(item, name, what, nullable=nullable)
        if item.kind == "uuid":
            self.add(f"{name} = [bytes(b[q:q + 16]) for q in range(p, p + {count} * 16, 16)]")
            self.add(f"p += {count} * 16")
        elif item.kind in FORMATS:
            self.add(f"{name} = list(unpack(f'>{{{count}}}{FORMATS[item.kind]}', b, p))")
            self.add(f"p += {count} * {self.least_bytes(item)}")
            if self._in_steps:
                self.step(ELEMENTS_PER_READ, count)
        elif kind.is_rows and self._have_one_size(item.struct_class):
            self._rows(item, name, count, what)
        else:
            self._items(item, name, count, what)
        self.dedent()

    def _items(self, item: Type, name: str, count: str, what: str) -> None:
        self.add(f"{name} = []")
        self.add(f"for _ in range({count}):")
        self.indent()
        element = self.value(item, what, nullable=False)
        self.add(f"{name}.append({element})")
        if self._in_steps:
            self.step(ELEMENTS_PER_READ)
        self.dedent()

    def _have_one_size(self, cls: type) -> bool:
        """Return whether all items that have no tagged fields have the same size."""
        plain, _ = self.present(cls)
        return all(field.type.kind in FORMATS for field in plain)

    def _rows(self, item: Type, name: str, count: str, what: str) -> None:
        """Leave the items encoded, unless one of them has tagged fields or the message is small."""
        size, q = self.least_bytes(item), self.new("q")
        cut = self.new("cut")
        self.names[cut] = struct.Struct(f"{size}s").iter_unpack
        read = Reader(self.version, self.flexible)
        self.add(f"{q} = p + {count} * {size}")
        is_decoded = f"end < {ROWS_BYTES_MIN}"
        if self.flexible:
            # The last byte of an item is the number of its tagged fields.
            is_decoded += f" or bytes(b[p + {size - 1}:{q}:{size}]).count(0) != {count}"
        self.add(f"if {is_decoded}:")
        self.indent()
        self._items(item, name, count, what)
        self.dedent()
        self.add("else:")
        self.indent()
        made_by = f"{self.bind(EncodedRows, 'rows')}([row for row, in {cut}(b[p:{q}])], {self.bind(read.message(item.struct_class), 'read')})"
        self.add(f"{name} = {made_by}")
        self.add(f"p = {q}")
        if self._in_steps:
            self.step(ELEMENTS_PER_READ, count)
        self.dedent()

    def message(self, cls: type) -> Any:
        """Compile the function for a whole message."""
        self.add("end = len(b)")
        self.add(f"room = {self._elements_max}")
        if self._in_steps:
            self.begin_steps(ELEMENTS_PER_READ)
        made = self.structure(cls)
        self.add(f"return {made}, p")
        return self.compile("def codec(b, p):", f"read {cls.__name__} v{self.version}")

    def structure(self, cls: type) -> str:
        """Read the fields of a class; return the expression that creates it."""
        plain, tagged = self.present(cls)
        arguments = [
            f"{f.name}={self.value(f.type, self.what(f), nullable=self.is_nullable(f))}" for f in plain
        ]
        if self.flexible:
            arguments += self._tags(tagged)
        self.flush()
        return f"{self.bind(cls, cls.__name__)}({', '.join(arguments)})"

    def _tags(self, tagged: list[Field]) -> list[str]:
        if not tagged:
            self.add("if b[p]:")
            self.indent()
            self.add(f"p = skip(b, p, {self._tag_count()})")
            self.dedent()
            self.add("else: p += 1")
            return []
        names = {f.name: self.new("t") for f in tagged}
        for field in tagged:
            self.add(f"{names[field.name]} = {self.bind(field.default, 'default')}")
        tag, size, end = self.new("g"), self.new("s"), self.new("e")
        self.add(f"for _ in range({self._tag_count()}):")
        self.indent()
        self.add(f"{tag}, p = read_varint(b, p)")
        self.add(f"{size}, p = read_varint(b, p)")
        self.add(f"{end} = p + {size}")
        self.add(f"if {end} > end: raise short('a tagged field')")
        word = "if"
        for field in tagged:
            self.add(f"{word} {tag} == {field.tag}:")
            self.indent()
            value = self.value(field.type, self.what(field), nullable=self.is_nullable(field))
            self.add(f"{names[field.name]} = {value}")
            self.dedent()
            word = "elif"
        self.add(f"else: p = {end}")
        self.add(f"if p != {end}: raise Malformed('the size of a tagged field is wrong')")
        self.dedent()
        return [f"{name}={variable}" for name, variable in names.items()]

    def _tag_count(self) -> str:
        """Read and bound the number of tagged fields; returns its variable."""
        count = self.new("n")
        self.add(f"{count}, p = read_varint(b, p)")
        self.add(f"room -= {count}")
        self.add(f"if room < 0: raise many('tagged fields', {self._elements_max})")
        return count


# Records of at least this size are not copied.
GATHERED_BYTES_MIN = 1024
# Elements that are written in one step, 1 to 3 µs each.
ELEMENTS_PER_STEP = 256
# Most arrays of numbers are short: replicas, partitions.
_ARRAY_SIZES = 16
# Padding, and the marks of what is null or not.
_CONSTANTS = ("", "-1", "1")
_ARRAY_PACKERS = {
    form: [struct.Struct(f">{count}{form}").pack for count in range(_ARRAY_SIZES)] for form in "?bhiqHd"
}


class Writer(Code):
    """Writes ``codec(m, out)``, which appends to the bytearray ``out``.

    With ``gather`` it writes ``codec(m, out, parts)``: records are not copied unless they are small, but are items
    of the list ``parts``, between bytearrays of the other fields. With ``in_steps`` that is a generator, which yields
    after every ``ELEMENTS_PER_STEP`` elements of its arrays.
    """

    def __init__(self, version: int, flexible: bool, *, gather: bool = False, in_steps: bool = False) -> None:
        super().__init__(version, flexible)
        self.out: str = "out"
        self._gather = gather
        self._in_steps = in_steps
        self.names["ARRAYS"] = _ARRAY_PACKERS

    # ── overridable ──

    def append(self, expression: str) -> None:
        """Write the bytes of ``expression``."""
        self.add(f"{self.out} += {expression}")

    def append_records(self, name: str) -> None:
        """Write the buffer in the variable ``name``, which may be large."""
        if self._gather:
            # Of a few bytes a copy takes less time than further parts.
            self.add(f"if len({name}) < {GATHERED_BYTES_MIN}: {self.out} += {name}")
            self.add("else:")
            self.add(f"    parts.append({self.out})")
            self.add(f"    parts.append({name})")
            self.add(f"    {self.out} = bytearray()")
        else:
            self.append(name)

    # ── the walk ──

    def emit_run(self, run: list[Fixed]) -> None:
        self.emit(f"{self.out} += {self.packed(run)}")

    def packed(self, run: list[Fixed]) -> str:
        """Return the expression that packs adjacent fields of fixed size."""
        layout = struct.Struct(">" + "".join(field.form for field in run))
        if all(field.name in _CONSTANTS for field in run):
            return repr(layout.pack(*(int(field.name) for field in run if field.name)))
        pack = self.new("pack")
        self.names[pack] = layout.pack
        return f"{pack}({', '.join(field.name for field in run if field.name)})"

    def length(self, expression: str, classic: str) -> None:
        if not self.flexible:
            self.put(classic, expression)
            return
        if expression == "-1":
            self.append(repr(varint(0)))
            return
        name = self.new("n")
        self.add(f"{name} = {expression} + 1")
        self.append(f"V[{name}] if {name} < 128 else varint({name})")

    def value(self, kind: Type, expression: str, *, nullable: bool) -> None:
        if kind.kind in FORMATS:
            self.put(FORMATS[kind.kind], expression)
            return
        name = self.new()
        # Fields of fixed size before and after it are packed together.
        self.emit(f"{name} = {expression}")
        classic = self.string_length if kind.kind == "string" else "i"
        if nullable:
            self.add(f"if {name} is None:")
            self.indent()
            if kind.kind == "struct":
                self.put("b", "-1")
            else:
                self.length("-1", classic)
            self.dedent()
            self.add("else:")
            self.indent()
        if kind.kind in ("string", "bytes", "records"):
            if kind.kind == "string":
                self.emit(f"{name} = {name}.encode()")
            self.length(f"len({name})", classic)
            if kind.kind == "records":
                self.append_records(name)
            else:
                self.append(name)
        elif kind.kind == "array":
            self._array(kind, name)
        elif kind.kind == "tuple":
            parts = [self.new() for _ in kind.parts]
            self.add(f"{', '.join(parts)}, = {name}")
            for part, variable in zip(kind.parts, parts, strict=True):
                self.value(part.type, variable, nullable=self.is_nullable(part))
        else:
            if nullable:
                self.put("b", "1")
            self.structure(kind.struct_class, name)
        if nullable:
            self.dedent()

    def _array(self, kind: Type, name: str) -> None:
        item = kind.element
        self.length(f"len({name})", "i")
        if item.kind == "uuid":
            self.append(f"b''.join({name})")
        elif item.kind in FORMATS:
            form = FORMATS[item.kind]
            short = f"ARRAYS[{form!r}][len({name})](*{name})"
            self.append(
                f"({short} if len({name}) < {_ARRAY_SIZES} else pack(f'>{{len({name})}}{form}', *{name}))"
            )
        else:
            element = self.new()
            self.add(f"for {element} in {name}:")
            self.indent()
            if kind.is_rows:
                self.add(f"if {element}.__class__ is bytes:")
                self.add(f"    {self.out} += {element}")
                self.add("    continue")
            self.value(item, element, nullable=False)
            if self._in_steps:
                self.step(ELEMENTS_PER_STEP)
            self.dedent()

    def structure(self, cls: type, expression: str) -> None:
        plain, tagged = self.present(cls)
        for field in plain:
            self.value(field.type, f"{expression}.{field.name}", nullable=self.is_nullable(field))
        if self.flexible:
            if tagged:
                self._tags(tagged, expression)
            else:
                self.put("x", "")
        self.flush()

    def _tags(self, tagged: list[Field], expression: str) -> None:
        outer, parts = self.out, self.new("parts")
        self.add(f"{parts} = []")
        for field in tagged:
            value = f"{expression}.{field.name}"
            is_set = value if field.default == () else f"{value} != {self.bind(field.default, 'default')}"
            self.add(f"if {is_set}:")
            self.indent()
            inner = self.new("out")
            self.add(f"{inner} = bytearray()")
            self.out = inner
            self.value(field.type, value, nullable=self.is_nullable(field))
            self.flush()
            self.out = outer
            self.add(f"{parts}.append({varint(cast('int', field.tag))!r} + varint(len({inner})) + {inner})")
            self.dedent()
        self.append(f"V[len({parts})]")
        part = self.new("part")
        self.add(f"for {part} in {parts}: {outer} += {part}")
