"""PostgreSQL fails over to an asynchronous standby, which lacks acknowledged records, while brokers run (ADR-0071)."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from stele import Client, SteleClientError, TopicPartition

from load.pausing import paused
from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers, run_brokers
from tests.support.faults.pairs import committed_in
from tests.support.kafka_peer import KafkaPeer
from tests.support.kafka_transactions import TransactionalPeer
from tests.support.postgres import programs_for_standbys
from tests.support.waiting import eventually

KEPT, LOST, LATER = 5, 3, 8


class _Pair:
    """A primary, and a standby that stops receiving when it is told."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self._primary = primary
        self._standby = standby

    @property
    def url(self) -> str:
        ports = f"127.0.0.1:{self._primary.port},127.0.0.1:{self._standby.port}"
        return f"postgresql://postgres@{ports}/postgres"

    def fall_behind(self) -> None:
        """Let the standby have all until now, and nothing after it."""
        ((position,),) = self._primary.run("SELECT pg_current_wal_lsn()")
        eventually(
            lambda: (
                self._standby.run("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (position,)) == [(True,)]
            ),
            "the standby has everything",
        )
        self._primary.run("ALTER ROLE standby NOLOGIN")
        self._primary.run("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        eventually(
            lambda: not self._primary.run("SELECT 1 FROM pg_stat_replication"), "nothing is replicated"
        )

    def fail_over(self) -> None:
        self._primary.kill()
        self.promote()

    def promote(self) -> None:
        """Promote the standby while its primary goes on."""
        self._standby.promote()

    def ends(self) -> tuple[int, int]:
        """Return the end of the only log at the primary and at the standby."""
        old, new = (
            server.run("SELECT max(next_offset) FROM stele.logs")[0][0]
            for server in (self._primary, self._standby)
        )
        return old, new


@contextmanager
def _pair() -> Generator[_Pair]:
    programs = programs_for_standbys()
    with PostgresServer(programs) as primary:
        primary.run("CREATE ROLE standby REPLICATION LOGIN")
        with PostgresServer(programs, primary=primary.dsn.replace("postgres@", "standby@")) as standby:
            yield _Pair(primary, standby)


def _values(client: Client) -> list[bytes | None]:
    values: list[bytes | None] = []
    while records := client.fetch("orders", offset=len(values)).records:
        values += [record.value for record in records]
    return values


def _is_served(brokers: Brokers, number: int, expected: list[bytes]) -> bool:
    try:
        with Client(brokers[number].http_url) as client:
            return _values(client) == expected
    except SteleClientError as error:
        if not error.retriable:
            raise
        return False


def _produce(client: Client, value: bytes) -> int:
    while True:
        try:
            return client.produce("orders", value).offset
        except SteleClientError as error:
            if not error.retriable:
                raise
            time.sleep(0.1)


def _metric(brokers: Brokers, number: int, name: str) -> float:
    with brokers.http(number) as http:
        text = http.get("/metrics").text
    match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert match is not None, name
    return float(match[1])


def test_all_brokers_and_clients_go_on_with_what_the_standby_has(tmp_path: Path) -> None:
    kept = [b"kept %d" % number for number in range(KEPT)]
    lost = [b"lost %d" % number for number in range(LOST)]
    later = [b"later %d" % number for number in range(LATER)]
    with (
        _pair() as pair,
        run_brokers(tmp_path, pair.url, 2) as brokers,
        Client(brokers[1].binary_url) as client,
    ):
        client.create_topic("orders")
        assert [client.produce("orders", value).offset for value in kept] == list(range(KEPT))
        pair.fall_behind()
        client.create_topic("unlucky")
        for value in lost:
            client.produce("orders", value)
        eventually(lambda: _is_served(brokers, 2, kept + lost), "the other broker serves all")
        consumer = Consumer(
            {
                "bootstrap.servers": brokers.kafka_bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([KafkaPartition("orders", 0, 0)])
        assert [_next(consumer) for _ in kept + lost] == kept + lost

        pair.fail_over()

        offsets = [_produce(client, value) for value in later]
        # More than were lost, so no reader is beyond the end.
        assert offsets == list(range(KEPT, KEPT + LATER))
        for number in brokers.processes:
            eventually(
                lambda number=number: _is_served(brokers, number, kept + later),
                "each broker has the new history",
            )
        # librdkafka finds out that the log was truncated, and begins where auto.offset.reset says.
        again = [_next(consumer)]
        while again[-1] != later[-1]:
            again.append(_next(consumer))
        assert [value for value in again if value not in kept] == later, "a Kafka consumer skips nothing"
        consumer.close()
        for number, process in brokers.processes.items():
            eventually(
                lambda process=process: "records of orders-0 are lost: offsets 5 to 7" in process.stderr,
                "the broker says what is lost",
            )
            assert _metric(brokers, number, "stele_shared_lost_records_total") == LOST
            with Client(brokers[number].http_url) as other:
                assert [topic.topic for topic in other.topics()] == ["orders"]
        # Nothing that the lost part gave out is given out again.
        client.create_topic("lucky")
        client.produce("lucky", b"alone")
        assert [record.value for record in client.fetch("lucky").records] == [b"alone"]


@pytest.mark.long
def test_a_broker_that_was_stopped_meanwhile_comes_back_to_the_new_history(tmp_path: Path) -> None:
    kept, lost, later = [b"kept"], [b"lost"], [b"later", b"latest"]
    with (
        _pair() as pair,
        run_brokers(tmp_path, pair.url, 2) as brokers,
        Client(brokers[1].binary_url) as client,
    ):
        client.create_topic("orders")
        client.produce("orders", kept[0])
        pair.fall_behind()
        client.produce("orders", lost[0])
        with client.group("billing", "orders") as group, next(iter(group)):
            pass
        eventually(lambda: _is_served(brokers, 2, kept + lost), "the other broker serves all")
        with paused(brokers[2].pid):
            pair.fail_over()
            for value in later:
                _produce(client, value)
        eventually(lambda: _is_served(brokers, 2, kept + later), "it serves the new history")
        eventually(
            lambda: "records of orders-0 are lost: offsets 1 to 1" in brokers[2].stderr,
            "it says what is lost",
        )

        def is_uncommitted() -> bool:
            try:
                return client.committed("billing", TopicPartition("orders", 0)) is None
            except SteleClientError as error:
                if not error.retriable:
                    raise
                return False

        eventually(is_uncommitted, "committed offsets are those that the standby has")


def test_a_transaction_that_may_lack_a_part_is_not_committed(tmp_path: Path) -> None:
    with (
        _pair() as pair,
        run_brokers(tmp_path, pair.url, 2) as brokers,
        Client(brokers[1].binary_url) as client,
    ):
        client.create_topic("orders", partitions=2)
        producer = _transactional(brokers)
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", b"kept", partition=partition)
        assert not producer.flush(60)
        pair.fall_behind()
        producer.produce("orders", b"lost", partition=1)
        assert not producer.flush(60)

        pair.fail_over()

        with pytest.raises(KafkaException) as refused:
            _end(producer)
        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(60)
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", b"again", partition=partition)
        _end(producer)
        for partition in (0, 1):
            records = committed_in(brokers.kafka_bootstrap, TopicPartition("orders", partition))
            assert list(records.values()) == [b"again"]


def test_the_new_primary_gives_no_epoch_out_that_the_lost_part_has_given_out(tmp_path: Path) -> None:
    with (
        _pair() as pair,
        run_brokers(tmp_path, pair.url, 1) as brokers,
        KafkaPeer(brokers[1]) as kafka,
        brokers.http(1) as http,
    ):
        producer = TransactionalPeer(kafka, "orders")

        def begin() -> tuple[int, int] | None:
            return None if producer.init() else (producer.producer_id, producer.epoch)

        def begin_version(version: int) -> tuple[int, int] | None:
            answer = http.post("/v1/producers", params={"name": "loader", "version": version})
            return (
                (answer.json()["producer_id"], answer.json()["producer_epoch"]) if answer.is_success else None
            )

        assert begin() is not None
        assert begin_version(1) is not None
        pair.fall_behind()
        # Requests of these producers may still be on their way when the standby is promoted.
        lost = {begin(), begin(), begin_version(2), begin_version(3)}
        assert len(lost - {None}) == 4

        pair.fail_over()

        given: list[tuple[int, int]] = []
        for call in (begin, begin, lambda: begin_version(2), lambda: begin_version(3)):
            while (identity := call()) is None:
                time.sleep(0.1)
            given.append(identity)
        assert len(set(given)) == 4
        assert lost.isdisjoint(given)


def _transactional(brokers: Brokers) -> Producer:
    producer = Producer({"bootstrap.servers": brokers.kafka_bootstrap, "transactional.id": "orders"})
    while True:
        try:
            producer.init_transactions(60)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return producer


def _end(producer: Producer) -> None:
    while True:
        try:
            producer.commit_transaction(60)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def _next(consumer: Consumer) -> bytes:
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            value = message.value()
            assert isinstance(value, bytes)
            return value
    raise AssertionError("the consumer gets nothing")


@pytest.mark.long
def test_brokers_leave_a_primary_that_was_replaced_and_still_takes_writes(tmp_path: Path) -> None:
    with (
        _pair() as pair,
        run_brokers(tmp_path, pair.url, 2) as brokers,
        Client(brokers[1].binary_url) as client,
    ):
        client.create_topic("orders")
        for number in range(KEPT):
            client.produce("orders", b"kept %d" % number)
        eventually(lambda: pair.ends() == (KEPT, KEPT), "the standby has everything")
        pair.promote()
        for number in (1, 2):
            eventually(
                lambda number=number: _metric(brokers, number, "stele_shared_histories_total") >= 1,
                "the broker follows the promotion, although its connections hold",
            )
        for number in range(LATER):
            _produce(client, b"later %d" % number)
        assert pair.ends() == (KEPT, KEPT + LATER), "nothing is acknowledged by the old primary"
