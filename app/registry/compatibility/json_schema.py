"""Whether every value that one JSON Schema accepts is accepted by another one.

The rule is that of Confluent's registry: data can be read if the reader's schema accepts all that the writer's
accepts. So a property may be added to an object that is closed (``additionalProperties: false``) but not to an open
one, in which it may have had any value; it may be removed from an open one but not from a closed one. In between,
``patternProperties`` and the schema of ``additionalProperties`` must fit. In two cases data can be read although a
value may be refused, as elsewhere:

- a property with a ``default`` may become required: readers fill it in;
- alternatives of ``oneOf`` that are objects or arrays may overlap.

Otherwise "can be read" is proved, and what cannot be proved is reported, also what takes too many steps.

``json_schema_values`` says what is known of the writer's values, this module what the reader asks of them, and
``proofs`` how the one follows from the other if schemas are recursive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from stele.schemas.json_schema import JsonSchema
from stele.schemas.json_schema.evaluation import Budget, TooComplex
from stele.schemas.json_schema.nodes import Node
from stele.schemas.json_schema.reasons import names_of, quote
from stele.schemas.json_schema.validators import write_schema
from stele.schemas.json_schema.values import NUMBERS, TYPES

from .json_schema_values import (
    ALTERNATIVES,
    ANY,
    INTEGERS,
    MAY_OVERLAP,
    UNEVALUATED,
    Knowledge,
    Values,
    item_of,
    without,
)
from .proofs import Problems, Proof, Proofs, Question

# Two seconds.
STEPS_MAX = 300_000
PROBLEMS_MAX = 50

# Whether all problems are wanted, or whether there is one; exactly: without the two exceptions.
_Mode = Literal["all", "any", "exactly any"]


class _Claim(NamedTuple):
    """The reader's node accepts all of ``values``; ``is_direct``: without a look at the alternatives of the writer."""

    values: Values
    reader: Node
    mode: _Mode
    is_direct: bool = False


_Finding = Proof[_Claim, None]
_Answering = Proof[_Claim, bool]

_AT_LEAST = {"minLength": "string", "minItems": "array", "minProperties": "object"}
_AT_MOST = {"maxLength": "string", "maxItems": "array", "maxProperties": "object"}
_OF_OTHERS = frozenset(("properties", "patternProperties", "additionalProperties"))
_INFINITY = float("inf")


def incompatibilities(reader: JsonSchema, writer: JsonSchema, *, is_lenient: bool = False) -> Problems:
    """Return why data written with ``writer`` cannot be read with ``reader``; nothing if it can.

    ``is_lenient``: writers leave out properties that their schema does not name, and readers ignore those that theirs
    does not. So optional properties can be added and removed, whatever ``additionalProperties`` says. An object
    without ``properties`` is a map, of which this does not hold.

    Each problem begins with its place in the schema of the reader, a JSON pointer after ``#``.
    """
    try:
        return list(dict.fromkeys(_Comparison(is_lenient).compare(reader.root, writer.root, "all")))
    except (TooComplex, RecursionError):
        return ["#: the schemas are too complex to compare"]


def find_problems(reader: Node, writer: Node, mode: _Mode) -> Problems:
    """Return why a node does not accept all that another one does. Raises ``TooComplex``."""
    return _Comparison(is_lenient=False).compare(reader, writer, mode)


