"""Run the calls on both brokers and print what differs. ``-`` lines are Kafka's, ``+`` lines Stele's."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from tests.conformance.kafka_tools import page
from tests.conformance.kafka_tools.accepted import ACCEPTED
from tests.conformance.kafka_tools.calls import Call, Member, steps
from tests.conformance.kafka_tools.comparison import Answer, compare, run_both


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.kafka_tools", description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="calls whose text has this (and all members)"
    )
    parser.add_argument("--all", action="store_true", help="print accepted differences too")
    parser.add_argument("--dump", type=Path, help="write the answers of both there, as JSON")
    parser.add_argument("--page", action="store_true", help="write the section of docs/conformance.md only")
    parser.add_argument("--from-dump", type=Path, help="compare these answers, and run nothing")
    options = parser.parse_args()
    if options.page:
        page.write()
        return
    chosen = [step for step in steps() if isinstance(step, Member) or re.search(options.only, step.text)]
    if options.from_dump:
        calls = [step for step in chosen if isinstance(step, Call)]
        told = json.loads(options.from_dump.read_text())
        kafka, stele = (
            [Answer(call, tuple(lines)) for call, lines in zip(calls, told[broker], strict=True)]
            for broker in ("kafka", "stele")
        )
    else:
        kafka, stele = run_both(chosen, progress=lambda text: print(text, file=sys.stderr))
    if options.dump:
        told = {"kafka": [answer.lines for answer in kafka], "stele": [answer.lines for answer in stele]}
        options.dump.write_text(json.dumps(told, indent=1))
    differences, needed = compare(kafka, stele, () if options.all else ACCEPTED)
    for difference in differences:
        print(difference)
    print(f"{len(differences)} of {len(kafka)} calls differ")
    if not options.only and not options.all:
        for accepted in ACCEPTED:
            if not accepted.is_occasional and accepted not in needed:
                print(f"not needed: {accepted.what}")


if __name__ == "__main__":
    main()
