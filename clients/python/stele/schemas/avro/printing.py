"""Types → the text of a schema."""

from __future__ import annotations

import json
from typing import Any, cast

from .types import NO_DEFAULT, PRIMITIVES, Field, Type

# Not msgspec, which has no integers of more than 64 bits.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_KINDS = (*PRIMITIVES, "record", "enum", "fixed", "array", "map", "union")


def canonical(root: Type, known: set[str]) -> str:
    """Return the text by which two schemas are equal: compact, attributes in one order, names as short as can be.

    A named type is written where it is first used; ``known`` are those that other texts define.
    """
    return _encode(_Canonical(set(known)).type(root, ""))


def normalized(root: Type, known: set[str]) -> str:
    """Return the canonical text with full names only and with what has no order sorted."""
    return _encode(_Normalized(set(known)).type(root, ""))


def definition(type_: Type) -> str:
    """Return the canonical text of one named type alone, with nothing but the names of others."""
    return _encode(_Canonical(_Everything()).definition(type_, ""))


class _Everything(set[str]):
    def __contains__(self, name: object) -> bool:
        return True


class _Canonical:
    def __init__(self, written: set[str]) -> None:
        self._written = written

    def type(self, type_: Type, namespace: str) -> Any:
        kind = type_.kind
        if type_.name:
            if type_.name in self._written:
                return self._reference(type_.name, namespace)
            self._written.add(type_.name)
            return self.definition(type_, namespace)
        if kind == "union":
            return [self.type(branch, namespace) for branch in type_.branches]
        if type_.items is not None:
            content = {"items" if kind == "array" else "values": self.type(type_.items, namespace)}
            return {"type": kind, **content, **self._attributes(type_)}
        attributes = self._attributes(type_)
        return {"type": kind, **attributes} if attributes else kind

    def definition(self, type_: Type, namespace: str) -> Any:
        parts = self._names(type_, namespace)
        if type_.doc is not None:
            parts["doc"] = type_.doc
        match type_.kind:
            case "record":
                parts["fields"] = [self._field(field, type_.namespace) for field in type_.fields]
            case "enum":
                parts["symbols"] = type_.symbols
                if type_.default is not None:
                    parts["default"] = type_.default
            case _:
                parts["size"] = type_.size
        parts.update(self._attributes(type_))
        if type_.aliases:
            parts["aliases"] = self._aliases(type_)
        return parts

    def _field(self, field: Field, namespace: str) -> Any:
        parts: dict[str, Any] = {"name": field.name, "type": self.type(field.type, namespace)}
        if field.doc is not None:
            parts["doc"] = field.doc
        if field.default is not NO_DEFAULT:
            parts["default"] = self._other(field.default)
        if field.order != "ascending":
            parts["order"] = field.order
        if field.aliases:
            parts["aliases"] = self._other_names(field.aliases)
        parts.update(self._other(field.attributes))
        return parts

    # What the normalized text has in another way.

    def _reference(self, name: str, namespace: str) -> str:
        space, _, short = name.rpartition(".")
        return short if space == namespace and short not in _KINDS else name

    def _names(self, type_: Type, namespace: str) -> dict[str, Any]:
        parts = {"type": "error" if type_.is_error else type_.kind, "name": type_.short_name}
        return parts if type_.namespace == namespace else {**parts, "namespace": type_.namespace}

    def _aliases(self, type_: Type) -> list[str]:
        # A short name would be one of the namespace of the type.
        return [
            self._reference(alias, type_.namespace) if "." in alias or not type_.namespace else f".{alias}"
            for alias in type_.aliases
        ]

    def _other_names(self, names: Any) -> list[str]:
        return list(names)

    def _attributes(self, type_: Type) -> Any:
        return self._other(type_.attributes)

    def _other(self, parts: Any) -> Any:
        return parts


class _Normalized(_Canonical):
    def _reference(self, name: str, namespace: str) -> str:
        return name

    def _names(self, type_: Type, namespace: str) -> dict[str, Any]:
        parts = {"name": type_.name, "type": "error" if type_.is_error else type_.kind}
        # A name without a dot would be one of the namespace around it.
        return {**parts, "namespace": ""} if namespace and not type_.namespace else parts

    def _aliases(self, type_: Type) -> list[str]:
        return sorted(set(super()._aliases(type_)))

    def _other_names(self, names: Any) -> list[str]:
        return sorted(set(names))

    def _attributes(self, type_: Type) -> Any:
        attributes = self._other(type_.attributes)
        if type_.logical == "decimal" and attributes.get("scale") == 0:
            del attributes["scale"]
        return attributes

    def _other(self, parts: Any) -> Any:
        if isinstance(parts, dict):
            members = cast("dict[str, Any]", parts)
            return {key: self._other(members[key]) for key in sorted(members)}
        return [self._other(item) for item in cast("list[Any]", parts)] if isinstance(parts, list) else parts
