"""Timelines: where the histories of two servers part. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from ..decoding.notation import lsn_of

_OPEN = 2**64


class Timelines(NamedTuple):
    """The history of a server: its timeline, and the LSN at which it left each earlier one, by its number."""

    current: int
    left: Mapping[int, int]

    @classmethod
    def parse(cls, current: int, history: str) -> Self:
        """Parse the content of a history file of PostgreSQL."""
        lines = (line.split() for line in history.splitlines())
        return cls(
            current, {int(fields[0]): lsn_of(fields[1]) for fields in lines if fields and fields[0].isdigit()}
        )

    def parts_from(self, other: Timelines) -> int | None:
        """Return the LSN from which on the WAL of two servers differs; None if one continues the same timeline.

        Numbers alone do not tell: two standbys of one primary both begin timeline 2 if each is promoted.
        """
        begin = 0
        for (mine, my_end), (theirs, their_end) in zip(self._spans(), other._spans(), strict=False):
            if mine != theirs:
                return begin
            if my_end != their_end:
                return min(my_end, their_end)
            begin = my_end
        return None

    def _spans(self) -> list[tuple[int, int]]:
        return [*sorted(self.left.items()), (self.current, _OPEN)]
