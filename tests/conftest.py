"""What holds for all tests."""

from __future__ import annotations

import hypothesis
import pytest

pytest_plugins = ["tests.support.time_limit", "tests.support.warm_processes"]

# Parallel processes take whole files from the front, so the files that take longest must not come last.
LONGEST_FIRST = (
    "tests/integration/spark/",
    "tests/integration/cdc/",
    "tests/integration/",
    "tests/conformance/",
    "tests/console/",
)


# How long an example takes says more about the load of the machine than about the code.
hypothesis.settings.register_profile(
    "stele", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("stele")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "in_written_order: a story; its tests run in the order of the file")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put stories back into their order, and long files first; everything else stays shuffled."""
    stories: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("in_written_order"):
            stories.setdefault(item.nodeid.partition("::")[0], []).append(item)
    items.sort(key=_rank)
    first_places = {id(story[0]): story for story in stories.values()}
    in_stories = {id(item) for story in stories.values() for item in story}
    ordered: list[pytest.Item] = []
    for item in items:
        if id(item) in first_places:
            ordered += sorted(first_places[id(item)], key=_line)
        elif id(item) not in in_stories:
            ordered.append(item)
    items[:] = ordered


def _rank(item: pytest.Item) -> int:
    """Return the place of the item's directory in ``LONGEST_FIRST``."""
    for rank, prefix in enumerate(LONGEST_FIRST):
        if item.nodeid.startswith(prefix):
            return rank
    return len(LONGEST_FIRST)


def _line(item: pytest.Item) -> int:
    return item.reportinfo()[1] or 0
