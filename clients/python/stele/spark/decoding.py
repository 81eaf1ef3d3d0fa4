"""Keys and values with a schema, as columns.

The driver chooses the schema when Spark asks for the columns, and notes its id in the metadata of the
column; the readers that Spark makes of them later, and their tasks, read with this schema, also what
was written with another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from ..columns import plans
from ..errors import UnknownSchemaError
from ..registry.codecs import Decode
from ..registry.definitions import RegisteredSchema, Schema
from ..registry.deserializer import SchemaDeserializer
from ..registry.registry import SchemaRegistry
from ..schemas.definitions import InvalidValue, ParsedSchema
from ..wire.arrow_types import Array, RecordBatch, pa
from .fetching import Broker
from .options import ColumnSchema, OptionError, RegistryOptions, SchemaOptions
from .registry import PlannedSchema, context_of, loader, located, open_registry, version_of

_SCHEMA_ID = "stele.schema.id"
# Columns that a worker of Spark can decode without asking the registry again.
_READERS_MAX = 64
# A value may have its schema in a header, and errors have the offset.
_NEEDED = (("offset", False), ("headers", True))


class DecodeError(ValueError):
    """A key or value that cannot be decoded."""


def decoded_fields(options: SchemaOptions) -> dict[str, StructField]:
    """Return the columns that have a schema, as it is now.

    Raises:
        OptionError: the registry has no such schema, or it describes no column.
        SteleClientError
    """
    with Broker(options.connection) as broker:
        registry = open_registry(broker.patiently(partial(located, options)))
        fields: dict[str, StructField] = {}
        for column in options.columns:
            found = broker.patiently(partial(_version, registry, column))
            plan = plan_of(registry.parse(found.schema), None, column.message)
            fields[column.column] = StructField(
                column.column, plan.data_type, metadata={_SCHEMA_ID: found.id}
            )
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Decodes the rows of a task; Spark pickles it."""

    schemas: tuple[PlannedSchema, ...]
    registry: RegistryOptions
    nulls: bool
    # What the read returns: names, and whether they may be null.
    columns: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, options: SchemaOptions, schema: StructType) -> Decoding:
        """Make the plan of a read with the columns of ``schema``.

        Raises:
            OptionError: the user asks for fields that the registered schema does not have.
            SteleClientError
        """
        columns = tuple((field.name, field.nullable) for field in schema.fields)
        with Broker(options.connection) as broker:
            registry = broker.patiently(partial(located, options))
            schemas = tuple(
                broker.patiently(partial(_planned, column, registry, schema[column.column]))
                for column in options.columns
                if column.column in schema.names
            )
        return cls(schemas=schemas, registry=registry, nulls=options.nulls, columns=columns)

    @property
    def raw_columns(self) -> tuple[tuple[str, bool], ...]:
        """The columns to read."""
        names = dict(self.columns)
        return self.columns + tuple(column for column in _NEEDED if column[0] not in names)

    def decode(self, batches: Iterator[RecordBatch], broker: Broker, place: str) -> Iterator[RecordBatch]:
        """Yield the rows with decoded columns; ``place`` names the partition in errors.

        Raises:
            DecodeError: a key or value cannot be decoded, and ``nulls`` is not set.
            SteleClientError: the registry does not answer.
        """
        readers = [_reader(schema, self.registry) for schema in self.schemas]
        for rows in batches:
            arrays: dict[str, Array] = {name: rows.column(name) for name, _ in self.columns}
            fields: dict[str, Any] = {name: rows.schema.field(name) for name, _ in self.columns}
            headers = [
                [(header["key"], header["value"]) for header in each] if each else ()
                for each in rows.column("headers").to_pylist()
            ]
            for reader in readers:
                name = reader.column
                data = arrays[name].to_pylist()
                broker.patiently(partial(reader.prepare, data, headers))
                arrays[name], failed = reader.read(data, headers)
                if failed and not self.nulls:
                    index, reason = failed
                    offset = rows.column("offset")[index].as_py()
                    raise DecodeError(
                        f"the {name} of {place} at offset {offset} cannot be decoded: {reason}; to have null in its "
                        "place set stele.decode.errors=null"
                    )
                fields[name] = pa.field(name, arrays[name].type)
            names = [name for name, _ in self.columns]
            yield pa.RecordBatch.from_arrays(
                [arrays[name] for name in names], schema=pa.schema([fields[name] for name in names])
            )


class SparkPlan(NamedTuple):
    """The Spark type of a column, and how payloads of each writer's schema become values for Arrow."""

    data_type: DataType
    decode_of: Callable[[ParsedSchema], Decode]


