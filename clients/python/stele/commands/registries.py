"""The schema registry of a broker, for commands; records as its schemas describe them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click
import msgspec

from ..errors import SteleClientError
from ..records import Headers, Record
from ..registry.definitions import Schema
from ..registry.deserializer import SchemaDeserializer
from ..registry.discovery import registry_config
from ..registry.frames import schema_key
from ..registry.registry import SchemaRegistry
from ..registry.serializer import SchemaSerializer
from ..schemas.definitions import InvalidSchema, InvalidValue, SchemaType
from .common import config_of, http_url, refuse_password
from .terminal.outputs import DecodedRecord

F = TypeVar("F", bound=Callable[..., Any])


def registry_option(command: F) -> F:
    """Add ``--registry``, which ``registry_connected`` takes."""
    return click.option(
        "--registry",
        metavar="URL",
        help="URL of the schema registry: http://HOST:8081 or https://.  "
        "[env var: STELE_REGISTRY_URL; default: that of the broker]",
    )(command)


@contextmanager
def registry_connected(registry: str | None, url: str | None) -> Generator[SchemaRegistry]:
    """Open a client of ``--registry``, otherwise of the broker of ``--url`` or of the environment.

    Errors end the command with a message instead of a traceback.
    """
    try:
        with open_registry(registry, url) as client:
            yield client
    except (SteleClientError, InvalidSchema, InvalidValue) as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def open_registry(registry: str | None, url: str | None) -> SchemaRegistry:
    refuse_password(registry)
    given = registry or (os.environ.get("STELE_REGISTRY_URL") if url is None else None)
    return SchemaRegistry(config=config_of(given) if given else registry_config(config_of(http_url(url))))


_TYPES: dict[str, SchemaType] = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def schema_in(file: BinaryIO, kind: SchemaType | None = None) -> Schema:
    """Return the schema in a file, whose name says of which type it is unless ``kind`` does."""
    chosen = kind or _TYPES.get(Path(file.name).suffix.lower())
    if chosen is None:
        raise click.UsageError(
            f"the name of {file.name} does not say what it holds: use .avsc, .json or .proto, or give --type"
        )
    try:
        return Schema(file.read().decode(), chosen)
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file.name} is not UTF-8: {error}") from error


def encoder(client: SchemaRegistry, topic: str, schema: str, subject: str | None) -> SchemaSerializer[Any]:
    """Return a serializer of JSON values with ``--schema``: ``latest``, an id, or the name of a file."""
    if schema == "latest":
        return client.serializer(None, topic, subject=subject, use_latest=True, form="json")
    if schema.isdigit():
        return client.serializer(int(schema), form="json")
    try:
        with Path(schema).open("rb") as file:
            given = schema_in(file)
    except OSError as error:
        raise click.ClickException(f"--schema {schema} cannot be read: {error.strerror}") from error
    return client.serializer(given, topic, subject=subject, form="json")


# Schemas that are asked for in vain before values are taken for bytes that begin with a zero by chance.
_MISSES_MAX = 100


class _Decoder:
    """Decodes the keys and values of records that name a schema of the registry."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._keys = registry.deserializer(form="json", key=True)
        self._values = registry.deserializer(form="json")
        self.has_decoded = False
        self._misses = 0

    def decoded(self, record: Record[bytes]) -> Record[bytes]:
        key, key_schema = self._part(self._keys, record.key, record.headers, is_key=True)
        value, value_schema = self._part(self._values, record.value, record.headers, is_key=False)
        if key_schema is None and value_schema is None:
            return record
        return DecodedRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            key,
            value,
            record.headers,
            key_schema,
            value_schema,
        )

    def _part(
        self, deserializer: SchemaDeserializer[Any], data: bytes | None, headers: Headers, *, is_key: bool
    ) -> tuple[bytes | None, dict[str, Any] | None]:
        schema = None if data is None else schema_key(data, headers, is_key=is_key)
        if data is None or schema is None or (self._misses >= _MISSES_MAX and not self.has_decoded):
            return data, None
        try:
            value = deserializer(data, headers)
        except InvalidValue:
            self._misses += 1
            return data, None
        self.has_decoded = True
        name = "id" if isinstance(schema, int) else "guid"
        return msgspec.json.encode(value), {name: schema, "type": self._registry.schema(schema).type}


@contextmanager
def decoding(
    registry: str | None, url: str | None, *, is_raw: bool
) -> Generator[Callable[[list[Record[bytes]]], list[Record[bytes]]]]:
    """Yield a function that decodes what names a schema; the registry is opened for the first such record.

    If the registry of the broker cannot be used, records are printed as they are.
    """
    decoder: _Decoder | None = None
    with ExitStack() as stack:

        def decode(records: list[Record[bytes]]) -> list[Record[bytes]]:
            nonlocal decoder, is_raw
            if is_raw or (decoder is None and not any(map(_names_a_schema, records))):
                return records
            try:
                if decoder is None:
                    decoder = _Decoder(stack.enter_context(open_registry(registry, url)))
                return list(map(decoder.decoded, records))
            except (click.ClickException, SteleClientError) as error:
                why = error.message
                if registry is not None or (decoder is not None and decoder.has_decoded):
                    raise click.ClickException(f"{why}; --raw prints values as they are") from error
                is_raw = True
                click.echo(f"values are printed as bytes: {why}", err=True)
                return records

        yield decode


def _names_a_schema(record: Record[bytes]) -> bool:
    return any(
        schema_key(data, record.headers, is_key=is_key) is not None
        for data, is_key in ((record.key, True), (record.value, False))
        if data is not None
    )
