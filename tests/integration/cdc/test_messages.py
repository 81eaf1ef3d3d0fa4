"""Messages of ``pg_logical_emit_message`` as an outbox without a table: topics, keys, exactly once, refusals."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.calls import Isolation
from stele.cdc.records.events import Position
from stele.errors import UnknownTopicError
from stele.records import Record

from load.postgres_server import PostgresServer
from tests.support.cdc import EXIT_CODE_OF_A_GAP, TIMEOUT_S, CdcProcess, running_cdc
from tests.support.waiting import Pauses

REFUSED = "pg.refused-messages"
MESSAGES_ONLY = ("--messages", "*")


def records_of(
    broker: BrokerProcess, topic: str, isolation: Isolation = "read_committed"
) -> list[Record[bytes]]:
    """Return all records of a topic, partition by partition; none if it does not exist."""
    found: list[Record[bytes]] = []
    with Client(broker.binary_url) as client:
        try:
            partitions = client.partition_count(topic)
        except UnknownTopicError:
            return []
        for partition in range(partitions):
            offset = 0
            while True:
                page = client.fetch(topic, partition, offset, isolation=isolation)
                found += page.records
                if page.next_offset <= offset:
                    break
                offset = page.next_offset
    return found


def await_records(broker: BrokerProcess, topic: str, count: int, cdc: CdcProcess) -> list[Record[bytes]]:
    give_up_s = time.monotonic() + TIMEOUT_S
    pauses = Pauses()
    while len(found := records_of(broker, topic)) < count:
        cdc.check()
        assert time.monotonic() < give_up_s, (topic, len(found), cdc.said)
        pauses.pause()
    return found


def test_a_message_is_a_record_of_the_topic_that_its_prefix_names(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t") as cdc:
        cdc.await_streaming()
        for prefix, content in (
            ("stele:orders", "first"),
            ("stele:orders:41", "second"),
            ("stele:orders:a:b", ""),
            ('stele:orders:{"key": 42, "headers": {"trace": "ü", "n": [1], "none": null}}', "third"),
            ('stele:orders:{"key": "41", "tombstone": true}', "ignored"),
            ("stele", "not ours"),
            ("orders", "not ours"),
        ):
            pg.run("SELECT pg_logical_emit_message(true, %s, %s)", (prefix, content))
        # Bytes that are no text.
        pg.run("SELECT pg_logical_emit_message(false, 'stele:raw', '\\x00ff'::bytea)")
        found = await_records(stele_broker, "orders", 5, cdc)
        (raw,) = await_records(stele_broker, "raw", 1, cdc)
        assert cdc.stop() == 0
    shown = {(r.key, r.value): [h for h in r.headers if h[0] != "event_id"] for r in found}
    assert shown == {
        (None, b"first"): [],
        (b"41", b"second"): [],
        (b"a:b", b""): [],
        (b"42", b"third"): [("trace", "ü".encode()), ("n", b"[1]"), ("none", None)],
        (b"41", None): [],
    }
    assert all(r.headers[0][0] == "event_id" for r in found)
    assert (raw.key, raw.value) == (None, b"\x00\xff")
    assert records_of(stele_broker, REFUSED) == []


def test_messages_are_visible_with_the_rows_of_their_transaction_or_never(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--partitions", "1") as cdc:
        cdc.await_streaming()
        connection = pg.connect()
        with connection, connection.cursor() as cursor:
            for number in range(3):
                cursor.execute("INSERT INTO t VALUES (%s)", (number,))
                cursor.execute("SELECT pg_logical_emit_message(true, 'stele:orders', %s)", (f"{number}",))
            # At once, whatever becomes of the transaction.
            cursor.execute("SELECT pg_logical_emit_message(false, 'stele:now', 'at once')")
            cursor.execute("SELECT pg_switch_wal()")
            await_records(stele_broker, "now", 1, cdc)
            assert records_of(stele_broker, "orders", "read_uncommitted") == []
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (9)")
            cursor.execute("SELECT pg_logical_emit_message(true, 'stele:orders', 'rolled back')")
            connection.rollback()
        connection.close()
        pg.run("SELECT pg_logical_emit_message(true, 'stele:orders', 'last')")
        found = await_records(stele_broker, "orders", 4, cdc)
    assert [r.value for r in found] == [b"0", b"1", b"2", b"last"]
    positions = [Position.parse((dict(r.headers)["event_id"] or b"").decode()) for r in found]
    rows = [
        Position.parse((dict(r.headers)["event_id"] or b"").decode())
        for r in records_of(stele_broker, "pg.public.t")
    ]
    # Row and message by turns: what PostgreSQL tells of a message's place is where the next row begins.
    assert sorted([*rows, *positions[:3]]) == [p for pair in zip(rows, positions, strict=False) for p in pair]


def test_a_large_transaction_with_subtransactions_that_were_rolled_back_has_the_messages_of_the_others(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    """PostgreSQL streams messages of all subtransactions under the id of the whole transaction."""
    pg.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    fill = "INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series(%s, %s) n"
    emit = "SELECT pg_logical_emit_message(true, 'stele:orders', %s)"
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--partitions", "1") as cdc:
        cdc.await_streaming()
        connection = pg.connect()
        for rolls_back in (False, True):
            name = "second" if rolls_back else "first"
            with connection, connection.cursor() as cursor:
                start = 10_000 if rolls_back else 0
                cursor.execute(fill, (start, start + 999))
                cursor.execute(emit, (f"{name} before",))
                cursor.execute("SAVEPOINT s")
                cursor.execute(emit, (f"{name} within",))
                cursor.execute(fill, (start + 1000, start + 1999))
                cursor.execute(f"{'ROLLBACK TO' if rolls_back else 'RELEASE'} SAVEPOINT s")
                cursor.execute(emit, (f"{name} after",))
        connection.close()
        found = await_records(stele_broker, "orders", 5, cdc)
        cdc.await_confirmed()
        assert [r.value for r in records_of(stele_broker, "orders")] == [r.value for r in found]
        assert [r.value for r in found] == [
            b"first before",
            b"first within",
            b"first after",
            b"second before",
            b"second after",
        ]
        assert "it is read again after its commit" in cdc.said
    assert len(records_of(stele_broker, "pg.public.t")) == 3000


@pytest.mark.long
def test_messages_alone_are_followed_exactly_once_through_kills(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    arguments = (*MESSAGES_ONLY, "--partitions", "2")
    with running_cdc(pg, stele_broker.binary_url, log, *arguments) as cdc:
        cdc.await_streaming()
        number = 0
        for victim in range(6):
            for _ in range(40):
                number += 1
                is_transactional = "true" if number % 3 else "false"
                pg.run(
                    f"SELECT pg_logical_emit_message({is_transactional}, 'stele:orders:' || %s, %s)",
                    (number % 7, str(number)),
                )
            await_records(stele_broker, "orders", number - 30, cdc)
            if victim % 2:
                stele_broker.kill()
                stele_broker.restart()
            else:
                cdc.kill()
                cdc.start()
        found = await_records(stele_broker, "orders", number, cdc)
        cdc.await_confirmed()
        assert cdc.stop() == 0
    found = records_of(stele_broker, "orders")
    assert sorted(int(r.value or b"") for r in found) == list(range(1, number + 1))
    for key in range(7):
        of_key = [int(r.value or b"") for r in found if r.key == b"%d" % key]
        assert of_key == sorted(of_key)


def test_a_message_that_no_topic_can_have_is_kept_with_the_reason_and_stops_nothing(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    with Client(stele_broker.binary_url) as client:
        client.create_topic("small", partitions=1, configs={"max.message.bytes": "2000"})
        client.create_topic("compacted", partitions=1, configs={"cleanup.policy": "compact"})
    bad = {
        "stele:": "is not the name of a topic",
        "stele:no such/name": "is not the name of a topic",
        "stele:..": "is not the name of a topic",
        "stele:__cdc.pg.stele": "written by the connector or the broker alone",
        "stele:pg.public.t": "written by the connector or the broker alone",
        "stele:_schemas": "written by the connector or the broker alone",
        "stele:other": "--messages small,compacted,ok\\* does not allow topic other",
        "stele:small": "the topic accepts",
        "stele:compacted": "its records need a key",
        'stele:ok:{"key": 1': "not a JSON object",
        'stele:ok:{"kye": 1}': "not a JSON object",
    }
    large = "x" * 1_200_000
    with running_cdc(
        pg, stele_broker.binary_url, log, "--tables", "t", "--messages", "small,compacted,ok*"
    ) as cdc:
        cdc.await_streaming()
        for prefix in bad:
            pg.run("SELECT pg_logical_emit_message(true, %s, %s)", (prefix, "x" * 2500))
        pg.run("SELECT pg_logical_emit_message(true, 'stele:small:1', %s)", (large,))
        pg.run("SELECT pg_logical_emit_message(true, 'stele:ok.1', 'good')")
        (good,) = await_records(stele_broker, "ok.1", 1, cdc)
        refused = records_of(stele_broker, REFUSED)
        assert cdc.stop() == 0
    assert good.value == b"good"
    headers = [dict(r.headers) for r in refused]
    for prefix, said in bad.items():
        (reason,) = [h["reason"] or b"" for h in headers if h["prefix"] == prefix.encode()]
        assert said.replace("\\", "") in reason.decode()
    pieces = [r for r in refused if dict(r.headers)["prefix"] == b"stele:small:1"]
    assert [dict(r.headers)["part"] for r in pieces] == [b"1/3", b"2/3", b"3/3"]
    assert b"".join(r.value or b"" for r in pieces) == large.encode()


@pytest.mark.long
def test_a_slot_that_is_gone_is_a_gap_of_messages_too(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path
) -> None:
    with running_cdc(pg, stele_broker.binary_url, log, *MESSAGES_ONLY) as cdc:
        cdc.await_streaming()
        assert cdc.stop() == 0
        pg.run("SELECT pg_drop_replication_slot('stele')")
        cdc.start()
        assert cdc.wait() == EXIT_CODE_OF_A_GAP
        assert "slot stele is gone: changes may be missing" in cdc.said
    with running_cdc(pg, stele_broker.binary_url, log, *MESSAGES_ONLY, "--snapshot", "again") as cdc:
        cdc.await_streaming()
        pg.run("SELECT pg_logical_emit_message(true, 'stele:orders', 'x')")
        await_records(stele_broker, "orders", 1, cdc)


@pytest.mark.long
def test_without_messages_none_is_written(pg: PostgresServer, stele_broker: BrokerProcess, log: Path) -> None:
    pg.run("CREATE TABLE t (id int PRIMARY KEY)")
    with running_cdc(pg, stele_broker.binary_url, log, "--tables", "t", "--messages", "none") as cdc:
        cdc.await_streaming()
        pg.run("SELECT pg_logical_emit_message(true, 'stele:orders', 'x')")
        cdc.await_confirmed()
    assert records_of(stele_broker, "orders") == []


@pytest.mark.long
@pytest.mark.parametrize("storage", [("--transactions", "off"), ("--storage", "memory")])
def test_without_transactions_of_the_log_a_message_is_written_once_too(
    pg: PostgresServer, stele_broker: BrokerProcess, log: Path, storage: tuple[str, str]
) -> None:
    with running_cdc(pg, stele_broker.binary_url, log, *MESSAGES_ONLY, *storage) as cdc:
        cdc.await_streaming()
        for number in range(100):
            pg.run("SELECT pg_logical_emit_message(true, 'stele:orders:1', %s)", (str(number),))
        await_records(stele_broker, "orders", 20, cdc)
        cdc.kill()
        cdc.start()
        await_records(stele_broker, "orders", 100, cdc)
        cdc.await_confirmed()
    assert [int(r.value or b"") for r in records_of(stele_broker, "orders")] == list(range(100))
