"""The types of schemas, by their names: how a text is parsed, shown, and compared with another.

What a type needs is imported with the first schema of it, so all of this is called in threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stele.schemas.definitions import InvalidSchema, ParsedSchema

from .definitions import TYPES, Rule

_MODULES = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
# Other texts of schemas: a descriptor in base64, and the text without references.
_FORMATS = {("PROTOBUF", "serialized"), ("AVRO", "resolved")}


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


def has_format(schema_type: str, text_format: str) -> bool:
    """Return whether schemas of a type have another text of this format."""
    return (schema_type, text_format) in _FORMATS


def formatted(schema: ParsedSchema, text_format: str) -> str:
    """Return the text of a schema in a format that its type has."""
    return getattr(schema, text_format)


def incompatibilities(new: ParsedSchema, old: ParsedSchema, rule: Rule) -> tuple[str, ...]:
    """Return why a new schema does not fit an old one; empty if it does."""
    if new.type != old.type:
        return (f"it is of type {old.type}, and the new schema of type {new.type}",)
    module: Any = import_module(f".compatibility.{_MODULES[new.type]}", __package__)
    policy = {"is_lenient": True} if rule.is_lenient and new.type == "JSON" else {}
    problems: list[str] = []
    if rule.level in ("BACKWARD", "FULL"):
        problems += module.incompatibilities(new, old, **policy)
    if rule.level in ("FORWARD", "FULL"):
        problems += module.incompatibilities(old, new, **policy)
    return tuple(problems)
