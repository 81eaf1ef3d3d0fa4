"""Retention by the clock of PostgreSQL, for records with and without timestamps."""

from __future__ import annotations

from uuid import UUID

import pytest
from stele.wire.record_batch import NO_TIMESTAMP

from app.postgres.pool import PostgresPool
from app.storage.shared.meta import KeptLog
from app.storage.shared.postgres.meta import PostgresMeta
from load.postgres_server import PostgresServer
from tests.support.shared_meta import batch, written_object

HOUR_S = 3600.0


async def make_log(meta: PostgresMeta, max_timestamp: int) -> int:
    """Return a log with two batches of one record, each in an object of its own."""
    (log,) = await meta.create_logs(UUID(int=1), 1)
    for key in ("r/1", "r/2"):
        await meta.commit_objects(
            [written_object(key, [(log.log_id, [batch(1, max_timestamp=max_timestamp)])])]
        )
    return log.log_id


async def retained_start(meta: PostgresMeta, log_id: int) -> int:
    expiring = await meta.expiring([KeptLog(log_id, HOUR_S, None)])
    retained = await meta.retain(log_id, retention_s=HOUR_S, retention_bytes=None)
    assert retained is not None
    assert expiring == ([log_id] if retained.runs_deleted else [])
    return retained.log_start


@pytest.mark.parametrize(("max_timestamp", "log_start"), [(0, 2), (NO_TIMESTAMP, 0)])
async def test_new_records_without_timestamps_are_not_old(
    meta: PostgresMeta, max_timestamp: int, log_start: int
) -> None:
    log_id = await make_log(meta, max_timestamp)
    assert await retained_start(meta, log_id) == log_start


async def test_records_without_timestamps_are_as_old_as_their_commit(
    meta: PostgresMeta, pool: PostgresPool, server: PostgresServer, schema: str
) -> None:
    log_id = await make_log(meta, NO_TIMESTAMP)
    server.run(f"UPDATE {schema}.objects SET created_at = created_at - interval '2 hours' WHERE key = 'r/1'")
    assert await retained_start(meta, log_id) == 1
