"""What is known of the values that several JSON schemas accept together.

Such values are a set of *atoms*, each of which holds for all of them:

==================  ====================================================================
``base``, node      the keywords of the node that hold no alternatives
``anyOf``, node     one of these alternatives accepts them; ``oneOf``: only one
``if``, node        if its ``if`` accepts them, its ``then`` does, otherwise its ``else``
``not``, node       its ``not`` accepts none of them
``excluded``, node  the node accepts none of them
``is``, types       they have one of these types
==================  ====================================================================

No atoms: any value. Every node of an atom, unless it is excluded, accepts all the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from stele.schemas.json_schema.evaluation import Budget, Evaluation
from stele.schemas.json_schema.nodes import Node
from stele.schemas.json_schema.patterns import Patterns
from stele.schemas.json_schema.values import NUMBERS, TYPES, type_of

Atom = tuple[str, Any]
Values = frozenset[Atom]
ANY: Values = frozenset()
# A limit, and whether it is itself beyond it.
Limit = tuple[float, bool]

# What marks an alternative stands near its top; no proof needs more.
_LEVELS_MAX = 20
INTEGERS = frozenset(("integer",))
_OBJECTS = frozenset(("object",))
MAY_OVERLAP: frozenset[str] = frozenset(("object", "array"))
UNEVALUATED = frozenset(("unevaluatedProperties", "unevaluatedItems"))
ALTERNATIVES = ("anyOf", "oneOf", "if")
_COMPOUND = frozenset(("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "default"))


def without(values: Values, *kinds: str) -> Values:
    return frozenset(atom for atom in values if atom[0] not in kinds)


class Knowledge:
    """What follows from atoms. It keeps what it has found out, for one comparison."""

    def __init__(self, budget: Budget) -> None:
        self.spend = budget.spend
        self._evaluation = Evaluation(budget, Patterns())
        self.applied = self._evaluation.applied
        self._made = 0
        self._levels = 0
        self._atoms: dict[Node, Values] = {}
        self._types: dict[Values, frozenset[str]] = {}
        self._empty: dict[Values, bool] = {}
        self._enumerated: dict[Values, list[Any] | None] = {}
        self._bases: dict[Values, list[Node]] = {}
        self._closed: dict[tuple[Node, bool], Node | None] = {}

    # ── atoms ──

    def resolved(self, node: Node) -> Node:
        """Return the node that a node is nothing but a reference to."""
        while node.keywords.keys() == {"$ref"} and len(node.keywords["$ref"]) == 1:
            (node,) = node.keywords["$ref"]
        return node

    def accepted(self, node: Node) -> Values:
        """Return the values that a node accepts."""
        known = self._atoms.get(node)
        if known is not None:
            return known
        self.spend()
        words = node.keywords
        atoms: set[Atom] = set()
        if words.keys() - _COMPOUND:
            atoms.add(("base", node))
        atoms.update((word, node) for word in ("anyOf", "oneOf", "not", "if") if word in words)
        for part in node.children(("$ref", "allOf")):
            atoms |= self.accepted(part)
        if closed := self.closed(node, whatever=True):
            atoms.add(("base", closed))
        self._atoms[node] = frozenset(atoms)
        return self._atoms[node]

    def parts(self, values: Values, *, is_exact: bool) -> list[Values] | None:
        """Return sets of values that are ``values`` together, by one of their alternatives; None if they have none.

        That other alternatives of ``oneOf`` exclude them is left out where it does not matter.
        """
        alternatives = [atom for atom in values if atom[0] in ALTERNATIVES]
        if not alternatives:
            return None
        chosen = min(alternatives, key=_order)
        rest = values - {chosen}
        kind, node = chosen
        words = node.keywords
        if kind == "if":
            condition = words["if"]
            return [
                rest | self.accepted(condition) | self._accepted_if_any(words.get("then")),
                rest | {("excluded", self.resolved(condition))} | self._accepted_if_any(words.get("else")),
            ]
        parts: list[Values] = []
        for branch in words[kind]:
            part = rest | self.accepted(branch)
            if kind == "oneOf":
                types = self.types(part)
                part |= {
                    ("excluded", self.resolved(other))
                    for other in words[kind]
                    if other is not branch
                    and (is_exact or not types & self.types(self.accepted(other)) <= MAY_OVERLAP)
                }
            parts.append(part)
        self.spend(len(parts))
        return parts

    def _accepted_if_any(self, node: Node | None) -> Values:
        return self.accepted(node) if node else ANY

    def bases(self, values: Values) -> list[Node]:
        """Return the nodes whose keywords hold, in a certain order."""
        known = self._bases.get(values)
        if known is None:
            found = [atom for atom in values if atom[0] == "base"]
            known = self._bases[values] = [node for _, node in sorted(found, key=_order)]
        return known

    def make(self, near: Node, keywords: dict[str, Any]) -> Node:
        """Return a node that stands in no document."""
        self._made += 1
        node = Node(near, "", near.draft, -self._made)
        node.keywords.update(keywords)
        return node

    # ── what follows from them ──

    def types(self, values: Values) -> frozenset[str]:
        known = self._types.get(values)
        if known is None:
            known = TYPES
            for kind, what in values:
                known &= self._types_of_atom(kind, what)
            self._types[values] = known
        return known

    def _types_of_atom(self, kind: str, what: Any) -> frozenset[str]:
        if kind == "is":
            return what
        words: dict[str, Any] = what.keywords
        if kind == "base":
            types: frozenset[str] = words.get("type", TYPES)
            if (constants := _constants(what)) is not None:
                types &= frozenset(map(type_of, constants))
            return types
        if kind in ("anyOf", "oneOf"):
            return frozenset[str]().union(*(self.types(self.accepted(branch)) for branch in words[kind]))
        if kind in ("not", "excluded"):
            refused: dict[str, Any] = words["not"].keywords if kind == "not" else words
            if not refused.keys() - {"type", "default"}:
                return TYPES - refused.get("type", TYPES)
        return TYPES

    def constants(self, values: Values) -> list[Any] | None:
        """Return all the values, if they are listed: then what they are can be tried."""
        if values not in self._enumerated:
            self._enumerated[values] = self._listed(values)
        return self._enumerated[values]

    def _listed(self, values: Values) -> list[Any] | None:
        lists = [found for base in self.bases(values) if (found := _constants(base)) is not None]
        if lists:
            listed = min(lists, key=len)
        else:
            types = self.types(values)
            if not types <= {"null", "boolean"}:
                return None
            listed = [each for each in (None, False, True) if type_of(each) in types]
        return [each for each in listed if self._is_among(each, values)]

    def _is_among(self, value: Any, values: Values) -> bool:
        for kind, what in values:
            if kind == "is":
                if type_of(value) not in what:
                    return False
            elif self.is_accepted(value, what) == (kind == "excluded"):
                return False
        return True

    def is_accepted(self, value: Any, node: Node) -> bool:
        """Return whether a node accepts a value that stands in one of the schemas."""
        return self._evaluation.refusal(node, value) is None

    def is_empty(self, values: Values) -> bool:
        """Return whether there are certainly no such values."""
        known = self._empty.get(values)
        if known is None:
            self.spend()
            # Of a value that would have to be inside of itself this says nothing.
            self._empty[values] = False
            self._levels += 1
            known = self._empty[values] = self._levels <= _LEVELS_MAX and self._find_empty(values)
            self._levels -= 1
        return known

    def _find_empty(self, values: Values) -> bool:
        types = self.types(values)
        if not types or self.constants(values) == []:
            return True
        if types <= NUMBERS:
            (low, is_low_out), (high, is_high_out) = self.lowest(values), self.highest(values)
            if low > high or (low == high and (is_low_out or is_high_out)):
                return True
        if types == _OBJECTS and any(
            self.is_empty(self.of_property(values, name)) for name in sorted(self.required(values))
        ):
            return True
        certain = without(values, *ALTERNATIVES)
        return any(
            all(self.is_empty(certain | self.accepted(branch)) for branch in what.keywords[kind])
            for kind, what in values
            if kind in ("anyOf", "oneOf")
        )

    def least(self, values: Values, word: str) -> float:
        """Return the largest of the lower limits ``word``, or 0."""
        return max((base.keywords.get(word, 0) for base in self.bases(values)), default=0)

    def most(self, values: Values, word: str) -> float:
        """Return the smallest of the upper limits ``word``, or infinity."""
        return min((base.keywords.get(word, _INFINITY) for base in self.bases(values)), default=_INFINITY)

    def lowest(self, values: Values) -> Limit:
        """Return the lower limit of numbers. That of integers is an integer."""
        words = (("minimum", False), ("exclusiveMinimum", True))
        limits = [limit for base in self.bases(values) for limit in limits_of(base, words)]
        limit = max(limits, default=(-_INFINITY, False))
        if self.types(values) & NUMBERS == INTEGERS and limit[0] > -_INFINITY:
            number = int(limit[0] // 1) + (limit[1] or limit[0] % 1 != 0)
            return number, False
        return limit

    def highest(self, values: Values) -> Limit:
        words = (("maximum", False), ("exclusiveMaximum", True))
        limits = [limit for base in self.bases(values) for limit in limits_of(base, words)]
        limit = min(limits, key=lambda each: (each[0], not each[1]), default=(_INFINITY, False))
        if self.types(values) & NUMBERS == INTEGERS and limit[0] < _INFINITY:
            number = int(limit[0] // 1) - (limit[1] and limit[0] % 1 == 0)
            return number, False
        return limit

    def required(self, values: Values) -> set[str]:
        return {name for base in self.bases(values) for name in base.keywords.get("required", ())}

    # ── the values inside ──

    def of_property(self, values: Values, name: str) -> Values:
        bases = self.bases(values)
        self.spend(sum(1 + len(base.keywords.get("patternProperties", ())) for base in bases))
        inner = [self.accepted(node) for base in bases for node in self.applied(base, name)]
        return ANY.union(*inner)

    def of_item(self, values: Values, index: int) -> Values:
        inner: list[Values] = []
        for base in self.bases(values):
            node = item_of(base, index)
            if node is not None:
                inner.append(self.accepted(node))
        return ANY.union(*inner)

    def closed(self, node: Node, *, whatever: bool) -> Node | None:
        """Return ``unevaluatedProperties`` and ``unevaluatedItems`` as words that do not look at other nodes.

        They leave out what parts of ``node`` evaluate: ``whatever`` the value is, or in every value. None if the
        node does not have the words, or all is evaluated.
        """
        key = node, whatever
        if key not in self._closed:
            words = node.keywords
            keywords: dict[str, Any] = {}
            anything = self.make(node, {})
            evaluated = _Evaluated()
            if words.keys() & UNEVALUATED:
                self._evaluate(node, evaluated, whatever=whatever, is_inner=False)
            if "unevaluatedProperties" in words and not evaluated.all_properties:
                keywords["properties"] = dict.fromkeys(sorted(evaluated.names), anything)
                keywords["patternProperties"] = dict.fromkeys(sorted(evaluated.patterns), anything)
                keywords["additionalProperties"] = words["unevaluatedProperties"]
            if "unevaluatedItems" in words and not evaluated.all_items:
                keywords["prefixItems"] = [anything] * evaluated.first_items
                keywords["items"] = words["unevaluatedItems"]
            self._closed[key] = self.make(node, keywords) if keywords else None
        return self._closed[key]

    def _evaluate(self, node: Node, evaluated: _Evaluated, *, whatever: bool, is_inner: bool = True) -> None:
        self.spend()
        words = node.keywords
        own = UNEVALUATED if is_inner else frozenset[str]()
        evaluated.all_properties |= bool(words.keys() & {"additionalProperties", *own - {"unevaluatedItems"}})
        evaluated.all_items |= bool(words.keys() & {"items", *own - {"unevaluatedProperties"}})
        # It evaluates some items, at any place.
        evaluated.all_items |= whatever and "contains" in words
        evaluated.names.update(words.get("properties", ()))
        evaluated.patterns.update(words.get("patternProperties", ()))
        evaluated.first_items = max(evaluated.first_items, len(words.get("prefixItems", ())))
        inner = ["$ref", "allOf"]
        if whatever:
            inner += ["anyOf", "oneOf", "if", "then", "else", "dependentSchemas"]
        for part in node.children(inner):
            self._evaluate(part, evaluated, whatever=whatever)


@dataclass(slots=True)
class _Evaluated:
    names: set[str] = field(default_factory=set[str])
    patterns: set[str] = field(default_factory=set[str])
    all_properties: bool = False
    first_items: int = 0
    all_items: bool = False


_INFINITY = float("inf")


def limits_of(node: Node, words: Iterable[tuple[str, bool]]) -> list[Limit]:
    return [(node.keywords[word], is_exclusive) for word, is_exclusive in words if word in node.keywords]


def item_of(node: Node, index: int) -> Node | None:
    """Return the node that a node applies to the item at ``index``."""
    first: list[Node] = node.keywords.get("prefixItems", [])
    return first[index] if index < len(first) else node.keywords.get("items")


def _constants(node: Node) -> list[Any] | None:
    if "const" in node.keywords:
        return [node.keywords["const"]]
    return cast("list[Any] | None", node.keywords.get("enum"))


def _order(atom: Atom) -> tuple[str, int]:
    return atom[0], atom[1].number
