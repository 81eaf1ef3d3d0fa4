"""What a statement sees of a topic: a view over its log and the Parquet files of its snapshot.

Values are text, or columns where they have a schema. Tables whose files have such columns are read by DuckDB itself;
values that are bytes in files are decoded as those of the log are.
"""

# ruff: noqa: S608 (what is not quoted here is of this module)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from ..wire import sql_frames as frames
from .files import path_of
from .log import ERROR, field_name
from .manifests import DataFile
from .statement import quoted

if TYPE_CHECKING:
    from .values import Values

# Bytes as text: those that are no UTF-8 are written as \\xNN, which a cast to BLOB reads back.
_TEXT = "coalesce(try(decode({0})), {0}::varchar)"
_RECORD = ", ".join(
    (
        "partition as _partition",
        '"offset" as _offset',
        "timestamp as _timestamp",
        f"{_TEXT.format('key')} as _key",
        "list_transform(headers, lambda h: struct_pack(key := h.key, value := "
        f"{_TEXT.format('h.value')})) as _headers",
    )
)
_BESIDE = ("partition", '"offset"', "timestamp", "key", "headers")
_STORED = ", ".join((*_BESIDE, "value"))
# Beside the fields of a value, in files.
_INNER = "_record"
_NAMES = ("_partition", "_offset", "_timestamp", "_key", "_headers", "_error")


def text_view(
    log: str, snapshot: frames.Snapshot | None, files: Sequence[DataFile], errors: Sequence[DataFile]
) -> str:
    """Return a query of the rows of a snapshot, of its errors and of ``log``, which is quoted, with text as values."""
    parts = [f"select {_STORED} from {log}"]
    if files:
        parts.append(f"select {_STORED} from {_parquet(files)}")
    if errors and snapshot is not None:
        parts.append(f"select {_STORED} from {_parquet(errors)} where {_is_before(snapshot)}")
    return f"select {_RECORD}, {_TEXT.format('value')} as value from ({' union all '.join(parts)})"


def typed_view(
    database: duckdb.DuckDBPyConnection,
    log: str,
    values: Values,
    snapshot: frames.Snapshot | None,
    files: Sequence[DataFile],
    errors: Sequence[DataFile],
) -> str:
    """Return a query of the same rows, with the columns of ``values``, which those of ``files`` have, too."""
    names = [field.name for field in values.columns]
    beside = ", ".join(_BESIDE)
    stored = [quoted(field_name(name)) for name in names]
    parts = [f"select {', '.join((*stored, beside, ERROR))} from {log}"]
    if files or errors:
        relation = database.sql(f"select * from {log} limit 0")
        types = dict(zip(relation.columns, map(str, relation.types), strict=True))
        wanted = {name: types[field_name(name)] for name in names}
        headers = types["headers"]
        if files:
            source = f"{_parquet(files)[:-1]}, union_by_name = true)"
            columns = database.sql(f"select * from {source} limit 0")
            have = dict(zip(columns.columns, columns.types, strict=True))
            fields = [
                f"{_fitted(quoted(stored_name(name)), have.get(stored_name(name)), field.type)}::{wanted[name]} "
                f"as {quoted(field_name(name))}"
                for name, field in zip(names, values.columns, strict=True)
            ]
            inner = (
                f"{_INNER}.{name}{'::' + headers if name == 'headers' else ''} as {name}" for name in _BESIDE
            )
            parts.append(f"select {', '.join((*fields, *inner))}, null::varchar as {ERROR} from {source}")
        if errors and snapshot is not None:
            nulls = [f"null::{wanted[name]} as {quoted(field_name(name))}" for name in names]
            rest = beside.replace("headers", f"headers::{headers} as headers")
            condition = _is_before(snapshot)
            parts.append(
                f"select {', '.join((*nulls, rest))}, reason as {ERROR} from {_parquet(errors)} where {condition}"
            )
    shown = [
        f"{quoted(field_name(name))} as {quoted(shown)}"
        for name, shown in zip(names, _shown(names), strict=True)
    ]
    everything = ", ".join((*shown, _RECORD, f"{ERROR} as _error"))
    return f"select {everything} from ({' union all '.join(parts)})"


def _shown(names: Sequence[str]) -> Iterator[str]:
    """Yield the names of columns; one that a column of every topic has gets underscores before it."""
    taken = {*_NAMES, *(name.lower() for name in names)}
    for name in names:
        shown = name
        if name.lower() in _NAMES:
            while shown.lower() in taken:
                shown = f"_{shown}"
            taken.add(shown.lower())
        yield shown


def _is_before(snapshot: frames.Snapshot) -> str:
    """Return a condition that holds for errors of a snapshot; they are committed first, and may be ahead."""
    ends = [snapshot.offsets.get(number, 0) for number in range(max(snapshot.offsets, default=-1) + 1)]
    return f'"offset" < coalesce({ends}[partition + 1], 0)'


def _parquet(files: Sequence[DataFile]) -> str:
    paths = ("'" + path_of(file).replace("'", "''") + "'" for file in files)
    return f"read_parquet([{', '.join(paths)}])"


def stored_name(name: str) -> str:
    """Return the name that a column has in files: Iceberg replaces what Avro does not allow in a name."""
    return "".join(
        character
        if character == "_" or (character.isalnum() and (number or not character.isdigit()))
        else f"_{character}"
        if character.isdigit()
        else f"_x{ord(character):X}"
        for number, character in enumerate(name)
    )


def _fitted(value: str, have: Any, wanted: Any) -> str:
    """Return an expression with the fields of a type of Arrow, of a value whose type in files is ``have``; None: none."""
    if have is None:
        return "null"
    kind = have.id
    if kind == "struct":
        known: dict[str, Any] = dict(have.children)
        fields = (
            f"{quoted(field.name)} := "
            + _fitted(
                f"{value}.{quoted(stored_name(field.name))}", known.get(stored_name(field.name)), field.type
            )
            for field in wanted
        )
        return f"case when {value} is null then null else struct_pack({', '.join(fields)}) end"
    if kind == "list" and _is_nested(wanted):
        inner = _fitted("x", dict(have.children)["child"], wanted.value_type)
        return f"list_transform({value}, lambda x: {inner})"
    if kind == "map" and _is_nested(wanted):
        item = _fitted("x.value", dict(have.children)["value"], wanted.item_type)
        entries = (
            f"list_transform(map_entries({value}), lambda x: struct_pack(key := x.key, value := {item}))"
        )
        return f"map_from_entries({entries})"
    return value


def _is_nested(wanted: Any) -> bool:
    return "struct<" in str(wanted)
