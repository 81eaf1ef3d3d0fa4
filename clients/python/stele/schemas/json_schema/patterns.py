"""Regular expressions of schemas, matched in bounded time.

They are matched by an engine that takes linear time. It has no lookaround and no back references: the few patterns
of a schema that need them are matched with a bounded number of steps, of which each may read the whole text. A text
for which these are too few, or which is too long, does not match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jsonschema_rs

from ..definitions import InvalidSchema
from .nodes import Node
from .reasons import quote

# What a pattern may take in memory, in steps by which it is counted: most take 1 or 2 KiB, `\\p{L}{1,256}` takes 64. No
# other Python runs while one is compiled or matched, and a larger one takes longer: with jsonschema-rs 0.60, whose
# engine counts no repetitions, 128 KiB take 3 µs per character, and 1 MiB 160 µs.
_SIZES = (1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17)
_ALL_SIZES_MAX = 1 << 21
# With the longest text the steps of a pattern take 0.2 s.
_STEPS_MAX = 1_000
STEPPED_CHARACTERS_MAX = 1 << 14
# As much as nine of them may apply to one text.
_SIZE_OF_STEPPED = 14 << 10

_LINEAR = jsonschema_rs.RegexOptions(size_limit=_SIZES[-1])
_BOUNDED = jsonschema_rs.FancyRegexOptions(backtrack_limit=_STEPS_MAX, size_limit=_SIZES[-1])
_NEEDS_STEPS = re.compile(r"\(\?<?[=!]|\(\?>|\\[1-9]|\\k")


def sizes_of_patterns(nodes: list[Node]) -> dict[str, int]:
    """Return how large the patterns of all nodes are.

    Raises:
        InvalidSchema: One is no regular expression, or they are too large.
    """
    sizes: dict[str, int] = {}
    for node in nodes:
        for word, pattern in node.patterns():
            if pattern in sizes:
                continue
            size = _size_of(pattern)
            if size is None:
                raise InvalidSchema(
                    f"{node.place}/{word}: {quote(pattern)} is no regular expression, or too large a one"
                )
            sizes[pattern] = size
            if sum(sizes.values()) > _ALL_SIZES_MAX:
                raise InvalidSchema(f"{node.place}/{word}: the patterns up to here are too large together")
    return sizes


def need_steps(patterns: Iterable[str]) -> bool:
    """Return whether any of the patterns is matched in steps."""
    return any(map(_needs_steps, patterns))


def _needs_steps(pattern: str) -> bool:
    return _NEEDS_STEPS.search(pattern) is not None


def _size_of(pattern: str) -> int | None:
    for size in _SIZES:
        # Text of a megabyte takes 0.2 s until it is found too large.
        if size < len(pattern):
            continue
        try:
            _compile(pattern, size)
        except ValueError:
            continue
        return max(size, _SIZE_OF_STEPPED) if _needs_steps(pattern) else size
    return None


def _compile(pattern: str, size: int) -> Any:
    options = (
        jsonschema_rs.FancyRegexOptions(backtrack_limit=_STEPS_MAX, size_limit=size)
        if _needs_steps(pattern)
        else jsonschema_rs.RegexOptions(size_limit=size)
    )
    return compile_schema({"pattern": pattern}, options)


def options_for(*, needs_steps: bool) -> Any:
    """Return what tells the validator how to match patterns."""
    return _BOUNDED if needs_steps else _LINEAR


def compile_schema(schema: Any, options: Any) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(
        schema, validate_formats=False, pattern_options=options, mask="it", offline=True
    )


class Patterns:
    """Matches texts with patterns that were checked, and keeps what it has compiled."""

    def __init__(self) -> None:
        self._compiled: dict[str, jsonschema_rs.Validator] = {}

    def match(self, pattern: str, text: str) -> bool:
        """Return whether a pattern is found in ``text``."""
        if len(text) > STEPPED_CHARACTERS_MAX and _needs_steps(pattern):
            return False
        if pattern not in self._compiled:
            self._compiled[pattern] = _compile(pattern, _SIZES[-1])
        return self._compiled[pattern].is_valid(text)
