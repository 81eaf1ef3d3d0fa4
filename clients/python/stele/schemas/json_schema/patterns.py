"""Regular expressions of schemas, matched in bounded time.

They are matched by an engine that takes linear time. It has no lookaround and no back references: patterns that
need them are matched with a bounded number of steps, and a text for which these are too few does not match.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import jsonschema_rs

from ..definitions import InvalidSchema
from .nodes import Node
from .reasons import quote

# Compiling them takes some 50 ms per MiB, during which no other Python runs. Most take less than the smallest step,
# a class of letters repeated 500 times the largest.
_BYTES_STEPS = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
_ALL_BYTES_MAX = 1 << 24
_STEPS_MAX = 1_000

_LINEAR = jsonschema_rs.RegexOptions(size_limit=_BYTES_STEPS[-1])
_BOUNDED = jsonschema_rs.FancyRegexOptions(backtrack_limit=_STEPS_MAX, size_limit=_BYTES_STEPS[-1])
_NEEDS_STEPS = re.compile(r"\(\?<?[=!]|\(\?>|\\[1-9]|\\k")


def check_patterns(nodes: list[Node]) -> bool:
    """Check the patterns of all nodes. Return whether one of them needs a bound of steps.

    Raises:
        InvalidSchema: One is no regular expression, or they are too large.
    """
    left = _ALL_BYTES_MAX
    checked: set[str] = set()
    needs_steps = False
    for node in nodes:
        words = node.keywords
        own = [("pattern", words["pattern"])] if "pattern" in words else []
        for word, pattern in [
            *own,
            *(("patternProperties", each) for each in words.get("patternProperties", ())),
        ]:
            if pattern in checked:
                continue
            checked.add(pattern)
            needs_steps |= _NEEDS_STEPS.search(pattern) is not None
            size = _size_of(pattern)
            if size is None:
                raise InvalidSchema(
                    f"{node.place}/{word}: {quote(pattern)} is no regular expression, or one with too many repetitions"
                )
            left -= size
            if left < 0:
                raise InvalidSchema(f"{node.place}/{word}: the patterns up to here are too large together")
    return needs_steps


def _size_of(pattern: str) -> int | None:
    for size in _BYTES_STEPS:
        try:
            _compile(pattern, size)
        except ValueError:
            continue
        return size
    return None


def _compile(pattern: str, size: int) -> Any:
    options = (
        jsonschema_rs.FancyRegexOptions(backtrack_limit=_STEPS_MAX, size_limit=size)
        if _NEEDS_STEPS.search(pattern)
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


@functools.lru_cache(maxsize=1_000)
def _matcher(pattern: str) -> jsonschema_rs.Validator:
    return _compile(pattern, _BYTES_STEPS[-1])


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern, which was checked, is found in ``text``."""
    return _matcher(pattern).is_valid(text)
