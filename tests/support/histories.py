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

# The tests of many seeds are divided into as many parts, which run in parallel.
PARTS = 20
TORTURE_SEEDS = int(os.environ.get("STELE_TORTURE_SEEDS", "100000"))


def short_and_long(parts: int, *, short: int) -> list[Any]:
    """Return the numbers of the parts, for ``parametrize``: from ``short`` on they are for ``make long``."""
    return [*range(short), *(pytest.param(part, marks=pytest.mark.long) for part in range(short, parts))]


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


def seeds_of_part(part: int, seeds: int, first: int = 0) -> range:
    """Return the seeds of one of ``PARTS`` parts of ``seeds`` seeds from ``first`` on."""
    size = seeds // PARTS
    return range(first + part * size, first + (part + 1) * size)


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
