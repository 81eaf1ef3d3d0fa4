"""A broker that was restored from its replica lacks changes that PostgreSQL does not send again: no gap is silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stele.testing import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.cdc import CdcProcess, Replay, running_cdc
from tests.support.replicating_brokers import await_cut, newest_header, replicating, restore

pytestmark = pytest.mark.one_broker("several brokers have no replica")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'bucket'}"


@pytest.fixture
def replicated(pg: PostgresServer, tmp_path: Path, url: str) -> Iterator[BrokerProcess]:
    (tmp_path / "bucket").mkdir()
    pg.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    broker = replicating(tmp_path / "data", url)
    broker.start()
    yield broker
    if broker.is_running:
        broker.kill()


def _insert(pg: PostgresServer, cdc: CdcProcess, number: int) -> None:
    """Returns when PostgreSQL sends the change no more."""
    pg.run("INSERT INTO t VALUES (%s, 0)", (number,))
    cdc.await_confirmed()


def _restored(broker: BrokerProcess, url: str, path: Path, time_ms: int) -> BrokerProcess:
    broker.kill()
    restore(url, path, "--to", str(time_ms))
    after = replicating(path, url)
    after.start()
    return after


@pytest.mark.parametrize("snapshot", ["initial", "never"])
@pytest.mark.parametrize("mode", ["on", pytest.param("off", marks=pytest.mark.long)])
def test_changes_that_came_after_the_cut_are_copied_or_reported(
    pg: PostgresServer,
    replicated: BrokerProcess,
    url: str,
    log: Path,
    tmp_path: Path,
    snapshot: str,
    mode: str,
) -> None:
    arguments = ("--tables", "t", "--snapshot", snapshot, "--transactions", mode)
    with running_cdc(pg, replicated.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        _insert(pg, cdc, 1)
        await_cut(replicated, url)
        moment_ms = newest_header(url).time_ms
        _insert(pg, cdc, 2)
    after = _restored(replicated, url, tmp_path / "back", moment_ms)
    try:
        replay = Replay(after.binary_url, "pg.public.t")
        replay.read_until(lambda: len(replay.rows) == 1)
        with running_cdc(pg, after.binary_url, log, *arguments) as cdc:
            if snapshot == "never":
                assert cdc.wait() == 1
                assert "the broker was restored from its replica" in cdc.said
                # And the next start forgets nothing of it.
                cdc.start()
                assert cdc.wait() == 1
                return
            pg.run("INSERT INTO t VALUES (3, 0)")
            replay.read_until(lambda: len(replay.rows) == 3, check=cdc.check)
            assert "the broker was restored from its replica" in cdc.said
            assert "copied again: public.t" in cdc.said
            cdc.await_confirmed()
            assert cdc.stop() == 0
            replay.read_all()
            count = len(replay.records)
            cdc.start()
            pg.run("INSERT INTO t VALUES (4, 0)")
            replay.read_until(lambda: len(replay.rows) == 4, check=cdc.check)
            assert len(replay.records) == count + 1, "it is copied once"
    finally:
        after.kill()


def test_a_connector_that_had_stopped_before_the_cut_goes_on(
    pg: PostgresServer, replicated: BrokerProcess, url: str, log: Path, tmp_path: Path
) -> None:
    with running_cdc(pg, replicated.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        _insert(pg, cdc, 1)
        assert cdc.stop() == 0
    await_cut(replicated, url)
    pg.run("INSERT INTO t VALUES (2, 0)")
    after = _restored(replicated, url, tmp_path / "back", newest_header(url).time_ms)
    try:
        replay = Replay(after.binary_url, "pg.public.t")
        with running_cdc(pg, after.binary_url, log, "--tables", "t") as cdc:
            replay.read_until(lambda: len(replay.rows) == 2, check=cdc.check)
        assert [dict(record.headers)["operation"] for record in replay.records] == [b"c", b"c"]
        assert "restored" not in cdc.said
    finally:
        after.kill()
