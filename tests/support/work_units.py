"""What one process runs of the tests that several share: a file, or all that need a Java virtual machine.

A virtual machine lives as long as the process that began it, and its start costs as much as many tests.
"""

from __future__ import annotations

from typing import Any

import pytest

SPARK = "tests/integration/spark/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return how tests are shared; None leaves it to pytest-xdist."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None
