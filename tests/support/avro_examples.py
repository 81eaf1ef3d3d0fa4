"""Random schemas of Avro, and values of them in their JSON form, for hypothesis."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, cast

from hypothesis import assume
from hypothesis import strategies as st
from stele.schemas import avro
from stele.schemas.avro.types import Type, is_plain
from stele.schemas.definitions import InvalidSchema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL_TYPES: list[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    *(
        {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}
        for prefix in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    ),
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 40},
]
_NAMED_LOGICAL_TYPES: list[dict[str, Any]] = [
    {"size": 12, "logicalType": "duration"},
    {"size": 16, "logicalType": "uuid"},
    {"size": 8, "logicalType": "decimal", "precision": 18, "scale": 2},
    {"size": 5},
    {"size": 0},
]


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """Return the JSON of a schema, with records that use themselves and types that are used again."""
    names: list[str] = []

    def named(kind: str) -> dict[str, Any]:
        name = f"T{len(names)}"
        space = draw(st.sampled_from(["", "a", "a.b"]))
        names.append(f"{space}.{name}" if space else name)
        return {"type": kind, "name": name, "namespace": space}

    def type_(depth: int, in_union: bool = False) -> Any:
        kinds = ["primitive", "primitive", "logical", "fixed", "enum"]
        if names:
            kinds.append("again")
        if depth < 3:
            kinds += ["array", "map", "record"]
            if not in_union:
                kinds += ["union", "union"]
        match draw(st.sampled_from(kinds)):
            case "primitive":
                return draw(st.sampled_from(PRIMITIVES))
            case "logical":
                return draw(st.sampled_from(_LOGICAL_TYPES))
            case "fixed":
                return {**named("fixed"), **draw(st.sampled_from(_NAMED_LOGICAL_TYPES))}
            case "enum":
                return {**named("enum"), "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
            case "again":
                name = draw(st.sampled_from(names))
                # Only a union ends a record that uses itself.
                return name if in_union or depth == 0 or name in closed else ["null", name]
            case "array":
                return {"type": "array", "items": type_(depth + 1)}
            case "map":
                return {"type": "map", "values": type_(depth + 1)}
            case "union":
                return union(depth)
            case _:
                return record(depth)

    closed: set[str] = set()

    def key_of(branch: Any) -> str:
        if isinstance(branch, str):
            return branch
        space, name = branch.get("namespace"), branch.get("name")
        return f"{space}.{name}" if space else name or branch["type"]

    def union(depth: int) -> list[Any]:
        branches: dict[str, Any] = {"null": "null"} if draw(st.booleans()) else {}
        for _ in range(draw(st.integers(1, 4))):
            branch = type_(depth + 1, in_union=True)
            branches.setdefault(key_of(branch), branch)
            if branch in names and branch not in closed:
                branches["null"] = "null"
        return list(branches.values())

    def record(depth: int) -> dict[str, Any]:
        schema = named("record")
        name = names[-1]
        count = draw(st.integers(0, 4))
        schema["fields"] = [{"name": f"f{index}", "type": type_(depth + 1)} for index in range(count)]
        closed.add(name)
        return schema

    return type_(0)


def parsed_schemas() -> st.SearchStrategy[avro.AvroSchema]:
    """Return schemas that can be parsed: nearly all."""

    def parsed(schema: Any) -> avro.AvroSchema | None:
        try:
            return avro.parse(json.dumps(schema))
        except InvalidSchema:
            return None

    return schemas().map(parsed).filter(lambda schema: schema is not None)  # pyright: ignore[reportReturnType]


def _base64(size_min: int, size_max: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=size_min, max_size=size_max).map(lambda data: base64.b64encode(data).decode())


def _decimal(precision: int, scale: int) -> st.SearchStrategy[str]:
    def text(unscaled: int) -> str:
        digits = str(abs(unscaled)).zfill(scale + 1)
        point = len(digits) - scale
        return ("-" if unscaled < 0 else "") + digits[:point] + ("." + digits[point:] if scale else "")

    most = 10**precision - 1
    return st.integers(-most, most).map(text)


def values(type_: Type, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values of a type in their JSON form; what is stored as an integer also as one that has no text."""
    return st.deferred(lambda: _values(type_, depth))


