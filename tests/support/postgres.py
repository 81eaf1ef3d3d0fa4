"""The PostgreSQL that tests start."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psycopg2
import pytest

from load.postgres_server import PostgresMissing, PostgresServer, find_bin


def postgres_bin() -> Path:
    """Return the directory of its programs. Without any the test is skipped; in CI it fails."""
    try:
        return find_bin()
    except PostgresMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def drop_slot(server: PostgresServer, name: str) -> None:
    """Drop a replication slot as soon as no connection holds it."""
    while True:
        try:
            server.run("SELECT pg_drop_replication_slot(%s)", (name,))
        except psycopg2.errors.ObjectInUse:
            time.sleep(0.02)
        else:
            return
