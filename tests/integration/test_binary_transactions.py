"""Transactions over the binary protocol: begin with an id, write to several topics, end; fencing and repetition."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.errors import (
    CoordinatorUnavailableError,
    InvalidRequestError,
    ProducerStateError,
    SteleClientError,
    TransactionError,
    UnknownTopicError,
    UnsupportedOperationError,
)
from stele.operations.transactional import (
    CommitTransactions,
    EndTransaction,
    InitTransactions,
    InitUnlessOpen,
    TransactionalProducer,
    WrittenTransaction,
)
from stele.producing.chunks import ChunkSender, OpenChunk, ProduceChunk
from stele.wire import messages as m
from stele.wire.compression import Compression

ID = "pipeline"


@pytest.fixture
def client(stele_broker: BrokerProcess) -> Iterator[Client]:
    with Client(stele_broker.binary_url) as client:
        yield client


def begin(client: Client, *, timeout_ms: int = 60_000, transactional_id: str = ID) -> TransactionalProducer:
    while True:
        try:
            return client.call(InitTransactions(transactional_id=transactional_id, timeout_ms=timeout_ms))
        except CoordinatorUnavailableError:
            time.sleep(0.01)


def write(
    client: Client,
    producer: TransactionalProducer,
    topic: str,
    value: bytes,
    *,
    sequence: int = 0,
    compression: Compression = Compression.NONE,
    transactional_id: str = ID,
) -> None:
    sender = ChunkSender(client, patience_s=10)
    sender.put(
        ProduceChunk(
            topic=topic,
            partition=0,
            rows=[(1, None, value, [])],
            acks=m.ACKS_ALL,
            timeout_ms=10_000,
            compression=compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional_id=transactional_id,
        )
    )
    sender.send()


def end(client: Client, producer: TransactionalProducer, *, commit: bool) -> TransactionalProducer:
    return client.call(EndTransaction(transactional_id=ID, producer=producer, is_commit=commit))


def values(client: Client, topic: str) -> list[bytes | None]:
    return [record.value for record in client.fetch(topic, 0, 0).records]


def test_two_topics_are_committed_together_and_an_abort_leaves_nothing(client: Client) -> None:
    for topic in ("txn.a", "txn.b"):
        client.create_topic(topic, partitions=1)
    first = begin(client)
    write(client, first, "txn.a", b"1")
    write(client, first, "txn.b", b"2", compression=Compression.GZIP)
    assert values(client, "txn.a") == values(client, "txn.b") == []
    second = end(client, first, commit=True)
    assert values(client, "txn.a") == [b"1"]
    assert values(client, "txn.b") == [b"2"]
    # The response was lost: the repetition is answered as the first time.
    assert end(client, first, commit=True) == second
    write(client, second, "txn.a", b"3")
    write(client, second, "txn.a", b"4", sequence=1)
    third = end(client, second, commit=False)
    assert third != second
    assert values(client, "txn.a") == [b"1"]


def test_a_new_beginning_fences_the_producer_before_and_aborts_what_it_wrote(client: Client) -> None:
    client.create_topic("fenced", partitions=1)
    old = begin(client)
    write(client, old, "fenced", b"old")
    new = begin(client)
    with pytest.raises(ProducerStateError):
        write(client, old, "fenced", b"late", sequence=1)
    with pytest.raises(SteleClientError):
        end(client, old, commit=True)
    write(client, new, "fenced", b"new")
    end(client, new, commit=True)
    assert values(client, "fenced") == [b"new"]


def test_a_beginning_that_spares_an_open_transaction_ends_nothing(client: Client) -> None:
    client.create_topic("spared", partitions=1)
    spare = InitUnlessOpen(transactional_id=ID, timeout_ms=60_000)
    producer = client.call(spare)
    # Nothing is written with it yet, so it is no open transaction.
    assert client.call(spare) == (producer.producer_id, producer.producer_epoch + 1)
    producer = client.call(spare)
    write(client, producer, "spared", b"kept")
    with pytest.raises(TransactionError, match="begin with another id"):
        client.call(spare)
    end(client, producer, commit=True)
    assert values(client, "spared") == [b"kept"]
    assert client.call(spare).producer_epoch > producer.producer_epoch


def test_what_cannot_be_done_is_refused(client: Client, stele_broker: BrokerProcess) -> None:
    producer = begin(client)
    with pytest.raises(ProducerStateError, match="cannot be committed"):
        end(client, producer, commit=True)
    with pytest.raises(InvalidRequestError, match="timeout"):
        begin(client, timeout_ms=2**31 - 1)
    client.create_topic("fleeting", partitions=1, configs={"stele.storage": "memory"})
    with pytest.raises(InvalidRequestError, match="in memory"):
        write(client, producer, "fleeting", b"x")
    with (
        Client(stele_broker.http_url) as over_http,
        pytest.raises(UnsupportedOperationError, match="stele://"),
    ):
        begin(over_http)


def test_several_transactions_are_committed_as_one(client: Client, stele_broker: BrokerProcess) -> None:
    client.create_topic("joint", partitions=1)
    written: list[WrittenTransaction] = []
    for name in ("joint/0", "joint/1", "joint/2"):
        producer = begin(client, transactional_id=name)
        write(client, producer, "joint", name.encode(), transactional_id=name)
        written.append(WrittenTransaction(transactional_id=name, producer=producer))
    late = begin(client, transactional_id="joint/1")
    with pytest.raises(SteleClientError, match="joint/1"):
        client.call(CommitTransactions(transactions=written))
    assert values(client, "joint") == []
    write(client, late, "joint", b"joint/1 again", transactional_id="joint/1")
    members = [written[0], WrittenTransaction(transactional_id="joint/1", producer=late)]
    for _ in range(2):
        # The second is a repetition after a lost response.
        client.call(CommitTransactions(transactions=members, abandoned_prefix="joint/"))
        assert values(client, "joint") == [b"joint/0", b"joint/1 again"]
    # What was left out is aborted, so it holds nobody back.
    client.produce("joint", b"after", partition=0)
    assert values(client, "joint")[-1] == b"after"
    with (
        Client(stele_broker.http_url) as over_http,
        pytest.raises(UnsupportedOperationError, match="stele://"),
    ):
        over_http.call(CommitTransactions(transactions=members))


def test_chunks_that_were_not_stored_are_sent_again_by_the_next_call(client: Client) -> None:
    """After an error, as after a request for the end of the program, the caller may flush once more."""
    client.create_topic("grows", partitions=1)
    sender = ChunkSender(client, patience_s=0)
    sender.close("grows", 1, OpenChunk(rows=[(1, None, b"a", [])]))
    sender.start()
    for _ in range(2):
        with pytest.raises(UnknownTopicError):
            sender.send()
        assert sender.is_sending
    client.alter_topic("grows", partitions=2)
    sender.close("grows", 0, OpenChunk(rows=[(1, None, b"b", [])]))
    sender.send()
    assert not sender.is_sending
    stored = [[record.value for record in client.fetch("grows", number, 0).records] for number in (0, 1)]
    assert stored == [[b"b"], [b"a"]]
