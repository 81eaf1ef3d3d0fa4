"""The schemas of all documents as a graph of nodes, in the terms of draft 2020-12, whatever their draft.

Keywords that a draft does not know, annotations and names are left out, and every reference leads to its node.
``format``, ``contentEncoding`` and ``contentMediaType`` are annotations in every draft here, as in the newest:
implementations differ so much in them that a record which one accepts is refused by another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from ..definitions import InvalidSchema
from .documents import Document, Draft, check_schema, meta_schemas
from .reasons import cut, escape, quote
from .values import NUMBERS, is_array, is_object

NODES_MAX = 100_000
_PLACE_CHARACTERS_MAX = 300

# Keyword → the first draft that has it, by what its value is.
_PLAIN: dict[str, Draft] = {
    "enum": 4, "const": 6, "multipleOf": 4, "maximum": 4, "exclusiveMaximum": 4, "minimum": 4,
    "exclusiveMinimum": 4, "maxLength": 4, "minLength": 4, "pattern": 4, "maxItems": 4, "minItems": 4,
    "uniqueItems": 4, "maxContains": 2019, "minContains": 2019, "maxProperties": 4, "minProperties": 4,
    "required": 4, "dependentRequired": 2019,
}  # fmt: skip
ONE: dict[str, Draft] = {
    "items": 2020, "not": 4, "additionalProperties": 4, "propertyNames": 6, "contains": 6, "if": 7, "then": 7, "else": 7,
    "unevaluatedProperties": 2019, "unevaluatedItems": 2019,
}  # fmt: skip
LISTS: dict[str, Draft] = {"allOf": 4, "anyOf": 4, "oneOf": 4, "prefixItems": 2020}
MAPS: dict[str, Draft] = {"properties": 4, "patternProperties": 4, "dependentSchemas": 2019}
_DEFINITIONS: dict[str, Draft] = {"definitions": 4, "$defs": 2019}
_REFERENCES: dict[str, Draft] = {"$ref": 4, "$recursiveRef": 2019, "$dynamicRef": 2020}
# Where nodes stand that apply to the same value.
IN_PLACE = frozenset(("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"))


class Node:
    """One schema. ``keywords`` holds nodes in the place of schemas; without any, every value is accepted.

    It differs from draft 2020-12 in four keywords: ``$ref`` holds a list of nodes, ``type`` a set of ``TYPES``
    (a number is an integer or a fraction), ``default`` only says that there is one, and an ``enum`` without
    values is the schema ``false``.
    """

    __slots__ = ("_parent", "_step", "draft", "keywords", "number")

    def __init__(self, parent: Node | None, step: str, draft: Draft, number: int) -> None:
        self._parent = parent
        # Places are put together when a message needs one: in all nodes they would take the square of the text.
        self._step = step
        self.draft: Draft = draft
        self.keywords: dict[str, Any] = {}
        # The order in which the nodes were met.
        self.number: int = number

    @property
    def place(self) -> str:
        """Where it stands: the name of the document, "#" and a JSON pointer."""
        steps: list[str] = []
        node: Node | None = self
        while node is not None:
            steps.append(node._step)
            node = node._parent
        return cut("".join(reversed(steps)), _PLACE_CHARACTERS_MAX)

    @property
    def is_false(self) -> bool:
        return self.keywords.get("enum") == []

    def patterns(self) -> Iterator[tuple[str, str]]:
        """Yield its patterns, each after the word that holds it."""
        if "pattern" in self.keywords:
            yield "pattern", self.keywords["pattern"]
        for pattern in self.keywords.get("patternProperties", ()):
            yield "patternProperties", pattern

    def children(self, words: Iterable[str] | None = None) -> Iterator[Node]:
        """Yield the nodes that its ``words`` hold, all if None, in their order."""
        for word, value in self.keywords.items():
            if words is not None and word not in words:
                continue
            if word in ONE:
                yield value
            elif word in LISTS or word == "$ref":
                yield from value
            elif word in MAPS:
                yield from value.values()


def build(documents: list[Document]) -> list[Node]:
    """Return all nodes, that of the first document first.

    Raises:
        InvalidSchema: A reference leads nowhere, or there are too many nodes.
    """
    return _Builder(documents).nodes


class _Resource:
    """What a URI names: a schema with the URI against which its references are resolved."""

    __slots__ = ("base", "draft", "node", "schema")

    def __init__(self, base: str, draft: Draft, node: Node, schema: Any) -> None:
        self.base = base
        self.draft = draft
        self.node = node
        self.schema = schema


class _Builder:
    def __init__(self, documents: list[Document]) -> None:
        self._nodes: dict[int, Node] = {}
        self._count = 0
        self._unread: list[tuple[Node, Any, _Resource]] = []
        self._unresolved: list[tuple[Node, str, _Resource]] = []
        # By the ids that documents give themselves, and by the names under which they are referred to.
        self._by_id: dict[str, _Resource] = {}
        self._by_name: dict[str, _Resource] = {}
        self._anchors: dict[tuple[str, str], tuple[Any, Node, _Resource]] = {}
        self._dynamic: set[str] = set()
        self._is_ambiguous = False
        self._dynamic_reference: Node | None = None
        for document in documents:
            self._add(document)
        while self._unread or self._unresolved:
            while self._unread:
                self._read(*self._unread.pop())
            if self._unresolved:
                self._resolve(*self._unresolved.pop())
        if self._dynamic_reference and self._is_ambiguous:
            raise InvalidSchema(
                f"{self._dynamic_reference.place}: a dynamic reference to one of several anchors is not supported"
            )
        self.nodes = list(self._nodes.values())

    # ── reading ──

    def _add(self, document: Document) -> None:
        node = self._new(None, f"{cut(document.name)}#", document.draft)
        resource = _Resource(document.name, document.draft, node, document.schema)
        self._by_name.setdefault(document.name, resource)
        self._keep(node, document.schema)
        self._unread.append((node, document.schema, resource))

    def _new(self, parent: Node | None, step: str, draft: Draft) -> Node:
        self._count += 1
        if self._count > NODES_MAX:
            raise InvalidSchema(f"it has more than {NODES_MAX} schemas within each other")
        return Node(parent, step, draft, self._count)

    def _keep(self, node: Node, schema: Any) -> None:
        # The documents live as long as the builder, so an id is that of one schema only.
        self._nodes[id(schema) if is_object(schema) else -node.number] = node

    def _inner(self, parent: Node, step: str, schema: Any, resource: _Resource) -> Node:
        """Return the node of a schema within another one, to be read later."""
        known = self._nodes.get(id(schema)) if is_object(schema) else None
        if known is not None:
            return known
        node = self._new(parent, step, resource.draft)
        self._keep(node, schema)
        self._unread.append((node, schema, resource))
        return node

    def _read(self, node: Node, schema: Any, resource: _Resource) -> None:
        if schema is False:
            node.keywords["enum"] = []
        if not is_object(schema):
            return
        words = schema
        draft = resource.draft
        resource = self._identify(node, words, resource)
        for word, since in _DEFINITIONS.items():
            if draft >= since and word in words:
                for name, inner in words[word].items():
                    self._inner(node, f"/{word}/{escape(name)}", inner, resource)
        for word, since in _REFERENCES.items():
            if draft >= since and isinstance(words.get(word), str):
                node.keywords.setdefault("$ref", [])
                self._unresolved.append((node, words[word], resource))
                if word != "$ref":
                    self._dynamic_reference = node
        # Before 2019-09 a reference stands alone: what is beside it has no effect.
        if draft < 2019 and "$ref" in node.keywords:
            return
        self._read_plain(node, words)
        for table in (ONE, LISTS, MAPS):
            for word, since in table.items():
                if draft >= since and word in words:
                    node.keywords[word] = self._read_inner(node, f"/{word}", words[word], word, resource)
        if draft < 2020:
            self._read_items(node, words, resource)
        if draft < 2019:
            self._read_dependencies(node, words.get("dependencies", {}), resource)

    def _read_inner(self, node: Node, step: str, value: Any, word: str, resource: _Resource) -> Any:
        if word in ONE:
            return self._inner(node, step, value, resource)
        if word in LISTS:
            return [self._inner(node, f"{step}/{i}", inner, resource) for i, inner in enumerate(value)]
        return {
            name: self._inner(node, f"{step}/{escape(name)}", inner, resource)
            for name, inner in value.items()
        }

    def _read_plain(self, node: Node, words: dict[str, Any]) -> None:
        keywords = node.keywords
        if (types := words.get("type")) is not None:
            names: set[str] = {types} if isinstance(types, str) else set(types)
            keywords["type"] = frozenset((names - {"number"}) | (NUMBERS if "number" in names else set()))
        for word, since in _PLAIN.items():
            if node.draft >= since and word in words:
                keywords[word] = words[word]
        if node.draft == 4:
            for limit, exclusive in (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")):
                if keywords.pop(exclusive, False) and limit in keywords:
                    keywords[exclusive] = keywords.pop(limit)
        if "default" in words:
            keywords["default"] = True

    def _read_items(self, node: Node, words: dict[str, Any], resource: _Resource) -> None:
        items = words.get("items")
        if is_array(items):
            if items:
                node.keywords["prefixItems"] = [
                    self._inner(node, f"/items/{i}", item, resource) for i, item in enumerate(items)
                ]
            if "additionalItems" in words:
                node.keywords["items"] = self._inner(
                    node, "/additionalItems", words["additionalItems"], resource
                )
        elif items is not None:
            node.keywords["items"] = self._inner(node, "/items", items, resource)

    def _read_dependencies(self, node: Node, dependencies: dict[str, Any], resource: _Resource) -> None:
        for name, needed in dependencies.items():
            if isinstance(needed, list):
                node.keywords.setdefault("dependentRequired", {})[name] = needed
            else:
                inner = self._inner(node, f"/dependencies/{escape(name)}", needed, resource)
                node.keywords.setdefault("dependentSchemas", {})[name] = inner

    # ── references ──

    def _identify(self, node: Node, words: dict[str, Any], resource: _Resource) -> _Resource:
        """Return the resource to which the schemas inside belong: its own if it has an id."""
        word = "id" if resource.draft == 4 else "$id"
        given = words.get(word)
        if isinstance(given, str) and not (resource.draft < 2019 and "$ref" in words):
            uri, _, anchor = given.partition("#")
            if uri:
                resource = _Resource(_join(resource.base, uri, node), resource.draft, node, words)
                self._by_id.setdefault(resource.base, resource)
            if anchor and resource.draft < 2019:
                self._anchors.setdefault((resource.base, anchor), (words, node, resource))
        for word in ("$anchor", "$dynamicAnchor"):
            anchor = words.get(word)
            if resource.draft >= 2019 and isinstance(anchor, str):
                self._anchors.setdefault((resource.base, anchor), (words, node, resource))
                if word == "$dynamicAnchor":
                    self._meet_dynamic(anchor)
        if resource.draft == 2019 and words.get("$recursiveAnchor") is True:
            self._meet_dynamic("")
        return resource

    def _meet_dynamic(self, anchor: str) -> None:
        """Note a target of dynamic references. If there is one of a name, they are references like others."""
        self._is_ambiguous |= anchor in self._dynamic
        self._dynamic.add(anchor)

    def _resolve(self, node: Node, reference: str, resource: _Resource) -> None:
        target = self._target(node, reference, resource)
        if target is None:
            what_to_do = "" if reference.startswith("#") else "; list it in the references of the schema"
            raise InvalidSchema(f"{node.place}: there is nothing under {quote(reference)}{what_to_do}")
        node.keywords["$ref"].append(target)

    def _target(self, node: Node, reference: str, resource: _Resource) -> Node | None:
        written, _, fragment = reference.partition("#")
        uri = _join(resource.base, written, node).partition("#")[0] if written else resource.base
        found = self._by_id.get(uri) or self._by_name.get(uri) or self._by_name.get(written or resource.base)
        if found is None:
            for document in meta_schemas(uri):
                self._add(document)
            found = self._by_name.get(uri)
        if found is None:
            return None
        fragment = unquote(fragment)
        if not fragment:
            return found.node
        if not fragment.startswith("/"):
            anchored = self._anchors.get((found.base, fragment))
            return anchored[1] if anchored else None
        return self._at(found, fragment)

    def _at(self, resource: _Resource, pointer: str) -> Node | None:
        """Return the node at a JSON pointer, also where no keyword holds a schema."""
        value = resource.schema
        for step in pointer[1:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if is_object(value) and name in value:
                value = value[name]
            elif (
                is_array(value) and re.fullmatch(r"0|[1-9]\d{0,8}", name, re.ASCII) and int(name) < len(value)
            ):
                value = value[int(name)]
            else:
                return None
        if not is_object(value) or id(value) not in self._nodes:
            check_schema(value, resource.draft, f"{resource.node.place}{pointer}")
        return self._inner(resource.node, pointer, value, resource)


def _join(base: str, reference: str, node: Node) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        raise InvalidSchema(f"{node.place}: {quote(reference)} is no reference") from None
