"""Fixtures of the tests of transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def without_logs() -> Iterator[None]:
    """Log nothing: histories crash thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
