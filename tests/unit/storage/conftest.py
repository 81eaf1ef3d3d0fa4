"""Fixtures of the storage tests."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

import pytest


@pytest.fixture
def without_logs() -> Iterator[None]:
    """Discard logs: recovery writes many lines in thousands of crashes."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def much_space_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give segments of a few records space ahead of them."""
    monkeypatch.setattr("app.storage.segments.space_ahead.BLOCK_BYTES", 16)
    monkeypatch.setattr("app.storage.segments.space_ahead.AHEAD_BYTES_MIN", 64)
    monkeypatch.setattr("app.storage.segments.space_ahead.SIZE_PER_AHEAD", 1)
    monkeypatch.setattr("app.storage.segments.space_ahead.SYNCS_PER_AHEAD", 0)


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pauses of a pass.

    They make room for an event loop in real time, and these tests simulate time.
    """
    monkeypatch.setattr("app.storage.disk.pace._WORK_S", math.inf)
