"""A receipt claims a standby only if the commit has waited for one, and a start warns if there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from stele.wire.messages import Durability

from app.clock import SystemClock
from app.postgres.pool import PostgresPool
from app.storage.disk.files import RealFiles
from app.storage.shared.meta import CommitAnswer, CommitUnknown
from app.storage.shared.options import SharedOptions
from app.storage.shared.postgres.meta import PostgresMeta
from app.storage.shared.postgres_engine import PostgresEngine, SharedStorage
from load.postgres_server import PostgresServer
from tests.support.postgres import postgres_bin
from tests.support.shared_meta import batch, written_object
from tests.support.waiting import eventually

_WAITS = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


def _name_standbys(server: PostgresServer, names: str) -> None:
    server.run(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    server.run("SELECT pg_reload_conf()")
    eventually(lambda: server.run("SHOW synchronous_standby_names") == [(names,)], "the setting is in force")


def _no_standby_counts(server: PostgresServer) -> None:
    _name_standbys(server, "")


def _wait_is_cancelled(server: PostgresServer) -> None:
    server.run(f"SELECT pg_cancel_backend(pid) {_WAITS}")


def _session_is_ended(server: PostgresServer) -> None:
    server.run(f"SELECT pg_terminate_backend(pid) {_WAITS}")


def _server_is_started_again(server: PostgresServer) -> None:
    server.stop_immediately()
    server.start()


def _durability(answer: CommitAnswer) -> Durability:
    ((place,),) = answer
    assert place.log is not None
    return place.log.durability


async def _is_waiting(server: PostgresServer, commit: asyncio.Task[CommitAnswer]) -> None:
    while not await asyncio.to_thread(server.run, f"SELECT 1 {_WAITS}"):
        assert not commit.done(), "the commit waits for a standby"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("end_the_wait", [_no_standby_counts, _wait_is_cancelled])
async def test_a_commit_whose_wait_for_a_standby_was_cut_short_is_not_replicated(
    own_server: PostgresServer, schema: str, end_the_wait: Callable[[PostgresServer], None]
) -> None:
    pool = PostgresPool(own_server.dsn, schema=schema)
    await pool.open()
    meta = PostgresMeta(pool)
    (log,) = await meta.create_logs(UUID(int=1), 1)
    await asyncio.to_thread(_name_standbys, own_server, "nobody")
    commit = asyncio.create_task(meta.commit_objects([written_object("w/1", [(log.log_id, [batch(3)])])]))
    await _is_waiting(own_server, commit)
    await asyncio.to_thread(end_the_wait, own_server)
    assert _durability(await commit) is Durability.SYNCED
    await pool.close()


@pytest.mark.parametrize("end_the_session", [_session_is_ended, _server_is_started_again])
async def test_a_commit_that_is_repeated_waits_for_the_standby_that_the_first_attempt_lacked(
    own_server: PostgresServer, schema: str, end_the_session: Callable[[PostgresServer], None]
) -> None:
    pool = PostgresPool(own_server.dsn, schema=schema)
    await pool.open()
    meta = PostgresMeta(pool)
    (log,) = await meta.create_logs(UUID(int=1), 1)
    await asyncio.to_thread(_name_standbys, own_server, "nobody")
    objects = [written_object("w/1", [(log.log_id, [batch(3)])])]
    first = asyncio.create_task(meta.commit_objects(objects))
    await _is_waiting(own_server, first)
    await asyncio.to_thread(end_the_session, own_server)
    with pytest.raises(CommitUnknown) as unknown:
        await first
    again = asyncio.create_task(meta.commit_objects(objects, computed=unknown.value.answer))
    # It is committed here, and nowhere else.
    await _is_waiting(own_server, again)
    await asyncio.to_thread(_no_standby_counts, own_server)
    assert _durability(await again) is Durability.SYNCED
    await pool.close()


@pytest.mark.parametrize(
    ("fsync", "said"),
    [
        ("on", "PostgreSQL has no synchronous standby"),
        ("off", "can be lost when PostgreSQL crashes: fsync is off"),
    ],
)
async def test_a_start_warns_of_what_a_failure_can_take(
    fsync: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "objects"
    directory.mkdir()
    with PostgresServer(postgres_bin(), wal_level="replica", fsync=fsync) as server:
        engine = PostgresEngine(
            RealFiles(),
            tmp_path / "data",
            storage=SharedStorage(
                postgres_url=server.dsn, object_store=f"file://{directory}", linger_ms=None
            ),
            incarnation=uuid4(),
            clock=SystemClock(),
            options=SharedOptions(),
        )
        await engine.open()
        await engine.close()
    warnings = "\n".join(record.getMessage() for record in caplog.records)
    assert said in warnings
    assert f"the object store file://{directory} does not sync" in warnings
