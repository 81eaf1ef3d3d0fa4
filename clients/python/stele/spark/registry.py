"""The schema registry of driver and executors: schemas that plans have, and those that values name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from ..calls import make_config
from ..config import ClientConfig
from ..credentials import read_secret
from ..registry.definitions import RegisteredSchema, Schema
from ..registry.discovery import registry_config
from ..registry.registry import SchemaRegistry
from ..schemas.definitions import ParsedSchema
from .options import ColumnSchema, RegistryOptions, SchemaOptions

# Registries that a process keeps open.
_OPEN_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSchema:
    """The schema of a column as Spark's plan has it; ``wanted`` is a struct of the column alone, as JSON.

    It goes to the tasks, so that these read what the driver planned whatever is registered meanwhile.
    """

    column: str
    subject: str
    id: int
    schema: Schema
    message: str | None
    wanted: str

    @property
    def context(self) -> str | None:
        return context_of(self.subject)


def context_of(subject: str) -> str | None:
    """Return what the registry must know of a subject to find an id; nothing in the default context."""
    return subject if subject.startswith(":.") else None


def located(options: SchemaOptions) -> RegistryOptions:
    """Return the options with the URL of the registry, which the broker is asked for if none is given.

    Raises SteleClientError.
    """
    if options.registry.url is not None:
        return options.registry
    connection = options.connection
    found = RegistryOptions(
        url=connection.url,
        user=connection.user,
        password_file=connection.password_file,
        api_key_file=connection.api_key_file,
    )
    return replace(found, url=registry_config(_config(found)).url)


@lru_cache(_OPEN_MAX)
def open_registry(options: RegistryOptions) -> SchemaRegistry:
    """Return the client of a registry, which stays open with its schemas as long as the process lives."""
    return SchemaRegistry(config=_config(options))


def _config(options: RegistryOptions) -> ClientConfig:
    key_file = options.api_key_file
    return make_config(
        options.url,
        user=options.user,
        password_file=options.password_file,
        api_key=None if key_file is None else read_secret(key_file),
    )


def version_of(registry: SchemaRegistry, column: ColumnSchema) -> RegisteredSchema:
    """Return the version of a subject that a column asks for.

    Raises:
        UnknownSchemaError: there is none.
        SteleClientError
    """
    return registry.version(column.subject, column.version or "latest")


def loader(registry: SchemaRegistry, subject: str | None) -> Callable[[int | str], ParsedSchema]:
    """Return what loads the schema of an id or a GUID, in the context of ``subject``."""
    return lambda schema: registry.parse(registry.schema(schema, subject=subject), subject)
