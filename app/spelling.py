"""Find the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# The comparison takes time in the square of the length, and no name is as long.
_COMPARED_CHARACTERS = 64
_CUTOFF = 0.7


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one of ``known`` of which ``name`` is a likely misspelling, None if there is none."""
    matches = get_close_matches(name[:_COMPARED_CHARACTERS], list(known), n=1, cutoff=_CUTOFF)
    return matches[0] if matches else None