def plan_of(parsed: ParsedSchema, wanted: DataType | None, message: str | None) -> SparkPlan:
    """Return the plan of a schema; ``message`` is that of a Protobuf schema which values are.

    Raises:
        OptionError: the user wants a field that does not exist, or another type.
        InvalidValue: the schema declares no such message.
    """
    try:
        plan = plans.plan_of(parsed, _fields_of(wanted), message)
    except plans.UnknownFieldError as error:
        raise OptionError(str(error)) from error
    data_type = _spark_type(plan.data_type)
    if wanted is not None and data_type != wanted:
        planned, given = data_type.simpleString(), wanted.simpleString()
        hint = "leave NOT NULL out" if planned == given else "cast them in a select"
        raise OptionError(
            f"the schema of the read has {given}, and the registered one makes {planned}; {hint}"
        )
    return SparkPlan(data_type, plan.decode_of)


def _fields_of(wanted: DataType | None) -> plans.Wanted:
    match wanted:
        case StructType():
            return {field.name: _fields_of(field.dataType) for field in wanted.fields}
        case ArrayType():
            return (_fields_of(wanted.elementType),)
        case MapType():
            return (_fields_of(wanted.valueType),)
        case _:
            return None


def _spark_type(data_type: Any) -> DataType:
    from pyspark.sql.pandas import types

    # A time without a zone is one in Arrow, too.
    return vars(types)["from_arrow_type"](data_type, prefer_timestamp_ntz=True)


def _planned(column: ColumnSchema, options: RegistryOptions, field: StructField) -> PlannedSchema:
    registry, context = open_registry(options), context_of(column.subject)
    if not field.nullable:
        raise OptionError(
            f"the schema says NOT NULL for {field.name}, which a record may not have; leave NOT NULL out, and the "
            "rows out with a where"
        )
    schema_id: int | None = (field.metadata or {}).get(_SCHEMA_ID)
    if schema_id is None:
        # The user gave the columns.
        found = _version(registry, column)
        schema_id, schema = found.id, found.schema
    else:
        schema = registry.schema(schema_id, subject=context)
    plan_of(registry.parse(schema, context), field.dataType, column.message)
    return PlannedSchema(
        column=column.column,
        subject=column.subject,
        id=schema_id,
        # Without what means nothing here.
        schema=Schema(schema.text, schema.type, schema.references),
        message=column.message,
        wanted=StructType([field]).json(),
    )


def _version(registry: SchemaRegistry, column: ColumnSchema) -> RegisteredSchema:
    try:
        return version_of(registry, column)
    except UnknownSchemaError as error:
        prefix = "stele.schema.key" if column.column == "key" else "stele.schema"
        raise OptionError(
            f"the {column.column} cannot be decoded with the version {column.version or 'latest'} of subject "
            f"{column.subject}: {error}; name another one with {prefix}.subject and {prefix}.version"
        ) from error


class _ColumnReader:
    """Decodes a column with the schema of the plan."""

    def __init__(self, planned: PlannedSchema, registry: RegistryOptions) -> None:
        from pyspark.sql.pandas import types

        to_arrow_type: Any = vars(types)["to_arrow_type"]
        self.column: str = planned.column
        opened = open_registry(registry)
        wanted = StructType.fromJson(json.loads(planned.wanted))[0].dataType
        plan = plan_of(opened.parse(planned.schema, planned.context), wanted, planned.message)
        self._type = to_arrow_type(wanted, timezone="UTC")
        self._deserialize: SchemaDeserializer[Any] = SchemaDeserializer(
            loader(opened, planned.context), plan.decode_of, is_key=planned.column == "key"
        )

    def prepare(self, data: Sequence[bytes | None], headers: Sequence[Any]) -> None:
        """Load the schemas of values. Raises SteleClientError."""
        self._deserialize.prepare(
            (value, each) for value, each in zip(data, headers, strict=True) if value is not None
        )

    def read(
        self, data: Sequence[bytes | None], headers: Sequence[Any]
    ) -> tuple[Array, tuple[int, str] | None]:
        """Return the values, null for those that cannot be decoded, and the index and reason of the first of them."""
        failed: tuple[int, str] | None = None
        values: list[Any] = []
        for index, value in enumerate(data):
            decoded = None
            try:
                decoded = self._deserialize(value, headers[index])
            except InvalidValue as error:
                failed = failed or (index, str(error))
            values.append(decoded)
        try:
            return pa.array(values, self._type), failed
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass
        # One of them does not fit the type, such as an integer of more than 64 bits.
        for index, value in enumerate(values):
            try:
                pa.array([value], self._type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                values[index] = None
                if failed is None or index < failed[0]:
                    failed = index, str(error)
        return pa.array(values, self._type), failed


@lru_cache(_READERS_MAX)
def _reader(planned: PlannedSchema, registry: RegistryOptions) -> _ColumnReader:
    return _ColumnReader(planned, registry)
