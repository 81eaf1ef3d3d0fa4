"""What holds for all tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.support.time_limit"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "in_written_order: a story; its tests run in the order of the file")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put stories back into their order; everything else stays shuffled, and stories stay whole."""
    stories: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("in_written_order"):
            stories.setdefault(item.nodeid.partition("::")[0], []).append(item)
    if not stories:
        return
    first_places = {id(story[0]): story for story in stories.values()}
    in_stories = {id(item) for story in stories.values() for item in story}
    ordered: list[pytest.Item] = []
    for item in items:
        if id(item) in first_places:
            ordered += sorted(first_places[id(item)], key=_line)
        elif id(item) not in in_stories:
            ordered.append(item)
    items[:] = ordered


def _line(item: pytest.Item) -> int:
    return item.reportinfo()[1] or 0
