"""Types of columns: what two of them have in common, and arrays of one as the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..wire.arrow_types import Array, DataType, pa

# Columns of a table, those within others counted: readers hold something of each per file.
COLUMNS_MAX = 1000
# Of what a record has beside its value.
RECORD = "_record"

_types: Any = pa.types
_is_list: Callable[[DataType], bool] = lambda one: _types.is_list(one) or _types.is_large_list(one)  # noqa: E731
# Each by the wider type.
_WIDER = {(pa.int32(), pa.int64()): pa.int64(), (pa.float32(), pa.float64()): pa.float64()}


class Misfit(Exception):
    """A type that a column cannot become; the message says why."""


def merged(have: DataType, new: DataType, path: str = "") -> DataType:
    """Return the type of a column that has values of both.

    A struct gets the fields that it lacks at its end; numbers become wider, as Iceberg allows.

    Raises:
        Misfit: there is no such type.
    """
    if have == new:
        return have
    if _types.is_struct(have) and _types.is_struct(new):
        fields = {field.name: field.type for field in have}
        for field in new:
            known = fields.get(field.name)
            inner = f"{path}.{field.name}" if path else field.name
            fields[field.name] = field.type if known is None else merged(known, field.type, inner)
        return pa.struct([pa.field(name, data_type) for name, data_type in fields.items()])
    if _types.is_list(have) and _types.is_list(new):
        return pa.list_(pa.field("element", merged(have.value_type, new.value_type, f"{path}[]")))
    if _types.is_map(have) and _types.is_map(new) and have.key_type == new.key_type:
        return pa.map_(have.key_type, merged(have.item_type, new.item_type, f"{path}{{}}"))
    if _types.is_decimal(have) and _types.is_decimal(new) and have.scale == new.scale:
        return max(have, new, key=lambda one: one.precision)
    wider = _WIDER.get((have, new)) or _WIDER.get((new, have))
    if wider is None:
        raise Misfit(f"field {path} is {new}, and the column is {have}")
    return wider


def check(columns: DataType) -> None:
    """Raise ``Misfit`` if a table cannot have the columns of a value."""
    count = _count(columns)
    if count > COLUMNS_MAX:
        raise Misfit(
            f"its schema has {count} columns with those of earlier ones, and a table {COLUMNS_MAX} at most"
        )
    _check_names(columns)
    if RECORD in (field.name for field in columns):
        raise Misfit(f"it has a field {RECORD}, which is the column of what a record has beside its value")


def _count(data_type: DataType) -> int:
    if _types.is_struct(data_type):
        return sum(1 + _count(field.type) for field in data_type)
    if _is_list(data_type):
        return 1 + _count(data_type.value_type)
    return 2 + _count(data_type.item_type) if _types.is_map(data_type) else 0


def _check_names(data_type: DataType) -> None:
    if _types.is_struct(data_type):
        seen: dict[str, str] = {}
        for field in data_type:
            if not field.name or "." in field.name or "\0" in field.name:
                raise Misfit(f"field {field.name!r} has a name that no column can have")
            other = seen.setdefault(field.name.lower(), field.name)
            if other != field.name:
                raise Misfit(f"fields {other} and {field.name} differ in case only, which engines do not")
            _check_names(field.type)
    elif _is_list(data_type):
        _check_names(data_type.value_type)
    elif _types.is_map(data_type):
        _check_names(data_type.item_type)


def fitted(array: Array, wanted: DataType, *, by_name: bool = True) -> Array:
    """Return an array as another type: fields by name, null for those that it lacks; or each in its place."""
    have = array.type
    if have == wanted:
        return array
    if _types.is_struct(wanted):
        places = {field.name: place for place, field in enumerate(have)}
        columns = [
            pa.nulls(len(array), field.type)
            if (place := places.get(field.name) if by_name else number) is None
            else fitted(array.field(place), field.type, by_name=by_name)
            for number, field in enumerate(wanted)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=array.is_null())
    if _is_list(wanted):
        values = fitted(array.values, wanted.value_type, by_name=by_name)
        is_large = _types.is_large_list(wanted)
        offsets = array.offsets.cast(pa.int64()) if is_large else array.offsets
        kind = pa.LargeListArray if is_large else pa.ListArray
        return kind.from_arrays(offsets, values, type=wanted, mask=array.is_null())
    if _types.is_map(wanted):
        keys = fitted(array.keys, wanted.key_type, by_name=by_name)
        items = fitted(array.items, wanted.item_type, by_name=by_name)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted, mask=array.is_null())
    return array.cast(wanted)


def plain(data_type: DataType) -> DataType:
    """Return a type of pyiceberg's as the plans of schemas have it: without ids, and with small offsets."""
    if _types.is_struct(data_type):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in data_type])
    if _is_list(data_type):
        return pa.list_(pa.field("element", plain(data_type.value_type)))
    if _types.is_map(data_type):
        return pa.map_(plain(data_type.key_type), plain(data_type.item_type))
    if _types.is_large_string(data_type):
        return pa.string()
    return pa.binary() if _types.is_large_binary(data_type) else data_type
