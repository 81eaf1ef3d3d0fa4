"""Which PostgreSQL the tests start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from load.postgres_server import PostgresMissing, find_bin


def postgres_bin() -> Path:
    """Where its programs are. Without any the test is skipped, or fails where nothing may be skipped (CI)."""
    try:
        return find_bin()
    except PostgresMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
