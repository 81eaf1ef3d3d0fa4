"""What transactional producers may do and what is refused, over the Kafka protocol, frame by frame.

Each version of a request gets the error that its clients know.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from stele.wire.kafka.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    InitProducerIdRequest,
)

from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, create_topic, only_partition, produce
from tests.support.kafka_transactions import (
    AIOKAFKA,
    CLIENTS,
    JAVA_3,
    JAVA_4,
    KAFKAJS,
    LIBRDKAFKA,
    TransactionalPeer,
    Versions,
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


# ── producers ──


@pytest.mark.parametrize("version", range(6))
def test_the_same_id_gets_the_next_epoch(peer: KafkaPeer, version: int) -> None:
    producer = TransactionalPeer(peer, f"again-{version}", replace(JAVA_3, init=version))
    assert [(producer.init(), producer.epoch) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_that_continues_keeps_its_id_and_an_older_one_is_fenced(
    peer: KafkaPeer, version: int
) -> None:
    versions = replace(JAVA_3, init=version)
    producer = TransactionalPeer(peer, f"continues-{version}", versions)
    assert producer.init() == 0
    other = replace(producer)
    assert (producer.init(continues=True), producer.epoch) == (0, 1)
    # A retry of the same request is answered the same.
    again = replace(other)
    assert (again.init(continues=True), again.epoch) == (0, 1)
    assert (producer.init(continues=True), producer.epoch) == (0, 2)
    assert other.init(continues=True) == (E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH)


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "producer", "code"),
    [
        ("", 1000, (-1, -1), E.INVALID_REQUEST),
        ("t", 0, (-1, -1), E.INVALID_TRANSACTION_TIMEOUT),
        ("t", -1, (-1, -1), E.INVALID_TRANSACTION_TIMEOUT),
        ("t", 2**31 - 1, (-1, -1), E.INVALID_TRANSACTION_TIMEOUT),
        ("t", 1000, (5, -1), E.INVALID_REQUEST),
        ("t", 1000, (-1, 5), E.INVALID_REQUEST),
        (None, 1000, (-1, 5), E.INVALID_REQUEST),
    ],
)
def test_an_invalid_beginning_is_refused(
    peer: KafkaPeer, transactional_id: str | None, timeout_ms: int, producer: tuple[int, int], code: E
) -> None:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
    answer = peer.call(request, 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("versions", CLIENTS, ids=str)
def test_a_second_producer_with_the_same_id_fences_the_first(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin, versions: Versions
) -> None:
    """The open transaction of the first is aborted, and it gets only errors that its client takes as fatal."""
    first = begin(versions)
    first.put(topic, topic_id, b"of the first")
    second = TransactionalPeer(peer, first.transactional_id, versions)
    # Kafka asks to try again while it aborts.
    while (code := second.init()) == E.CONCURRENT_TRANSACTIONS:
        pass
    assert code == 0
    assert read(peer, topic).last_stable_offset == 2

    knows = {"24": versions.add_partitions >= 2, "25": versions.add_offsets >= 2, "26": versions.end >= 2}
    fenced = {name: E.PRODUCER_FENCED if known else E.INVALID_PRODUCER_EPOCH for name, known in knows.items()}
    named = topic_id if versions.produce >= 13 else topic
    assert first.send(named, b"late").error_code == E.INVALID_PRODUCER_EPOCH
    assert first.add((topic, 1)) == {(topic, 1): fenced["24"]}
    assert first.add_offsets("g") == fenced["25"]
    assert first.commit_offset("g", topic, 1) == E.INVALID_PRODUCER_EPOCH
    assert first.end(commit=True) == fenced["26"]

    second.put(topic, topic_id, b"of the second")
    assert second.end(commit=True) == 0
    assert [value for _, value in offsets_and_values(read(peer, topic))] == [b"of the second"]


# ── adding ──


@pytest.mark.parametrize("version", range(4))
def test_one_unknown_partition_adds_none(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin, version: int
) -> None:
    producer = begin(replace(JAVA_3, add_partitions=version))
    assert producer.add((topic, 0), (topic, 7), ("missing", 0)) == {
        (topic, 0): E.OPERATION_NOT_ATTEMPTED,
        (topic, 7): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.send(topic, b"x").error_code == E.TRANSACTION_ABORTABLE
    # Nothing was begun.
    assert producer.end(commit=True) == E.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_in_one_request_are_added_to_or_verified(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin, version: int
) -> None:
    """The form between brokers (KIP-890)."""
    adding, verified = begin(), begin()
    assert verified.add((topic, 0)) == {(topic, 0): 0}

    def transaction(producer: TransactionalPeer, *, verify_only: bool) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
        )

    stranger = TransactionalPeer(peer, "nobody", producer_id=1, epoch=0)
    answer = peer.call(
        AddPartitionsToTxnRequest(
            transactions=[
                transaction(adding, verify_only=False),
                transaction(verified, verify_only=True),
                transaction(stranger, verify_only=True),
            ]
        ),
        version,
    )
    missing = E.TRANSACTION_ABORTABLE if version == 5 else E.INVALID_TXN_STATE
    unknown = E.INVALID_PRODUCER_ID_MAPPING
    assert [
        [partition.partition_error_code for partition in one.topic_results[0].results_by_partition]
        for one in answer.results_by_transaction
    ] == [[0, 0], [0, missing], [unknown, unknown]]


@pytest.mark.parametrize("versions", CLIENTS, ids=str)
def test_an_id_or_a_producer_that_is_not_known_is_refused(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin, versions: Versions
) -> None:
    known = begin(versions)
    for stranger in (
        replace(known, transactional_id="never begun", sequences={}),
        replace(known, producer_id=known.producer_id + 1_000_000, sequences={}),
    ):
        code = E.INVALID_PRODUCER_ID_MAPPING
        assert stranger.add((topic, 0), (topic, 1)) == {(topic, 0): code, (topic, 1): code}
        assert stranger.add_offsets("g") == code
        assert stranger.commit_offset("g", topic, 1) == code
        assert stranger.end(commit=True) == code
        named = topic_id if versions.produce >= 13 else topic
        assert stranger.send(named, b"x").error_code == code
    assert read(peer, topic).high_watermark == 0


@pytest.mark.parametrize("commit_offsets", range(5))
def test_offsets_of_a_group_that_was_not_added_are_refused(
    begin: Begin, topic: str, topic_id: bytes, commit_offsets: int
) -> None:
    producer = begin(replace(JAVA_3, commit_offsets=commit_offsets))
    code = producer.commit_offset("not added", topic, 1)
    assert code == E.INVALID_TXN_STATE


def test_the_member_of_a_transactional_commit_is_checked(
    peer: KafkaPeer, begin: Begin, topic: str, topic_id: bytes
) -> None:
    """KIP-447: a member that the group has lost cannot commit through its producer."""
    join = JoinGroupRequest(
        group_id="checked",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id="static",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = peer.call(join, 5)
    assert joined.error_code == 0
    sync = SyncGroupRequest(
        group_id="checked",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="static",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
    )
    assert peer.call(sync, 3).error_code == 0
    producer = begin()
    assert producer.add_offsets("checked") == 0
    generation, member = joined.generation_id, joined.member_id

    def commit(generation: int, member_id: str, instance_id: str | None = None) -> int:
        return producer.commit_offset(
            "checked", topic, 1, generation=generation, member_id=member_id, instance_id=instance_id
        )

    assert commit(generation, "nobody") == E.UNKNOWN_MEMBER_ID
    assert commit(generation + 1, member) == E.ILLEGAL_GENERATION
    assert commit(generation, "nobody", "static") == E.FENCED_INSTANCE_ID
    assert commit(generation, member, "static") == 0
    # Clients before TxnOffsetCommit v3 name no member.
    assert commit(-1, "") == 0
    assert producer.end(commit=True) == 0


def test_a_group_that_does_not_exist_has_no_generation(begin: Begin, topic: str, topic_id: bytes) -> None:
    producer = begin()
    assert producer.add_offsets("missing") == 0
    assert producer.commit_offset("missing", topic, 1, generation=3, member_id="m") == E.ILLEGAL_GENERATION


# ── produce ──


def test_a_transactional_batch_without_a_transactional_id_refuses_the_whole_request(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    producer = begin()
    request = produce(topic, producer.batch(topic, b"x"))
    request.topic_data[0].partition_data = [
        *request.topic_data[0].partition_data,
        *produce(topic, batch_of([b"plain"]), partition=1).topic_data[0].partition_data,
    ]
    (answered,) = peer.call(request, 11).responses
    code = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [one.error_code for one in answered.partition_responses] == [code, code]
    assert "no transactional id" in answered.partition_responses[0].error_message
    assert read(peer, topic, partition=1).high_watermark == 0


def test_batches_of_two_producers_refuse_the_whole_request(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    producer, other = begin(), begin()
    assert producer.add((topic, 0), (topic, 1)) == {(topic, 0): 0, (topic, 1): 0}
    request = produce(topic, producer.batch(topic, b"x"), transactional_id=producer.transactional_id)
    request.topic_data[0].partition_data = [
        *request.topic_data[0].partition_data,
        *produce(topic, other.batch(topic, b"y"), partition=1).topic_data[0].partition_data,
    ]
    (answered,) = peer.call(request, 11).responses
    code = E.INVALID_PRODUCER_ID_MAPPING
    assert [one.error_code for one in answered.partition_responses] == [code, code]
    assert producer.end(commit=True) == 0
    assert read(peer, topic).high_watermark == 0


@pytest.mark.parametrize(
    ("version", "code"), [(3, E.INVALID_TXN_STATE), (10, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)]
)
def test_a_partition_that_was_not_added_is_refused(
    begin: Begin, topic: str, topic_id: bytes, version: int, code: E
) -> None:
    producer = begin(replace(JAVA_3, produce=version))
    assert producer.add((topic, 1)) == {(topic, 1): 0}
    assert producer.send(topic, b"x").error_code == code
    assert producer.end(commit=False) == 0


def test_a_duplicate_within_a_transaction_is_answered_with_its_first_offset(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    producer = begin()
    assert producer.add((topic, 0)) == {(topic, 0): 0}
    batch = producer.batch(topic, b"once")
    for _ in range(3):
        done = producer.send_batch(topic, bytearray(batch))
        assert (done.error_code, done.base_offset) == (0, 0)
    assert producer.end(commit=True) == 0
    # Also after the end: before the transaction is looked at.
    done = producer.send_batch(topic, bytearray(batch))
    assert (done.error_code, done.base_offset) == (0, 0)
    assert offsets_and_values(read(peer, topic)) == [(0, b"once")]


def test_a_batch_outside_of_the_open_transaction_of_its_producer_is_refused(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    producer = begin()
    producer.put(topic, topic_id, b"x")
    outside = batch_of(
        [b"y"], producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=1
    )
    assert only_partition(peer.call(produce(topic, outside), 11)).error_code == E.INVALID_TXN_STATE
    assert producer.end(commit=True) == 0


def test_a_late_batch_of_a_transaction_that_has_ended_is_refused(
    peer: KafkaPeer, topic: str, topic_id: bytes, begin: Begin
) -> None:
    """With epochs of its own, nothing of a transaction can be appended to the next (KIP-890)."""
    producer = begin(JAVA_4)
    producer.put(topic, topic_id, b"x")
    late = producer.batch(topic_id, b"late")
    assert producer.end(commit=True) == 0
    assert producer.send_batch(topic_id, late).error_code == E.INVALID_PRODUCER_EPOCH
    assert offsets_and_values(read(peer, topic)) == [(0, b"x")]
    assert (read(peer, topic).last_stable_offset, read(peer, topic).high_watermark) == (2, 2)


def test_a_topic_in_memory_has_no_transactions(peer: KafkaPeer, topic: str, begin: Begin) -> None:
    create_topic(peer, topic, stele_storage="memory")
    producer = begin(replace(JAVA_4, produce=12))
    done = producer.send(topic, b"x")
    assert done.error_code != 0
    assert "memory" in done.error_message


# ── the end ──


@pytest.mark.parametrize("versions", [AIOKAFKA, KAFKAJS, LIBRDKAFKA, JAVA_3], ids=str)
def test_an_end_sent_again_is_answered_again_and_the_other_end_is_refused(
    begin: Begin, topic: str, topic_id: bytes, versions: Versions
) -> None:
    producer = begin(versions)
    assert producer.end(commit=True) == E.INVALID_TXN_STATE
    assert producer.end(commit=False) == E.INVALID_TXN_STATE
    for commit in (True, False):
        producer.put(topic, topic_id, b"x")
        assert producer.end(commit=commit) == 0
        assert producer.end(commit=commit) == 0
        assert producer.end(commit=not commit) == E.INVALID_TXN_STATE


def test_an_end_that_raises_the_epoch_is_answered_again_with_the_new_epoch(
    begin: Begin, topic: str, topic_id: bytes
) -> None:
    producer = begin(JAVA_4)
    for commit in (True, False):
        producer.put(topic, topic_id, b"x")
        before = replace(producer)
        assert producer.end(commit=commit) == 0
        assert (producer.producer_id, producer.epoch) == (before.producer_id, before.epoch + 1)
        again, other = replace(before), replace(before)
        assert (again.end(commit=commit), again.epoch) == (0, producer.epoch)
        assert other.end(commit=not commit) == E.INVALID_TXN_STATE
        # Without a transaction an abort raises the epoch, and a commit is refused.
        assert producer.end(commit=True) == E.INVALID_TXN_STATE
        epoch = producer.epoch
        assert (producer.end(commit=False), producer.epoch) == (0, epoch + 1)
    older = replace(producer, epoch=producer.epoch - 2)
    assert older.end(commit=True) == E.PRODUCER_FENCED


def test_an_empty_transactional_id_is_invalid_everywhere(begin: Begin, topic: str, topic_id: bytes) -> None:
    nameless = replace(begin(), transactional_id="")
    assert nameless.init() == E.INVALID_REQUEST
    assert nameless.add((topic, 0)) == {(topic, 0): E.INVALID_REQUEST}
    assert nameless.add_offsets("g") == E.INVALID_REQUEST
    assert nameless.commit_offset("g", topic, 1) == E.INVALID_REQUEST
    assert nameless.end(commit=True) == E.INVALID_REQUEST
