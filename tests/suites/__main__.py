"""Run the suites of Kafka clients, each against a broker of its own, and print a summary.

python -m tests.suites franz-go sarama     # some of them; without a name all
python -m tests.suites --write             # and write the numbers into docs/conformance.md

Ends with 1 if a test fails that is not known to, if one that is known to differ passes, or if it did not run.
A suite that cannot be run here is left out, and named; that is a failure only if the suite was asked for.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from stele.broker_process import run_broker

from . import page
from .results import Verdict, judge
from .running import Run, Suite, free_range
from .sources import Unavailable
from .table import SUITES

_WORK = Path(__file__).resolve().parents[2] / ".conformance" / "suites"
# Beside the builds of other suites, a start may take long.
_START_TIMEOUT_S = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [suite.name for suite in SUITES]
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(names))
    parser.add_argument("--write", action="store_true", help="write the numbers into docs/conformance.md")
    options = parser.parse_args()
    named = options.suites
    chosen = named or names
    if unknown := set(chosen) - set(names):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    verdicts: dict[str, Verdict] = {}
    is_complete = True
    for suite in SUITES:
        if suite.name in chosen:
            try:
                verdict = verdicts[suite.name] = _run(suite)
            except Unavailable as why:
                print(f"{suite.name}: left out: {why}", flush=True)
                is_complete = False
            else:
                _print(suite.name, verdict)
    if options.write:
        date = time.strftime("%Y-%m-%d")
        page.write({name: page.cells_of(verdict, date) for name, verdict in verdicts.items()})
    # What was named is wanted.
    return 0 if all(verdict.is_good for verdict in verdicts.values()) and (is_complete or not named) else 1


def _print(name: str, verdict: Verdict) -> None:
    print(
        f"{name}: {verdict.passed} passed, {len(verdict.unexpected)} failed, {len(verdict.known)} known to differ, "
        f"{verdict.skipped} skipped{'' if verdict.passed else ': no test has passed'}"
    )
    for what, tests in (
        ("failed", verdict.unexpected),
        ("known to differ, and passes now", verdict.mended),
        ("known to differ, and did not run", verdict.missing),
    ):
        for test in tests:
            print(f"  {test}: {what}")
    sys.stdout.flush()


def _run(suite: Suite) -> Verdict:
    """Run one suite. What it printed stays in its directory until it runs again."""
    scratch = _WORK / suite.name
    shutil.rmtree(scratch, ignore_errors=True)
    sources = scratch / "sources"
    scratch.mkdir(parents=True)
    suite.source.bring(suite.name, sources)
    ports = free_range(suite.ports)
    settings = {name: value.format(port=ports[0] if ports else 0) for name, value in suite.settings.items()}
    with run_broker(environment=settings, start_timeout_s=_START_TIMEOUT_S) as broker:
        run = Run(sources=sources, scratch=scratch, broker=broker, ports=ports, limit_s=suite.limit_s)
        outcomes = suite.test(run)
    return judge(outcomes, suite.known)


if __name__ == "__main__":
    sys.exit(main())
