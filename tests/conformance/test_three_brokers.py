"""A client of three brokers works again, without a restart, when one is killed, and notices no rolling restart.

The broker that dies coordinates the client's group, leads some of the partitions and is the first address that the
client was given. A client may report what it gives up: some try for less than the five seconds after which a broker
counts as dead. Its user then does the same again with the same client. Brokers that are restarted one after the other
give back what they lead, so clients get no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from stele import Client as SteleClient

from load.postgres_server import PostgresServer
from tests.conformance.clients import Client
from tests.conformance.conftest import Installer
from tests.conformance.driver import Driver, Record, Refused
from tests.conformance.programs import records_of
from tests.conformance.support import a_name, numbered, places_of
from tests.support.brokers import Brokers, run_brokers
from tests.support.postgres import postgres_bin
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

PARTITIONS = 6
COUNT = 60
# A client may take minutes of a busy machine before it says that it gives up.
PATIENCE_S = 300.0
# What clients take by default. Some, franz-go among them, look for their coordinator for one session only, and on a
# busy machine a group that moves with each restart may need more than the six seconds of other tests.
SESSION_MS = 45_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with (
        PostgresServer(postgres_bin(), fsync="off") as server,
        run_brokers(
            tmp_path_factory.mktemp("brokers"),
            server.dsn,
            environment={"STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"},
        ) as running,
    ):
        yield running


def again(what: str, work: Callable[[], object]) -> None:
    """Do it until the client reports success."""

    def is_done() -> bool:
        try:
            work()
        except Refused:
            return False
        return True

    eventually(is_done, what, timeout_s=PATIENCE_S)


def test_a_client_moves_off_a_dead_broker(client: Client, brokers: Brokers, installer: Installer) -> None:
    installer.install(client)
    brokers.settle()
    group = a_name("group")
    dying = brokers.coordinator(group)
    living = [number for number in brokers.processes if number != dying]
    topic = topic_led_by(brokers, dying)
    addresses = [brokers[number].kafka_bootstrap for number in (dying, *living)]
    driver = Driver(client.command, ",".join(addresses))
    try:
        work_through_a_death(driver, brokers, dying, group, topic)
    finally:
        driver.kill()
        if not brokers[dying].is_running:
            brokers[dying].start()


def test_a_client_notices_no_rolling_restart(client: Client, brokers: Brokers, installer: Installer) -> None:
    installer.install(client)
    brokers.settle()
    topic, group = topic_led_by(brokers, 1), a_name("group")
    driver = Driver(client.command, brokers.kafka_bootstrap)
    try:
        work_through_restarts(driver, brokers, group, topic)
    finally:
        driver.kill()


def topic_led_by(brokers: Brokers, broker_id: int) -> str:
    """Make topics until the broker leads some of the partitions of one."""
    admin = AdminClient({"bootstrap.servers": brokers.kafka_bootstrap})
    with SteleClient(brokers[broker_id].binary_url) as stele:
        while True:
            topic = a_name("topic")
            stele.create_topic(topic, partitions=PARTITIONS)
            partitions = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
            if broker_id in {partition.leader for partition in partitions.values()}:
                return topic


def work_through_a_death(driver: Driver, brokers: Brokers, dying: int, group: str, topic: str) -> None:
    member = "member"
    before, after = (
        numbered(COUNT, partitions=PARTITIONS),
        numbered(COUNT, partitions=PARTITIONS, start=COUNT),
    )
    driver.produce(topic, before)
    driver.join(member, group, [topic])
    read = {record.value for record in driver.poll(member, COUNT)}
    assert read == values(before)
    # kcat commits nothing by command.
    commits = driver.offers("commit metadata")
    if commits:
        driver.commit(member, dict.fromkeys(places_of(topic, PARTITIONS), COUNT // PARTITIONS))

    brokers[dying].kill()

    for sent in parts_of_a_send(driver, after):
        again("the records are written", lambda sent=sent: driver.produce(topic, sent))

    def read_all() -> None:
        # More than was sent if a client sent some again that had been stored.
        stored = sum(
            driver.offset_at(topic, "latest", partition=partition) for partition in range(PARTITIONS)
        )
        fetched = driver.fetch_all(topic, partitions=PARTITIONS, count=stored)
        assert values(fetched) == values(before) | values(after)

    again("all records are read", read_all)

    def read_on() -> bool:
        again(
            "the member polls",
            lambda: read.update(record.value for record in driver.poll(member, COUNT, timeout_ms=1_000)),
        )
        return read == values(before) | values(after)

    eventually(read_on, "the member of the group reads what was written", timeout_s=PATIENCE_S)
    if commits:
        ends = dict.fromkeys(places_of(topic, PARTITIONS), 2 * COUNT // PARTITIONS)
        again("the member commits", lambda: driver.commit(member, ends))
        for (name, partition), end in ends.items():
            assert driver.committed(group, name, partition=partition).offset == end
    again("the member leaves", lambda: driver.leave(member))


def work_through_restarts(driver: Driver, brokers: Brokers, group: str, topic: str) -> None:
    """Each request of the client succeeds, without a second attempt of its user."""
    member = "member"
    driver.join(member, group, [topic], session_timeout_ms=SESSION_MS)
    written: set[bytes | None] = set()
    read: set[bytes | None] = set()

    def read_on(timeout_ms: int) -> bool:
        read.update(record.value for record in driver.poll(member, COUNT, timeout_ms=timeout_ms))
        return read == written

    for broker_id in brokers.processes:
        brokers.settle()
        with ThreadPoolExecutor(1) as threads:
            restart = threads.submit(brokers[broker_id].restart)
            while True:
                is_over = restart.done()
                records = numbered(PARTITIONS, partitions=PARTITIONS, start=len(written))
                for sent in parts_of_a_send(driver, records):
                    driver.produce(topic, sent)
                written |= values(records)
                read_on(200)
                if is_over:
                    break
            restart.result()
    # Read by another client. A producer that is not idempotent may have written some twice.
    assert stored_values(brokers, topic) == written
    if driver.client == "kafkajs":
        # When it joins again, it may go on after records that it was about to hand over.
        read.clear()
        written = values(last := numbered(PARTITIONS, partitions=PARTITIONS, start=len(written)))
        driver.produce(topic, last)
        eventually(lambda: read_on(1_000) or written <= read, "the member reads on", timeout_s=PATIENCE_S)
    else:
        eventually(lambda: read_on(1_000), "the member reads all that was written", timeout_s=PATIENCE_S)
    driver.leave(member)


def parts_of_a_send(driver: Driver, records: list[Record]) -> list[list[Record]]:
    """Return what the client may send at once without losing some of it.

    When a partition moves to a broker that has already answered a part of the same ``send``, kafkajs reports its records
    as written and never sends them (``responsePerBroker`` in its ``sendMessages.js``).
    """
    if driver.client != "kafkajs":
        return [records]
    return [[record for record in records if record.partition == number] for number in range(PARTITIONS)]


def stored_values(brokers: Brokers, topic: str) -> set[bytes | None]:
    found: set[bytes | None] = set()
    with SteleClient(brokers[1].binary_url) as stele:
        for partition in range(PARTITIONS):
            end = stele.list_offset(topic, partition) or 0
            found |= {value for _, value in records_of(stele, topic, partition, start=0, end=end)}
    return found


def values(records: list[Record]) -> set[bytes | None]:
    return {record.value for record in records}
