"""What validating one value may take, whatever the value: schemas beyond that are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..definitions import InvalidSchema
from .nodes import IN_PLACE, Node
from .values import is_array, is_object

# A value meets all nodes that apply to it without going inside of it. A schema of people has some ten, and
# alternatives of alternatives multiply: each `$ref` counts as often as it is met.
NODES_MAX = 10_000
# How deep they apply each other. Functions call themselves per level.
DEPTH_MAX = 100
# The sizes of all patterns that a text meets. At worst it takes 8 µs per character.
PATTERN_BYTES_MAX = 1 << 17


# What a byte of a value takes at most, in ns: no other Python runs meanwhile. Every other byte may begin a value, which
# takes so long by itself, with a node, and with an entry of a keyword such as `enum` or `required`. A text that defeats
# the cache of its engine takes so long with a byte in which a pattern is kept, or far longer if that needs steps.
_VALUE_NS, _NODE_NS, _ENTRY_NS = 150, 15, 6
_PATTERN_NS, _STEPPED_NS = 0.08, 0.9


class _Effort(NamedTuple):
    """What applies to a value of a node.

    How many nodes, in how long a chain, with how large patterns, and how many entries in their keywords.
    """

    nodes: int
    depth: int
    pattern_bytes: int
    entries: int

    def byte_ns(self, *, needs_steps: bool) -> float:
        of_values = _VALUE_NS + _NODE_NS * self.nodes + _ENTRY_NS * self.entries
        return of_values / 2 + (_STEPPED_NS if needs_steps else _PATTERN_NS) * self.pattern_bytes


def check_efforts(nodes: list[Node], sizes: Mapping[str, int], *, needs_steps: bool) -> float:
    """Return what a byte of a value takes at most, in ns; ``sizes`` are those of the patterns of the nodes.

    Raises:
        InvalidSchema: The first node that applies itself to a value, or too many others.
    """
    known: dict[Node, _Effort] = {}
    for start in nodes:
        path: list[tuple[Node, Iterator[Node]]] = [(start, start.children(IN_PLACE))]
        on_path = {start}
        while path and start not in known:
            node, rest = path[-1]
            inner = next((each for each in rest if each not in known), None)
            if inner is None:
                known[node] = _effort_of(node, [known[each] for each in node.children(IN_PLACE)], sizes)
                on_path.discard(node)
                path.pop()
            elif inner in on_path:
                raise InvalidSchema(f"{inner.place}: the schema refers to itself without end")
            else:
                on_path.add(inner)
                path.append((inner, inner.children(IN_PLACE)))
    return max(effort.byte_ns(needs_steps=needs_steps) for effort in known.values())


def _effort_of(node: Node, parts: list[_Effort], sizes: Mapping[str, int]) -> _Effort:
    effort = _Effort(
        1 + sum(part.nodes for part in parts),
        1 + max((part.depth for part in parts), default=0),
        sum(sizes[pattern] for _, pattern in node.patterns()) + sum(part.pattern_bytes for part in parts),
        sum(len(value) for value in node.keywords.values() if is_array(value) or is_object(value))
        + sum(part.entries for part in parts),
    )
    if effort.nodes > NODES_MAX:
        raise InvalidSchema(f"{node.place}: more than {NODES_MAX} schemas apply to one value")
    if effort.depth > DEPTH_MAX:
        raise InvalidSchema(f"{node.place}: more than {DEPTH_MAX} schemas apply each other")
    if effort.pattern_bytes > PATTERN_BYTES_MAX:
        raise InvalidSchema(f"{node.place}: the patterns that apply to one text are too large")
    return effort
