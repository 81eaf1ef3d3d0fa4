"""A gap is named, the connector goes on only if somebody accepts it, and then the gap is recorded."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.cdc.decoding.notation import lsn_of

from load.postgres_server import PostgresServer
from tests.support.cdc import EXIT_CODE_OF_A_GAP, Replay, gap_in, gaps_of, running_cdc
from tests.support.postgres import drop_slot
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

TABLES = ("--tables", "t")


@pytest.mark.parametrize("mode", ["on", pytest.param("off", marks=pytest.mark.long)])
def test_a_gap_is_named_until_it_is_accepted_and_recorded_once(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, tmp_path: Path, mode: str
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    arguments = (*TABLES, "--transactions", mode)
    replay = Replay(stele_broker.binary_url, "pg.public.t")
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        pg.run("INSERT INTO t VALUES (1)")
        replay.read_until(lambda: len(replay.rows) == 1, check=cdc.check)
        cdc.kill()
    drop_slot(pg, "stele")
    pg.run("INSERT INTO t VALUES (2)")
    begins = set[str]()
    for accepted in ("", "0/1"):
        with running_cdc(pg, stele_broker.binary_url, log, *arguments, "--accept-gap", accepted) as cdc:
            assert cdc.wait() == EXIT_CODE_OF_A_GAP, cdc.said
            begin, end = gap_in(cdc.said)
        assert lsn_of(begin) < lsn_of(end)
        begins.add(begin)
    assert not gaps_of(stele_broker.binary_url)
    # It begins at the same place each time, or nobody could accept it.
    (begin,) = begins
    for number in (3, 4):
        said = tmp_path / f"{number}.log"
        with running_cdc(pg, stele_broker.binary_url, said, *arguments, "--accept-gap", begin) as cdc:
            cdc.await_streaming()
            pg.run("INSERT INTO t VALUES (%s)", (number,))
            replay.read_until(lambda number=number: b"%d" % number in replay.rows, check=cdc.check)
            assert ("accepted: changes may be missing" in cdc.said) == (number == 3)
    assert set(replay.table()) == {1, 3, 4}
    (gap,) = gaps_of(stele_broker.binary_url)
    assert (gap["from"], gap["of"]) == (begin, ["public.t"])
    assert "slot stele is gone" in gap["reason"]


@pytest.mark.long
def test_an_accepted_gap_is_not_forgotten_by_a_crash_before_it_is_recorded(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, tmp_path: Path
) -> None:
    """The slot is there then, and would look as if it had all changes since the last run."""
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    with running_cdc(pg, stele_broker.binary_url, log, *TABLES) as cdc:
        cdc.await_streaming()
        cdc.kill()
    drop_slot(pg, "stele")
    blocking = pg.connect()
    with blocking, blocking.cursor() as cursor:
        # The new slot waits for this transaction.
        cursor.execute("INSERT INTO t VALUES (1)")
        with running_cdc(pg, stele_broker.binary_url, log, *TABLES, "--accept-gap", "any") as cdc:
            eventually(
                lambda: bool(pg.run("SELECT 1 FROM pg_replication_slots")), "the slot is being created"
            )
            cdc.freeze()
            blocking.commit()
            eventually(
                lambda: bool(
                    pg.run("SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL")
                ),
                "the slot is whole",
            )
            cdc.kill()
    blocking.close()
    with running_cdc(pg, stele_broker.binary_url, tmp_path / "again.log", *TABLES) as cdc:
        assert cdc.wait() == EXIT_CODE_OF_A_GAP, cdc.said
    assert not gaps_of(stele_broker.binary_url)
    begin, _ = gap_in(cdc.said)
    with running_cdc(
        pg, stele_broker.binary_url, tmp_path / "accepted.log", *TABLES, "--accept-gap", begin
    ) as cdc:
        cdc.await_streaming()
    assert len(gaps_of(stele_broker.binary_url)) == 1


@pytest.mark.long
def test_a_broker_whose_connector_has_found_a_gap_says_so(pg: PostgresServer, tmp_path: Path) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    environment = {"STELE_CDC_DSN": pg.dsn, "STELE_CDC_TABLES": "t"}
    data = tmp_path / "data"
    with run_broker(data, environment=environment) as broker:
        eventually(lambda: _states(broker) == ["streaming"], "the connector streams")
    drop_slot(pg, "stele")
    with run_broker(data, environment=environment) as broker:
        eventually(lambda: _states(broker) == ["gap"], "the connector has found the gap")
        (connector,) = httpx.get(f"{broker.http_url}/v1/cdc").json()["connectors"]
        begin, end = gap_in(connector["last_error"])
        assert connector["gap"] == {"from": begin, "to": end}
        metrics = httpx.get(f"{broker.http_url}/metrics").text
        assert 'stele_cdc_state{slot="stele",state="gap"} 1.0' in metrics
        done = run_stele("cdc", "status", "--url", broker.http_url)
        assert " gap " in done.stdout.decode()
        assert begin in done.stdout.decode()
    with run_broker(data, environment={**environment, "STELE_CDC_ACCEPT_GAP": begin}) as broker:
        eventually(lambda: _states(broker) == ["streaming"], "the connector goes on")
        (connector,) = httpx.get(f"{broker.http_url}/v1/cdc").json()["connectors"]
        assert connector["gap"] is None
        (gap,) = gaps_of(broker.binary_url)
        assert gap["from"] == begin


def _states(broker: BrokerProcess) -> list[str]:
    return [found["state"] for found in httpx.get(f"{broker.http_url}/v1/cdc").json()["connectors"]]
