"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG  # pyright: ignore[reportPrivateUsage]

pytest_plugins = [
    "tests.support.one_tls_context",
    "tests.support.random_search",
    "tests.support.skipped_tests",
    "tests.support.warm_processes",
    "tests.support.time_limit",
    "tests.support.variants",
]

# Parallel processes take whole files from the front, so the files that take longest must not come last.
LONGEST_FIRST = (
    "tests/integration/spark/",
    "tests/console/",
    "tests/integration/test_http_schema.py",
    "tests/unit/storage/shared/test_simulation.py",
    "tests/unit/tcp/kafka/test_long_turns.py",
    "tests/integration/test_doc_examples.py",
    "tests/conformance/test_groups.py",
    "tests/conformance/test_produce_and_fetch.py",
    "tests/unit/storage/test_compaction_crashes.py",
    "tests/integration/test_lifecycle.py",
    "tests/integration/cdc/",
    "tests/integration/mirror/",
    "tests/integration/replica/",
    "tests/integration/test_decoded_memory.py",
    "tests/integration/test_sql.py",
    "tests/integration/iceberg/",
    "tests/integration/shared_storage/",
    "tests/integration/test_client_cli.py",
    "tests/integration/test_client_failover.py",
    "tests/integration/test_http_looking.py",
    "tests/unit/storage/test_power_cut.py",
    "tests/unit/tcp/kafka/test_long_requests.py",
    "tests/unit/test_process_memory.py",
    "tests/unit/api/test_large_bodies.py",
    "tests/unit/api/test_direct_produce.py",
    "tests/unit/api/test_every_error.py",
    "tests/unit/test_release.py",
)
# The tests of these run in one process: a virtual machine for Java with a session of Spark costs 20 s of CPU time in each,
# and a browser 3 s.
TOGETHER = ("tests/integration/spark/", "tests/console/")
# These compute; all others wait for brokers, browsers and clients for much of their time.
COMPUTING = "tests/unit/"


# httpx gives up after 5 s without an answer; a test has a time limit of its own.
for _part in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _part, 300.0)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell without job control starts background commands so, and all that they start would ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections.

    What is collected stays, and to look for garbage meanwhile takes a sixth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Start each parallel process at another file, so that the processes share the work of compiling the tests.

    ``pytest_collection_modifyitems`` gives all of them the same order again.
    """
    report = yield
    process: dict[str, Any] | None = getattr(collector.config, "workerinput", None)
    if process is not None and isinstance(collector, pytest.Directory):
        number = int(process["workerid"].removeprefix("gw"))
        begin = len(report.result) * number // process["workercount"]
        report.result[:] = report.result[begin:] + report.result[:begin]
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give the processes whole files, and those of ``TOGETHER`` as if they were one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((directory for directory in TOGETHER if file.startswith(directory)), file)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Leave out of garbage collections what stays until the end: thousands of tests and their modules."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip torture tests, and put the files into their order; the tests of a file keep the order in which they stand.

    Files that compute are mixed with files that wait, so that there is always something to compute.
    """
    if "STELE_TORTURE" not in os.environ:
        for item in items:
            if item.get_closest_marker("torture"):
                item.add_marker(
                    pytest.mark.skip(reason="runs for hours, in `make torture` or with STELE_TORTURE=1")
                )
    places = _places(items)
    # The name decides between a file of each kind at the same place: the processes do not collect in the same order.
    items.sort(key=lambda item: (places[_file(item)], _file(item)))


def _places(items: list[pytest.Item]) -> dict[str, float]:
    """Return where each file comes in an even mix of those that compute and the others, of which the longest come first."""
    files = sorted({_file(item) for item in items}, key=lambda file: (_rank(file), file))
    places: dict[str, float] = {}
    for is_computing in (True, False):
        kind = [file for file in files if file.startswith(COMPUTING) is is_computing]
        for index, file in enumerate(kind):
            places[file] = (index + 0.5) / len(kind)
    return places


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _rank(file: str) -> int:
    """Return the place of the file, or of its directory, in ``LONGEST_FIRST``."""
    for rank, prefix in enumerate(LONGEST_FIRST):
        if file.startswith(prefix):
            return rank
    return len(LONGEST_FIRST)
