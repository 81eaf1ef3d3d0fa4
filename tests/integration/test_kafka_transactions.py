"""Transactions over the Kafka protocol, frame by frame, in the versions that clients send.

The clients themselves are in ``tests/conformance/test_transactions``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic

from tests.support.kafka_peer import KafkaPeer, create_topic, fetch, only_partition, put
from tests.support.kafka_transactions import (
    CLIENTS,
    COMMITTED,
    JAVA_3,
    JAVA_4,
    LIBRDKAFKA,
    UNCOMMITTED,
    TransactionalPeer,
    Versions,
    end_offset,
    offsets_and_values,
    read,
)

# A fetch that waits this long has not seen what it waits for.
LONG_MS = 60_000
_numbers = itertools.count()

Begin = Callable[..., TransactionalPeer]


ENVIRONMENT = {"STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}


@pytest.fixture
def topic() -> str:
    """A name; ``topic_id`` makes the topic."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def topic_id(peer: KafkaPeer, topic: str) -> bytes:
    return create_topic(peer, topic, partitions=2)


@pytest.fixture
def begin(peer: KafkaPeer) -> Begin:
    """Make a producer with a transactional id of its own, or one that exists already."""

    def begin(versions: Versions = JAVA_3, transactional_id: str | None = None) -> TransactionalPeer:
        name = transactional_id or f"id-{next(_numbers)}"
        producer = TransactionalPeer(peer, name, versions)
        assert producer.init() == 0
        return producer

    return begin


# ── the course of a transaction ──


@pytest.mark.parametrize("versions", CLIENTS, ids=str)
def test_a_transaction_is_seen_when_it_is_committed_and_never_when_it_is_aborted(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin, versions: Versions
) -> None:
    producer = begin(versions)
    first_epoch = producer.epoch

    assert producer.put(topic, topic_id, b"a", b"b") == 0
    assert read(peer, topic).records == b""
    assert read(peer, topic).last_stable_offset == 0
    assert len(offsets_and_values(read(peer, topic, isolation=UNCOMMITTED))) == 2
    assert producer.end(commit=True) == 0
    assert offsets_and_values(read(peer, topic)) == [(0, b"a"), (1, b"b")]

    # The marker has offset 2.
    assert producer.put(topic, topic_id, b"c") == 3
    assert producer.end(commit=False) == 0
    assert producer.put(topic, topic_id, b"d") == 5
    assert producer.end(commit=True) == 0

    seen = read(peer, topic)
    assert offsets_and_values(seen) == [(0, b"a"), (1, b"b"), (5, b"d")]
    assert [(one.producer_id, one.first_offset) for one in seen.aborted_transactions] == [
        (producer.producer_id, 3)
    ]
    assert (seen.last_stable_offset, seen.high_watermark) == (7, 7)
    everything = read(peer, topic, isolation=UNCOMMITTED)
    assert everything.aborted_transactions is None
    assert everything.last_stable_offset == 7
    assert offsets_and_values(everything) == [(0, b"a"), (1, b"b"), (3, b"c"), (5, b"d")]
    assert producer.epoch == first_epoch + (3 if versions.raises_epochs else 0)


