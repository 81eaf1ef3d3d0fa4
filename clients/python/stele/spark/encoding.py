"""Columns as keys and values with a schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pyspark.sql.types import StructType

from ..errors import UnknownSchemaError
from ..registry.definitions import RegisteredSchema, Schema
from ..registry.registry import SchemaRegistry
from ..schemas.avro import AvroSchema
from ..schemas.definitions import InvalidValue
from ..schemas.framing import join
from ..wire.arrow_types import Array
from .avro_rows import avro_of, converter
from .fetching import Broker
from .options import ColumnSchema, OptionError, RegistryOptions, SchemaOptions
from .registry import PlannedSchema, context_of, located, open_registry, version_of
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
    if found.schema.type != "AVRO":
        raise OptionError(
            f"the schema of subject {column.subject} is of type {found.schema.type}, and columns are written as Avro; "
            "name another subject with stele.schema.subject"
        )
    parsed = cast("AvroSchema", registry.parse(found.schema, context_of(column.subject)))
    converter(parsed.root, field.dataType, column.column)
    return PlannedSchema(
        column=column.column,
        subject=column.subject,
        id=found.id,
        schema=Schema(found.schema.text, "AVRO", found.schema.references),
        message=None,
        wanted=StructType([field]).json(),
    )


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


def _encoder(planned: PlannedSchema, registry: SchemaRegistry) -> EncodeColumn:
    parsed = cast("AvroSchema", registry.parse(planned.schema, planned.context))
    data_type = StructType.fromJson(json.loads(planned.wanted))[0].dataType
    convert = converter(parsed.root, data_type, planned.column)
    prefix = join(planned.id, b"")

    def encode(value: Any) -> bytes:
        try:
            return prefix + parsed.encode_python(convert(value))
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
