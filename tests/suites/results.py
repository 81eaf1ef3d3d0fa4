"""Read what a suite reports, and judge it by what is known to differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

Outcome = Literal["passed", "failed", "skipped"]
_OF_GO: dict[str, Outcome] = {"pass": "passed", "fail": "failed", "skip": "skipped"}


def of_go(lines: Iterable[str]) -> dict[str, Outcome]:
    """Read the output of ``go test -json``.

    A test with subtests is left out; they count. One that never ended has failed: its time was over, or the process
    crashed.
    """
    outcomes: dict[str, Outcome] = {}
    for line in lines:
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        test = event.get("Test")
        if test is None:
            continue
        if event["Action"] == "run":
            outcomes[test] = "failed"
        elif event["Action"] in _OF_GO:
            outcomes[test] = _OF_GO[event["Action"]]
    parents = {name.rpartition("/")[0] for name in outcomes}
    return {name: outcome for name, outcome in outcomes.items() if name not in parents}


def of_junit(path: Path) -> dict[str, Outcome]:
    """Read the report of ``pytest --junitxml``."""
    outcomes: dict[str, Outcome] = {}
    if not path.exists():
        return outcomes
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            outcomes[name] = "failed"
        else:
            outcomes.setdefault(name, "skipped" if "skipped" in kinds else "passed")
    return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcomes of a suite beside what is known to differ.

    ``unexpected`` fail and are not known; ``mended`` are known to differ and pass; ``missing`` are
    known to differ and did not run.
    """

    passed: int
    skipped: int
    known: list[str] = field(default_factory=list[str])
    unexpected: list[str] = field(default_factory=list[str])
    mended: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])

    @property
    def is_good(self) -> bool:
        return bool(self.passed) and not (self.unexpected or self.mended or self.missing)


def judge(outcomes: Mapping[str, Outcome], known: Mapping[str, str]) -> Verdict:
    """Compare ``outcomes`` with the tests that are known to fail.

    A suite none of whose tests passes is never good.
    """
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    passed = {name for name, outcome in outcomes.items() if outcome == "passed"}
    return Verdict(
        passed=len(passed),
        skipped=len(outcomes) - len(failed) - len(passed),
        known=sorted(failed & known.keys()),
        unexpected=sorted(failed - known.keys()),
        mended=sorted(passed & known.keys()),
        missing=sorted(known.keys() - failed - passed),
    )
