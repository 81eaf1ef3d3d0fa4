"""A PostgreSQL server per module, and a schema of its own for each test.

Tests of SQL run with every release of PostgreSQL that is installed, ``make test`` with one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any, cast

import pytest

from app.postgres.pool import PostgresPool
from app.storage.shared.postgres.meta import PostgresMeta
from load.postgres_server import PostgresMissing, PostgresServer, find_bin
from tests.support.brokers import Brokers, run_brokers
from tests.support.postgres import installed_releases, postgres_bin, release_of

_schemas = count(1)


# The modules whose tests are about SQL; the others start brokers, which run the same statements.
_SQL_MODULES = frozenset(
    f"test_{name}"
    for name in (
        "broker",
        "cluster_stores",
        "commits",
        "concurrent_upkeep",
        "inline_store",
        "meta_model",
        "named_producers",
        "releases",
        "retention",
        "schema",
    )
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" not in metafunc.fixturenames or metafunc.definition.path.stem not in _SQL_MODULES:
        return
    try:
        default = release_of(find_bin())
    except PostgresMissing:
        # The fixture says so.
        return
    others = {release: path for release, path in installed_releases().items() if release != default}
    params = [
        pytest.param(None, id=f"postgresql-{default}"),
        *(
            pytest.param(path, id=f"postgresql-{release}", marks=pytest.mark.long)
            for release, path in sorted(others.items())
        ),
    ]
    metafunc.parametrize("server", params, indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    bin_dir = getattr(request, "param", None) or postgres_bin()
    with PostgresServer(bin_dir, fsync="off", wal_level="replica") as server:
        yield server


@pytest.fixture(scope="module")
def brokers(
    request: pytest.FixtureRequest, server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    """Three brokers, or ``BROKERS`` of the module, with its ``ENVIRONMENT``."""
    given = cast("dict[str, Any]", vars(cast("Any", request).module))
    path, environment = tmp_path_factory.mktemp("brokers"), given.get("ENVIRONMENT")
    with run_brokers(path, server.dsn, given.get("BROKERS", 3), environment=environment) as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server of the test's own, for brokers that ask for a login or have another store."""
    with PostgresServer(postgres_bin(), fsync="off", wal_level="replica") as server:
        yield server


@pytest.fixture
def schema() -> str:
    return f"stele_{next(_schemas)}"


@pytest.fixture
async def pool(server: PostgresServer, schema: str) -> AsyncIterator[PostgresPool]:
    pool = PostgresPool(server.dsn, schema=schema)
    await pool.open()
    yield pool
    await pool.close()


@pytest.fixture
def meta(pool: PostgresPool) -> PostgresMeta:
    return PostgresMeta(pool)
