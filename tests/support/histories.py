"""Random histories, each of which follows from a seed: run many, replay one, find a forgotten sync."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar

import pytest

from .simulated_files import SimulatedFiles
from .simulated_time import run_simulated

TORTURE_SEEDS = int(os.environ.get("STELE_TORTURE_SEEDS", "100000"))
# The seeds of `make torture` are divided into as many tests, those of `make long` into fewer.
_TORTURE_TESTS = 20
_LONG_TESTS = 4


def seed_ranges(short: int, long: int) -> list[Any]:
    """Return ranges of seeds, for ``parametrize``.

    `make test` runs the first ``short`` seeds, `make long` the next ones up to ``long``, and `make torture` those
    up to ``TORTURE_SEEDS``.
    """
    ranges: list[Any] = [pytest.param(range(short), id=f"0-{short - 1}")]
    for mark, begin, end, tests in (
        (pytest.mark.long, short, long, _LONG_TESTS),
        (pytest.mark.torture, long, TORTURE_SEEDS, _TORTURE_TESTS),
    ):
        step = max(1, -(-(end - begin) // tests))
        for first in range(begin, end, step):
            seeds = range(first, min(first + step, end))
            ranges.append(pytest.param(seeds, id=f"{seeds[0]}-{seeds[-1]}", marks=mark))
    return ranges


@contextmanager
def silenced(name: str) -> Generator[None]:
    """Let a logger and those below it log nothing: thousands of runs would fill the report."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


class RandomHistory(Protocol):
    """A history of a data directory that crashes; ``run`` raises if it does not survive."""

    def __init__(self, seed: int, files: SimulatedFiles | None = None) -> None: ...
    async def run(self) -> None: ...


AnyHistory = TypeVar("AnyHistory", bound=RandomHistory)


def run_history(
    history_class: type[AnyHistory], seed: int, files: SimulatedFiles | None = None
) -> AnyHistory:
    """Run the history of ``seed``. Raises an ``AssertionError`` that names the seed."""
    history = history_class(seed, files)
    try:
        run_simulated(history.run, Random(seed))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return history


def replay_history(history_class: type[RandomHistory], variable: str) -> None:
    """Run the history whose seed is in an environment variable (default: 1), with all that it logs."""
    logging.disable(logging.NOTSET)
    run_history(history_class, int(os.environ.get(variable, "1")))


def assert_forgotten_sync_is_noticed(
    history_class: type[RandomHistory], forgets: Callable[[str, Path], bool], *, seeds_max: int
) -> None:
    """Fail unless a history fails whose disk loses all that the syncs chosen by ``forgets`` should keep."""
    for seed in range(seeds_max):
        files = SimulatedFiles()
        files.forgets = forgets
        try:
            run_history(history_class, seed, files)
        except AssertionError:
            return
    pytest.fail(f"{seeds_max} histories did not notice the forgotten syncs")
