"""Fixtures of the storage tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def without_logs() -> Iterator[None]:
    """Discard logs: recovery writes many lines in thousands of crashes."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
