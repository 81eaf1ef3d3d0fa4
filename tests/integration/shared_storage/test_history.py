"""How a broker notices that the database went back, and what another history skips (ADR-0071)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from stele.wire.messages import Durability

from app.cluster.membership import Member
from app.cluster.postgres.catalog import PostgresCatalog
from app.cluster.postgres.database import PostgresDatabase
from app.cluster.postgres.membership import PostgresMembership
from app.cluster.postgres.transactions import PostgresTransactions
from app.cluster.shared_transactions import TransactionUpdate
from app.cluster.transaction_store import TransactionRecord
from app.postgres.connector import Connection, Connector
from app.postgres.history import SECONDS, ReplacedPrimary, server_of
from app.postgres.pool import PostgresPool
from app.postgres.session import PostgresSession
from app.storage.shared.meta import KnownLog, LogRow
from app.storage.shared.postgres.meta import PostgresMeta
from load.postgres_server import PostgresServer
from tests.support.shared_meta import batch, written_object
from tests.support.waiting import eventually

_RECORD = TransactionRecord(
    transactional_id="t",
    producer_id=7,
    epoch=0,
    previous_producer_id=-1,
    last_epoch=-1,
    timeout_ms=60_000,
    state="Empty",
    started_at_ms=-1,
    updated_at_ms=0,
)


def _member(broker_id: int, incarnation: UUID) -> Member:
    return Member(broker_id=broker_id, incarnation=incarnation, rack=None, endpoints={})


class _Broker:
    def __init__(self, dsn: str, schema: str, broker_id: int) -> None:
        self.member = _member(broker_id, uuid4())
        self.connector = Connector(dsn, schema=schema, incarnation=self.member.incarnation)
        self.session = PostgresSession(self.connector)
        self.session.migrate()
        self.membership = PostgresMembership(self.session)

    def join(self) -> None:
        assert self.membership.register(self.member)
        self.membership.heartbeat(self.member)

    @property
    def epoch(self) -> int:
        known = self.connector.history.known
        assert known is not None
        return known.epoch

    def run(self, query: Any) -> list[tuple[Any, ...]]:
        def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []

        return self.session.run(work)


@pytest.fixture
def brokers(server: PostgresServer, schema: str) -> Iterator[tuple[_Broker, _Broker]]:
    pair = _Broker(server.dsn, schema, 1), _Broker(server.dsn, schema, 2)
    for broker in pair:
        broker.join()
    yield pair
    for broker in pair:
        broker.membership.close()


def test_brokers_know_the_same_history_and_agree_on_a_leader_epoch(brokers: tuple[_Broker, _Broker]) -> None:
    first, second = brokers
    states = [broker.membership.look() for broker in brokers]
    assert states[0].history == states[1].history == first.epoch
    assert states[0].leader_epoch == states[1].leader_epoch >= states[0].history
    second.membership.leave(second.member)
    eventually(
        lambda: first.membership.look().leader_epoch > states[0].leader_epoch, "the leaders are others"
    )
    assert first.membership.look().history == states[0].history


def test_a_heartbeat_notices_that_the_database_was_restored_under_it(
    brokers: tuple[_Broker, _Broker], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = brokers
    for _ in range(3):
        first.membership.heartbeat(first.member)
    before = first.epoch
    second.run("UPDATE brokers SET beats = 1")
    with caplog.at_level(logging.WARNING):
        first.membership.heartbeat(first.member)
    assert "has forgotten heartbeats of this broker" in caplog.text
    assert first.epoch > before
    assert second.membership.look().history == first.epoch


def test_a_heartbeat_that_is_counted_changes_nothing(brokers: tuple[_Broker, _Broker]) -> None:
    before = brokers[0].membership.look().history
    for _ in range(3):
        for broker in brokers:
            broker.membership.heartbeat(broker.member)
    assert [broker.membership.look().history for broker in brokers] == [before, before]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE history SET server = 'another one'",
        "UPDATE history SET epoch = 1, leader_epoch = 1",
        "UPDATE brokers SET beats = 0",
    ],
    ids=["another server or timeline", "an older history", "forgotten heartbeats"],
)
def test_a_connection_notices_that_the_database_is_another_one(
    brokers: tuple[_Broker, _Broker], damage: str
) -> None:
    first, second = brokers
    before = first.epoch
    second.run(damage)
    first.connector.connect().close()
    assert first.epoch > before, "epochs never repeat"
    assert second.membership.look().history == first.epoch


def test_a_server_on_an_earlier_timeline_than_the_known_one_is_refused(
    brokers: tuple[_Broker, _Broker],
) -> None:
    first, second = brokers
    before = second.membership.look().history
    with first.connector.connect() as connection:
        system = server_of(connection).partition("/")[0]
    first.connector.history._server = f"{system}/0000FFFF"
    with pytest.raises(ReplacedPrimary, match=r"a promotion has begun timeline 65535.* Stop it"):
        first.connector.connect()
    assert second.membership.look().history == before, "nothing is begun on a server that was replaced"


def test_the_first_broker_of_a_cluster_begins_a_history(server: PostgresServer, schema: str) -> None:
    epochs: list[int] = []
    for _ in range(2):
        broker = _Broker(server.dsn, schema, 1)
        broker.join()
        epochs.append(broker.epoch)
        broker.membership.leave(broker.member)
        broker.membership.close()
    assert epochs[1] > epochs[0]


def _seconds(broker: _Broker) -> int:
    return broker.run(f"SELECT {SECONDS}")[0][0]


def test_no_history_is_in_force_before_its_second(brokers: tuple[_Broker, _Broker]) -> None:
    first, _ = brokers
    # As after several starts in a moment.
    first.run(f"UPDATE history SET leader_epoch = {SECONDS} + 2")
    (ahead,) = first.run("SELECT leader_epoch FROM history")[0]
    first.session.run(lambda connection: first.connector.history.begin(connection, "a test"))
    assert first.epoch > ahead
    assert _seconds(first) >= first.epoch


def test_a_database_that_has_forgotten_a_history_begins_a_greater_one(
    brokers: tuple[_Broker, _Broker], server: PostgresServer, schema: str
) -> None:
    first, _ = brokers
    before = first.run("SELECT id, epoch, leader_epoch FROM history")[0]
    first.session.run(lambda connection: first.connector.history.begin(connection, "a failover"))
    forgotten = first.epoch
    first.run(
        f"UPDATE history SET id = '{before[0]}', epoch = {before[1]}, leader_epoch = {before[2]}, server = 'another'"
    )
    # It has not seen the forgotten one.
    newcomer = _Broker(server.dsn, schema, 3)
    newcomer.join()
    assert newcomer.epoch > forgotten
    newcomer.session.close()


def test_a_change_of_the_members_raises_the_leader_epoch_no_further_than_its_second(
    brokers: tuple[_Broker, _Broker],
) -> None:
    first, _ = brokers
    first.run("UPDATE history SET members = 'others'")
    first.run(f"UPDATE history SET leader_epoch = {SECONDS} + 3600")
    (ahead,) = first.run("SELECT leader_epoch FROM history")[0]
    assert first.membership.look().leader_epoch == ahead
    first.run(f"UPDATE history SET leader_epoch = {SECONDS} - 10")
    (behind,) = first.run("SELECT leader_epoch FROM history")[0]
    assert first.membership.look().leader_epoch == behind + 1


def test_another_history_gives_no_id_and_no_lease_epoch_out_again(brokers: tuple[_Broker, _Broker]) -> None:
    first, second = brokers
    catalog = PostgresCatalog(PostgresDatabase(first.session))
    producer_id = catalog.next_producer_id_block(10)
    lease_epoch = first.membership.acquire("groups-01", first.member)
    assert lease_epoch is not None
    first.session.run(lambda connection: first.connector.history.begin(connection, "a test"))
    assert first.membership.look().leases == {}, "leases of the history before it are over"
    taken = second.membership.acquire("groups-01", second.member)
    assert taken is not None
    assert taken > lease_epoch + 100
    assert catalog.next_producer_id_block(10) > producer_id + 1_000_000


def test_another_history_skips_epochs_of_a_named_producer(brokers: tuple[_Broker, _Broker]) -> None:
    first, _ = brokers
    catalog = PostgresCatalog(PostgresDatabase(first.session))

    def begin(version: int) -> tuple[int, int]:
        begun = catalog.begin_producer_version("loader", version, fresh_id=7, now_ms=0)
        return begun.producer_id, begun.epoch

    assert [begin(version) for version in (1, 2, 2)] == [(7, 0), (7, 1), (7, 1)]
    first.session.run(lambda connection: first.connector.history.begin(connection, "a test"))
    assert begin(2) == (7, 1), "a version that is known goes on"
    assert [begin(version) for version in (3, 4)] == [(7, 1_002), (7, 1_003)]


async def test_another_history_doubts_the_epochs_that_follow_the_known_one_of_a_transactional_id(
    pool: PostgresPool,
) -> None:
    transactions = PostgresTransactions(pool, lambda connection, ended, now_ms: ())

    async def update(**changes: Any) -> bool:
        """Store what has changed; return whether the epochs after the one before may repeat."""

        def decide(records: Mapping[str, TransactionRecord], _: int) -> TransactionUpdate[bool]:
            before = records.get("t", _RECORD)
            return TransactionUpdate(result=before.epochs_may_repeat, records=[replace(before, **changes)])

        return (await transactions.update(["t"], decide)).result

    async def begin_history() -> None:
        await pool.run(lambda connection: pool.connector.history.begin(connection, "a test"))

    assert not await update()
    assert not await update(epoch=1)
    await begin_history()
    assert await update(state="Ongoing")
    assert await update(state="CompleteCommit"), "the epoch is still that of the history before"
    assert await update(producer_id=8, epoch=0)
    assert not await update(epoch=1)
    await begin_history()
    assert await update()


def test_epochs_are_hidden_while_a_broker_of_an_earlier_release_is_alive(
    brokers: tuple[_Broker, _Broker],
) -> None:
    first, second = brokers
    second.run("UPDATE brokers SET shows_epochs = false WHERE broker_id = 2")
    assert first.membership.look().leader_epoch == -1
    second.run("UPDATE brokers SET shows_epochs = true")
    assert first.membership.look().leader_epoch >= first.epoch


async def test_a_commit_in_another_history_notes_where_it_begins(pool: PostgresPool) -> None:
    meta = PostgresMeta(pool)
    (log,) = await meta.create_logs(UUID(int=1), 1)
    await meta.commit_objects([written_object("w/1", [(log.log_id, [batch(3)])])])
    await pool.run(lambda connection: pool.connector.history.begin(connection, "a test"))
    assert (await meta.moved_logs([_known(log)]))[log.log_id].history > log.history
    await meta.commit_objects([written_object("w/2", [(log.log_id, [batch(2)])])])
    row = (await meta.log_rows([log.log_id]))[log.log_id]
    assert [start for _, start in row.epochs] == [0, 3]
    assert [epoch for epoch, _ in row.epochs] == [log.history, row.history]


def _known(log: LogRow) -> KnownLog:
    return KnownLog(log.log_id, log.log_start, log.next_offset, log.size_bytes, log.history)


@pytest.mark.parametrize(
    ("options", "expected"),
    [("", Durability.SYNCED), ("-c synchronous_commit=off", Durability.APPENDED)],
    ids=["no standby", "commits that do not wait"],
)
async def test_a_commit_says_what_its_session_promises(
    server: PostgresServer, schema: str, options: str, expected: Durability
) -> None:
    pool = PostgresPool(f"{server.dsn}?options={quote(options)}", schema=schema)
    try:
        await pool.open()
        meta = PostgresMeta(pool)
        (log,) = await meta.create_logs(UUID(int=1), 1)
        ((place,),) = await meta.commit_objects([written_object("w/1", [(log.log_id, [batch(3)])])])
        assert place.log is not None
        assert place.log.durability is expected
    finally:
        await pool.close()


def test_a_connection_that_is_opened_before_a_heartbeat_is_committed_begins_no_history(
    brokers: tuple[_Broker, _Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _ = brokers
    broker.join()
    epoch, history = broker.epoch, broker.connector.history
    beaten = history.beaten
    opened: list[int] = []

    def beaten_while_another_connects(connection: Connection, beats: int) -> None:
        beaten(connection, beats)
        # It does not see the heartbeat yet.
        broker.connector.connect().close()
        opened.append(beats)

    monkeypatch.setattr(history, "beaten", beaten_while_another_connects)
    broker.membership.heartbeat(broker.member)
    assert opened == [2]
    assert broker.epoch == epoch
    broker.connector.connect().close()
    assert broker.epoch == epoch
