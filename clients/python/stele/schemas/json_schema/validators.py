"""Whether a node accepts a value, fast: nodes as one schema for the validator."""

from __future__ import annotations

from typing import Any

from ..definitions import InvalidSchema
from .nodes import LISTS, MAPS, ONE, Node
from .patterns import compile_schema, options_for
from .reasons import cut
from .values import NUMBERS


class Validator:
    """Checks values against one node and all that it refers to."""

    __slots__ = ("_validator",)

    def __init__(self, node: Node, *, needs_steps: bool) -> None:
        try:
            self._validator = compile_schema(write_schema(node), options_for(needs_steps=needs_steps))
        except ValueError as error:
            # Its patterns were checked, so what it minds would be a surprise.
            raise InvalidSchema(f"{node.place}: {cut(str(error))}") from None

    def is_valid(self, value: Any) -> bool:
        """Return whether the node accepts a JSON value. Raises ValueError if it is none."""
        return self._validator.is_valid(value)


def write_schema(root: Node) -> Any:
    """Return a node as one schema of draft 2020-12 that refers to nothing outside."""
    numbers: dict[Node, int] = {}
    unwritten: list[Node] = []

    def refer(target: Node) -> dict[str, Any]:
        if target is root:
            return {"$ref": "#"}
        if target not in numbers:
            numbers[target] = len(numbers)
            unwritten.append(target)
        return {"$ref": f"#/$defs/{numbers[target]}"}

    def write(node: Node) -> Any:
        if node.is_false:
            return False
        written: dict[str, Any] = {}
        for word, value in node.keywords.items():
            if word in ONE:
                written[word] = write(value)
            elif word in LISTS:
                written[word] = [*written.get(word, ()), *map(write, value)]
            elif word in MAPS:
                written[word] = {name: write(inner) for name, inner in value.items()}
            elif word == "$ref":
                written["allOf"] = [*written.get("allOf", ()), *map(refer, value)]
            elif word == "type":
                written[word] = _write_type(value)
            elif word != "default":
                written[word] = value
        return written

    schema = write(root)
    definitions: dict[str, Any] = {}
    while unwritten:
        target = unwritten.pop()
        definitions[str(numbers[target])] = write(target)
    return {**schema, "$defs": definitions} if definitions else schema


def _write_type(types: frozenset[str]) -> list[str]:
    return sorted(types - NUMBERS | {"number"} if "fraction" in types else types)
