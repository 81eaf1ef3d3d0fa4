"""The PostgreSQL that tests start."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import time
from pathlib import Path

import psycopg2
import pytest

from load.postgres_server import PostgresMissing, PostgresServer, find_bin, packaged_bin

_ROOT = Path(__file__).resolve().parents[2]


def postgres_bin() -> Path:
    """Return the directory of its programs; STELE_TEST_POSTGRES is the release.

    Without any the test is skipped; in CI it fails.
    """
    if release := os.environ.get("STELE_TEST_POSTGRES"):
        return programs_of(int(release))
    try:
        return find_bin()
    except PostgresMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def programs_of(release: int) -> Path:
    """Return the directory of the programs of a release. Otherwise as ``postgres_bin``."""
    found = installed_releases().get(release)
    if found is not None:
        return found
    missing = f"no PostgreSQL {release}: run tests/integration/install_postgres_versions.sh"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def programs_for_standbys() -> Path:
    """Return the directory of its programs, with those that make a standby. Otherwise as ``postgres_bin``."""
    programs = postgres_bin()
    if not (programs / "pg_basebackup").exists():
        missing = "this PostgreSQL has no pg_basebackup: apt-get install postgresql"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return programs


def pgbench() -> Path:
    """Return pgbench, of the system's PostgreSQL if the release under test has none, as the packages of npm."""
    own = postgres_bin() / "pgbench"
    return own if own.exists() else find_bin() / "pgbench"


@functools.cache
def release_of(bin_dir: Path) -> int:
    """Return the major version of the server in a directory."""
    done = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True)
    match = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    assert match is not None, done.stdout
    return int(match[1])


def installed_releases() -> dict[int, Path]:
    """Return the directory of the programs of each release that this machine has.

    They are the system's, that of pgserver, and those of ``tests/integration/install_postgres_versions.sh``.
    """
    found = [*Path("/usr/lib/postgresql").glob("*/bin"), *_ROOT.glob(".postgres-*/bin")]
    packaged = packaged_bin()
    if packaged is not None:
        found.append(packaged)
    return {release_of(directory): directory for directory in found if (directory / "initdb").exists()}


def drop_slot(server: PostgresServer, name: str) -> None:
    """Drop a replication slot as soon as no connection holds it."""
    while True:
        try:
            server.run("SELECT pg_drop_replication_slot(%s)", (name,))
        except psycopg2.errors.ObjectInUse:
            time.sleep(0.02)
        else:
            return
