"""Messages with many elements in one of their arrays, made of those in ``sample_messages``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from stele.wire.schema import Field, Type, fields_of

from tests.support.batches import batch_of

_PARTITIONS = frozenset(("partition", "partition_index", "index"))


def long_messages(message: Any, elements: int) -> Iterator[tuple[str, Any]]:
    """Yield ``message`` with about that many elements in one of its arrays, and where: each of the upper two levels.

    The elements have different names and ids. Those of an inner array are different partitions.
    """
    for field in _fields(message):
        value = getattr(message, field.name)
        if field.type.kind == "struct" and value is not None:
            for where, inner in long_messages(value, elements):
                yield f"{field.name}.{where}", replace(message, **{field.name: inner})
        if field.type.kind != "array" or not value:
            continue
        (item,) = value
        yield field.name, replace(message, **{field.name: _repeated(item, elements, field.type)})
        if field.type.element.kind != "struct":
            continue
        for inner in _fields(item):
            parts = getattr(item, inner.name)
            if inner.type.kind == "array" and parts:
                whole = replace(item, **{inner.name: _repeated(parts[0], elements, inner.type)})
                yield f"{field.name}.{inner.name}", replace(message, **{field.name: [whole]})


def _fields(message: Any) -> tuple[Field, ...]:
    return fields_of(cast("type[Any]", type(message)))


def _repeated(item: Any, elements: int, array: Type) -> list[Any]:
    count = elements // _elements_of(item)
    if array.element.kind == "int8":
        return [item] * count
    return [_numbered(item, number) for number in range(count)]


def _elements_of(item: Any) -> int:
    """Return the elements of an item of an array: itself, and those of its arrays."""
    if isinstance(item, str | bytes | int | tuple):
        return 1
    arrays = [getattr(item, field.name) for field in _fields(item) if field.type.kind == "array"]
    return 1 + sum(_elements_of(part) for array in arrays for part in array or ())


def _numbered(item: Any, number: int) -> Any:
    """Return a copy of an item with a name, an id and a number of its own."""
    match item:
        case str():
            return f"{item}-{number}"
        case bytes():
            return (number + 1).to_bytes(16, "big")
        case int():
            return number
        case tuple():
            return (f"name-{number}", *item[1:])
        case _:
            pass
    changes: dict[str, Any] = {}
    is_named = False
    for field in _fields(item):
        value = getattr(item, field.name)
        if field.type.kind == "uuid":
            changes[field.name] = (number + 1).to_bytes(16, "big")
        elif field.type.kind == "string" and value and not is_named:
            changes[field.name], is_named = f"{value}-{number}", True
        elif field.type.kind == "records":
            # Each is placed in the log where it is.
            changes[field.name] = batch_of([b"x"], timestamp_ms=1)
        elif field.name in _PARTITIONS:
            changes[field.name] = number
        elif field.type.kind == "array" and value and field.type.element.kind == "struct":
            changes[field.name] = [_with_records(part) for part in value]
    return replace(item, **changes)


def _with_records(part: Any) -> Any:
    records = [field.name for field in _fields(part) if field.type.kind == "records"]
    return replace(part, **{name: batch_of([b"x"], timestamp_ms=1) for name in records})