class _Comparison:
    def __init__(self, is_lenient: bool) -> None:
        self._is_lenient = is_lenient
        self._budget = Budget(STEPS_MAX)
        self._known = Knowledge(self._budget)
        self._texts: dict[Node, str] = {}

    def compare(self, reader: Node, writer: Node, mode: _Mode) -> Problems:
        if self._text_of(writer) == self._text_of(reader):
            return []
        proofs = Proofs(self._prove, lambda claim: PROBLEMS_MAX if claim.mode == "all" else 1)
        return proofs.problems_of(_Claim(self._known.accepted(writer), self._known.resolved(reader), mode))

    # ── claims ──

    def _why_not(
        self, values: Values, reader: Node, mode: _Mode, *, is_inside: bool = False
    ) -> Proof[_Claim, Problems]:
        """Return why the reader's node does not accept ``values``; ``is_inside``: they are inside of others."""
        self._budget.spend()
        reader = self._known.resolved(reader)
        if reader.keywords.keys() == {"type"} and self._known.types(values) <= reader.keywords["type"]:
            return []
        return (yield Question(_Claim(values, reader, mode), is_inside))

    def _need(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        """Find the problems of other values of the same kind, or of another node."""
        yield from (yield from self._why_not(values, reader, mode))

    def _prove(self, claim: _Claim) -> _Finding:
        known = self._known
        values, reader, mode, is_direct = claim
        self._budget.spend(5)
        if is_direct:
            yield from self._prove_directly(values, reader, mode)
            return
        if not (reader.keywords.keys() - {"default"}) or known.is_empty(values):
            return
        is_of_types = not reader.keywords.keys() - {"default", "type"}
        if not is_of_types and (constants := known.constants(values)) is not None:
            for constant in constants:
                if not known.is_accepted(constant, reader):
                    yield _problem(reader, f"the value {quote(constant)} is no longer accepted")
            return
        kinds = [kind for kind, _ in values]
        lost = known.types(values) - reader.keywords.get("type", TYPES)
        if lost and not {"if", "not", "excluded"}.intersection(kinds):
            yield _problem(reader, f"{names_of(lost)} is no longer accepted")
            return
        problems: Problems = []
        # One union is compared with another by its parts.
        if sum(kind in ALTERNATIVES for kind in kinds) != 1 or not reader.keywords.keys() & {
            "anyOf",
            "oneOf",
        }:
            problems = yield Question(claim._replace(is_direct=True))
            if not problems:
                return
        parts = known.parts(values, is_exact=mode == "exactly any")
        if parts is None:
            is_nothing = yield from self._is_excluded(without(values, "not", "excluded"), values)
            yield from [] if is_nothing else problems
            return
        for part in parts:
            if problems := (yield from self._why_not(part, reader, mode)):
                yield from problems
                return

    def _prove_directly(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        known = self._known
        words = reader.keywords
        yield from self._keywords(values, reader, mode)
        for part in reader.children(("$ref", "allOf")):
            yield from self._need(values, part, mode)
        if words.keys() & UNEVALUATED and not self._is_same(values, reader):
            yield from self._unevaluated(values, reader, mode)
        for word in ("anyOf", "oneOf"):
            if word in words:
                yield from self._alternatives(values, reader, word, mode)
        if "not" in words:
            is_excluded = yield from self._are_disjoint(values, words["not"])
            if not is_excluded and not self._is_same(values, reader):
                yield _problem(reader, "it may be what the writer's schema accepts", "not")
        if "then" in words and "if" in words:
            yield from self._need(values | known.accepted(words["if"]), words["then"], mode)
        if "else" in words and "if" in words:
            yield from self._need(values | {("excluded", known.resolved(words["if"]))}, words["else"], mode)

    # ── alternatives ──

    def _alternatives(self, values: Values, reader: Node, word: str, mode: _Mode) -> _Finding:
        known = self._known
        branches: list[Node] = reader.keywords[word]
        types = known.types(values)
        parts = [values]
        accepting = yield from self._first_accepting(values, branches, mode)
        if accepting is None and len(types) > 1:
            # No alternative accepts all: perhaps there is one for each type.
            parts = [values | {("is", frozenset({each}))} for each in sorted(types)]
        for part in parts:
            if part is not values:
                accepting = yield from self._first_accepting(part, branches, mode)
            if accepting is None:
                yield from self._no_alternative(part, reader, word, mode)
                return
            if word == "oneOf" and not (yield from self._is_only(part, accepting, branches, mode)):
                yield _problem(reader, "more than one alternative may accept the same value", word)
                return

    def _first_accepting(
        self, values: Values, branches: list[Node], mode: _Mode
    ) -> Proof[_Claim, Node | None]:
        # Most likely is the one that stands where the writer's does.
        places = {base.place for base in self._known.bases(values)} if len(branches) > 1 else set[str]()
        for branch in sorted(branches, key=lambda branch: self._known.resolved(branch).place not in places):
            if not (yield from self._why_not(values, branch, "any" if mode == "all" else mode)):
                return branch
        return None

    def _no_alternative(self, values: Values, reader: Node, word: str, mode: _Mode) -> _Finding:
        """Find the problems of the alternative that is meant, if that is clear from the type."""
        known = self._known
        branches: list[Node] = reader.keywords[word]
        types = known.types(values)
        meant = [branch for branch in branches if known.types(known.accepted(branch)) & types]
        if len(meant) == 1 or len(branches) == 1:
            yield from self._need(values, (meant or branches)[0], mode)
        else:
            yield _problem(reader, f"no alternative accepts all that was {names_of(types)}", word)

    def _is_only(self, values: Values, accepting: Node, branches: list[Node], mode: _Mode) -> _Answering:
        """Return whether no other branch accepts any of ``values``, as far as that must be known."""
        known = self._known
        for other in branches:
            may_overlap = known.types(values | known.accepted(other)) <= MAY_OVERLAP
            if other is accepting or (may_overlap and mode != "exactly any"):
                continue
            if not (yield from self._are_disjoint(values, other)):
                return False
        return True

    def _are_disjoint(self, values: Values, node: Node) -> _Answering:
        accepted = self._known.accepted(node)
        if self._known.is_empty(values | accepted):
            return True
        return (yield from self._is_excluded(accepted, values))

    def _is_excluded(self, some: Values, values: Values) -> _Answering:
        """Return whether ``values`` exclude all of ``some``."""
        refused: list[Node] = [what.keywords["not"] if kind == "not" else what
                               for kind, what in values if kind in ("not", "excluded")]  # fmt: skip
        for node in sorted(refused, key=lambda node: node.number):
            if not (yield from self._why_not(some, node, "exactly any")):
                return True
        return False

    # ── keywords that hold no alternatives ──

    def _keywords(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        known = self._known
        words = reader.keywords
        types = known.types(values)
        if lost := types - words.get("type", TYPES):
            yield _problem(reader, f"{names_of(lost)} is no longer accepted")
        elif reader.is_false:
            yield _problem(reader, "nothing is accepted any longer")
        elif "enum" in words or "const" in words:
            word = "const" if "const" in words else "enum"
            yield _problem(reader, "the values are limited to those listed here", word)
        else:
            yield from self._limits(values, reader)
            if types & NUMBERS:
                yield from self._numbers(values, reader)
            if "array" in types:
                yield from self._arrays(values, reader, mode)
            if "object" in types:
                yield from self._objects(values, reader, mode)

    def _limits(self, values: Values, reader: Node) -> _Finding:
        known = self._known
        words = reader.keywords
        types = known.types(values)
        for word, of in _AT_LEAST.items():
            least = known.least(values, word)
            if word == "minProperties":
                least = max(least, len(known.required(values)))
            if of in types and words.get(word, 0) > least:
                yield _problem(
                    reader, f"{quote(words[word])} is more than the writer's schema asks for", word
                )
        for word, of in _AT_MOST.items():
            if of in types and words.get(word, _INFINITY) < known.most(values, word):
                yield _problem(reader, f"{quote(words[word])} is less than the writer's schema allows", word)
        if "string" in types and "pattern" in words:
            theirs = [base.keywords.get("pattern") for base in known.bases(values)]
            if words["pattern"] not in theirs:
                yield _problem(reader, "the writer's schema does not have this pattern", "pattern")

    def _numbers(self, values: Values, reader: Node) -> _Finding:
        known = self._known
        words = reader.keywords
        low, high = known.lowest(values), known.highest(values)
        for word in ("minimum", "exclusiveMinimum"):
            if word in words and low < (words[word], word != "minimum"):
                yield _problem(
                    reader, f"{quote(words[word])} is more than the writer's schema asks for", word
                )
        for word in ("maximum", "exclusiveMaximum"):
            if word in words and (high[0], not high[1]) > (words[word], word == "maximum"):
                yield _problem(reader, f"{quote(words[word])} is less than the writer's schema allows", word)
        if "multipleOf" in words:
            factors = [
                base.keywords["multipleOf"] for base in known.bases(values) if "multipleOf" in base.keywords
            ]
            if known.types(values) & NUMBERS == INTEGERS:
                factors.append(1)
            if all(_fraction(factor) % _fraction(words["multipleOf"]) for factor in factors):
                text = f"numbers that are no multiples of {quote(words['multipleOf'])} were accepted"
                yield _problem(reader, text, "multipleOf")

    # ── arrays ──

    def _arrays(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        known = self._known
        words = reader.keywords
        is_unique = any(base.keywords.get("uniqueItems") is True for base in known.bases(values))
        if words.get("uniqueItems") is True and not is_unique and known.most(values, "maxItems") > 1:
            yield _problem(reader, "items that are equal were accepted", "uniqueItems")
        yield from self._items(values, reader, mode)
        is_asked = "contains" in words and (words.get("minContains", 1) > 0 or "maxContains" in words)
        if is_asked and not (yield from self._do_contain(values, reader)):
            yield _problem(reader, "the writer's schema does not ask for it", "contains")

    def _items(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        known = self._known
        first: list[Node] = reader.keywords.get("prefixItems", [])
        arrays = [base.keywords for base in known.bases(values)]
        tuples = [len(words["prefixItems"]) for words in arrays if "prefixItems" in words]
        is_tuple = bool(first) and bool(first[0].keywords)
        if is_tuple and not tuples and any("items" in words for words in arrays):
            # It is safe if the items fit, but no other registry takes it.
            yield _problem(reader, "a list does not become a tuple", "prefixItems")
        elif first or "items" in reader.keywords:
            # The last one stands for all that follow.
            for index in range(max([len(first), *tuples]) + 1):
                inner = known.of_item(values, index)
                if index >= known.most(values, "maxItems") or known.is_empty(inner):
                    return
                if (target := item_of(reader, index)) is not None:
                    problems = yield from self._why_not(inner, target, mode, is_inside=True)
                    if problems and inner == ANY and index < len(first):
                        text = f"item {index} was added to an open array: it could be anything"
                        problems = [_problem(target, text)]
                    yield from problems

    def _do_contain(self, values: Values, reader: Node) -> _Answering:
        """Return whether arrays have the items that ``contains`` asks for because the writer's asks for them."""
        known = self._known
        ours: Node = reader.keywords["contains"]
        least, most = reader.keywords.get("minContains", 1), reader.keywords.get("maxContains", _INFINITY)
        for words in [base.keywords for base in known.bases(values) if "contains" in base.keywords]:
            theirs: Node = words["contains"]
            if words.get("minContains", 1) < least or words.get("maxContains", _INFINITY) > most:
                continue
            sides = [(theirs, ours)] if most == _INFINITY else [(theirs, ours), (ours, theirs)]
            for some, others in sides:
                if (yield from self._why_not(known.accepted(some), others, "exactly any", is_inside=True)):
                    break
            else:
                return True
        return False

    # ── objects ──

    def _objects(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        words = reader.keywords
        required = self._known.required(values)
        properties: dict[str, Node] = words.get("properties", {})
        for name in words.get("required", ()):
            has_default = name in properties and "default" in properties[name].keywords
            if name not in required and (mode == "exactly any" or not has_default):
                yield _problem(reader, f"the property {quote(name)} became required", "required")
        if words.keys() & _OF_OTHERS:
            yield from self._properties(values, reader, mode)
        if "propertyNames" in words and not (
            yield from self._are_names_accepted(values, words["propertyNames"])
        ):
            yield _problem(reader, "names that it refuses were accepted", "propertyNames")
        yield from self._dependencies(values, reader, mode)

    def _properties(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        known = self._known
        words = reader.keywords
        properties: dict[str, Node] = words.get("properties", {})
        bases = [base.keywords for base in known.bases(values)]
        theirs: set[str] = set[str]().union(*(base.get("properties", ()) for base in bases))
        is_lenient = self._is_lenient and mode != "exactly any"
        marks = {name for name, node in properties.items() if node.keywords.keys() & {"const", "enum"}}
        # Those that mark an alternative first: most alternatives differ in them.
        for name in [*sorted(marks), *sorted(theirs.union(properties) - marks)]:
            inner = known.of_property(values, name)
            for target in known.applied(reader, name):
                is_added = inner == ANY and name not in theirs
                is_other = target.is_false and target is words.get("additionalProperties")
                if is_lenient and (is_other or (is_added and theirs)):
                    continue
                problems = yield from self._why_not(inner, target, mode, is_inside=True)
                if problems and target.is_false:
                    problems = [_problem(target, f"the property {quote(name)} is no longer accepted")]
                elif problems and is_added:
                    text = f"the property {quote(name)} was added to an open object: it could have any value"
                    problems = [_problem(target, text)]
                yield from problems
        patterns: dict[str, Node] = words.get("patternProperties", {})
        for pattern, target in patterns.items():
            yield from self._others(bases, target, pattern, patterns, mode)
        if "additionalProperties" in words:
            yield from self._others(bases, words["additionalProperties"], None, patterns, mode)

    def _others(
        self,
        bases: list[dict[str, Any]],
        target: Node,
        pattern: str | None,
        patterns: Iterable[str],
        mode: _Mode,
    ) -> _Finding:
        """Check the properties that neither schema names: those that match ``pattern``, or none of ``patterns``."""
        known = self._known
        is_lenient = self._is_lenient and mode != "exactly any"
        problems: Problems = []
        if is_lenient and target.is_false and pattern is None:
            return
        for base in [words for words in bases if words.keys() & _OF_OTHERS] or [{}]:
            theirs: dict[str, Node] = base.get("patternProperties", {})
            if pattern in theirs:
                possible = [known.accepted(theirs[pattern])]
            else:
                possible = [
                    known.accepted(node) for each, node in theirs.items() if pattern or each not in patterns
                ]
                rest = base.get("additionalProperties")
                inner = known.accepted(rest) if rest else ANY
                if inner != ANY or not (is_lenient and "properties" in base):
                    possible.append(inner)
            for inner in possible:
                problems = yield from self._why_not(inner, target, mode, is_inside=True)
                if problems:
                    break
            else:
                return
        yield from (
            [_problem(target, "other properties are no longer accepted")] if target.is_false else problems
        )

    def _are_names_accepted(self, values: Values, target: Node) -> _Answering:
        known = self._known
        bases = [base.keywords for base in known.bases(values)]
        names = ANY.union(
            *(known.accepted(base["propertyNames"]) for base in bases if "propertyNames" in base)
        )
        names |= {("is", frozenset({"string"}))}
        # A pattern that may be empty and says nothing of where it stands is found in every text.
        pattern = target.keywords.get("pattern", "^") if len(target.keywords) == 1 else "^"
        if not any(sign in pattern for sign in ("^", "$", "\\", "(?")) and known.is_accepted("", target):
            return True
        if not (yield from self._why_not(names, target, "exactly any", is_inside=True)):
            return True
        for base in bases:
            rest = base.get("additionalProperties")
            if rest is not None and rest.is_false and not base.get("patternProperties"):
                return all(known.is_accepted(name, target) for name in base.get("properties", ()))
        return False

    def _dependencies(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        known = self._known
        bases = [base.keywords for base in known.bases(values)]
        required = known.required(values)
        for name, needed in reader.keywords.get("dependentRequired", {}).items():
            theirs = required.union(
                [name], *(base.get("dependentRequired", {}).get(name, ()) for base in bases)
            )
            if not theirs.issuperset(needed) and not known.is_empty(known.of_property(values, name)):
                text = f"objects with {quote(name)} did not need the same properties"
                yield _problem(reader, text, "dependentRequired")
        for name, target in reader.keywords.get("dependentSchemas", {}).items():
            if not known.is_empty(known.of_property(values, name)):
                theirs = [base["dependentSchemas"] for base in bases if "dependentSchemas" in base]
                also = [known.accepted(schemas[name]) for schemas in theirs if name in schemas]
                yield from self._need(values.union(*also), target, mode)

    def _unevaluated(self, values: Values, reader: Node, mode: _Mode) -> _Finding:
        """Check what other parts of the reader's node do not evaluate: that depends on the value."""
        types = self._known.types(values)
        closed = self._known.closed(reader, whatever=False)
        if closed is not None and "items" in closed.keywords and "array" in types:
            yield from self._items(values, closed, mode)
        if closed is not None and "additionalProperties" in closed.keywords and "object" in types:
            yield from self._properties(values, closed, mode)

    # ── nodes that are written alike ──

    def _is_same(self, values: Values, reader: Node) -> bool:
        """Return whether a node that accepts ``values`` is written like the reader's: for what is hard to prove."""
        nodes = {what for kind, what in values if kind not in ("is", "excluded")}
        alike = [node for node in nodes if node.keywords.keys() == reader.keywords.keys()]
        return any(self._text_of(node) == self._text_of(reader) for node in alike)

    def _text_of(self, node: Node) -> str:
        """Return what a node is written like, with all that it refers to."""
        if node not in self._texts:
            self._texts[node] = json.dumps(write_schema(node), sort_keys=True)
            self._budget.spend(len(self._texts[node]) // 100)
        return self._texts[node]


def _fraction(number: float) -> Fraction:
    return Fraction(repr(number))


def _problem(node: Node, text: str, word: str = "") -> str:
    return f"{node.place}{'/' if word else ''}{word}: {text}"
