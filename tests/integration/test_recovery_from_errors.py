"""What a client is to do after an error of a group, a session, a producer or a read, done at once: it works.

Each row of ``RECOVERIES`` and ``ELSEWHERE`` brings about one error, then does what the protocol or the text of the error recommends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from stele.wire.kafka.consumer_groups import ConsumerGroupHeartbeatRequest
from stele.wire.kafka.groups import HeartbeatRequest
from stele.wire.kafka.transactions import InitProducerIdRequest

from tests.integration.test_groups import LISTENERS, owned_by, refusal
from tests.integration.test_kafka_groups import beat, joining, stable
from tests.support.batches import batch_of
from tests.support.group_protocols import GroupProtocol
from tests.support.kafka_peer import (
    KafkaPeer,
    create_topic,
    delete_topic,
    fetch,
    only_partition,
    produce,
    put,
    records_in,
)
from tests.support.share_groups import ACCEPT, configure, joined

PATIENCE_S = 60.0
TOPIC = "orders"
_names = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as broker, KafkaPeer(broker) as peer:
        create_topic(peer, TOPIC, partitions=2)
        put(peer, TOPIC, b"x", b"y")
        yield broker


def new_group() -> str:
    return f"g-{next(_names)}"


def commit(peer: KafkaPeer, group: str, generation: int, member_id: str) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    (topic,) = peer.call(request, 9).topics
    return topic.partitions[0].error_code


# ── groups whose partitions the broker assigns ──


class Modern:
    """A member that joins with epoch 0 and its own id, as often as it is told to."""

    def __init__(self, peer: KafkaPeer, group: str) -> None:
        self.peer, self.group, self.member_id, self.epoch = peer, group, str(uuid4()), 0
        self.partitions: list[int] = []

    def beat(self, epoch: int | None = None, **fields: Any) -> int:
        joins: dict[str, Any] = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        }
        epoch = self.epoch if epoch is None else epoch
        answer = self.peer.call(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=epoch,
                **((joins if epoch == 0 else {}) | fields),
            ),
            1,
        )
        if answer.error_code == E.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.partitions = [n for one in answer.assignment.topic_partitions for n in one.partitions]
        return answer.error_code

    def joins_again(self) -> None:
        self.partitions = []
        assert self.beat(0) == E.NONE
        deadline = time.monotonic() + PATIENCE_S
        while self.partitions != [0, 1]:
            assert time.monotonic() < deadline
            assert self.beat() == E.NONE
        assert commit(self.peer, self.group, self.epoch, self.member_id) == E.NONE


def fenced_member_epoch(peer: KafkaPeer) -> int:
    member, other = Modern(peer, group := new_group()), Modern(peer, group)
    member.joins_again()
    first = member.epoch
    assert (other.beat(0), other.beat(-1)) == (E.NONE, E.NONE)
    deadline = time.monotonic() + PATIENCE_S
    while member.epoch == first:
        assert time.monotonic() < deadline
        assert member.beat() == E.NONE
    # Once more, so that the epoch before is not the one to join with.
    assert member.beat() == E.NONE
    error = member.beat(member.epoch + 5)
    member.joins_again()
    return error


def unknown_member_of_a_consumer_group(peer: KafkaPeer) -> int:
    member, other = Modern(peer, group := new_group()), Modern(peer, group)
    member.joins_again()
    other.beat(0)
    assert member.beat(-1) == E.NONE
    error = member.beat(7)
    assert other.beat(-1) == E.NONE
    member.joins_again()
    return error


def group_id_not_found(peer: KafkaPeer) -> int:
    member = Modern(peer, new_group())
    error = member.beat(3)
    member.joins_again()
    return error


def stale_member_epoch(peer: KafkaPeer) -> int:
    member = Modern(peer, new_group())
    member.joins_again()
    error = commit(peer, member.group, member.epoch + 1, member.member_id)
    assert member.beat() == E.NONE
    assert commit(peer, member.group, member.epoch, member.member_id) == E.NONE
    return error


def unreleased_instance_id(peer: KafkaPeer) -> int:
    first, second = Modern(peer, group := new_group()), Modern(peer, group)
    assert first.beat(0, instance_id="i") == E.NONE
    error = second.beat(0, instance_id="i")
    assert first.beat(-2, instance_id="i") == E.NONE
    assert second.beat(0, instance_id="i") == E.NONE
    assert second.partitions == [0, 1]
    return error


# ── classic groups ──


def illegal_generation(peer: KafkaPeer) -> int:
    member = stable(peer, group := new_group())
    error = peer.call(
        HeartbeatRequest(group_id=group, generation_id=member.generation_id + 1, member_id=member.member_id),
        4,
    ).error_code
    again = stable(peer, group, member_id=member.member_id)
    assert commit(peer, group, again.generation_id, again.member_id) == E.NONE
    return error


def unknown_member_id(peer: KafkaPeer) -> int:
    group = new_group()
    error = peer.call(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 4).error_code
    again = stable(peer, group)
    assert commit(peer, group, again.generation_id, again.member_id) == E.NONE
    return error


def member_id_required(peer: KafkaPeer) -> int:
    first = peer.call(joining(group := new_group()), 9)
    again = stable(peer, group, member_id=first.member_id)
    assert again.member_id == first.member_id
    return first.error_code


def rebalance_in_progress(peer: KafkaPeer) -> int:
    member = stable(peer, group := new_group())
    other = peer.again()
    # It waits for the member that is there.
    other.post(joining(group, peer.call(joining(group), 9).member_id), 9)
    deadline = time.monotonic() + PATIENCE_S
    while not (error := beat(peer, group, member.generation_id, member.member_id)):
        assert time.monotonic() < deadline
    again = peer.call(joining(group, member.member_id), 9)
    assert again.error_code == E.NONE
    assert again.generation_id == member.generation_id + 1
    assert beat(peer, group, again.generation_id, again.member_id) in (E.NONE, E.REBALANCE_IN_PROGRESS)
    other.close()
    return error


# ── sessions ──


def _share_session(peer: KafkaPeer, epoch: int) -> int:
    configure(peer, group := new_group(), share_auto_offset_reset="earliest")
    member = joined(peer, group, TOPIC)
    member.fetch()
    error = peer.call(member.fetch_request(share_session_epoch=epoch), 2).error_code
    # With a new session; what the member held is still its own.
    member.session_epoch = 0
    member.fetch()
    assert member.acknowledge({0: [(0, 1, ACCEPT)]}) == {0: E.NONE}
    return error


def invalid_share_session_epoch(peer: KafkaPeer) -> int:
    return _share_session(peer, 7)


def share_session_not_found(peer: KafkaPeer) -> int:
    configure(peer, group := new_group(), share_auto_offset_reset="earliest")
    member = joined(peer, group, TOPIC)
    error = peer.call(member.fetch_request(share_session_epoch=3), 2).error_code
    assert 0 in member.fetch()
    return error


def unknown_member_of_a_share_group(peer: KafkaPeer) -> int:
    member = joined(peer, new_group(), TOPIC)
    error = member.beat(member_epoch=-1).error_code or member.beat(member_epoch=5).error_code
    member.epoch = 0
    assert member.beat().error_code == E.NONE
    return error


def fenced_epoch_of_a_share_group(peer: KafkaPeer) -> int:
    member = joined(peer, new_group(), TOPIC)
    error = member.beat(member_epoch=member.epoch + 9).error_code
    member.epoch = 0
    assert member.beat().error_code == E.NONE
    assert member.partitions
    return error


def _fetch_session(peer: KafkaPeer, epoch: int, *, others: bool = False) -> int:
    begun = peer.call(fetch(TOPIC, 0, session_epoch=0), 11)
    assert begun.session_id
    session_id = 2**31 - 1 if others else begun.session_id
    error = peer.call(fetch(TOPIC, 0, session_id=session_id, session_epoch=epoch), 11).error_code
    again = peer.call(fetch(TOPIC, 0, session_id=session_id, session_epoch=0), 11)
    assert (again.error_code, only_partition(again).error_code) == (E.NONE, E.NONE)
    assert again.session_id
    return error


def fetch_session_id_not_found(peer: KafkaPeer) -> int:
    return _fetch_session(peer, 4, others=True)


def invalid_fetch_session_epoch(peer: KafkaPeer) -> int:
    return _fetch_session(peer, 9)


# ── producers ──


def out_of_order_sequence(peer: KafkaPeer) -> int:
    def init(producer_id: int = -1, epoch: int = -1) -> Any:
        answer = peer.call(
            InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
            4,
        )
        assert answer.error_code == E.NONE
        return answer

    def send(sequence: int) -> int:
        batch = batch_of(
            [b"x"],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        return only_partition(peer.call(produce(TOPIC, batch, acks=-1), 9)).error_code

    producer = init()
    assert send(0) == E.NONE
    error = send(5)
    producer = init(producer.producer_id, producer.producer_epoch)
    assert send(0) == E.NONE
    return error


def _transactional(peer: KafkaPeer, transactional_id: str, producer_id: int = -1, epoch: int = -1) -> Any:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    return peer.call(request, 4)


def producer_fenced(peer: KafkaPeer) -> int:
    name = new_group()
    first, second = _transactional(peer, name), _transactional(peer, name)
    error = _transactional(peer, name, first.producer_id, first.producer_epoch).error_code
    third = _transactional(peer, name)
    assert (third.error_code, third.producer_epoch > second.producer_epoch) == (E.NONE, True)
    return error


# ── topics ──


def unknown_topic_id(peer: KafkaPeer) -> int:
    name = new_group()
    old = create_topic(peer, name)
    delete_topic(peer, name)
    new = create_topic(peer, name)
    put(peer, name, b"new")
    error = only_partition(peer.call(fetch(old, 0), 13)).error_code
    assert records_in(bytes(only_partition(peer.call(fetch(new, 0), 13)).records)) == [(0, b"new")]
    return error


def offset_out_of_range(peer: KafkaPeer) -> int:
    refused = only_partition(peer.call(fetch(TOPIC, 1_000_000), 11))
    # Without records, a response still says where the log begins.
    again = only_partition(peer.call(fetch(TOPIC, max(refused.log_start_offset, 0)), 11))
    assert again.error_code == E.NONE
    return refused.error_code


RECOVERIES: list[tuple[Callable[[KafkaPeer], int], E]] = [
    (fenced_member_epoch, E.FENCED_MEMBER_EPOCH),
    (unknown_member_of_a_consumer_group, E.UNKNOWN_MEMBER_ID),
    (group_id_not_found, E.GROUP_ID_NOT_FOUND),
    (stale_member_epoch, E.STALE_MEMBER_EPOCH),
    (unreleased_instance_id, E.UNRELEASED_INSTANCE_ID),
    (illegal_generation, E.ILLEGAL_GENERATION),
    (unknown_member_id, E.UNKNOWN_MEMBER_ID),
    (member_id_required, E.MEMBER_ID_REQUIRED),
    (rebalance_in_progress, E.REBALANCE_IN_PROGRESS),
    (invalid_share_session_epoch, E.INVALID_SHARE_SESSION_EPOCH),
    (share_session_not_found, E.SHARE_SESSION_NOT_FOUND),
    (unknown_member_of_a_share_group, E.UNKNOWN_MEMBER_ID),
    (fenced_epoch_of_a_share_group, E.FENCED_MEMBER_EPOCH),
    (fetch_session_id_not_found, E.FETCH_SESSION_ID_NOT_FOUND),
    (invalid_fetch_session_epoch, E.INVALID_FETCH_SESSION_EPOCH),
    (out_of_order_sequence, E.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (producer_fenced, E.PRODUCER_FENCED),
    (unknown_topic_id, E.UNKNOWN_TOPIC_ID),
    (offset_out_of_range, E.OFFSET_OUT_OF_RANGE),
]


@pytest.mark.parametrize(
    ("recovery", "error"), RECOVERIES, ids=[recovery.__name__ for recovery, _ in RECOVERIES]
)
def test_what_an_error_recommends_works_at_once(
    recovery: Callable[[KafkaPeer], int], error: E, peer: KafkaPeer
) -> None:
    assert recovery(peer) == error


# ── over HTTP and the binary protocol ──


def a_member_that_was_removed(listener: GroupProtocol, group: str) -> E:
    member = listener.join(group, TOPIC)
    listener.leave(group, member.member_id)
    error = refusal(lambda: listener.heartbeat(group, member))
    again = owned_by(listener, group, listener.join(group, TOPIC))
    listener.commit(group, again, TOPIC, 0, 1)
    return error


def a_generation_that_is_over(listener: GroupProtocol, group: str) -> E:
    first = owned_by(listener, group, listener.join(group, TOPIC))
    second = listener.join(group, TOPIC)
    (_, partition) = min(first.assigned)
    error = refusal(lambda: listener.claim(group, first, TOPIC, partition))
    again = owned_by(listener, group, listener.join(group, TOPIC, member_id=first.member_id))
    assert len(again.assigned) == len(second.assigned) == 1
    return error


def a_partition_that_is_not_claimed(listener: GroupProtocol, group: str) -> E:
    member = listener.join(group, TOPIC)
    error = refusal(lambda: listener.commit(group, member, TOPIC, 0, 1))
    listener.claim(group, member, TOPIC, 0)
    listener.commit(group, member, TOPIC, 0, 1)
    return error


def a_lease_that_was_given_back(listener: GroupProtocol, group: str) -> E:
    polled = listener.poll(group, TOPIC, wait_ms=10_000)
    assert polled.lease is not None
    listener.nack(group, polled.lease)
    error = refusal(lambda: listener.ack(group, polled.lease or ""))
    again = listener.poll(group, TOPIC, wait_ms=10_000)
    assert (again.records, again.lease is not None) == (polled.records, True)
    listener.ack(group, again.lease or "")
    return error


ELSEWHERE: list[tuple[Callable[[GroupProtocol, str], E], E]] = [
    (a_member_that_was_removed, E.UNKNOWN_MEMBER_ID),
    (a_generation_that_is_over, E.ILLEGAL_GENERATION),
    (a_partition_that_is_not_claimed, E.PARTITION_NOT_OWNED),
    (a_lease_that_was_given_back, E.LEASE_FENCED),
]


@pytest.mark.parametrize("protocol", sorted(LISTENERS))
@pytest.mark.parametrize(
    ("recovery", "error"), ELSEWHERE, ids=[recovery.__name__ for recovery, _ in ELSEWHERE]
)
def test_what_an_error_recommends_works_over_the_other_protocols(
    recovery: Callable[[GroupProtocol, str], E], error: E, protocol: str, broker: BrokerProcess
) -> None:
    with LISTENERS[protocol](broker) as listener:
        assert recovery(listener, new_group()) is error
