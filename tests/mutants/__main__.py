"""Apply each mutant to a copy of the sources and run its tests, which must fail: ``python -m tests.mutants``.

Before that the same tests must pass on the copy as it is; what pytest says of one that does not is printed. Exits
with 1 if a mutant survives or cannot be tried. ``python -m tests.mutants app/storage`` tries those of some sources only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .registry import REGISTRY_MUTANTS
from .replica import REPLICA_MUTANTS
from .security import SECURITY_MUTANTS
from .table import MUTANTS as BROKER_MUTANTS
from .table import Mutant

MUTANTS = (*BROKER_MUTANTS, *REGISTRY_MUTANTS, *REPLICA_MUTANTS, *SECURITY_MUTANTS)

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("app", "clients", "tests", "load", "docs", "pyproject.toml")
# An inner run that hangs by its mutant has noticed it: the time limit fails the test.
TIME_LIMIT_S = 120
PASSED = 0


def main() -> int:
    mutants = [mutant for mutant in MUTANTS if mutant.path.startswith(tuple(sys.argv[1:] or ("",)))]
    if not mutants:
        print(f"no mutant is in {' or '.join(sys.argv[1:])}")
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = sorted({(mutant.tests, mutant.only) for mutant in mutants})
        print(
            f"{len(mutants)} mutants and {len(runs)} sets of tests, which are run without a mutant first",
            flush=True,
        )
        broken = [problem for problem in pool.map(_problem_of_unchanged, runs) if problem]
        for problem in broken:
            print(problem)
        if broken:
            return 1
        survivors = 0
        for mutant, outcome in zip(mutants, pool.map(_try, mutants), strict=True):
            survivors += outcome != "killed"
            print(f"{outcome:9} {mutant.path}: {mutant.before.strip()}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants were killed")
    return 1 if survivors else 0


def _problem_of_unchanged(run: tuple[str, str]) -> str:
    tests, only = run
    code, said = _run(None, tests, only)
    return "" if code == PASSED else f"FAILS WITHOUT A MUTANT  {tests} {only}\n{said}"


def _try(mutant: Mutant) -> str:
    if (ROOT / mutant.path).read_text().count(mutant.before) != 1:
        return "NOT FOUND"
    match _run(mutant, mutant.tests, mutant.only):
        case 1, _:
            return "killed"
        case 0, _:
            return "SURVIVED"
        case code, _:
            return f"BROKEN({code})"


def _run(mutant: Mutant | None, tests: str, only: str) -> tuple[int, str]:
    """Run pytest on a copy of the sources, with ``mutant`` in it. Returns its exit code and what it said."""
    # A file and not a pipe, which a broker that outlives its test would hold open.
    with (
        tempfile.TemporaryDirectory(prefix="stele-mutant-") as directory,
        tempfile.TemporaryFile("w+") as output,
    ):
        copy = Path(directory)
        _copy(COPIED, copy)
        if mutant is not None:
            path = copy / mutant.path
            path.write_text(path.read_text().replace(mutant.before, mutant.after))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
        command += [f"--time-limit={TIME_LIMIT_S}", *(("-k", only) if only else ())]
        # The copy stands first on the path, before the checkout that is installed.
        search_path = os.pathsep.join((directory, str(copy / "clients/python")))
        environment = {**os.environ, "PYTHONPATH": search_path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, stdout=output, stderr=subprocess.STDOUT)
        output.seek(0)
        return done.returncode, output.read()


def _copy(names: Sequence[str], target: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "node_modules", "drivers")
    for name in names:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=ignored)
        else:
            shutil.copy(source, target / name)


if __name__ == "__main__":
    sys.exit(main())
