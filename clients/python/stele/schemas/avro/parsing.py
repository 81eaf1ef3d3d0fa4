"""The text of a schema → types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from ..definitions import InvalidSchema
from . import printing
from .types import NO_DEFAULT, PRIMITIVES, Field, Type, logical_type

# What a record of Kafka holds by default, so that a schema fits into the topic of schemas.
TEXT_CHARACTERS_MAX = 1024 * 1024
# Of types within types. Functions that walk a schema are recursive.
DEPTH_MAX = 64
# Of a schema together with those that it refers to.
NAMES_MAX = 5_000
BRANCHES_MAX = 1_000
FIXED_BYTES_MAX = 2**31 - 1

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME = re.compile(rf"(?:{_NAME.pattern}\.)*{_NAME.pattern}")
_ANY_NAME = re.compile(r"[^.](?:.*[^.])?", re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_TYPE_ATTRIBUTES = frozenset(
    {"type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size"}
)
_ENUM_ATTRIBUTES = _TYPE_ATTRIBUTES | {"default"}
_FIELD_ATTRIBUTES = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_ORDERS = ("ascending", "descending", "ignore")
_SHOWN_CHARACTERS = 60


class Parser:
    """Parses texts that use each other's names, those that are used first.

    ``check_names`` is False for schemas that a registry has already: the one of Java once took any name.
    """

    def __init__(self, *, check_names: bool) -> None:
        self.names: dict[str, Type] = {}
        # With the name of the record, to check them when all types are known.
        self.defaults: list[tuple[str, Field]] = []
        self._open: set[str] = set()
        # Of named types that are defined again.
        self._definitions: dict[str, str] = {}
        self._checks_names = check_names
        self._name = _NAME if check_names else _ANY_NAME
        self._full_name = _FULL_NAME if check_names else _ANY_NAME

    def parse(self, text: str) -> Type:
        """Return the type that a text describes.

        Raises:
            InvalidSchema: It describes none, or exceeds a bound.
        """
        if len(text) > TEXT_CHARACTERS_MAX:
            raise InvalidSchema(f"the schema has more than {TEXT_CHARACTERS_MAX:,} characters")
        try:
            return self._type(_loaded(text), "", 0)
        except RecursionError:
            raise InvalidSchema(f"JSON nested too deeply; types may be nested {DEPTH_MAX} deep") from None
        except ValueError as error:
            raise InvalidSchema(f"it is not JSON: {error}") from None

    def _type(self, schema: Any, namespace: str, depth: int) -> Type:
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"types are nested more than {DEPTH_MAX} deep")
        if isinstance(schema, str):
            return self._reference(schema, namespace)
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema), namespace, depth)
        if not isinstance(schema, dict):
            raise InvalidSchema(f"a type is a string, an object or an array, not {_shown(schema)}")
        schema = cast("dict[str, Any]", schema)
        kind = schema.get("type")
        match kind:
            case "record" | "error":
                return self._named(schema, "record", namespace, depth)
            case "enum" | "fixed":
                return self._named(schema, kind, namespace, depth)
            case "array" | "map":
                key = "items" if kind == "array" else "values"
                if key not in schema:
                    raise InvalidSchema(f'the {kind} has no "{key}"')
                content = self._type(schema[key], namespace, depth + 1)
                return Type(kind, _others(schema, _TYPE_ATTRIBUTES), items=content)
            case str() if kind in PRIMITIVES:
                attributes = _others(schema, _TYPE_ATTRIBUTES)
                return Type(kind, attributes, logical=logical_type(kind, 0, attributes))
            case str():
                return self._reference(kind, namespace)
            case _:
                raise InvalidSchema(f'"type" is the name of a type, not {_shown(kind)}')

    def _reference(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Type(name, {})
        type_ = self.names.get(f"{namespace}.{name}") if namespace and "." not in name else None
        type_ = type_ or self.names.get(name)
        if type_ is None:
            raise InvalidSchema(f"there is no type {_shown(name)} before its use")
        return type_

    def _union(self, schemas: list[Any], namespace: str, depth: int) -> Type:
        if len(schemas) > BRANCHES_MAX:
            raise InvalidSchema(f"a union has more than {BRANCHES_MAX:,} branches")
        branches = [self._type(schema, namespace, depth + 1) for schema in schemas]
        names: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise InvalidSchema("a union directly within a union")
            if branch.branch_name in names:
                raise InvalidSchema(f"the union has two branches {branch.branch_name}")
            names.add(branch.branch_name)
        return Type("union", {}, branches=branches)

    def _named(self, schema: dict[str, Any], kind: str, namespace: str, depth: int) -> Type:
        name = self._full_name_of(schema, kind, namespace)
        type_ = Type(
            kind,
            _others(schema, _ENUM_ATTRIBUTES if kind == "enum" else _TYPE_ATTRIBUTES),
            name=name,
            doc=_text_or_none(schema, "doc"),
            is_error=schema["type"] == "error",
        )
        type_.aliases = [
            alias.removeprefix(".") if "." in alias or not type_.namespace else f"{type_.namespace}.{alias}"
            for alias in _aliases(schema)
        ]
        before = self.names.get(name)
        if before is None:
            if len(self.names) == NAMES_MAX:
                raise InvalidSchema(f"there are more than {NAMES_MAX:,} named types")
            self.names[name] = type_
        elif name in self._open:
            raise InvalidSchema(f"{name} is defined within itself")
        self._open.add(name)
        try:
            self._body(schema, type_, depth)
        except InvalidSchema as error:
            raise InvalidSchema(f"{name}: {error.reason}") from None
        self._open.remove(name)
        if before is None:
            return type_
        # Generators of schemas repeat a type where it is used again, and the parser of Java takes that.
        text = self._definitions.get(name) or printing.definition(before)
        self._definitions[name] = text
        if text != printing.definition(type_):
            raise InvalidSchema(f"{name} is defined twice, in different ways")
        return before

    def _body(self, schema: dict[str, Any], type_: Type, depth: int) -> None:
        match type_.kind:
            case "record":
                type_.fields = self._fields(schema, type_, depth)
            case "enum":
                self._symbols(schema, type_)
            case _:
                size = schema.get("size")
                if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
                    raise InvalidSchema(f'"size" is a number of bytes, not {_shown(size)}')
                type_.size = size
                type_.logical = logical_type("fixed", size, type_.attributes)

    def _fields(self, schema: dict[str, Any], record: Type, depth: int) -> list[Field]:
        listed = schema.get("fields")
        if not isinstance(listed, list):
            raise InvalidSchema(f'"fields" is an array, not {_shown(listed)}')
        fields: dict[str, Field] = {}
        for json_field in cast("list[Any]", listed):
            if not isinstance(json_field, dict):
                raise InvalidSchema(f"a field is an object, not {_shown(json_field)}")
            json_field = cast("dict[str, Any]", json_field)
            name = self._checked(json_field.get("name"), "field")
            if name in fields:
                raise InvalidSchema(f"there are two fields {name}")
            try:
                field = fields[name] = self._field(name, json_field, record, depth)
            except InvalidSchema as error:
                raise InvalidSchema(f"field {name}: {error.reason}") from None
            if field.default is not NO_DEFAULT:
                self.defaults.append((record.name, field))
        return list(fields.values())

    def _field(self, name: str, schema: dict[str, Any], record: Type, depth: int) -> Field:
        if "type" not in schema:
            raise InvalidSchema('there is no "type"')
        order = schema.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise InvalidSchema(f'"order" is one of {", ".join(_ORDERS)}, not {_shown(order)}')
        return Field(
            name,
            self._type(schema["type"], record.namespace, depth + 1),
            _text_or_none(schema, "doc"),
            schema.get("default", NO_DEFAULT),
            order.lower(),
            _aliases(schema),
            _others(schema, _FIELD_ATTRIBUTES),
        )

    def _symbols(self, schema: dict[str, Any], enum: Type) -> None:
        listed = schema.get("symbols")
        if not isinstance(listed, list):
            raise InvalidSchema(f'"symbols" is an array, not {_shown(listed)}')
        symbols = [self._checked(symbol, "symbol") for symbol in cast("list[Any]", listed)]
        if len(set(symbols)) != len(symbols):
            raise InvalidSchema("a symbol is there twice")
        enum.symbols = symbols
        enum.default = _text_or_none(schema, "default")
        if self._checks_names and enum.default is not None and enum.default not in symbols:
            raise InvalidSchema(f"the default {_shown(enum.default)} is not among the symbols")

    def _full_name_of(self, schema: dict[str, Any], kind: str, namespace: str) -> str:
        name = schema.get("name")
        if isinstance(name, str) and "." not in name:
            own = _text_or_none(schema, "namespace")
            namespace = namespace if own is None else own
            name = f"{namespace}.{name}" if namespace else name
        if not isinstance(name, str) or not self._full_name.fullmatch(name) or name in PRIMITIVES:
            raise InvalidSchema(f"{_shown(name)} is no name of a type of kind {kind}")
        return name

    def _checked(self, name: Any, what: str) -> str:
        if not isinstance(name, str) or not self._name.fullmatch(name):
            raise InvalidSchema(f"{_shown(name)} is no name of a {what}")
        return name


def _loaded(text: str) -> Any:
    value = json.loads(text, parse_constant=_refuse_constant)
    if _SURROGATE.search(text):
        # Half of a pair is a character for Python, and none of UTF-8.
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"it has no {constant}")


def _shown(value: Any) -> str:
    """Return JSON for a message, shortened."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _text_or_none(schema: Mapping[str, Any], key: str) -> str | None:
    value = schema.get(key)
    return value if isinstance(value, str) else None


def _aliases(schema: Mapping[str, Any]) -> list[str]:
    aliases = schema.get("aliases", [])
    if not isinstance(aliases, list) or not all(
        isinstance(alias, str) for alias in cast("list[Any]", aliases)
    ):
        raise InvalidSchema(f'"aliases" is an array of strings, not {_shown(cast("Any", aliases))}')
    return cast("list[str]", aliases)


def _others(schema: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in known}
