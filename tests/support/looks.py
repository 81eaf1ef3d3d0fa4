"""Count the items that are looked at in a mapping."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class CountedDict(dict[Any, Any]):
    """``looks`` counts the items that an iteration has come to; a look-up by key is none."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self.looks += 1
            yield key

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]
