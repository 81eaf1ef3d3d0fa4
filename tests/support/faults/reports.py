"""What the brokers of a run have reported as lost (ADR-0071), read from what they log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .ledger import Place

_LOST = re.compile(
    r"records of (\S+)-(\d+) are lost: offsets (\d+) to (\d+), which this broker knew, are not in history (\d+)"
)
_ADOPTED = re.compile(r"this broker has taken over \d+ logs from history (\d+) of the database")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Offsets ``first`` to ``last`` that a broker knew are not in the history ``epoch``."""

    place: Place
    first: int
    last: int
    epoch: int


def reports_in(log: Path) -> list[Report]:
    """Return the losses that a broker has logged, over all of its starts."""
    if not log.exists():
        return []
    return [
        Report(place=(match[1], int(match[2])), first=int(match[3]), last=int(match[4]), epoch=int(match[5]))
        for match in _LOST.finditer(log.read_text(errors="replace"))
    ]


def adopted_in(log: Path, since: int) -> int:
    """Return the newest history that a broker says it has taken over, from the position ``since`` of its log on."""
    if not log.exists():
        return 0
    with log.open("rb") as file:
        file.seek(since)
        text = file.read().decode(errors="replace")
    return max((int(match[1]) for match in _ADOPTED.finditer(text)), default=0)
