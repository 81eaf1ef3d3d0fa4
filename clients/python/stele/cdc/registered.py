"""Schemas of tables in a registry, and the forms of values that have them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from ..calls import make_config
from ..errors import IncompatibleSchemaError, UnknownSchemaError
from ..registry.definitions import Schema
from ..registry.discovery import registry_config
from ..registry.registry import SchemaRegistry
from ..schemas.framing import join
from ..schemas.subjects import subject_name
from .decoding.pgoutput import Relation
from .errors import CdcError
from .options import CdcOptions
from .postgres.catalog import Postgres
from .records import avro_values
from .records.debezium_form import DebeziumAvroForm, DebeziumForm
from .records.forms import AvroForm, JsonForm, ValueForm
from .records.table_schemas import Field, avro_schema, changed_meanings, json_schema


class TableForms:
    """Makes the form of a table's values; without a ``registry`` they have no schema."""

    def __init__(self, options: CdcOptions, postgres: Postgres, registry: SchemaRegistry | None) -> None:
        self._options = options
        self._postgres = postgres
        self._registry = registry
        self._ids: dict[tuple[str, str], int] = {}
        self._database = ""

    def follow(self, options: CdcOptions) -> None:
        """Take other options, with other tables."""
        self._options = options

    def form(self, relation: Relation, topic: str, keys: Sequence[str]) -> ValueForm:
        """Return the form of the values of a table, whose schema is registered; ``keys`` are those of its rows.

        Raises:
            CdcError: the registry refuses the schema, or the format has none for the table.
            Interrupted, SteleClientError
        """
        postgres, registry = self._postgres, self._registry
        if self._options.is_debezium:
            return self._debezium(relation, topic, keys)
        encoders = [postgres.encoder(column.type_id) for column in relation.columns]
        if registry is None:
            return JsonForm(relation, encoders)
        fields = self._fields(relation)
        is_row_only = self._options.value == "row"
        subject = subject_name("topic", topic, None, is_key=False)
        if self._options.format == "json-schema":
            latest = _latest(registry, subject)
            text = json_schema(topic, fields, latest, is_row_only=is_row_only)
            return JsonForm(relation, encoders, prefix=self._prefix(registry, subject, Schema(text, "JSON")))
        text = avro_schema(topic, f"{relation.schema}.{relation.table}", fields, is_row_only=is_row_only)
        self._check_meanings(registry, subject, text)
        return AvroForm(
            relation,
            [avro_values.encoder_of(field.type, field.dimensions) for field in fields],
            prefix=self._prefix(registry, subject, Schema(text)),
        )

    def _debezium(self, relation: Relation, topic: str, keys: Sequence[str]) -> ValueForm:
        options, postgres = self._options, self._postgres
        self._database = self._database or postgres.identity()[1]
        declared = postgres.dimensions(relation.schema, relation.table)
        types = [
            postgres.connect_type(column, declared.get(column.name, 1), options.decimals, options.times)
            for column in relation.columns
        ]
        names: dict[str, Any] = {
            "keys": keys,
            "topic": topic,
            "server": options.prefix,
            "database": self._database,
        }
        registry = self._registry
        if registry is None:
            return DebeziumForm(relation, types, with_schemas=options.format == "debezium-schemas", **names)

        def prefix_of(text: str, is_key: bool) -> bytes:
            subject = subject_name("topic", topic, None, is_key=is_key)
            return self._prefix(registry, subject, Schema(text))

        try:
            is_row_only = options.value == "row"
            return DebeziumAvroForm(relation, types, prefix_of=prefix_of, is_row_only=is_row_only, **names)
        except ValueError as error:
            raise CdcError(f"{relation.schema}.{relation.table}: {error}") from error

    def _fields(self, relation: Relation) -> list[Field]:
        types = [
            self._postgres.column_type(column.type_id, column.type_modifier) for column in relation.columns
        ]
        has_arrays = any(type_.items is not None for type_ in types)
        declared = self._postgres.dimensions(relation.schema, relation.table) if has_arrays else {}
        return [
            Field(column.name, type_, declared.get(column.name, 1))
            for column, type_ in zip(relation.columns, types, strict=True)
        ]

    def _check_meanings(self, registry: SchemaRegistry, subject: str, text: str) -> None:
        """Raise CdcError for a change that the registry would take, and by which readers get other values."""
        if (subject, text) in self._ids:
            return
        changed = changed_meanings(_latest(registry, subject), text, is_row_only=self._options.value == "row")
        if not changed or registry.config_of(subject).get("compatibilityLevel") == "NONE":
            return
        try:
            # It may be that of changes from before the latest version.
            registry.lookup(subject, Schema(text))
        except UnknownSchemaError:
            raise CdcError(
                f"the values of {', '.join(changed)} in subject {subject} mean something else now than before, such as a "
                f"decimal that is a string; {_advice(subject)}"
            ) from None

    def _prefix(self, registry: SchemaRegistry, subject: str, schema: Schema) -> bytes:
        """Register a schema, and return what precedes the values that have it."""
        key = subject, schema.text
        schema_id = self._ids.get(key)
        if schema_id is None:
            try:
                schema_id = self._ids[key] = registry.register(subject, schema).id
            except IncompatibleSchemaError as error:
                raise CdcError(
                    f"the registry refuses the schema that the table of subject {subject} has now: {error}; {_advice(subject)}"
                ) from error
        return join(schema_id, b"")


def _advice(subject: str) -> str:
    return (
        "its changes wait in PostgreSQL. To go on with schemas that do not read each other's records, run: "
        f"stele schemas config {subject} --level NONE; or choose another --prefix and --slot"
    )


def _latest(registry: SchemaRegistry, subject: str) -> Any:
    """Return the latest version of a subject as JSON; an empty object without one."""
    try:
        return msgspec.json.decode(registry.version(subject).schema.text)
    except (UnknownSchemaError, msgspec.DecodeError):
        return {}


@contextmanager
def table_forms(options: CdcOptions, postgres: Postgres) -> Generator[TableForms]:
    """Open the registry, if the format needs one.

    Raises SteleClientError.
    """
    if options.format in ("json", "debezium", "debezium-schemas"):
        yield TableForms(options, postgres, None)
        return
    config = (
        make_config(options.registry) if options.registry else registry_config(make_config(options.broker))
    )
    with SchemaRegistry(config=config) as registry:
        yield TableForms(options, postgres, registry)
