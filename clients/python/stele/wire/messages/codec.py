"""The encoding of the binary protocol, which overrides the schema compiler.

=============  ==================================================
type           bytes, big-endian
=============  ==================================================
bool, intN     1, 2, 4 or 8
Uuid           16
str            length:4, UTF-8
str | None     as str; a length of -1 is None
bytes          length:4, the bytes
Sequence[T]    count:4, the items; a count of -1 is None
tuple, class   their fields
=============  ==================================================

There are no versions and no tagged fields. ``body_reader`` checks every length and count
against the remaining bytes before it allocates, and names the field in every error.
``frame_writer`` computes the length of a frame before it creates the frame. They compile
``ConsumeRequest`` to this (error handling left out)::

    def codec(b, p):
        end = len(b)
        n2, = unpack3(b, p)
        p += 4
        e = p + n2
        v1 = str(b[p:e], 'utf-8')
        p = e
        v4, v5, = unpack6(b, p)
        p += 12
        return ConsumeRequest7(topic=v1, offset=v4, batch_size=v5)

    def codec(m):
        v1 = m.topic
        v1 = v1.encode()
        size = 21 + len(v1)
        return pack2(size, 1, len(v1)) + v1 + pack3(m.offset, m.batch_size)
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ..schema import ELEMENTS_PER_READ, Field, Reader, Type, Writer, fields_of
from ..schema.compiler import ELEMENTS_PER_STEP, Fixed

# Elements in all arrays of a request, about twice the partitions of a large broker. A response has no limit.
REQUEST_ELEMENTS_MAX = 20_000


class MessageError(ValueError):
    """The body of a frame does not have the layout of its message; the stream is intact."""


# ── errors ──


def is_short(what: str, needed: int, left: int) -> MessageError:
    return MessageError(f"{what} needs {needed} bytes and {left} are left in the frame")


def _is_short_of(run: tuple[tuple[str, int], ...], left: int) -> MessageError:
    """Name the first field of a run that is incomplete."""
    for what, size in run:
        if size > left:
            return is_short(what, size, left)
        left -= size
    raise AssertionError("the run is complete")


def _is_negative(what: str, number: int) -> MessageError:
    return MessageError(f"{what} is negative: {number}")


def _is_crowded(what: str, count: int) -> MessageError:
    return MessageError(f"{what} count is {count}, more than the frame can hold")


def _has_many(count: int) -> MessageError:
    return MessageError(
        f"there are {count} elements in the arrays of the request; send several with {REQUEST_ELEMENTS_MAX} each"
    )


def _is_not_text(what: str) -> MessageError:
    return MessageError(f"{what} is not valid UTF-8")


def is_trailed(left: int) -> MessageError:
    return MessageError(f"{left} bytes trail the message")


def label_of(declared: Field) -> str:
    """Return the name of a field in errors: its label, or its own name without unit and plural."""
    if declared.label is not None:
        return declared.label
    words = declared.name.removesuffix("_ms").replace("_", " ")
    return words.removesuffix("s") if declared.type.kind == "array" else words


# ── reading ──


class _BodyReader(Reader):
    """Writes ``codec(b, p) -> message``, which reads the whole body from ``p`` on."""

    string_length = "i"

    def __init__(self, *, in_steps: bool = False) -> None:
        super().__init__(0, False, in_steps=in_steps)
        self.names |= {
            "short": is_short,
            "short_of": _is_short_of,
            "negative": _is_negative,
            "crowded": _is_crowded,
            "many": _has_many,
            "not_text": _is_not_text,
            "trailed": is_trailed,
            "StructError": struct.error,
        }

    def what(self, declared: Field) -> str:
        return label_of(declared)

    def emit_run(self, run: list[Fixed]) -> None:
        sizes = tuple((field.what, struct.calcsize(">" + field.form)) for field in run)
        unpack = self.new("unpack")
        self.names[unpack] = struct.Struct(">" + "".join(field.form for field in run)).unpack_from
        self.emit(f"try: {', '.join(field.name for field in run)}, = {unpack}(b, p)")
        self.emit(f"except StructError: raise short_of({sizes!r}, end - p) from None")
        self.emit(f"p += {sum(size for _, size in sizes)}")

    def open_sized(self, kind: Type, name: str, what: str, *, nullable: bool) -> None:
        size = self.new("n")
        self.put(self.string_length, size, f"{what} length")
        if nullable:
            self.add(f"if {size} == -1: {name} = None")
        self.add(f"{'elif' if nullable else 'if'} {size} < 0: raise negative({f'{what} length'!r}, {size})")
        self.add("else:")
        self.indent()
        self.add(f"e = p + {size}")
        self.add(f"if e > end: raise short({what!r}, {size}, end - p)")

    def text(self, name: str, what: str) -> None:
        self.add(f"try: {name} = str(b[p:e], 'utf-8')")
        self.add(f"except UnicodeDecodeError as error: raise not_text({what!r}) from error")

    def open_array(self, item: Type, name: str, what: str, *, nullable: bool) -> str:
        count = self.new("n")
        self.put("i", count, f"{what} count")
        if nullable:
            # Each item has at least a length field, so a false count fails at the end of the frame.
            self.add(f"if {count} == -1: {name} = None")
            self.add(f"elif {count} < 0: raise negative({f'{what} count'!r}, {count})")
        else:
            least = self.least_bytes(item)
            self.add(f"if {count} < 0 or {count} * {least} > end - p: raise crowded({what!r}, {count})")
        self.add("else:")
        self.indent()
        if self._in_steps:
            self.add(f"room -= {count}")
            self.add(f"if room < 0: raise many({REQUEST_ELEMENTS_MAX} - room)")
        return count


@functools.cache
def body_reader(cls: type) -> Callable[[bytes, int], Any]:
    """Compile ``read(body, position) -> message`` for the fields from ``position`` on.

    The function raises ``MessageError`` unless the rest of ``body`` is exactly those fields.
    """
    return _compiled_reader(cls, _BodyReader())


@functools.cache
def body_reader_in_steps(cls: type) -> Callable[[bytes, int], Generator[None, None, Any]]:
    """Compile ``body_reader`` of a request as a generator, which yields after every ``ELEMENTS_PER_READ`` elements."""
    code = _BodyReader(in_steps=True)
    code.begin_steps(ELEMENTS_PER_READ)
    code.add(f"room = {REQUEST_ELEMENTS_MAX}")
    return _compiled_reader(cls, code)


def _compiled_reader(cls: type, code: _BodyReader) -> Any:
    code.add("end = len(b)")
    code.add(f"made = {code.structure(cls)}")
    code.add("if p != end: raise trailed(end - p)")
    code.add("return made")
    return code.compile("def codec(b, p):", f"read {cls.__name__}")


# ── writing ──


class _FrameWriter(Writer):
    """Writes a function that returns a frame, or its parts.

    Bytes are collected as expressions until control flow needs a statement, so a message
    without arrays is one expression. Records are separate parts, so that they are copied
    at most once.
    """

    string_length = "i"

    def __init__(
        self, head: list[Fixed], *, is_straight: bool, has_records: bool, in_steps: bool = False
    ) -> None:
        super().__init__(0, False, in_steps=in_steps)
        self.names |= {"join": b"".join, "NONE": struct.pack(">i", -1)}
        self._is_straight = is_straight
        # Adjacent expressions, each with whether it is the name of records.
        self._pieces: list[tuple[str, bool]] = []
        self._size = 0
        self._sizes: list[str] = []
        self._head = head
        self._has_records = has_records
        if is_straight:
            self._run += head
        elif has_records:
            self.emit("parts = [b'']")
            self.emit(f"size = {_size_of(head)}")
        else:
            self.emit("parts = []")

    def add(self, line: str) -> None:
        """Add a line; pending expressions use variables that stay valid until the block ends."""
        if line.endswith(":"):
            self.flush()
            self._spill()
        self.emit(line)

    def dedent(self) -> None:
        self.flush()
        self._spill()
        super().dedent()

    def emit_run(self, run: list[Fixed]) -> None:
        self._pieces.append((self.packed(run), False))
        self._size += _size_of(run)

    def append(self, expression: str) -> None:
        self.flush()
        self._pieces.append((expression, False))
        self._sizes.append(f"len({expression})")

    def append_records(self, name: str) -> None:
        self.flush()
        self._pieces.append((name, True))
        self._sizes.append(f"len({name})")

    def value(self, kind: Type, expression: str, *, nullable: bool) -> None:
        if kind.kind == "string" and nullable:
            name = self.new()
            self.add(f"{name} = {expression}")
            self.add(f"if {name} is not None: {name} = {name}.encode()")
            length = self.packed([Fixed(self.string_length, f"len({name})", "")])
            self.add(f"{name} = NONE if {name} is None else {length} + {name}")
            self.append(name)
        else:
            super().value(kind, expression, nullable=nullable)

    def _items(self) -> list[str]:
        """Return the pieces as expressions, with adjacent ones joined."""
        items: list[list[str]] = []
        is_open = False
        for expression, is_records in self._pieces:
            if is_open and not is_records:
                items[-1].append(expression)
            else:
                items.append([expression])
            is_open = not is_records
        self._pieces = []
        return [" + ".join(item) for item in items]

    def _size_sum(self) -> str:
        total = " + ".join([str(self._size), *self._sizes])
        self._size, self._sizes = 0, []
        return total

    def _spill(self) -> None:
        if not self._pieces:
            return
        items = self._items()
        self.emit(f"parts.append({items[0]})" if len(items) == 1 else f"parts += ({', '.join(items)})")
        if self._has_records:
            self.emit(f"size += {self._size_sum()}")

    def finish(self, *, is_joined: bool) -> None:
        self.flush()
        if self._is_straight:
            self.emit(f"size = {self._size_sum()}")
            items = self._items()
            if is_joined:
                self.emit(f"return {items[0]}" if len(items) == 1 else f"return join(({', '.join(items)}))")
            else:
                self.emit(f"return [{', '.join(items)}]")
            return
        self._spill()
        if self._has_records:
            self.emit(f"parts[0] = {self.packed(self._head)}")
            self.emit("return join(parts)" if is_joined else "return parts")
            return
        # Small, so a second copy costs less than adding up the sizes of the parts.
        self.emit("body = join(parts)")
        self.emit(f"size = {_size_of(self._head)} + len(body)")
        frame = f"{self.packed(self._head)} + body"
        self.emit(f"return {frame}" if is_joined else f"return [{frame}]")


def _size_of(run: list[Fixed]) -> int:
    return struct.calcsize(">" + "".join(field.form for field in run))


def _inner(kind: Type) -> tuple[Field, ...]:
    return fields_of(kind.struct_class) if kind.kind == "struct" else kind.parts


def _is_straight(kind: Type) -> bool:
    """Return whether a type has no arrays, and only strings can be None."""
    return kind.kind != "array" and all(
        _is_straight(field.type) and (0 not in field.nullable or field.type.kind == "string")
        for field in _inner(kind)
    )


def _has_records(kind: Type) -> bool:
    if kind.kind == "array":
        return _has_records(kind.element)
    return kind.kind == "records" or any(_has_records(field.type) for field in _inner(kind))


@functools.cache
def frame_writer(cls: type, *prefix: int, is_joined: bool = True) -> Callable[[Any], Any]:
    """Compile ``write(message) -> frame``.

    A frame is the length, the bytes of ``prefix`` and the fields of ``cls``.

    Without ``is_joined`` the function returns the parts of the frame, with records as
    separate parts that are not copied. It raises ``struct.error`` for a number that does
    not fit its field.
    """
    return _compiled_writer(cls, prefix, is_joined=is_joined)


@functools.cache
def frame_writer_in_steps(cls: type, *prefix: int) -> Callable[[Any], Generator[None, None, list[bytes]]]:
    """Compile ``frame_writer`` of parts as a generator, which yields after every ``ELEMENTS_PER_STEP`` elements."""
    return _compiled_writer(cls, prefix, is_joined=False, in_steps=True)


def _compiled_writer(cls: type, prefix: Sequence[int], *, is_joined: bool, in_steps: bool = False) -> Any:
    head = [Fixed("I", "size", ""), *(Fixed("B", str(int(byte)), "") for byte in prefix)]
    kind = Type(kind="struct", cls=cls)
    # A generator has statements between its parts.
    is_straight = _is_straight(kind) and not in_steps
    code = _FrameWriter(head, is_straight=is_straight, has_records=_has_records(kind), in_steps=in_steps)
    if in_steps:
        code.begin_steps(ELEMENTS_PER_STEP)
    code.structure(cls, "m")
    code.finish(is_joined=is_joined)
    return code.compile("def codec(m):", f"write {cls.__name__}")
