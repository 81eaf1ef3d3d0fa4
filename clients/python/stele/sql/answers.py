"""Encode rows as JSON, lines of JSON, CSV and Arrow.

The broker adds the end of an answer in JSON, because it knows what was read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

import msgspec
import pyarrow.compute

from ..wire.arrow_types import Array, RecordBatch, Schema, pa

pc: Any = pyarrow.compute
# Rows are encoded in groups of about this size.
_GROUP_BYTES = 1024 * 1024
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
# The calendar repeats after 400 years.
_CYCLE_US = 146_097 * 86_400 * 1_000_000
# What a spreadsheet would read as a formula; full-width forms included.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")


class Answer(Protocol):
    """One form of an answer: its parts, in this order."""

    def begin(self) -> bytes: ...
    def rows(self, batch: RecordBatch) -> bytes: ...
    def end(self) -> bytes: ...


def _hook(value: object) -> object:
    return str(value)


_JSON = msgspec.json.Encoder(decimal_format="number", enc_hook=_hook)


def _columns_of(names: list[str], types: list[str]) -> bytes:
    return _JSON.encode([{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)])


def _values(column: Array) -> list[Any]:
    """Return the values of a column for JSON."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        # As text, because Python's times end with the year 9999.
        return [
            None if text is None else _moment(text, kind.unit)
            for text in column.cast(pa.string()).to_pylist()
        ]
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.string()).to_pylist()
    values = column.to_pylist()
    if pa.types.is_interval(kind):
        return [None if value is None else _interval(*value) for value in values]
    if pa.types.is_decimal(kind) and not kind.scale:
        return [None if value is None else int(value) for value in values]
    return values


def _moment(text: str, unit: str) -> str:
    if not text.startswith("<"):
        return text.replace(" ", "T")
    # Arrow has no text for it: "<value out of range: 9223372036854775807>".
    value = int(text.rpartition(" ")[2].rstrip(">"))
    if abs(value) == 2**63 - 1:
        return "infinity" if value > 0 else "-infinity"
    cycles, rest = divmod(value * 1_000_000 // _PER_SECOND[unit], _CYCLE_US)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=rest)
    return f"{moment.year + 400 * cycles}-{moment:%m-%dT%H:%M:%S.%f}"


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """Return a duration as ISO 8601 writes it."""
    seconds = Decimal(nanoseconds) / 1_000_000_000
    return f"P{months}M{days}DT{seconds:f}S"


def _rows_of(batch: RecordBatch) -> list[tuple[Any, ...]]:
    if not batch.num_columns:
        return [()] * batch.num_rows
    return list(zip(*map(_values, batch.columns), strict=True))


class JsonAnswer:
    """``{"columns":[…],"rows":[…``, to which the broker adds the end."""

    def __init__(self, names: list[str], types: list[str], schema: Schema) -> None:
        self._columns = _columns_of(names, types)
        self._is_begun = False

    def begin(self) -> bytes:
        return b'{"columns":' + self._columns + b',"rows":['

    def rows(self, batch: RecordBatch) -> bytes:
        rows = _JSON.encode(_rows_of(batch))[1:-1]
        before = b"," if self._is_begun else b""
        self._is_begun = True
        return before + rows

    def end(self) -> bytes:
        return b""


class LinesAnswer:
    """``{"columns":[…]}``, then ``{"rows":[…]}`` for each group of rows."""

    def __init__(self, names: list[str], types: list[str], schema: Schema) -> None:
        self._columns = _columns_of(names, types)

    def begin(self) -> bytes:
        return b'{"columns":' + self._columns + b"}\n"

    def rows(self, batch: RecordBatch) -> bytes:
        return b'{"rows":' + _JSON.encode(_rows_of(batch)) + b"}\n"

    def end(self) -> bytes:
        return b""


class CsvAnswer:
    """Rows for a spreadsheet, the names of the columns first; what is no number or text is JSON."""

    def __init__(self, names: list[str], types: list[str], schema: Schema) -> None:
        self._names = names

    def begin(self) -> bytes:
        return self._encode([self._names])

    def rows(self, batch: RecordBatch) -> bytes:
        return self._encode([[_cell(value) for value in row] for row in _rows_of(batch)])

    def end(self) -> bytes:
        return b""

    def _encode(self, rows: list[list[Any]]) -> bytes:
        lines = io.StringIO()
        csv.writer(lines, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)
        return lines.getvalue().encode()


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return value
    text = value if isinstance(value, str) else _JSON.encode(value).decode()
    if isinstance(value, bytes):
        # Base64, as in JSON.
        text = text.strip('"')
    return f"'{text}" if text.lstrip().startswith(_FORMULA) or text.startswith(_FORMULA) else text


class ArrowAnswer:
    """An Arrow IPC stream; without its end marker it is incomplete."""

    def __init__(self, names: list[str], types: list[str], schema: Schema) -> None:
        self._schema = schema

    def begin(self) -> bytes:
        return bytes(self._schema.serialize())

    def rows(self, batch: RecordBatch) -> bytes:
        return bytes(batch.serialize())

    def end(self) -> bytes:
        return b"\xff\xff\xff\xff\x00\x00\x00\x00"


FORMS: dict[str, Callable[[list[str], list[str], Schema], Answer]] = {
    "json": JsonAnswer,
    "lines": LinesAnswer,
    "csv": CsvAnswer,
    "arrow": ArrowAnswer,
}


def groups_of(batch: RecordBatch) -> list[RecordBatch]:
    """Split ``batch`` so that no group is much larger than others."""
    if batch.nbytes <= _GROUP_BYTES or batch.num_rows < 2:
        return [batch]
    size = max(1, batch.num_rows * _GROUP_BYTES // batch.nbytes)
    return [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
