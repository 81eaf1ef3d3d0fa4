"""Where and why a node refuses a value.

The validator says so, too, but the errors that it collects grow exponentially with the depth of a value if
alternatives refer to each other. Here each node meets each value once. It takes a hundred times as long as
the validator, so it is asked only about what that has refused, and about values in schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from .nodes import Node
from .patterns import Patterns
from .reasons import Refusal, meant
from .values import identity_of, is_array, is_object, type_of

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, limit: value >= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "multipleOf": lambda value, limit: Fraction(repr(value)) % Fraction(repr(limit)) == 0,
}
_SIZES: dict[type, tuple[str, str]] = {
    str: ("minLength", "maxLength"),
    list: ("minItems", "maxItems"),
    dict: ("minProperties", "maxProperties"),
}


class TooComplex(Exception):
    """More steps are needed than there are."""


class Budget:
    """A number of steps, each of which takes some 10 µs."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooComplex


class Evaluation:
    """Asks nodes about values, which must not change or end meanwhile. Raises ``TooComplex``."""

    def __init__(self, budget: Budget, patterns: Patterns) -> None:
        self._budget = budget
        self._patterns = patterns
        self._known: dict[tuple[Node, int], Refusal | None] = {}
        self._lists: dict[Node, frozenset[Any]] = {}

    def refusal(self, node: Node, value: Any) -> Refusal | None:
        """Return the first reason why a node refuses a value; None if it accepts it."""
        key = node, id(value)
        if key not in self._known:
            self._budget.spend()
            self._known[key] = next(self._refusals(node, value), None)
        return self._known[key]

    def _refusals(self, node: Node, value: Any) -> Iterator[Refusal]:
        words = node.keywords
        if node.is_false:
            yield Refusal((), "false", None, value)
        for part in node.children(("$ref", "allOf")):
            if refusal := self.refusal(part, value):
                yield refusal
        if "type" in words and type_of(value) not in words["type"]:
            yield Refusal((), "type", words["type"], value)
        if "const" in words and identity_of(value) != identity_of(words["const"]):
            yield Refusal((), "const", words["const"], value)
        if "enum" in words and identity_of(value) not in self._listed(node):
            yield Refusal((), "enum", words["enum"], value)
        if type(value) in _SIZES:
            least, most = _SIZES[type(value)]
            if len(value) < words.get(least, 0):
                yield Refusal((), least, words[least], value)
            if most in words and len(value) > words[most]:
                yield Refusal((), most, words[most], value)
        if (
            isinstance(value, str)
            and "pattern" in words
            and not self._patterns.match(words["pattern"], value)
        ):
            yield Refusal((), "pattern", words["pattern"], value)
        if type(value) in (int, float):
            for word, is_within in _COMPARED.items():
                if word in words and not is_within(value, words[word]):
                    yield Refusal((), word, words[word], value)
        if is_array(value):
            yield from self._of_array(node, value)
        if is_object(value):
            yield from self._of_object(node, value)
        yield from self._of_alternatives(words, value)

    def _listed(self, node: Node) -> frozenset[Any]:
        if node not in self._lists:
            self._lists[node] = frozenset(map(identity_of, node.keywords["enum"]))
        return self._lists[node]

    def _of_alternatives(self, words: dict[str, Any], value: Any) -> Iterator[Refusal]:
        for word in ("anyOf", "oneOf"):
            if word in words:
                refusals = [refusal for part in words[word] if (refusal := self.refusal(part, value))]
                accepting = len(words[word]) - len(refusals)
                if not accepting:
                    yield meant(refusals, word, value)
                elif word == "oneOf" and accepting > 1:
                    yield Refusal((), "several of oneOf", None, value)
        if "not" in words and self.refusal(words["not"], value) is None:
            yield Refusal((), "not", None, value)
        if "if" in words:
            then = words.get("else" if self.refusal(words["if"], value) else "then")
            if then is not None and (refusal := self.refusal(then, value)):
                yield refusal

    # ── arrays ──

    def _of_array(self, node: Node, value: list[Any]) -> Iterator[Refusal]:
        words = node.keywords
        first: list[Node] = words.get("prefixItems", [])
        for index, item in enumerate(value):
            inner = first[index] if index < len(first) else words.get("items")
            if inner is None:
                break
            if refusal := self.refusal(inner, item):
                is_extra = inner.is_false and index >= len(first)
                yield (Refusal((), "items", None, item) if is_extra else refusal).within(index)
        if words.get("uniqueItems") is True and len(set(map(identity_of, value))) < len(value):
            yield Refusal((), "uniqueItems", None, value)
        if "contains" in words:
            found = sum(self.refusal(words["contains"], item) is None for item in value)
            if found < words.get("minContains", 1):
                yield Refusal((), "contains", None, value)
            if "maxContains" in words and found > words["maxContains"]:
                yield Refusal((), "maxContains", None, value)
        if "unevaluatedItems" in words:
            evaluated = self._evaluated_items(node, value, is_inner=False)
            for index, item in enumerate(value):
                inner = words["unevaluatedItems"]
                if index not in evaluated and (refusal := self.refusal(inner, item)):
                    yield (Refusal((), "items", None, item) if inner.is_false else refusal).within(index)

    def _evaluated_items(self, node: Node, value: list[Any], *, is_inner: bool = True) -> set[int]:
        words = node.keywords
        if "items" in words or (is_inner and "unevaluatedItems" in words):
            return set(range(len(value)))
        evaluated = set(range(min(len(value), len(words.get("prefixItems", ())))))
        if "contains" in words:
            evaluated |= {
                index for index, item in enumerate(value) if self.refusal(words["contains"], item) is None
            }
        return evaluated.union(*(self._evaluated_items(part, value) for part in self._applied(node, value)))

    # ── objects ──

    def _of_object(self, node: Node, value: dict[str, Any]) -> Iterator[Refusal]:
        words = node.keywords
        for name in words.get("required", ()):
            if name not in value:
                yield Refusal((), "required", name, value)
        for name, needed in words.get("dependentRequired", {}).items():
            for missing in needed:
                if name in value and missing not in value:
                    yield Refusal((), "dependentRequired", missing, value)
        for name, part in words.get("dependentSchemas", {}).items():
            if name in value and (refusal := self.refusal(part, value)):
                yield refusal
        for name, item in value.items():
            if "propertyNames" in words and self.refusal(words["propertyNames"], name):
                yield Refusal((name,), "propertyNames", None, item)
            for inner in self.applied(node, name):
                if refusal := self.refusal(inner, item):
                    yield self._of_property(inner, words.get("additionalProperties"), item, refusal).within(
                        name
                    )
        if "unevaluatedProperties" in words:
            evaluated = self._evaluated_names(node, value, is_inner=False)
            inner = words["unevaluatedProperties"]
            for name, item in value.items():
                if name not in evaluated and (refusal := self.refusal(inner, item)):
                    yield self._of_property(inner, inner, item, refusal).within(name)

    def applied(self, node: Node, name: str) -> list[Node]:
        """Return the nodes that a node applies to the property ``name``."""
        words = node.keywords
        found: list[Node] = [words["properties"][name]] if name in words.get("properties", ()) else []
        for pattern, inner in words.get("patternProperties", {}).items():
            if self._patterns.match(pattern, name):
                found.append(inner)
        if not found and "additionalProperties" in words:
            found.append(words["additionalProperties"])
        return found

    def _of_property(self, inner: Node, additional: Node | None, item: Any, refusal: Refusal) -> Refusal:
        is_extra = inner is additional and inner.is_false
        return Refusal((), "additionalProperties", None, item) if is_extra else refusal

    def _evaluated_names(self, node: Node, value: dict[str, Any], *, is_inner: bool = True) -> set[str]:
        words = node.keywords
        if is_inner and "unevaluatedProperties" in words:
            return set(value)
        evaluated = {name for name in value if self.applied(node, name)}
        return evaluated.union(*(self._evaluated_names(part, value) for part in self._applied(node, value)))

    def _applied(self, node: Node, value: Any) -> Iterator[Node]:
        """Yield the parts of a node that apply to a value and accept it."""
        words = node.keywords
        yield from node.children(("$ref", "allOf"))
        for part in node.children(("anyOf", "oneOf", "if")):
            if self.refusal(part, value) is None:
                yield part
        if "if" in words:
            then = words.get("else" if self.refusal(words["if"], value) else "then")
            if then is not None:
                yield then
        if is_object(value):
            yield from (part for name, part in words.get("dependentSchemas", {}).items() if name in value)
