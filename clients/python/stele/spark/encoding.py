"""Columns as keys and values with a schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql.types import StructType

from ..errors import UnknownSchemaError
from ..registry.definitions import RegisteredSchema, Schema
from ..registry.registry import SchemaRegistry
from ..schemas.definitions import InvalidValue, ParsedSchema
from ..schemas.framing import FIRST_MESSAGE, join, join_indexes
from ..wire.arrow_types import Array
from . import avro_rows, json_rows
from .avro_rows import avro_of
from .fetching import Broker
from .options import ColumnSchema, OptionError, RegistryOptions, SchemaOptions
from .registry import PlannedSchema, located, open_registry, version_of
from .rows import RowError

EncodeColumn = Callable[[Array], list[bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Encodes columns of the rows of a task; Spark pickles it."""

    schemas: tuple[PlannedSchema, ...]
    registry: RegistryOptions

    @classmethod
    def of(cls, options: SchemaOptions, schema: StructType) -> Encoding:
        """Choose the schema of each column of a write, in the driver.

        Raises:
            OptionError: a column is missing, or cannot be written with its schema.
            SteleClientError: the registry does not answer, or refuses to register the schema.
        """
        with Broker(options.connection) as broker:
            registry = broker.patiently(partial(located, options))
            return cls(
                schemas=tuple(
                    broker.patiently(partial(_planned, column, options, registry, schema))
                    for column in options.columns
                ),
                registry=registry,
            )

    def encoders(self) -> Mapping[str, EncodeColumn]:
        """Return what makes bytes of each column, by its name."""
        registry = open_registry(self.registry)
        return {planned.column: _encoder(planned, registry) for planned in self.schemas}


def _planned(
    column: ColumnSchema, options: SchemaOptions, located_at: RegistryOptions, schema: StructType
) -> PlannedSchema:
    if column.column not in schema.names:
        raise OptionError(f"there is no column {column.column}, which option stele.encode names")
    registry = open_registry(located_at)
    field = schema[column.column]
    found = _version(registry, column, options, schema)
    planned = PlannedSchema(
        column=column.column,
        subject=column.subject,
        id=found.id,
        # Without what means nothing here.
        schema=Schema(found.schema.text, found.schema.type, found.schema.references),
        message=column.message,
        wanted=StructType([field]).json(),
    )
    try:
        _payload_encoder(registry.parse(planned.schema, planned.context), planned)
    except InvalidValue as error:
        prefix = "stele.schema.key" if column.column == "key" else "stele.schema"
        raise OptionError(f"{error.reason}; name another one with {prefix}.message") from None
    return planned


def _version(
    registry: SchemaRegistry, column: ColumnSchema, options: SchemaOptions, schema: StructType
) -> RegisteredSchema:
    try:
        return version_of(registry, column)
    except UnknownSchemaError as error:
        if column.version is not None:
            raise
        if not options.registers:
            raise OptionError(
                f"the registry has no subject {column.subject}; register a schema, or set stele.encode.register=true, "
                "which registers that of the column"
            ) from error
    text = avro_of(schema[column.column].dataType, subject=column.subject, column=column.column)
    return registry.register(column.subject, Schema(text))


def _payload_encoder(parsed: ParsedSchema, planned: PlannedSchema) -> Callable[[Any], bytes]:
    """Return what makes the bytes of a value of Arrow, without a prefix.

    Raises:
        OptionError: the column cannot be written with the schema.
        InvalidValue: the schema declares no such message.
    """
    data_type = StructType.fromJson(json.loads(planned.wanted))[0].dataType
    schema: Any = parsed
    match parsed.type:
        case "AVRO":
            convert = avro_rows.converter(schema.root, data_type, planned.column)
            return lambda value: schema.encode_python(convert(value))
        case "JSON":
            convert = json_rows.converter(schema.root, data_type, planned.column)
            return lambda value: schema.encode(convert(value))
        case _:
            from . import protobuf_rows

            indexes = FIRST_MESSAGE if planned.message is None else schema.indexes(planned.message)
            convert = protobuf_rows.converter(schema.message(indexes), data_type, planned.column)
            return lambda value: join_indexes(indexes, schema.encode(convert(value), indexes))


def _encoder(planned: PlannedSchema, registry: SchemaRegistry) -> EncodeColumn:
    payload = _payload_encoder(registry.parse(planned.schema, planned.context), planned)
    prefix = join(planned.id, b"")

    def encode(value: Any) -> bytes:
        try:
            return prefix + payload(value)
        except InvalidValue as error:
            place = f"{planned.column}{error.pointer.replace('/', '.')}"
            raise RowError(
                f"a row does not have the schema {planned.id} of subject {planned.subject}: column {place}: {error.reason}"
            ) from None

    def encode_column(column: Array) -> list[bytes | None]:
        try:
            values: list[Any] = column.to_pylist()
        except (OverflowError, ValueError) as error:
            raise RowError(
                f"a row has a date or time in column {planned.column} that Python does not have: {error}"
            ) from None
        return [None if value is None else encode(value) for value in values]

    return encode_column