@pytest.mark.parametrize("versions", [LIBRDKAFKA, JAVA_4], ids=str)
def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin, versions: Versions
) -> None:
    producer = begin(versions)

    def committed(*, is_stable: bool) -> tuple[int, int]:
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=f"group-of-{topic}",
                    topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
                )
            ],
            require_stable=is_stable,
        )
        ((found,),) = [one.topics[0].partitions for one in peer.call(request, 8).groups]
        return found.error_code, found.committed_offset

    for commit, offset, expected in ((False, 3, -1), (True, 4, 4), (False, 9, 4)):
        before = committed(is_stable=False)
        producer.put(topic, topic_id, b"x")
        if not versions.raises_epochs:
            assert producer.add_offsets(f"group-of-{topic}") == 0
        assert producer.commit_offset(f"group-of-{topic}", topic, offset) == 0
        assert committed(is_stable=False) == before
        assert committed(is_stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
        assert producer.end(commit=commit) == 0
        assert committed(is_stable=True) == (0, expected)


def test_a_transaction_over_several_partitions_ends_in_all_of_them(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    producer = begin()
    producer.put(topic, topic_id, b"a", partition=0)
    producer.put(topic, topic_id, b"b", partition=1)
    assert [read(peer, topic, partition=n).records for n in (0, 1)] == [b"", b""]
    assert producer.end(commit=True) == 0
    assert [offsets_and_values(read(peer, topic, partition=n)) for n in (0, 1)] == [[(0, b"a")], [(0, b"b")]]


def test_readers_stop_at_the_oldest_open_transaction(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    put(peer, topic, b"plain")
    older, younger = begin(), begin()
    older.put(topic, topic_id, b"older")
    younger.put(topic, topic_id, b"younger")
    put(peer, topic, b"plain too")
    assert younger.end(commit=False) == 0

    assert offsets_and_values(read(peer, topic)) == [(0, b"plain")]
    assert (end_offset(peer, topic, COMMITTED), end_offset(peer, topic, UNCOMMITTED)) == (1, 5)
    # By time: what is not stable yet is not there yet.
    assert end_offset(peer, topic, COMMITTED, at=1_000) == 0
    assert end_offset(peer, topic, COMMITTED, at=-3) == -1
    assert end_offset(peer, topic, UNCOMMITTED, at=-3) >= 0
    for offset in (1, 2, 5):
        empty = read(peer, topic, offset)
        assert (empty.error_code, empty.records, empty.last_stable_offset) == (0, b"", 1)
        assert list(empty.aborted_transactions) == []
    assert read(peer, topic, 6).error_code == E.OFFSET_OUT_OF_RANGE

    assert older.end(commit=True) == 0
    seen = read(peer, topic)
    assert offsets_and_values(seen) == [(0, b"plain"), (1, b"older"), (3, b"plain too")]
    assert [(one.producer_id, one.first_offset) for one in seen.aborted_transactions] == [
        (younger.producer_id, 2)
    ]


def test_aborted_transactions_are_sorted_by_their_first_offset(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    producers = [begin() for _ in range(3)]
    for number, producer in enumerate(producers):
        producer.put(topic, topic_id, str(number).encode())
    for producer in reversed(producers):
        assert producer.end(commit=False) == 0
    seen = read(peer, topic)
    assert [(one.producer_id, one.first_offset) for one in seen.aborted_transactions] == [
        (producer.producer_id, number) for number, producer in enumerate(producers)
    ]
    assert offsets_and_values(seen) == []
    assert offsets_and_values(read(peer, topic, 4)) == []


# ── waiting ──


def test_a_long_poll_ends_with_the_transaction_and_names_what_was_aborted(
    broker: BrokerProcess, peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    aborting, committing = begin(), begin()
    aborting.put(topic, topic_id, b"aborted")
    committing.put(topic, topic_id, b"committed")
    with KafkaPeer(broker) as reader:
        # More bytes than a marker has, and fewer than the marker together with the record.
        request = fetch(topic, 0, max_wait_ms=LONG_MS, min_bytes=100)
        request.isolation_level = COMMITTED
        reader.post(request, 12)
        aborting.put(topic, topic_id, b"more that is open")
        assert aborting.end(commit=False) == 0
        assert committing.end(commit=True) == 0
        seen = only_partition(reader.next_answer()[1])
    assert offsets_and_values(seen) == [(1, b"committed")]
    assert len(seen.aborted_transactions) == 1
    assert (seen.last_stable_offset, seen.high_watermark) == (5, 5)


def test_a_fetch_session_waits_for_the_end_of_the_transaction(
    broker: BrokerProcess, peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    producer = begin()
    producer.put(topic, topic_id, b"first")
    with KafkaPeer(broker) as reader:

        def ask(
            *, session_id: int, epoch: int, offset: int | None = None, wait_ms: int = LONG_MS
        ) -> FetchRequest:
            partitions = [FetchPartition(partition=0, fetch_offset=offset or 0, partition_max_bytes=1 << 20)]
            return FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                isolation_level=COMMITTED,
                session_id=session_id,
                session_epoch=epoch,
                topics=() if offset is None else [FetchTopic(topic=topic, partitions=partitions)],
            )

        opened = reader.call(ask(session_id=0, epoch=0, offset=0, wait_ms=0), 12)
        assert only_partition(opened).last_stable_offset == 0
        assert only_partition(opened).records == b""
        # The session does not return at once, although there are records past the last stable offset.
        reader.post(ask(session_id=opened.session_id, epoch=1), 12)
        producer.put(topic, topic_id, b"second")
        assert producer.end(commit=True) == 0
        seen = only_partition(reader.next_answer()[1])
        assert offsets_and_values(seen) == [(0, b"first"), (1, b"second")]
        assert seen.last_stable_offset == 3
        # And again, from a partition that had nothing.
        reader.post(ask(session_id=opened.session_id, epoch=2, offset=3), 12)
        producer.put(topic, topic_id, b"third")
        assert producer.end(commit=False) == 0
        seen = only_partition(reader.next_answer()[1])
        assert offsets_and_values(seen) == []
        assert [one.first_offset for one in seen.aborted_transactions] == [3]


def test_a_fetch_session_that_waits_for_an_open_transaction_answers_when_its_time_is_over(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    producer = begin()
    producer.put(topic, topic_id, b"open")
    opening = fetch(topic, 0, session_epoch=0)
    opening.isolation_level = COMMITTED
    opened = peer.call(opening, 12)
    request = FetchRequest(
        max_wait_ms=20, min_bytes=1, isolation_level=COMMITTED, session_id=opened.session_id, session_epoch=1, topics=()
    )  # fmt: skip
    assert list(peer.call(request, 12).responses) == []
    # The same session with the other isolation level sees what is open.
    request = replace_session(request, epoch=2)
    request.isolation_level = UNCOMMITTED
    assert offsets_and_values(only_partition(peer.call(request, 12))) == [(0, b"open")]


def replace_session(request: FetchRequest, *, epoch: int) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=epoch,
        topics=(),
    )


def test_a_transaction_outlives_a_kill(topic: str) -> None:
    with run_broker() as broker:
        with KafkaPeer(broker) as peer:
            topic_id = create_topic(peer, topic)
            for client in (LIBRDKAFKA, JAVA_4):
                producer = TransactionalPeer(peer, f"outlives-{client}", client)
                assert producer.init() == 0
                producer.put(topic, topic_id, f"committed by {client}".encode())
                assert producer.end(commit=True) == 0
                producer.put(topic, topic_id, f"open of {client}".encode())
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            committed = [b"committed by librdkafka"]
            assert [value for _, value in offsets_and_values(read(peer, topic))] == committed
            for client in (LIBRDKAFKA, JAVA_4):
                producer = TransactionalPeer(peer, f"outlives-{client}", client)
                while (code := producer.init()) == E.CONCURRENT_TRANSACTIONS:
                    pass
                assert code == 0
            committed.append(b"committed by Java 4")
            seen = read(peer, topic)
            assert [value for _, value in offsets_and_values(seen)] == committed
            assert seen.last_stable_offset == seen.high_watermark
