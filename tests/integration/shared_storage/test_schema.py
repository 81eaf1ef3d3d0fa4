"""The schema of the database, and connections that come back."""

from __future__ import annotations

import asyncio
from threading import Barrier
from uuid import UUID

import pytest

from app.postgres.connection_counts import RECORDS
from app.postgres.connector import Connection, PostgresUnavailable, connection_string
from app.postgres.migrations import SchemaMismatch, newest_version
from app.postgres.pool import PostgresPool
from app.storage.shared.meta import MetaUnavailable
from app.storage.shared.postgres.meta import PostgresMeta
from load.postgres_server import PostgresServer
from tests.support.postgres import postgres_bin
from tests.support.shared_meta import batch, written_object


async def _open_and_close(server: PostgresServer, schema: str) -> None:
    pool = PostgresPool(server.dsn, schema=schema)
    try:
        await pool.open()
    finally:
        await pool.close()


async def test_brokers_that_start_together_migrate_once(server: PostgresServer, schema: str) -> None:
    await asyncio.gather(*(_open_and_close(server, schema) for _ in range(4)))
    assert server.run(f"SELECT version FROM {schema}.schema_version") == [(newest_version(),)]


async def test_a_broker_works_with_the_schema_of_the_next_release_and_refuses_later_ones(
    server: PostgresServer, schema: str
) -> None:
    await _open_and_close(server, schema)
    server.run(f"UPDATE {schema}.schema_version SET version = version + 1")
    await _open_and_close(server, schema)
    assert server.run(f"SELECT version FROM {schema}.schema_version") == [(newest_version() + 1,)]
    server.run(f"UPDATE {schema}.schema_version SET version = version + 1")
    with pytest.raises(SchemaMismatch, match="upgrade the broker"):
        await _open_and_close(server, schema)


async def test_sessions_have_limits_and_wait_for_durability(pool: PostgresPool) -> None:
    def settings(name: str) -> str:
        return f"SELECT setting FROM pg_settings WHERE name = '{name}'"

    expected = {
        "synchronous_commit": "on",
        "idle_in_transaction_session_timeout": "2000",
        "lock_timeout": "2000",
        "statement_timeout": "5000",
        "default_transaction_isolation": "read committed",
    }
    for name, value in expected.items():
        query = settings(name).encode()
        rows = await pool.run(lambda connection, query=query: connection.execute(query).fetchall())
        assert rows == [(value,)], name


def test_the_operators_own_options_count() -> None:
    made = connection_string("host=db options='-c lock_timeout=9s' application_name=mine", "stele")
    assert made.index("lock_timeout=2s") < made.index("lock_timeout=9s")
    assert "application_name=mine" in made
    with pytest.raises(ValueError, match="not a PostgreSQL connection string"):
        connection_string("host=db nonsense", "stele")


@pytest.mark.parametrize(
    "dsn",
    [
        "app:secret@db/shop", "postgresql://app:12/secret@db/shop", "postgresql://app:secret@db:port/shop",
        "postgresql://app:%zzsecret@db/shop", "host=db password=a secret", "postgresql://app:pass@secret@db/shop",
    ],
)  # fmt: skip
def test_a_connection_string_that_is_refused_is_not_repeated(dsn: str) -> None:
    with pytest.raises(ValueError, match="%2F") as refused:
        connection_string(dsn, "stele")
    assert "secret" not in f"{refused.value}{refused.value.__cause__}"


async def test_a_database_that_is_not_there_is_an_error() -> None:
    pool = PostgresPool("postgresql://postgres@127.0.0.1:1/postgres")
    try:
        with pytest.raises(PostgresUnavailable, match=r"127\.0\.0\.1"):
            await pool.open()
    finally:
        await pool.close()


async def test_what_was_committed_outlives_a_crash_of_the_server_and_the_broker_goes_on(schema: str) -> None:
    with PostgresServer(postgres_bin(), wal_level="replica") as server:
        pool = PostgresPool(server.dsn, schema=schema)
        try:
            await pool.open()
            meta = PostgresMeta(pool)
            (log,) = await meta.create_logs(UUID(int=1), 1)
            # Every thread has a connection, so that all of them break.
            together = Barrier(RECORDS)

            def ask(connection: Connection) -> None:
                together.wait(60)
                connection.execute("SELECT 1")

            await asyncio.gather(*(pool.run(ask) for _ in range(RECORDS)))
            await meta.commit_objects([written_object("w/1", [(log.log_id, [batch(3)])])])
            server.kill()
            with pytest.raises(MetaUnavailable):
                await meta.commit_objects([written_object("w/2", [(log.log_id, [batch(1)])])])
            server.start()
            # The connection that was found broken was the only one: all others are replaced.
            (run,) = (await meta.commit_objects([written_object("w/2", [(log.log_id, [batch(1)])])]))[0]
            assert run.places[0].base_offset == 3
            await asyncio.gather(*(pool.run(ask) for _ in range(RECORDS)))
        finally:
            await pool.close()
