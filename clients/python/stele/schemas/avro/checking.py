"""Types → functions that walk over the bytes of values, and make nothing of them.

A function ``(data, position, depth, budget) -> position`` per type, with the bounds of ``reading``. A walk accepts
nothing that reading refuses. If it raises one of ``ERRORS``, or ends elsewhere than the bytes do, reading decides, and
says what is wrong and where; so rare forms, such as numbers of ten bytes, need no walk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .logical import form_of
from .reading import DEPTH_MAX, Readers, budget_for, more, read_block, read_int
from .types import Type

Walk = Callable[[bytes, int, int, list[int]], int]

# UnicodeDecodeError is a ValueError.
ERRORS = (ValueError, IndexError, RecursionError)


def is_walked(walk: Walk, data: bytes) -> bool:
    """Return whether all of the bytes are one value. Raises ``ERRORS``."""
    # A walk may leave the end behind itself: it does not come back.
    return walk(data, 0, 0, budget_for(data)) == len(data)


class Walks:
    """Makes the functions of types; those of the fields of a record when one is met for the first time."""

    def __init__(self) -> None:
        self._records: dict[int, Walk] = {}
        self._readers = Readers(plain=True)

    def walk(self, type_: Type) -> Walk:
        match type_.kind:
            case "record":
                walk = self._records.get(id(type_))
                if walk is None:
                    walk = self._records[id(type_)] = self._record(type_)
                return walk
            case "array":
                return _items(self.walk(type_.content), is_map=False)
            case "map":
                return _items(self.walk(type_.content), is_map=True)
            case "union":
                return _union([self.walk(branch) for branch in type_.branches])
            case "enum":
                return _enum(len(type_.symbols))
            case _:
                return self._leaf(type_)

    def _leaf(self, type_: Type) -> Walk:
        form = form_of(type_)
        if form is None or not form.checks:
            return _LEAVES.get(type_.kind) or _fixed(type_.size)
        read = self._readers.reader(type_, type_)
        return lambda data, position, depth, budget: read(data, position, depth, budget)[1]

    def _record(self, type_: Type) -> Walk:
        fields: Sequence[Walk] | None = None

        def walk(data: bytes, position: int, depth: int, budget: list[int]) -> int:
            nonlocal fields
            if fields is None:
                fields = tuple(self.walk(field.type) for field in type_.fields)
            budget[0] -= len(fields)
            if depth > DEPTH_MAX or budget[0] < 0:
                raise ValueError
            depth += 1
            for field in fields:
                position = field(data, position, depth, budget)
            return position

        return walk


def _long(data: bytes, position: int, depth: int, budget: list[int]) -> int:
    last = position
    while data[last] > 0x7F:
        last += 1
    if last > position + 8:
        raise ValueError
    return last + 1


def _int(data: bytes, position: int, depth: int, budget: list[int]) -> int:
    last = position
    while data[last] > 0x7F:
        last += 1
    if last > position + 3 and (last > position + 4 or data[last] > 0x0F):
        raise ValueError
    return last + 1


def _bytes(data: bytes, position: int, depth: int, budget: list[int]) -> int:
    length = data[position]
    position += 1
    if length > 0x7F:
        length, position = more(data, position, length)
    if length & 1:
        raise ValueError
    return position + (length >> 1)


def _string(data: bytes, position: int, depth: int, budget: list[int]) -> int:
    length = data[position]
    position += 1
    if length > 0x7F:
        length, position = more(data, position, length)
    if length & 1:
        raise ValueError
    end = position + (length >> 1)
    data[position:end].decode()
    return end


def _boolean(data: bytes, position: int, depth: int, budget: list[int]) -> int:
    if data[position] > 1:
        raise ValueError
    return position + 1


def _fixed(size: int) -> Walk:
    return lambda data, position, depth, budget: position + size


_LEAVES: dict[str, Walk] = {
    "null": _fixed(0),
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _bytes,
    "string": _string,
}


def _enum(symbols: int) -> Walk:
    def walk(data: bytes, position: int, depth: int, budget: list[int]) -> int:
        index, position = read_int(data, position, depth, budget)
        if not 0 <= index < symbols:
            raise ValueError
        return position

    return walk


def _union(branches: Sequence[Walk]) -> Walk:
    def walk(data: bytes, position: int, depth: int, budget: list[int]) -> int:
        index = data[position]
        position += 1
        if index > 0x7F:
            index, position = more(data, position, index)
        if index & 1:
            raise ValueError
        return branches[index >> 1](data, position, depth, budget)

    return walk


def _items(item: Walk, *, is_map: bool) -> Walk:
    def walk(data: bytes, position: int, depth: int, budget: list[int]) -> int:
        depth += 1
        while True:
            count, position, end = read_block(data, position, budget)
            if not count:
                return position
            for _ in range(count):
                if is_map:
                    position = _string(data, position, depth, budget)
                position = item(data, position, depth, budget)
            if position > len(data) or end not in (None, position):
                raise ValueError

    return walk
