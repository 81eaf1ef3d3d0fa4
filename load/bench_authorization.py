"""Measure what access rules cost per request, to one part in a hundred.

``python -m load.bench_authorization`` compares connections that look at 1,001 rules with connections that look at
none, to the same broker in this process (``call_costs``): CPU time of the event loop's thread, in short slices in turn.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from app.security.acl import Acl, Operation, PatternType, ResourceType
from app.security.acl_text import document_of
from app.security.offline import add_acls

from .call_costs import caller_of, check_alike, common_requests, pairs_of, prepare, report, run, slices_of
from .in_process import broker_in_process
from .slices import PAIRS, SlicedComparison, in_slices

# Rules of others, as a broker with many users has.
OTHER_RULES = 1_000
GOAL = 1.02


def write_rules(data_dir: Path) -> None:
    """Allow anonymous clients everything on topics, beside the rules of many others."""
    others = [
        Acl(
            resource_type=ResourceType.TOPIC,
            resource_name=f"team-{number}-",
            pattern_type=PatternType.PREFIXED,
            principal=f"User:team-{number}",
            operation=Operation.ALL,
        )
        for number in range(OTHER_RULES)
    ]
    own = Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="*",
        principal="User:ANONYMOUS",
        operation=Operation.ALL,
    )
    add_acls(data_dir, [document_of(acl) for acl in (*others, own)])


async def measure(data_dir: Path, only: str, pairs: int) -> None:
    async with broker_in_process(data_dir) as process:
        await prepare(process.broker)
        for request in common_requests():
            if only not in request.what:
                continue
            comparisons: list[SlicedComparison] = []
            for checks_rules in (True, False):
                ours = await caller_of(process, request, checks_rules=checks_rules)
                yardstick = await caller_of(process, request)
                check_alike(request, ours, yardstick)
                comparisons.append(
                    await in_slices(
                        slices_of(request, ours),
                        slices_of(request, yardstick),
                        pairs=pairs_of(request, pairs),
                    )
                )
            comparison, control = comparisons
            report(
                request,
                comparison,
                control,
                with_it=f"{OTHER_RULES + 1:,} access rules",
                without="no access rules",
                goal=GOAL,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="figures whose names contain this text")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"pairs of slices (default: {PAIRS})")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "data"
        write_rules(data_dir)
        run(measure(data_dir, options.only, options.pairs))


if __name__ == "__main__":
    main()
