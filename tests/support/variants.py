"""Which cases of a test `make test` runs, where one case shows the kind and the others are variants of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest


def stays(number: int, nth: int) -> bool:
    """Tell the case of each ``nth`` that `make test` runs.

    Its place moves on: otherwise, of a parameter whose number of values divides ``nth``, one value alone would stay.
    """
    return (number + number // nth) % nth == 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make long` what ``@pytest.mark.every(n)`` says: of n cases of a test, all but one."""
    seen: Counter[str] = Counter()
    for item in items:
        thinned = item.get_closest_marker("every")
        if thinned is None:
            continue
        test = item.nodeid.partition("[")[0]
        if not stays(seen[test], thinned.args[0]):
            item.add_marker(pytest.mark.long)
        seen[test] += 1


def long_but(cases: Iterable[Any], *first: str) -> list[Any]:
    """Return the cases, for ``parametrize``: all but the ``first``, which are named, are for `make long`.

    A case is a string, or a ``pytest.param`` with an id. Raises ValueError if one of ``first`` is not there.
    """
    params = [case if hasattr(case, "marks") else pytest.param(case, id=str(case)) for case in cases]
    if missing := set(first) - {str(param.id) for param in params}:
        raise ValueError(f"there are no such cases: {sorted(missing)}")
    return [
        param
        if param.id in first
        else pytest.param(*param.values, id=param.id, marks=(*param.marks, pytest.mark.long))
        for param in params
    ]
