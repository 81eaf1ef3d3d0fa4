"""Why a value is refused: in our words, bounded, and without the value, which may be secret or large."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .values import NUMBERS, is_array, type_of

_POINTER_CHARACTERS_MAX = 300
_QUOTED_CHARACTERS_MAX = 100

_SENTENCES = {
    "minimum": "it is less than {}",
    "exclusiveMinimum": "it is not more than {}",
    "maximum": "it is more than {}",
    "exclusiveMaximum": "it is not less than {}",
    "multipleOf": "it is no multiple of {}",
    "minLength": "it is shorter than {} characters",
    "maxLength": "it is longer than {} characters",
    "minItems": "it has fewer than {} items",
    "maxItems": "it has more than {} items",
    "minProperties": "it has fewer than {} properties",
    "maxProperties": "it has more than {} properties",
    "const": "it is not {}",
    "enum": "it is none of {}",
    "pattern": "it does not match the pattern {}",
    "required": "the property {} is missing",
    "dependentRequired": "the property {} is missing",
    "additionalProperties": "the schema does not have this property",
    "items": "the schema does not have this item",
    "false": "nothing is accepted here",
    "not": "it is what 'not' excludes",
    "anyOf": "no alternative of 'anyOf' accepts it",
    "oneOf": "no alternative of 'oneOf' accepts it",
    "several of oneOf": "more than one alternative of 'oneOf' accepts it",
    "contains": "'contains' accepts fewer of its items than it must",
    "maxContains": "'contains' accepts more of its items than it may",
    "uniqueItems": "an item stands twice in it",
    "propertyNames": "'propertyNames' refuses the name of this property",
}


class Refusal(NamedTuple):
    """Where a value is refused, by which word of its schema, and what that word asks for."""

    path: tuple[str | int, ...]
    word: str
    limit: Any
    value: Any

    @property
    def is_of_type(self) -> bool:
        """Whether the value itself has another type."""
        return self.word == "type" and not self.path

    def within(self, step: str | int) -> Refusal:
        return self._replace(path=(step, *self.path))

    @property
    def pointer(self) -> str:
        return pointer_of(self.path)

    @property
    def reason(self) -> str:
        if self.word == "type":
            return f"it is {_kind_of(self.value)}, not {names_of(self.limit)}"
        return _SENTENCES.get(self.word, f"it breaks {self.word!r}").format(quote(self.limit))


def meant(refusals: Iterable[Refusal], word: str, value: Any) -> Refusal:
    """Return why no alternative accepts a value.

    Most unions are of types: then one alternative has the type of the value, and what it lacks is the reason.
    """
    likely = [each for each in refusals if not each.is_of_type]
    return likely[0] if len(likely) == 1 else Refusal((), word, None, value)


def escape(name: str) -> str:
    """Return a name as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def pointer_of(path: Sequence[str | int]) -> str:
    """Return a path as a JSON pointer, cut off where it would be very long."""
    return cut("".join(f"/{escape(str(step))}" for step in path), _POINTER_CHARACTERS_MAX)


def cut(text: str, characters: int = _QUOTED_CHARACTERS_MAX) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


def quote(value: Any) -> str:
    """Return what a schema asks for. It is part of the schema, not of the value."""
    if is_array(value):
        # Larger ones would be cut off anyway.
        return cut(", ".join(map(quote, value[:20])))
    return cut(json.dumps(value, ensure_ascii=False, default=str))


def names_of(types: Iterable[str]) -> str:
    """Return types as JSON Schema names them: a number is an integer or a fraction."""
    names = set(types)
    if "fraction" in names:
        names = names - NUMBERS | {"number"}
    return " or ".join(sorted(names))


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    name = {"fraction": "number"}.get(type_of(value), type_of(value))
    return f"{'an' if name[0] in 'aio' else 'a'} {name}"
