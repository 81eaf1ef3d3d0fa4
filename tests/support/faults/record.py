"""A file in which runs of faults are collected, so that many can be caused in several runs on one version."""

from __future__ import annotations

import fcntl
import json
import subprocess
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .ledger import Loss

_ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of a cluster.

    ``counts`` are its faults by kind, and ``beside`` by how many others were in effect when they began. A fault of
    the store may have made many requests fail (``failed_requests``). ``acknowledged`` are records by topic, and ``lost``
    those of them that are gone, by what the brokers reported of that. ``broken`` are the
    promises that were not kept. ``story_s`` is the time of the faults alone.
    """

    version: str
    variant: str
    seed: int
    faults: int
    counts: dict[str, int]
    beside: dict[int, int]
    failed_requests: int
    acknowledged: dict[str, int]
    lost: dict[Loss, int]
    broken: list[str]
    story_s: int
    seconds: int


@cache
def commit_of_tree() -> str:
    """Return the commit of the sources, with ``-dirty`` if they differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


class Record:
    """Lines of JSON, one per cluster that kept its promises; several processes may add to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def has(self, name: str) -> bool:
        """Return whether the cluster ``name`` was told for this version."""
        return any(line["name"] == name and line["version"] == commit_of_tree() for line in self._lines())

    def add(self, name: str, told: Told) -> None:
        with self._path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps({"name": name, **asdict(told)}) + "\n")

    def faults(self) -> int:
        """Return how many faults are recorded for this version."""
        return sum(line["faults"] for line in self._lines() if line["version"] == commit_of_tree())

    def _lines(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]
