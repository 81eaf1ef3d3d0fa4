"""A PostgreSQL server per module, and a schema of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from app.postgres.pool import PostgresPool
from app.storage.shared.postgres_meta import PostgresMeta
from load.postgres_server import PostgresServer
from tests.support.postgres import postgres_bin

_schemas = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
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
