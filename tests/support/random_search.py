"""The same random values in every run, and others in a search, which saves what it finds.

``random`` is seeded per test by ``--seed`` (0) and the name of the test, and hypothesis chooses its examples by the
test alone, so that a run repeats another one whichever tests run beside it and in however many processes.

``--seed new``, as `make fuzz` and `make torture` have it, draws a seed and lets hypothesis search. A test that fails
in a search leaves a case in ``CASES``: its first line is what pytest needs to repeat it, the failure follows.
``tests/fuzz/test_cases.py`` repeats all cases in `make test`. An example that hypothesis found depends on its
version, so write it into the test as an ``@example`` before you remove the case.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

FIXED_SEED = 0
CASES = Path(__file__).parents[1] / "fuzz/cases"

# Tests whose values hypothesis draws, or that are marked so by hand because they draw seeds.
MARKER = "random_search"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", default=str(FIXED_SEED), metavar="N|new", help="seed of random values; not 0: search"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}: draws random values; `make fuzz` repeats it with other seeds"
    )
    seed = _chosen_seed(config)
    config.pluginmanager.register(_Seeds(seed, is_worker=hasattr(config, "workerinput")), "random-search")
    # The time limit of a test bounds an example, too; how long one takes depends on the load of the machine.
    common: dict[str, Any] = {
        "deadline": None,
        "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    }
    hypothesis.settings.register_profile("repeat", derandomize=True, database=None, max_examples=25, **common)
    hypothesis.settings.register_profile("search", print_blob=True, database=None, **common)
    hypothesis.settings.load_profile("repeat" if seed == FIXED_SEED else "search")
    if seed == FIXED_SEED:
        _draw_no_constants_of_modules()


def _draw_no_constants_of_modules() -> None:
    """Let hypothesis draw no constants of the modules that are imported: which ones depends on the tests before."""
    module: Any = providers
    nothing = module._local_constants
    module._get_local_constants = lambda: nothing


def _chosen_seed(config: pytest.Config) -> int:
    """Return the seed of this run: as given, as the first of several processes has drawn it, or a new one."""
    process: dict[str, Any] | None = getattr(config, "workerinput", None)
    if process is not None:
        return process["stele_seed"]
    given = str(config.getoption("seed"))
    if given == "new":
        return random.SystemRandom().randrange(1, 1 << 32)
    if not given.isdecimal():
        raise pytest.UsageError(f"--seed is a number or 'new', not {given!r}")
    return int(given)


class _Seeds:
    def __init__(self, seed: int, *, is_worker: bool) -> None:
        self._seed = seed
        self._is_worker = is_worker

    def pytest_report_header(self) -> str:
        return f"seed of random values: {self._seed}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["stele_seed"] = self._seed

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            function: Any = getattr(item, "obj", None)
            if getattr(function, "is_hypothesis_test", False):
                item.add_marker(MARKER)
                if self._seed != FIXED_SEED:
                    hypothesis.seed(f"{self._seed} {item.nodeid}")(getattr(function, "__func__", function))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        random.seed(f"{self._seed} setup of {item.nodeid}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        # Apart from the set-up, because the first test of a module makes the fixtures of all.
        random.seed(f"{self._seed} {item.nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._seed != FIXED_SEED and not self._is_worker:
            save_case(report, self._seed, CASES)


def save_case(report: pytest.TestReport, seed: int, directory: Path) -> Path:
    """Write what repeats a failure, and the failure, to a new file in ``directory``. Returns its path."""
    directory.mkdir(exist_ok=True)
    name = re.sub(r"[^\w.]+", "-", report.nodeid.rpartition("/")[2])[:120]
    path = directory / f"{name}-{seed}.txt"
    sections = "\n".join(f"---- {title}\n{text}" for title, text in report.sections)
    path.write_text(f"--seed={seed} {report.nodeid}\n\n{report.longreprtext}\n{sections}\n")
    return path
