"""Types → functions that read values, for a writer's and a reader's schema.

A function ``(data, position, depth, budget) -> (value, position)`` per type, made once; the work
per value is calls of these. Nothing that the data claims is believed: a length or count
costs nothing until its bytes are there, and values that take no bytes, such as the items of an array of nulls,
are counted against ``budget``, a list with the number of values that may still be made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from ..definitions import InvalidValue
from . import matching
from .logical import form_of
from .types import NO_DEFAULT, Field, Type, is_plain
from .writing import Writers, write_value

Read: TypeAlias = Callable[[bytes, int, int, list[int]], tuple[Any, int]]
Fields: TypeAlias = Iterable[tuple[str | None, Read]]

# Of records and arrays within each other. One takes up to four calls, of the 1,000 that CPython allows.
DEPTH_MAX = 128
# A value may make this many values more than a few per byte: fields of nulls take no bytes.
_VALUES_MIN = 100_000
_VALUES_PER_BYTE = 4

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
# What reading raises beyond the end, and for what is no value. UnicodeDecodeError is a ValueError.
_ERRORS = (InvalidValue, ValueError, IndexError, struct.error)


def budget_for(data: bytes) -> list[int]:
    """Return the budget of a value that all of the bytes are."""
    return [_VALUES_MIN + _VALUES_PER_BYTE * len(data)]


def read_value(read: Read, data: bytes) -> Any:
    """Return the value that all of the bytes are.

    Raises:
        InvalidValue: They are none.
    """
    try:
        value, end = read(data, 0, 0, budget_for(data))
    except _ERRORS as error:
        raise _placed(error) from None
    except RecursionError:
        raise InvalidValue("", "it is nested too deeply") from None
    if end != len(data):
        raise InvalidValue("", f"{len(data) - end} bytes follow the value")
    return value


def _placed(error: Exception, token: str | int | None = None) -> InvalidValue:
    """Return the error as one of the value that has the place ``token`` in it."""
    if not isinstance(error, InvalidValue):
        reason = str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "the string is not UTF-8"
        elif not isinstance(error, ValueError):
            reason = "the bytes end within it"
        error = InvalidValue("", reason)
    return error if token is None else error.within(token)


class Readers:
    """Makes the functions; ``plain`` ones check a value without making its JSON form.

    What belongs to a record is made when one is read for the first time: a schema may have thousands that use
    each other.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self._plain = plain
        self._records: dict[tuple[int, int], Read] = {}
        self._defaults = Writers(defaults=True)

    def reader(self, writer: Type, reader: Type) -> Read:
        """Return the function for values written with one type and read as the other, which may be the same."""
        if writer.kind == "union":
            if writer is reader:
                return _union([self._branch(branch, branch, reader) for branch in reader.branches])
            return _union([self.reader(branch, reader) for branch in writer.branches])
        if reader.kind == "union":
            branch = matching.matching_branch(writer, reader)
            if branch is None:
                return _failing(f"no branch of the reader's union reads {writer.branch_name}")
            return self._branch(writer, branch, reader)
        if writer.kind != reader.kind and reader.kind not in matching.PROMOTIONS.get(writer.kind, ()):
            return _failing(f"{writer.branch_name} was written, which is not read as {reader.branch_name}")
        if writer.name and not (writer is reader or matching.names_match(writer, reader)):
            return _failing(f"the {writer.kind} {writer.name} is not read as {reader.name}")
        match writer.kind:
            case "record":
                return self._record(writer, reader)
            case "array":
                return _array(self.reader(writer.content, reader.content))
            case "map":
                return _map(self.reader(writer.content, reader.content))
            case "enum":
                return _enum(writer, reader)
            case "null":
                return _read_null
            case "boolean":
                return _read_boolean
            case _:
                return self._leaf(writer, reader)

    def _branch(self, writer: Type, branch: Type, union: Type) -> Read:
        read = self.reader(writer, branch)
        if self._plain or branch.kind == "null" or is_plain(union):
            return read
        return _tagged(read, branch.branch_name)

    def _leaf(self, writer: Type, reader: Type) -> Read:
        if writer.size != reader.size:
            return _failing(f"{writer.size} bytes are not read as {reader.size}")
        if not matching.decimals_match(writer, reader):
            return _failing("a decimal of another scale, or of more digits than the reader's")
        read = _LEAVES.get(writer.kind) or _fixed(writer.size)
        convert = _CONVERSIONS.get((writer.kind, reader.kind))
        if convert:
            read = _converted(read, convert)
        show = self._show(reader)
        return _converted(read, show) if show else read

    def _show(self, type_: Type) -> Callable[[Any], Any] | None:
        """Return what makes the form of a value of a primitive or fixed type; None if it has it already."""
        form = form_of(type_)
        return form.show if form and (form.checks or not self._plain) else None

    def _record(self, writer: Type, reader: Type) -> Read:
        key = id(writer), id(reader)
        read = self._records.get(key)
        if read is None:
            if writer is reader:
                read = _record(
                    lambda: [(field.name, self.reader(field.type, field.type)) for field in writer.fields]
                )
            else:
                read = self._resolved_record(writer, reader)
            self._records[key] = read
        return read

    def _resolved_record(self, writer: Type, reader: Type) -> Read:
        """Return the function for a record that the reader's schema has in another way."""
        missing: list[Field] = []
        sources: dict[str, Field] = {}
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            source = next(iter(matching.written_fields(written, field)), None)
            if source is None or source.name in sources:
                missing.append(field)
            else:
                sources[source.name] = field

        def written_fields() -> Fields:
            for field in writer.fields:
                target = sources.get(field.name)
                # Those without a name are read and dropped.
                yield target.name if target else None, self.reader(field.type, (target or field).type)

        read_written = _record(written_fields)
        read_missing = _record(lambda: [(field.name, self._default(field)) for field in missing])

        def read(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[dict[str, Any], int]:
            value, position = read_written(data, position, depth, budget)
            value.update(read_missing(data, position, depth, budget)[0])
            return {field.name: value[field.name] for field in reader.fields}, position

        return read

    def _default(self, field: Field) -> Read:
        if field.default is NO_DEFAULT:
            return _failing("the writer's record has no such field, and the reader's has no default")
        try:
            data = write_value(self._defaults.writer(field.type), field.default)
        except InvalidValue as error:
            return _failing(f"the default of the field is not valid: {error.reason}")
        read = self.reader(field.type, field.type)
        # Read again for each record: a list or dictionary belongs to one value.
        return lambda _data, position, depth, budget: (read(data, 0, depth, budget)[0], position)


# ── numbers ──


def more(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Return the rest of a varint whose first byte has another after it."""
    number = first & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 10 bytes")
    if number >> 64:
        raise ValueError("a number of more than 64 bits")
    return number, position


def _read_long(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[int, int]:
    number = data[position]
    position += 1
    if number > 0x7F:
        number, position = more(data, position, number)
    return (number >> 1) ^ -(number & 1), position


def read_int(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[int, int]:
    number = data[position]
    position += 1
    if number > 0x7F:
        number, position = more(data, position, number)
        if number >> 32:
            raise ValueError("an int of more than 32 bits")
    return (number >> 1) ^ -(number & 1), position


def _read_float(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, position)[0], position + 4


def _read_double(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, position)[0], position + 8


def _read_boolean(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[bool, int]:
    byte = data[position]
    if byte > 1:
        raise ValueError(f"a boolean is the byte 0 or 1, not {byte}")
    return byte == 1, position + 1


def _read_null(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[None, int]:
    return None, position


def _to_float(number: float) -> float:
    return _FLOAT.unpack(_FLOAT.pack(number))[0]


# ── bytes and strings ──


def _span(data: bytes, position: int) -> tuple[int, int]:
    """Return where the bytes after a length begin and end."""
    length = data[position]
    position += 1
    if length > 0x7F:
        length, position = more(data, position, length)
    if length & 1:
        raise ValueError("a negative length")
    end = position + (length >> 1)
    if end > len(data):
        raise IndexError
    return position, end


def _read_bytes(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[bytes, int]:
    position, end = _span(data, position)
    return data[position:end], end


def _read_string(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[str, int]:
    # As `_span`, without a call: strings are what most values consist of.
    length = data[position]
    position += 1
    if length > 0x7F:
        length, position = more(data, position, length)
    end = position + (length >> 1)
    if length & 1 or end > len(data):
        raise IndexError if end > len(data) else ValueError("a negative length")
    return data[position:end].decode(), end


def _fixed(size: int) -> Read:
    def read(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[bytes, int]:
        end = position + size
        if end > len(data):
            raise IndexError
        return data[position:end], end

    return read


_LEAVES: dict[str, Read] = {
    "int": read_int,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}
_CONVERSIONS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("int", "float"): _to_float,
    ("long", "float"): _to_float,
    ("int", "double"): float,
    ("long", "double"): float,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}


def _converted(read: Read, convert: Callable[[Any], Any]) -> Read:
    def read_converted(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[Any, int]:
        value, position = read(data, position, depth, budget)
        return convert(value), position

    return read_converted


def _failing(reason: str) -> Read:
    def read(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[Any, int]:
        raise ValueError(reason)

    return read


# ── types of several values ──


def _enum(writer: Type, reader: Type) -> Read:
    known = set(reader.symbols)
    other = reader.other_symbol
    symbols = [symbol if symbol in known else other for symbol in writer.symbols]

    def read(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[str, int]:
        index, position = read_int(data, position, depth, budget)
        if not 0 <= index < len(symbols):
            raise ValueError(f"there is no symbol {index}")
        symbol = symbols[index]
        if symbol is None:
            raise ValueError(f"the reader's enum has no symbol {writer.symbols[index]} and no default")
        return symbol, position

    return read


def _union(branches: Sequence[Read]) -> Read:
    def read(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[Any, int]:
        index = data[position]
        position += 1
        if index > 0x7F:
            index, position = more(data, position, index)
        if index & 1 or index >> 1 >= len(branches):
            raise ValueError(f"there is no branch {(index >> 1) ^ -(index & 1)} in the union")
        return branches[index >> 1](data, position, depth, budget)

    return read


def _tagged(read: Read, name: str) -> Read:
    def read_tagged(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[Any, int]:
        try:
            value, position = read(data, position, depth, budget)
        except _ERRORS as error:
            raise _placed(error, name) from None
        return {name: value}, position

    return read_tagged


def read_block(data: bytes, position: int, budget: list[int]) -> tuple[int, int, int | None]:
    """Return the number of items of a block, where they begin, and where they end if the block says it."""
    count = data[position]
    position += 1
    if count > 0x7F:
        count, position = more(data, position, count)
    end = None
    if count & 1:
        count += 2
        size, position = _read_long(data, position, 0, budget)
        end = position + size
    count >>= 1
    budget[0] -= count
    if budget[0] < 0:
        raise ValueError(f"{count:,} items are more than so many bytes may be")
    return count, position, end


def _array(read_item: Read) -> Read:
    def read(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[list[Any], int]:
        items: list[Any] = []
        append = items.append
        depth += 1
        while True:
            count, position, end = read_block(data, position, budget)
            if not count:
                return items, position
            try:
                for _ in range(count):
                    item, position = read_item(data, position, depth, budget)
                    append(item)
            except _ERRORS as error:
                raise _placed(error, len(items)) from None
            if end is not None and position != end:
                raise ValueError("a block of another size than it says")

    return read


def _map(read_item: Read) -> Read:
    def read(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        depth += 1
        while True:
            count, position, end = read_block(data, position, budget)
            if not count:
                return items, position
            for _ in range(count):
                key, position = _read_string(data, position, depth, budget)
                try:
                    items[key], position = read_item(data, position, depth, budget)
                except _ERRORS as error:
                    raise _placed(error, key) from None
            if end is not None and position != end:
                raise ValueError("a block of another size than it says")

    return read


def _record(make_fields: Callable[[], Fields]) -> Read:
    fields: Sequence[tuple[str | None, Read]] | None = None

    def read(data: bytes, position: int, depth: int, budget: list[int]) -> tuple[dict[str | None, Any], int]:
        nonlocal fields
        if fields is None:
            fields = tuple(make_fields())
        budget[0] -= len(fields)
        if depth > DEPTH_MAX or budget[0] < 0:
            raise ValueError("records are nested too deeply, or too many in so few bytes")
        depth += 1
        value: dict[str | None, Any] = {}
        name = None
        try:
            for name, read_field in fields:
                value[name], position = read_field(data, position, depth, budget)
        except _ERRORS as error:
            raise _placed(error, name) from None
        return value, position

    return read
