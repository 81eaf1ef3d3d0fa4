"""Print at the end of a run which tests were left out, why, and how to run them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

# A marker that keeps tests out of `make test`, and what runs them; a test counts for the first that it has.
TARGETS = {"torture": "make torture", "long": "make long"}


class _LeftOut:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._deselected: Counter[str] = Counter()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            self._deselected.update([name for name in TARGETS if item.get_closest_marker(name)][:1])

    def pytest_sessionfinish(self) -> None:
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["left_out"] = dict(self._deselected)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # All processes collect the same tests; one that was killed has no output.
        self._deselected |= Counter(getattr(node, "workeroutput", {}).get("left_out", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        skipped: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
        lines = summary(self._deselected, Counter(map(_reason, skipped)))
        if lines:
            terminalreporter.section("not run")
            for line in lines:
                terminalreporter.write_line(line)


def summary(deselected: Counter[str], skipped: Counter[str]) -> list[str]:
    """Return a line for each marker and for each reason of a skipped test, the most frequent first."""
    lines = [
        f"{count:6} marked {name}: run them with `{TARGETS[name]}`"
        for name, count in deselected.most_common()
    ]
    return lines + [f"{count:6} skipped: {reason}" for reason, count in skipped.most_common()]


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_LeftOut(config), "left-out")
