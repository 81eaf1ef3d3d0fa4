"""The types of schemas, by their names: how a text is parsed, shown, and compared with another.

What a type needs is imported with the first schema of it, so all of this is called in threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stele.schemas.definitions import InvalidSchema, ParsedSchema

from .definitions import TYPES

_MODULES = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
# The format in which Protobuf has a text of its own: a descriptor in base64.
SERIALIZED = "serialized"


def parse(schema_type: str, text: str, references: Mapping[str, str], *, is_registered: bool) -> ParsedSchema:
    """Parse a schema; ``references`` are texts by name, each after those that it refers to.

    Of one that is registered already, names may be invalid, which registries did not check for years. Defaults are not
    checked: other registries do not, and many a schema has the text "null" as one.

    Raises ``InvalidSchema``.
    """
    if schema_type not in _MODULES:
        raise InvalidSchema(f"the type is {schema_type!r}; it is one of {', '.join(TYPES)}")
    module: Any = import_module(f"stele.schemas.{_MODULES[schema_type]}")
    if schema_type == "AVRO":
        return module.parse(text, references, registered=is_registered, check_defaults=False)
    return module.parse(text, references)


def serialized(schema: ParsedSchema) -> str | None:
    """Return the text of a schema in the format ``SERIALIZED``; None if its type has none."""
    return getattr(schema, SERIALIZED, None)


def incompatibilities(new: ParsedSchema, old: ParsedSchema, level: str) -> tuple[str, ...]:
    """Return why a new schema does not fit an old one; empty if it does.

    By ``level`` BACKWARD the new one reads data of the old one, by FORWARD the other way round, by FULL both.
    """
    if new.type != old.type:
        return (f"it is of type {old.type}, and the new schema of type {new.type}",)
    module: Any = import_module(f".compatibility.{_MODULES[new.type]}", __package__)
    problems: list[str] = []
    if level in ("BACKWARD", "FULL"):
        problems += module.incompatibilities(new, old)
    if level in ("FORWARD", "FULL"):
        problems += module.incompatibilities(old, new)
    return tuple(problems)
