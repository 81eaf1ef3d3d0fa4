"""Repeat the tests that draw random values, with another seed each time, until the time is over or one fails.

python -m tests.fuzz --seconds 600
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="start no further round after this time (60)"
    )
    parser.add_argument("arguments", nargs="*", metavar="PYTEST_ARGUMENT")
    chosen = parser.parse_args()
    end = time.monotonic() + chosen.seconds
    rounds = 0
    while time.monotonic() < end or not rounds:
        command = [sys.executable, "-m", "pytest", "-q", "--seed=new", "-m", "random_search and not long"]
        done = subprocess.run([*command, *chosen.arguments], check=False)
        if done.returncode:
            print("A test failed: tests/fuzz/cases has what repeats it.")
            return done.returncode
        rounds += 1
    print(f"{rounds} rounds with other seeds passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
