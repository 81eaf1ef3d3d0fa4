"""Turn the types of bodies and answers into JSON Schema.

Objects are structs that a route decodes, or typed dicts that it returns; each is a component under the name of its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import NODEFAULT, Struct

Schema = dict[str, Any]

_TYPES: dict[object, Schema] = {
    Any: {},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "format": "binary"},
    float: {"type": "number"},
    int: {"type": "integer"},
    str: {"type": "string"},
}
# The end of the name of a class that would otherwise have the name of another class in its module.
_SUFFIX = "Json"


class Shown:
    """What the document says about an annotated type: ``keywords`` of JSON Schema.

    A ``name`` makes the type a component. ``kind`` is shown in place of the type. Nothing is checked by it: the layers
    below check bounds, with errors that say more than a decoder could.
    """

    __slots__ = ("keywords", "kind", "name")

    def __init__(self, description: str = "", *, name: str = "", kind: Any = None, **keywords: Any) -> None:
        self.keywords = {**keywords, **({"description": description} if description else {})}
        self.name = name
        self.kind = kind


def one_of(name: str, *values: str) -> Shown:
    """Name an enumeration."""
    return Shown(name=name, enum=list(values))


class Components:
    """The named schemas of a document, gathered while its operations are described."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._kinds: dict[str, object] = {}

    def schema_of(self, kind: Any) -> Schema:
        """Return the schema of ``kind``, or a reference to it."""
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._annotated(*arguments)
        if origin in (Union, UnionType):
            return self._union(*arguments)
        if origin in (list, Sequence):
            return {"type": "array", "items": self.schema_of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.schema_of(arguments[1])}
        if kind in _TYPES:
            return dict(_TYPES[kind])
        name = kind.__name__.removesuffix(_SUFFIX)
        if name not in self._kinds:
            # Before its fields, one of which may refer to it.
            self._kinds[name] = kind
            self._add(name, self._object(kind) if is_typeddict(kind) else self._body(kind))
        assert self._kinds[name] is kind, f"two types are named {name}"
        return _reference(name)

    def _add(self, name: str, schema: Schema) -> None:
        assert self.schemas.setdefault(name, schema) == schema, f"two schemas are named {name}"

    def _annotated(self, kind: Any, *marks: object) -> Schema:
        schema = self.schema_of(kind) if all(getattr(mark, "kind", None) is None for mark in marks) else {}
        for mark in marks:
            if isinstance(mark, Shown):
                schema |= self.schema_of(mark.kind) if mark.kind is not None else {}
                schema |= mark.keywords
                if mark.name:
                    self._add(mark.name, schema)
                    schema = _reference(mark.name)
        return schema

    def _union(self, *kinds: Any) -> Schema:
        schemas = [self.schema_of(kind) for kind in kinds if kind is not NoneType]
        is_nullable = NoneType in kinds
        if len(schemas) == 1 and "$ref" in schemas[0]:
            return {"anyOf": [*schemas, {"type": "null"}]}
        names = [schema["type"] for schema in schemas] + ["null"] * is_nullable
        return {**schemas[0], "type": names}

    def _object(self, kind: Any) -> Schema:
        hints = get_type_hints(kind, include_extras=True)
        optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
        properties = {
            name: self.schema_of(get_args(hint)[0] if name in optional else hint)
            for name, hint in hints.items()
        }
        required = [name for name in hints if name in kind.__required_keys__ and name not in optional]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def _body(self, kind: type[Struct]) -> Schema:
        """Describe a struct. A default is shown where it is a number, or one of an enumeration."""
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for field in msgspec.structs.fields(kind):
            is_required = field.default is NODEFAULT and field.default_factory is NODEFAULT
            schema = self.schema_of(field.type if is_required else _without_null(field.type))
            if is_required:
                required.append(field.encode_name)
            elif isinstance(field.default, int) or ("$ref" in schema and field.default is not NODEFAULT):
                schema["default"] = field.default
            properties[field.encode_name] = schema
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**schema, **({"required": required} if required else {})}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _without_null(kind: Any) -> Any:
    """Return the type of a field that may be left out, which means the same as null.

    A null that its ``Shown`` states remains.
    """
    marks: tuple[Any, ...] = ()
    if get_origin(kind) is Annotated:
        kind, *rest = get_args(kind)
        marks = tuple(rest)
    if get_origin(kind) in (Union, UnionType):
        kind = Union[tuple(part for part in get_args(kind) if part is not NoneType)]  # noqa: UP007
    return Annotated[(kind, *marks)] if marks else kind
