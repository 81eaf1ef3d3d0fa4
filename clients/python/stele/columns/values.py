"""Values with a schema as columns: each is read with the schema that it was written with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow.compute

from ..errors import RegistryError
from ..registry.codecs import Decode
from ..registry.frames import Framed, SchemaKey, unframe
from ..schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from ..schemas.framing import NotFramed
from ..wire.arrow_types import Array, DataType, RecordBatch, np, pa
from .planning import plan_of
from .shapes import RECORD, Misfit, check, fitted

pc: Any = pyarrow.compute
_S = TypeVar("_S")

# Bytes of values that are decoded at once: as Python objects they take many times as much.
_DECODED_AT_ONCE = 1024 * 1024
# Schemas whose plans are kept.
_FORMS_MAX = 1000
# How long it is remembered that the registry has no such schema, or that it cannot be used.
_REFUSED_FOR_S = 10.0
# The column of values that have no fields.
_VALUE = "value"


class Registry(Protocol[_S]):
    """Where schemas are found; a ``RegistryError`` after which a request may be repeated ends the decoding."""

    def schema(self, id_or_guid: SchemaKey, /) -> _S: ...
    def parse(self, schema: _S, /) -> ParsedSchema: ...
    def close(self) -> None: ...


class _Form(NamedTuple):
    """How values of one schema are read, as a struct of columns; or why they are not, until ``until_s``."""

    decode: Decode | None
    columns: DataType
    is_struct: bool = True
    refusal: str = ""
    until_s: float = 0.0


class ValueRows(NamedTuple):
    """Rows whose values have one schema: their numbers, and their values as a struct of columns."""

    numbers: Sequence[int]
    values: Array


class Decoded(NamedTuple):
    """Values by their schema; ``refused`` says of each row that cannot be read why."""

    groups: list[ValueRows]
    refused: dict[int, str]


class ValueDecoder:
    """Reads the values of rows with the schemas of a registry; it may be used by several threads."""

    def __init__(self, open_registry: Callable[[], Registry[Any]]) -> None:
        self._open_registry = open_registry
        self._registry: Registry[Any] | None = None
        self._forms: dict[SchemaKey, _Form] = {}

    def close(self) -> None:
        if self._registry is not None:
            self._registry.close()

    def columns(self, schema: SchemaKey) -> DataType | None:
        """Return the columns of values with a schema, as a struct; None if it cannot be used. Raises as ``decode``."""
        return self._form(schema).columns

    def decode(self, rows: RecordBatch) -> Decoded:
        """Return the values of rows, by their ``value`` and ``headers``; tombstones are in no group.

        Raises:
            SteleClientError: the registry does not answer.
        """
        by_schema: dict[SchemaKey, tuple[_Form, list[int], list[Any]]] = {}
        refused: dict[int, str] = {}
        for number, (value, headers) in enumerate(
            zip(rows.column("value").to_pylist(), _headers(rows), strict=True)
        ):
            if value is None:
                continue
            try:
                framed = unframe(value, headers, is_key=False)
            except NotFramed as error:
                refused[number] = f"its value names no schema: {error}"
                continue
            form, numbers, values = by_schema.get(framed.schema) or by_schema.setdefault(
                framed.schema, (self._form(framed.schema), [], [])
            )
            if form.decode is None:
                refused[number] = form.refusal
                continue
            try:
                values.append(_decoded(form, framed))
            except InvalidValue as error:
                refused[number] = f"its value does not have schema {framed.schema}: {error}"
            else:
                numbers.append(number)
        groups = [
            ValueRows(*_array(form, numbers, values, refused))
            for form, numbers, values in by_schema.values()
            if numbers
        ]
        return Decoded(groups, refused)

    def _form(self, schema: SchemaKey) -> _Form:
        form = self._forms.get(schema)
        if form is None or (form.decode is None and form.until_s < time.monotonic()):
            if len(self._forms) >= _FORMS_MAX:
                self._forms.clear()
            form = self._forms[schema] = self._load(schema)
        return form

    def _load(self, schema: SchemaKey) -> _Form:
        if self._registry is None:
            self._registry = self._open_registry()
        try:
            parsed = self._registry.parse(self._registry.schema(schema))
            data_type, decode_of = plan_of(parsed)
            is_struct = bool(pa.types.is_struct(data_type))
            columns = data_type if is_struct else pa.struct([pa.field(_VALUE, data_type)])
            check(columns)
            return _Form(decode_of(parsed), columns, is_struct)
        except (RegistryError, InvalidSchema, InvalidValue, Misfit) as error:
            if isinstance(error, RegistryError) and error.retriable:
                raise
            refusal = f"schema {schema} cannot be used: {error}"
            return _Form(None, None, refusal=refusal, until_s=time.monotonic() + _REFUSED_FOR_S)


def slices(rows: RecordBatch) -> Iterator[RecordBatch]:
    """Yield rows with about as many bytes of values as are decoded at once."""
    sizes = pc.binary_length(rows.column("value")).fill_null(0).to_numpy(zero_copy_only=False)
    parts = np.cumsum(sizes, dtype=np.int64) // _DECODED_AT_ONCE
    bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), rows.num_rows]
    for start, end in pairwise(bounds):
        # Not a slice: its parts are taken without regard to that.
        yield rows if end - start == rows.num_rows else rows.take(pa.array(range(start, end)))


def value_rows(rows: RecordBatch, columns: DataType, groups: Sequence[ValueRows]) -> RecordBatch:
    """Return rows of ``KEY_VALUE`` with the columns of their values, and one of what they have beside; in their order.

    ``groups`` are those whose values fit the columns; a tombstone has null in all of them.
    """
    tombstones: list[int] = np.flatnonzero(rows.column("value").is_null()).tolist()
    numbers = [*(number for group in groups for number in group.numbers), *tombstones]
    values = pa.concat_arrays(
        [*(fitted(group.values, columns) for group in groups), pa.nulls(len(tombstones), columns)]
    )
    order = np.argsort(np.array(numbers, np.int64), kind="stable")
    if len(groups) != 1 or tombstones:
        values = values.take(pa.array(order))
    if len(numbers) != rows.num_rows:
        rows = rows.take(pa.array(np.array(numbers, np.int64)[order]))
    beside = rows.select([name for name in rows.schema.names if name != "value"])
    record = pa.StructArray.from_arrays(beside.columns, fields=list(beside.schema))
    return pa.RecordBatch.from_arrays(
        [*(pc.struct_field(values, index) for index in range(columns.num_fields)), record],
        names=[*(field.name for field in columns), RECORD],
    )


def _headers(rows: RecordBatch) -> Sequence[Sequence[tuple[str, bytes | None]]]:
    column = rows.column("headers")
    if column.null_count == len(column):
        return [()] * len(column)
    return [[(header["key"], header["value"]) for header in headers or ()] for headers in column.to_pylist()]


def _decoded(form: _Form, framed: Framed) -> Any:
    assert form.decode is not None
    value = form.decode(framed)
    return value if form.is_struct else {_VALUE: value}


def _array(
    form: _Form, numbers: list[int], values: list[Any], refused: dict[int, str]
) -> tuple[list[int], Array]:
    """Return values as an array, and their numbers; what Arrow does not take is refused."""
    try:
        return numbers, pa.array(values, form.columns)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass
    # One of them does not fit the type, such as an integer of more than 64 bits.
    fitting: list[tuple[int, Any]] = []
    for number, value in zip(numbers, values, strict=True):
        try:
            pa.array([value], form.columns)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            refused[number] = f"its value does not fit the columns: {error}"
        else:
            fitting.append((number, value))
    return [number for number, _ in fitting], pa.array([value for _, value in fitting], form.columns)
