"""Types → functions that write values in their JSON form.

A function ``(out, value, depth, budget)`` per type, as in ``reading``. ``Writers(defaults=True)`` makes those
for the defaults in a schema, whose JSON form is Avro's own: bytes are strings of the characters
U+0000 to U+00FF, logical types are what is stored, and a union takes the first of its
branches that fits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from .. import json_values
from ..definitions import InvalidValue
from ..json_values import kind_of
from .logical import form_of
from .types import NO_DEFAULT, Field, Type, is_plain, json_kinds

Write: TypeAlias = Callable[[bytearray, Any, int, list[int]], None]

# As in reading; a value can be read again if it can be written.
DEPTH_MAX = 128
# Of a value that has few: defaults may make any number of others.
VALUES_MAX = 100_000

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
ERRORS = (InvalidValue, ValueError)
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}


def write_value(write: Write, value: Any, budget: list[int] | None = None) -> bytes:
    """Return the bytes of a value; ``budget`` is for several values together.

    Raises:
        InvalidValue: The type does not describe it.
    """
    out = bytearray()
    try:
        write(out, value, 0, budget or [VALUES_MAX])
    except ERRORS as error:
        raise _placed(error) from None
    except RecursionError:
        raise InvalidValue("", "it is nested too deeply") from None
    return bytes(out)


def _placed(error: Exception, token: str | int | None = None) -> InvalidValue:
    """Return the error as one of the value that has the place ``token`` in it."""
    if not isinstance(error, InvalidValue):
        reason = (
            "half of a pair of UTF-16 is no character"
            if isinstance(error, UnicodeEncodeError)
            else str(error)
        )
        error = InvalidValue("", reason)
    return error if token is None else error.within(token)


class Writers:
    """Makes the functions, those of a record when one is written for the first time."""

    def __init__(self, *, defaults: bool = False) -> None:
        self._are_defaults = defaults
        self._defaults = self if defaults else Writers(defaults=True)
        self._records: dict[int, Write] = {}

    def writer(self, type_: Type) -> Write:
        """Return the function for values of a type."""
        match type_.kind:
            case "null":
                return _write_null
            case "boolean":
                return _write_boolean
            case "record":
                write = self._records.get(id(type_))
                if write is None:
                    write = self._records[id(type_)] = self._record(type_)
                return write
            case "array":
                return _array(self.writer(type_.content), counted=self._are_defaults)
            case "map":
                return _map(self.writer(type_.content), counted=self._are_defaults)
            case "enum":
                return _enum(type_)
            case "union":
                return self._default_union(type_) if self._are_defaults else self._union(type_)
            case _:
                return self._leaf(type_)

    def _leaf(self, type_: Type) -> Write:
        write = _LEAVES.get(type_.kind) or _fixed(type_.size)
        if not self._are_defaults:
            parse = self._parse(type_)
        elif type_.kind in ("bytes", "fixed"):
            parse = _characters
        else:
            parse = json_values.parse_float if type_.kind in ("float", "double") else None
        return parsed(write, parse) if parse else write

    def _parse(self, type_: Type) -> Callable[[Any], Any] | None:
        """Return what makes the value that is written of its form; None if it is the same."""
        form = form_of(type_)
        return form.parse if form else None

    def _record(self, type_: Type) -> Write:
        return _record(
            type_, lambda: [(field, self.writer(field.type), self._default(field)) for field in type_.fields]
        )

    def _default(self, field: Field) -> Write | None:
        if field.default is NO_DEFAULT:
            return None
        write = self._defaults.writer(field.type)

        def write_default(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
            _spend(budget, 1)
            write(out, field.default, depth, budget)

        return write_default

    def _union(self, type_: Type) -> Write:
        tagged: dict[str, Branch] = {}
        by_type: dict[type, Branch] = {}
        plain = is_plain(type_)
        for index, branch in enumerate(type_.branches):
            written = long_bytes(index), self.writer(branch)
            if branch.kind != "null":
                tagged[branch.branch_name] = written
            if plain or branch.kind == "null":
                by_type.update(
                    (python, written) for kind in json_kinds(branch) for python in _PYTHON_TYPES[kind]
                )
        if plain and any(branch.kind == "map" for branch in type_.branches):
            # Any name can be a key of the map.
            tagged.clear()
        return _union(type_, tagged, by_type)

    def _default_union(self, type_: Type) -> Write:
        branches = [(long_bytes(index), self.writer(branch)) for index, branch in enumerate(type_.branches)]

        def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
            start = len(out)
            for prefix, write_branch in branches:
                _spend(budget, 1)
                out += prefix
                try:
                    return write_branch(out, value, depth, budget)
                except ERRORS:
                    del out[start:]
            raise ValueError("the value is of no branch of the union")

        return write


Branch: TypeAlias = tuple[bytes, Write]


def _spend(budget: list[int], count: int) -> None:
    budget[0] -= count
    if budget[0] < 0:
        raise ValueError("the defaults have too many values")


# ── leaves ──


def long_bytes(number: int) -> bytes:
    out = bytearray()
    _put_long(out, number)
    return bytes(out)


def _put_long(out: bytearray, number: int) -> None:
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _integer(bits: int) -> Write:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        if type(value) is not int:
            raise ValueError(f"an integer is needed, not {kind_of(value)}")
        if not least <= value <= most:
            raise ValueError(f"the integer exceeds {bits} bits")
        _put_long(out, value)

    return write


def _write_null(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
    if value is not None:
        raise ValueError(f"null is needed, not {kind_of(value)}")


def _write_boolean(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
    if type(value) is not bool:
        raise ValueError(f"a boolean is needed, not {kind_of(value)}")
    out.append(value)


def _write_float(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
    try:
        out += _FLOAT.pack(value)
    except OverflowError:
        raise ValueError("the number exceeds a float") from None


def _write_double(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
    out += _DOUBLE.pack(value)


def _write_bytes(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
    _put_long(out, len(value))
    out += value


def _write_string(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
    if type(value) is not str:
        raise ValueError(f"a string is needed, not {kind_of(value)}")
    encoded = value.encode()
    _put_long(out, len(encoded))
    out += encoded


def _fixed(size: int) -> Write:
    def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        if len(value) != size:
            raise ValueError(f"{size} bytes are needed, not {len(value)}")
        out += value

    return write


_LEAVES: dict[str, Write] = {
    "int": _integer(32),
    "long": _integer(64),
    "float": _write_float,
    "double": _write_double,
    "bytes": _write_bytes,
    "string": _write_string,
}


def parsed(write: Write, parse: Callable[[Any], Any]) -> Write:
    def write_parsed(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        write(out, parse(value), depth, budget)

    return write_parsed


def _characters(value: Any) -> bytes:
    """Return the bytes that a default says as characters."""
    if type(value) is not str:
        raise ValueError(f"a string is needed, not {kind_of(value)}")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("a default of bytes has the characters U+0000 to U+00FF only") from None


def _enum(type_: Type) -> Write:
    indexes = {symbol: long_bytes(index) for index, symbol in enumerate(type_.symbols)}

    def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        index = indexes.get(value) if type(value) is str else None
        if index is None:
            raise ValueError(f"a symbol of {type_.name} is needed, not {kind_of(value)} that is none")
        out += index

    return write


# ── types of several values ──


def _array(write_item: Write, *, counted: bool) -> Write:
    def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        if type(value) is not list:
            raise ValueError(f"an array is needed, not {kind_of(value)}")
        items = cast("list[Any]", value)
        if counted:
            _spend(budget, len(items))
        if items:
            _put_long(out, len(items))
            written = 0
            try:
                for item in items:
                    write_item(out, item, depth + 1, budget)
                    written += 1
            except ERRORS as error:
                raise _placed(error, written) from None
        out.append(0)

    return write


def _map(write_item: Write, *, counted: bool) -> Write:
    def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        items = _object(value)
        if counted:
            _spend(budget, len(items))
        if items:
            _put_long(out, len(items))
            for key, item in items.items():
                _write_string(out, key, depth, budget)
                try:
                    write_item(out, item, depth + 1, budget)
                except ERRORS as error:
                    raise _placed(error, key) from None
        out.append(0)

    return write


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise ValueError(f"an object is needed, not {kind_of(value)}")
    return cast("dict[str, Any]", value)


def _record(type_: Type, make_fields: Callable[[], Sequence[tuple[Field, Write, Write | None]]]) -> Write:
    fields: Sequence[tuple[Field, Write, Write | None]] | None = None

    def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        nonlocal fields
        items = _object(value)
        if fields is None:
            fields = make_fields()
        if depth > DEPTH_MAX:
            raise ValueError("records are nested too deeply")
        depth += 1
        left = len(items)
        name = ""
        try:
            for field, write_field, write_default in fields:
                name = field.name
                if name in items:
                    left -= 1
                    write_field(out, items[name], depth, budget)
                elif write_default is not None:
                    write_default(out, None, depth, budget)
                else:
                    raise ValueError("the field is missing, and has no default")
        except ERRORS as error:
            raise _placed(error, name) from None
        if left:
            unknown = min(items.keys() - {field.name for field in type_.fields}, key=str)
            raise _placed(ValueError(f"the record {type_.name} has no such field"), unknown)

    return write


def _union(type_: Type, tagged: dict[str, Branch], by_type: dict[type, Branch]) -> Write:
    def write(out: bytearray, value: Any, depth: int, budget: list[int]) -> None:
        kind: Any = value.__class__
        if kind is dict:
            members = cast("dict[str, Any]", value)
            name = next(iter(members), "")
            branch = tagged.get(name) if len(members) == 1 else None
            if branch is not None and not (dict in by_type and is_field(name)):
                out += branch[0]
                try:
                    branch[1](out, members[name], depth, budget)
                except ERRORS as error:
                    raise _placed(error, name) from None
                return
        branch = by_type.get(kind)
        if branch is None:
            raise ValueError(no_branch(value))
        out += branch[0]
        branch[1](out, value, depth, budget)

    def is_field(name: str) -> bool:
        return any(field.name == name for branch in type_.branches for field in branch.fields)

    def no_branch(value: Any) -> str:
        names = [branch.branch_name for branch in type_.branches]
        if tagged and not is_plain(type_):
            return f'{kind_of(value)} does not say which of {", ".join(names)}: write {{"{next(iter(tagged))}": …}}'
        return f"{kind_of(value)} is of no branch of the union of {', '.join(names) or 'nothing'}"

    return write