def _values(type_: Type, depth: int) -> st.SearchStrategy[Any]:
    size = 3 if depth < 4 else 0
    match type_.kind, type_.logical:
        case "null", _:
            return st.none()
        case "boolean", _:
            return st.booleans()
        case _, "decimal":
            return _decimal(*type_.decimal)
        case "int", _:
            return st.integers(-(2**31), 2**31 - 1)
        case "long", _:
            return st.integers(-(2**63), 2**63 - 1)
        case (("float" | "double"), _):
            width = 32 if type_.kind == "float" else 64
            number = st.floats(width=width, allow_nan=False, allow_infinity=False)
            return number | st.sampled_from(["NaN", "Infinity", "-Infinity"])
        case "bytes", _:
            return _base64(0, 8)
        case "string", "uuid":
            return st.uuids().map(str)
        case "string", _:
            return st.text(max_size=8)
        case "fixed", "uuid":
            return st.uuids().map(str)
        case "fixed", "duration":
            part = st.integers(0, 2**32 - 1)
            return st.tuples(part, part, part).map(_duration)
        case "fixed", _:
            return _base64(type_.size, type_.size)
        case "enum", _:
            return st.sampled_from(type_.symbols)
        case "array", _:
            return st.lists(values(type_.content, depth + 1), max_size=size)
        case "map", _:
            return st.dictionaries(st.text(max_size=4), values(type_.content, depth + 1), max_size=size)
        case "union", _:
            null = [branch for branch in type_.branches if branch.kind == "null"]
            branches = null if depth > 4 and null else type_.branches
            return st.one_of([_branch(type_, branch, depth) for branch in branches])
        case _:
            return st.fixed_dictionaries(
                {field.name: values(field.type, depth + 1) for field in type_.fields}
            )


def _duration(parts: tuple[int, int, int]) -> str:
    months, days, milliseconds = parts
    seconds, rest = divmod(milliseconds, 1000)
    return f"P{months}M{days}DT{seconds}{f'.{rest:03}' if rest else ''}S"


def _branch(union: Type, branch: Type, depth: int) -> st.SearchStrategy[Any]:
    found = values(branch, depth + 1)
    if branch.kind == "null" or is_plain(union):
        return found
    tag: Callable[[Any], Any] = lambda value: {branch.branch_name: value}  # noqa: E731
    return found.map(tag)


def schemas_with_values() -> st.SearchStrategy[tuple[avro.AvroSchema, Any]]:
    return parsed_schemas().flatmap(lambda schema: st.tuples(st.just(schema), values(schema.root)))


def changed(schema: avro.AvroSchema, data: st.DataObject) -> avro.AvroSchema:
    """Return a schema with a primitive type, a size, and symbols or fields of it changed, and without logical types."""
    root = json.loads(schema.canonical)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, list):
            node = cast("list[Any]", node)
            for index, branch in enumerate(node):
                if branch in PRIMITIVES:
                    places.append((node, index))
                walk(branch)
        elif isinstance(node, dict):
            node = cast("dict[str, Any]", node)
            node.pop("logicalType", None)
            for key in ("items", "values", "size", "symbols", "fields"):
                if key in node:
                    places.append((node, key))
            if node.get("type") in PRIMITIVES:
                places.append((node, "type"))
            for key in ("type", "items", "values", "fields"):
                walk(node.get(key))

    walk(root)
    for parent, key in data.draw(st.lists(st.sampled_from(places), max_size=2)) if places else []:
        match key:
            case "size":
                parent[key] += 1
            case "symbols":
                parent[key] = parent[key][1:] if data.draw(st.booleans()) else [*parent[key], "Z"]
            case "fields":
                new = {"name": f"new{len(parent[key])}", "type": "int"}
                parent[key] = parent[key][1:] if data.draw(st.booleans()) else [*parent[key], new]
            case _:
                parent[key] = data.draw(st.sampled_from(PRIMITIVES))
    try:
        return avro.parse(json.dumps(root), registered=True)
    except InvalidSchema:
        assume(False)
        raise
