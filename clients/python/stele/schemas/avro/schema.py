"""A schema of Avro: its texts, and its values as bytes and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from ..definitions import InvalidSchema, InvalidValue
from . import printing
from .checking import ERRORS, Walk, Walks, is_walked
from .parsing import Parser
from .python_values import PythonReaders, PythonWriters
from .reading import Read, Readers, read_value
from .types import Type
from .writing import VALUES_MAX, Write, Writers, long_bytes, write_value

# Of the functions that read what one schema wrote for another. A consumer has one schema, a broker few.
_READERS_MAX = 32


class AvroSchema:
    """A parsed schema; ``root`` is the type of its values.

    ``encode`` and ``decode`` are of payloads. That of a schema that is ``bytes`` and nothing else has these bytes
    alone, without the length that Avro writes before them, as Confluent's serializers write and read it.
    """

    def __init__(self, root: Type, known: set[str]) -> None:
        self.root = root
        self._is_bytes = root.kind == "bytes"
        self._known = known
        self.canonical: str = printing.canonical(root, known)
        self._resolving: dict[tuple[type[Readers], int], tuple[AvroSchema, Read]] = {}

    @property
    def type(self) -> Literal["AVRO"]:
        return "AVRO"

    @property
    def full_name(self) -> str | None:
        return self.root.name or None

    def normalized(self) -> str:
        """Return the text by which schemas are equal that differ in how names are written or attributes ordered."""
        return printing.normalized(self.root, self._known)

    @property
    def resolved(self) -> str:
        """The text with what its references define, which clients ask for as ``format=resolved``."""
        return printing.canonical(self.root, set())

    def encode(self, value: Any) -> bytes:
        """Return a value in its JSON form as bytes.

        A field that is missing has its default.

        Raises:
            InvalidValue: The schema does not describe it.
        """
        return self._payload(write_value(self._write, value))

    def encode_python(self, value: Any) -> bytes:
        """Do what ``encode`` does with a value as Python has it; see ``python_values``."""
        return self._payload(write_value(self._write_python, value))

    def decode(self, data: bytes | memoryview, reader: AvroSchema | None = None) -> Any:
        """Return the JSON form of bytes that this schema wrote, as a value of the schema ``reader`` if given.

        Raises:
            InvalidValue: They are no bytes of this schema, or not to be read with the other.
        """
        read = self._read if reader is None or reader is self else self._read_as(reader, Readers)
        return read_value(read, self.written(data))

    def decode_python(self, data: bytes | memoryview, reader: AvroSchema | None = None) -> Any:
        """Do what ``decode`` does, and return the value as Python has it; see ``python_values``."""
        read = self._read_python if reader is None or reader is self else self._read_as(reader, PythonReaders)
        return read_value(read, self.written(data))

    def check(self, data: bytes | memoryview) -> None:
        """Do what ``decode`` does, but make no JSON form.

        Raises:
            InvalidValue: They are no bytes of this schema.
        """
        written = self.written(data)
        try:
            if is_walked(self._walk, written):
                return
        except ERRORS:
            pass
        read_value(self._check, written)

    def written(self, payload: bytes | memoryview) -> bytes:
        """Return what Avro writes for the value of a payload."""
        return long_bytes(len(payload)) + bytes(payload) if self._is_bytes else bytes(payload)

    def _payload(self, written: bytes) -> bytes:
        if not self._is_bytes:
            return written
        return written[next(index for index, byte in enumerate(written) if byte < 0x80) + 1 :]

    @cached_property
    def _read(self) -> Read:
        return Readers().reader(self.root, self.root)

    @cached_property
    def _check(self) -> Read:
        return Readers(plain=True).reader(self.root, self.root)

    @cached_property
    def _walk(self) -> Walk:
        return Walks().walk(self.root)

    @cached_property
    def _write(self) -> Write:
        return Writers().writer(self.root)

    @cached_property
    def _read_python(self) -> Read:
        return PythonReaders().reader(self.root, self.root)

    @cached_property
    def _write_python(self) -> Write:
        return PythonWriters().writer(self.root)

    def _read_as(self, reader: AvroSchema, readers: type[Readers]) -> Read:
        # With the schema itself, so that no other gets its id.
        _, read = self._resolving.get((readers, id(reader)), (None, None))
        if read is None:
            read = readers().reader(self.root, reader.root)
            if len(self._resolving) >= _READERS_MAX:
                self._resolving.clear()
            self._resolving[readers, id(reader)] = reader, read
        return read


def parse(
    text: str,
    references: Mapping[str, str] | None = None,
    *,
    registered: bool = False,
    check_defaults: bool = True,
) -> AvroSchema:
    """Parse a schema whose text uses names that ``references`` define, those that are used by others first.

    For one that is already ``registered``, names and defaults are not checked: registries took invalid ones for
    years, and its values are still to be read. Without ``check_defaults``, a default that is not valid is an error
    where it is used.

    Raises:
        InvalidSchema: It is none, or exceeds a bound.
    """
    parser = Parser(check_names=not registered)
    for name, referenced in (references or {}).items():
        try:
            parser.parse(referenced)
        except InvalidSchema as error:
            raise InvalidSchema(f"the reference {name}: {error.reason}") from None
    known = set(parser.names)
    parser.defaults.clear()
    root = parser.parse(text)
    if check_defaults and not registered:
        _check_defaults(parser)
    try:
        return AvroSchema(root, known)
    except ValueError as error:
        raise InvalidSchema(f"it has a number that is none of JSON: {error}") from None


def _check_defaults(parser: Parser) -> None:
    writers = Writers(defaults=True)
    budget = [VALUES_MAX]
    for record, field in parser.defaults:
        try:
            write_value(writers.writer(field.type), field.default, budget)
        except InvalidValue as error:
            raise InvalidSchema(f"{record}: the default of field {field.name} is invalid: {error}") from None
