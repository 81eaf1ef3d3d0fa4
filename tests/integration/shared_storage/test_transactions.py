"""Transactions with several brokers: any broker serves any request, and a killed one takes nothing with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from itertools import count
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from stele import Client
from stele.operations.transactional import CommitTransactions, TransactionalProducer, WrittenTransaction

from app.cluster.group_shards import lease_of_group
from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers
from tests.support.waiting import eventually

Json = dict[str, Any]

_names = count(1)


@pytest.fixture
def kill_until_the_test_ends(brokers: Brokers) -> Iterator[Callable[[int], None]]:
    killed: list[int] = []

    def kill(number: int) -> None:
        brokers[number].kill()
        killed.append(number)

    yield kill
    for number in killed:
        brokers[number].start()


@pytest.fixture
def topic(brokers: Brokers) -> str:
    name = f"topic-{next(_names)}"
    call(brokers, 1, "PUT", f"/v1/topics/{name}", json={"partitions": 2})
    return name


def call(brokers: Brokers, number: int, method: str, path: str, **request: Any) -> Any:
    answer = httpx.request(method, brokers[number].http_url + path, timeout=60, **request)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def begin(brokers: Brokers, number: int, name: str, **params: int) -> dict[str, str]:
    begun = call(brokers, number, "POST", f"/v1/transactions/{name}/begin", params=params)
    return {"Producer-Id": str(begun["producer_id"]), "Producer-Epoch": str(begun["producer_epoch"])}


def write(
    brokers: Brokers, number: int, name: str, producer: dict[str, str], topic: str, *values: str
) -> None:
    records = [{"topic": topic, "partition": at % 2, "value": value} for at, value in enumerate(values)]
    call(
        brokers,
        number,
        "POST",
        f"/v1/transactions/{name}/records",
        json={"records": records},
        headers=producer,
    )


def values(brokers: Brokers, number: int, topic: str) -> list[str]:
    """Return what readers of committed records get at a broker, by partition."""
    return [
        record["value"]
        for partition in (0, 1)
        for record in call(
            brokers, number, "GET", f"/v1/topics/{topic}/partitions/{partition}/records", params={"from": 0}
        )["records"]
    ]


def committed(brokers: Brokers, number: int, group: str) -> list[int]:
    return [part["committed"] for part in call(brokers, number, "GET", f"/v1/groups/{group}")["partitions"]]


def test_each_request_of_a_transaction_goes_to_another_broker(brokers: Brokers, topic: str) -> None:
    producer = begin(brokers, 1, "wanders")
    write(brokers, 2, "wanders", producer, topic, "a", "b")
    write(brokers, 3, "wanders", producer, topic, "c")
    assert [values(brokers, number, topic) for number in (1, 2, 3)] == [[], [], []]
    described = [call(brokers, number, "GET", "/v1/transactions/wanders") for number in (1, 2, 3)]
    assert {one["state"] for one in described} == {"Ongoing"}
    assert all([part["first_offset"] for part in one["partitions"]] == [0, 0] for one in described)
    ended = call(brokers, 1, "POST", "/v1/transactions/wanders/commit", headers=producer)
    # A repetition at another broker is answered as the first.
    assert call(brokers, 2, "POST", "/v1/transactions/wanders/commit", headers=producer) == ended
    assert [values(brokers, number, topic) for number in (1, 2, 3)] == [["a", "c", "b"]] * 3
    assert call(brokers, 3, "GET", "/v1/open-transactions")["transactions"] == []


def test_what_is_aborted_is_read_nowhere(brokers: Brokers, topic: str) -> None:
    producer = begin(brokers, 1, "changes-its-mind")
    write(brokers, 2, "changes-its-mind", producer, topic, "wrong", "wrong")
    following = call(brokers, 3, "POST", "/v1/transactions/changes-its-mind/abort", headers=producer)
    producer["Producer-Epoch"] = str(following["producer_epoch"])
    write(brokers, 1, "changes-its-mind", producer, topic, "right")
    call(brokers, 2, "POST", "/v1/transactions/changes-its-mind/commit", headers=producer)
    assert [values(brokers, number, topic) for number in (1, 2, 3)] == [["right"]] * 3


def test_a_second_producer_fences_the_first_at_every_broker(brokers: Brokers, topic: str) -> None:
    first = begin(brokers, 1, "shared-id")
    write(brokers, 1, "shared-id", first, topic, "of the first")
    second = begin(brokers, 2, "shared-id")
    records = {"records": [{"topic": topic, "partition": 0, "value": "late"}]}
    for number in (1, 2, 3):
        for path, document in (("records", records), ("commit", None), ("abort", None)):
            answer = httpx.post(
                f"{brokers[number].http_url}/v1/transactions/shared-id/{path}", headers=first, json=document
            )
            assert answer.status_code == 409, (path, answer.text)
    write(brokers, 3, "shared-id", second, topic, "of the second")
    call(brokers, 1, "POST", "/v1/transactions/shared-id/commit", headers=second)
    assert values(brokers, 3, topic) == ["of the second"]


@pytest.mark.long
def test_committed_offsets_are_those_of_the_last_answered_commit_at_every_broker(
    brokers: Brokers, topic: str
) -> None:
    # They have different coordinators.
    brokers.settle()
    names = [f"{topic}-readers-{number}" for number in range(30)]
    groups = list({brokers.coordinator(name): name for name in names}.values())
    assert len(groups) == len(brokers.processes)
    producer = begin(brokers, 1, "offsets")
    for round_number in range(1, 4):
        write(brokers, 2, "offsets", producer, topic, f"made of {round_number}")
        offsets = [
            {"group": group, "topic": topic, "partition": 0, "offset": round_number} for group in groups
        ]
        call(
            brokers, 1, "POST", "/v1/transactions/offsets/settle", json={"offsets": offsets}, headers=producer
        )
        if round_number > 1:
            assert committed(brokers, 3, groups[0]) == [round_number - 1]
        ended = call(
            brokers, 1 + round_number % 3, "POST", "/v1/transactions/offsets/commit", headers=producer
        )
        producer["Producer-Epoch"] = str(ended["producer_epoch"])
        for number, group in enumerate(groups):
            assert committed(brokers, 1 + number % 3, group) == [round_number]


def test_transactions_that_are_committed_as_one_all_have_their_records_and_offsets(
    brokers: Brokers, topic: str
) -> None:
    brokers.settle()
    written: list[WrittenTransaction] = []
    for number in (1, 2, 3):
        name = f"{topic}-task-{number}"
        producer = begin(brokers, number, name)
        write(brokers, number, name, producer, topic, f"of task {number}")
        offset = {"group": f"{topic}-group-{number}", "topic": topic, "partition": 0, "offset": number}
        call(
            brokers,
            1,
            "POST",
            f"/v1/transactions/{name}/settle",
            json={"offsets": [offset]},
            headers=producer,
        )
        identity = TransactionalProducer(
            producer_id=int(producer["Producer-Id"]), producer_epoch=int(producer["Producer-Epoch"])
        )
        written.append(WrittenTransaction(transactional_id=name, producer=identity))
    with Client(brokers[2].binary_url) as client:
        client.call(CommitTransactions(transactions=written))
    assert sorted(values(brokers, 3, topic)) == ["of task 1", "of task 2", "of task 3"]
    assert [committed(brokers, 1, f"{topic}-group-{number}") for number in (1, 2, 3)] == [[1], [2], [3]]


def test_a_request_with_an_idempotency_key_is_committed_once_whichever_broker_gets_it(
    brokers: Brokers, topic: str
) -> None:
    body = {"records": [{"topic": topic, "partition": 0, "value": "once"}]}
    headers = {"Idempotency-Key": f"{topic}-key"}

    def send(number: int) -> httpx.Response:
        return httpx.post(
            f"{brokers[number].http_url}/v1/transactions", json=body, headers=headers, timeout=60
        )

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(send, [1, 2, 3, 1, 2, 3]))
    # Those at the same time as the first may be asked to come again.
    assert {answer.status_code for answer in answers} <= {200, 409}
    repeated = [send(number) for number in (1, 2, 3)]
    assert [answer.status_code for answer in repeated] == [200] * 3
    assert {answer.headers.get("Idempotent-Replayed") for answer in repeated} == {"true"}
    assert len({answer.content for answer in [*repeated, *answers] if answer.status_code == 200}) == 1
    assert repeated[0].json()["durability"] == "synced"
    assert values(brokers, 2, topic) == ["once"]


def test_a_transaction_that_takes_too_long_is_aborted_without_the_broker_that_began_it(
    brokers: Brokers, topic: str
) -> None:
    producer = begin(brokers, 1, "sleeps", timeout_ms=1)
    write(brokers, 2, "sleeps", producer, topic, "too late")
    eventually(
        lambda: call(brokers, 3, "GET", "/v1/transactions/sleeps")["state"] != "Ongoing", "it is aborted"
    )
    answer = httpx.post(f"{brokers[1].http_url}/v1/transactions/sleeps/commit", headers=producer)
    assert answer.status_code == 409, answer.text
    assert values(brokers, 1, topic) == []


@pytest.mark.parametrize("first", ["records", "commit", "begin"])
def test_a_transaction_that_may_lack_a_part_is_aborted_by_the_first_request(
    brokers: Brokers, server: PostgresServer, topic: str, first: str
) -> None:
    name = f"torn-{first}"
    producer = begin(brokers, 1, name)
    write(brokers, 1, name, producer, topic, "a", "b")
    # What another history of the database does to it as it begins (ADR-0071).
    server.run(
        "UPDATE stele.transactional_ids SET timeout_ms = -timeout_ms WHERE transactional_id = %s",
        (name.encode(),),
    )
    assert call(brokers, 2, "GET", f"/v1/transactions/{name}")["timeout_ms"] > 0
    if first == "begin":
        producer = begin(brokers, 2, name)
    else:
        records = {"records": [{"topic": topic, "partition": 0, "value": "late"}]}
        answer = httpx.post(
            f"{brokers[2].http_url}/v1/transactions/{name}/{first}",
            headers=producer,
            json=records if first == "records" else None,
        )
        assert answer.status_code == 409, answer.text
        # As after a timeout, the producer may go on once it has aborted.
        following = call(brokers, 3, "POST", f"/v1/transactions/{name}/abort", headers=producer)
        producer["Producer-Epoch"] = str(following["producer_epoch"])
    write(brokers, 1, name, producer, topic, "again")
    call(brokers, 2, "POST", f"/v1/transactions/{name}/commit", headers=producer)
    assert values(brokers, 3, topic) == ["again"]


def test_records_that_race_with_the_end_are_in_the_transaction_or_refused(
    brokers: Brokers, topic: str
) -> None:
    """Another client of the same producer writes while it commits: no batch slips in behind the marker."""
    producer = begin(brokers, 1, "races")
    accepted: list[str] = []
    stop = threading.Event()

    def keep_writing() -> None:
        for number in count():
            value = f"{producer['Producer-Epoch']}-{number}"
            answer = httpx.post(
                f"{brokers[2].http_url}/v1/transactions/races/records",
                headers=dict(producer),
                json={"records": [{"topic": topic, "partition": 0, "value": value}]},
                timeout=60,
            )
            if answer.is_success:
                accepted.append(value)
            if stop.is_set():
                return

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(keep_writing)
        ends = 0
        while ends < 10:
            answer = httpx.post(
                f"{brokers[1 + ends % 3].http_url}/v1/transactions/races/commit", headers=producer, timeout=60
            )
            if answer.is_success:
                producer["Producer-Epoch"] = str(answer.json()["producer_epoch"])
                ends += 1
            else:
                # Nothing was written since the last end.
                assert answer.status_code == 409, answer.text
        stop.set()
        writing.result()
    last = httpx.post(f"{brokers[3].http_url}/v1/transactions/races/commit", headers=producer, timeout=60)
    assert last.status_code in (200, 409)
    assert values(brokers, 1, topic) == accepted
    assert call(brokers, 2, "GET", "/v1/open-transactions")["transactions"] == []


def kafka_producer(brokers: Brokers, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": brokers.kafka_bootstrap,
            "transactional.id": name,
            "reconnect.backoff.max.ms": 200,
        }
    )
    producer.init_transactions(60)
    return producer


def retried(step: Any, *arguments: Any) -> None:
    """Do a step of a transaction as the documentation of the client says."""
    while True:
        try:
            step(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def committed_offsets(consumer: Consumer, topic: str, partitions: int) -> list[int]:
    """Ask again while the consumer knows the coordinator before the last one: the client leaves that to its user."""
    while True:
        try:
            stored = consumer.committed(
                [TopicPartition(topic, partition) for partition in range(partitions)], timeout=60
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
        else:
            return [partition.offset for partition in stored]


@pytest.mark.long
def test_a_kafka_producer_commits_although_its_broker_is_killed(
    brokers: Brokers, kill_until_the_test_ends: Callable[[int], None]
) -> None:
    topic, group = "survives", "survivors"
    bootstrap = brokers.kafka_bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=6)])[topic].result(60)
    producer = kafka_producer(brokers, "survivor")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    for number in range(4):
        producer.begin_transaction()
        for at in range(12):
            producer.produce(topic, f"{number}-{at}".encode(), partition=at % 6)
        producer.flush(60)
        if number == 1:
            kill_until_the_test_ends(2)
        retried(
            producer.send_offsets_to_transaction,
            [TopicPartition(topic, partition, 10 * number + partition) for partition in range(6)],
            consumer.consumer_group_metadata(),
            60,
        )
        if number % 2:
            retried(producer.commit_transaction, 60)
        else:
            retried(producer.abort_transaction, 60)
    assert committed_offsets(consumer, topic, 6) == [30, 31, 32, 33, 34, 35]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(6)])
    read: list[bytes | None] = []
    while len(read) < 24:
        read += [message.value() for message in consumer.consume(24, 1) if message.error() is None]
    expected = [f"{number}-{at}".encode() for number in (1, 3) for at in range(12)]
    assert sorted(read, key=str) == sorted(expected, key=str)
    consumer.close()


@pytest.mark.long
def test_offsets_join_a_transaction_although_no_broker_has_their_group_yet(
    brokers: Brokers, kill_until_the_test_ends: Callable[[int], None], topic: str, server: PostgresServer
) -> None:
    """A few refusals of FindCoordinator within a second, and librdkafka would wait for good (its issue 5456)."""
    brokers.settle()
    group = next(name for name in (f"{topic}-{n}" for n in count()) if brokers.coordinator(name) == 2)
    lease = lease_of_group(group)
    producer = kafka_producer(brokers, f"{topic}-producer")
    producer.begin_transaction()
    producer.produce(topic, b"beside the offset")
    producer.flush(60)
    consumer = Consumer({"bootstrap.servers": brokers.kafka_bootstrap, "group.id": group})
    with ThreadPoolExecutor(1) as threads, closing(server.connect()) as holding:
        # While its row is locked, no broker takes the lease.
        holding.cursor().execute("SELECT FROM stele.leases WHERE name = %s FOR UPDATE", (lease,))
        kill_until_the_test_ends(2)
        eventually(
            lambda: all(lease not in brokers.cluster(number)["leases"] for number in (1, 3)),
            "the lease has ended",
        )
        adding = threads.submit(
            retried,
            producer.send_offsets_to_transaction,
            [TopicPartition(topic, 0, 5)],
            consumer.consumer_group_metadata(),
            60,
        )
        # librdkafka asks a second time after 0.1 s at most, and a third time after 0.2 s at most.
        wait([adding], 1)
        holding.rollback()
        adding.result()
    retried(producer.commit_transaction, 60)
    assert committed_offsets(consumer, topic, 1) == [5]
    consumer.close()
