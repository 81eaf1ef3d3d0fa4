"""Who may commit offsets in which state of a group: one table, held against Stele and against Apache Kafka."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from stele.wire.kafka.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

from load.apache_kafka import apache_kafka
from tests.support.apache_kafka import kafka_or_skip
from tests.support.batches import batch_of
from tests.support.kafka_peer import TIMEOUT_S, KafkaPeer, create_topic, only_partition, produce

TOPIC = "committed"
SESSION_MS = 30_000
NO_MEMBER, STRANGER, OTHER = "", "a-stranger", "another-instance"
OLD, NEW = 8, 9
_NOT_READY = (14, 15, 16)
_MEMBER_ID_REQUIRED, _REBALANCE_IN_PROGRESS = 79, 27
_groups = count(1)


class Asks(NamedTuple):
    """A commit: which generation (relative to the group's own; None: -1), and who it says that it is."""

    generation: int | None
    member: str
    instance: str | None = None
    version: int = NEW


MEMBER, INSTANCE = "the member", "pod-1"

NOBODY = Asks(None, NO_MEMBER)
# A dynamic member, and those who are not.
ASKS = {
    "nobody, as an administrator": NOBODY,
    "nobody, in an old version": NOBODY._replace(version=2),
    "nobody, with the generation": Asks(0, NO_MEMBER),
    "a stranger, without a generation": Asks(None, STRANGER),
    "a stranger, with the generation": Asks(0, STRANGER),
    "the member": Asks(0, MEMBER),
    "the member, without a generation": Asks(None, MEMBER),
    "the member, of the generation before": Asks(-1, MEMBER),
    "the member, of a generation to come": Asks(1, MEMBER),
    "the member, with an instance that nobody has": Asks(0, MEMBER, OTHER),
    "nobody, with an instance that nobody has": Asks(None, NO_MEMBER, OTHER),
}
STATIC_ASKS = {
    "the instance": Asks(0, MEMBER, INSTANCE),
    "the instance, under an id that is not its own": Asks(0, STRANGER, INSTANCE),
    "the instance, without an id": Asks(0, NO_MEMBER, INSTANCE),
    "the instance, without a generation": Asks(None, MEMBER, INSTANCE),
    "the member, without its instance": Asks(0, MEMBER),
}
ABSENT_ASKS = {
    "nobody, as an administrator": NOBODY,
    "a stranger, without a generation": Asks(None, STRANGER),
    "a stranger, with a generation": Asks(1, STRANGER),
    "a stranger, with a generation, in an old version": Asks(1, STRANGER, version=OLD),
}
# Codes: 22 illegal generation, 25 unknown member, 27 rebalance in progress, 69 group not found, 82 fenced.
_OF_A_MEMBER = {
    "nobody, as an administrator": 25,
    "nobody, in an old version": 25,
    "nobody, with the generation": 25,
    "a stranger, without a generation": 25,
    "a stranger, with the generation": 25,
    "the member": 0,
    "the member, without a generation": 22,
    "the member, of the generation before": 22,
    "the member, of a generation to come": 22,
    "the member, with an instance that nobody has": 25,
    "nobody, with an instance that nobody has": 25,
}
EXPECTED = {
    "absent": {
        "nobody, as an administrator": 0,
        "a stranger, without a generation": 0,
        "a stranger, with a generation": 69,
        "a stranger, with a generation, in an old version": 22,
    },
    # It is nobody's: who does not say a generation may commit, whatever else it says.
    "empty": {
        **dict.fromkeys(ASKS, 25),
        "nobody, as an administrator": 0,
        "nobody, in an old version": 0,
        "a stranger, without a generation": 0,
        "the member, without a generation": 0,
        "nobody, with an instance that nobody has": 0,
    },
    # Members commit what they give back before they join again.
    "preparing": _OF_A_MEMBER,
    "completing": {**_OF_A_MEMBER, "the member": 27},
    "stable": _OF_A_MEMBER,
    "stable, static": {
        "the instance": 0,
        "the instance, under an id that is not its own": 82,
        "the instance, without an id": 82,
        "the instance, without a generation": 22,
        "the member, without its instance": 0,
    },
}


class Table:
    """Brings groups into each state over raw connections, and asks for commits there."""

    def __init__(self, broker: Any, stack: ExitStack) -> None:
        self._broker = cast("BrokerProcess", broker)
        self._stack = stack
        self.peer = self.connect()
        create_topic(self.peer, TOPIC)

    def connect(self) -> KafkaPeer:
        return self._stack.enter_context(KafkaPeer(self._broker))

    def codes(self) -> dict[str, dict[str, int]]:
        """By the state of the group, and by who commits."""
        return {
            "absent": {who: self._commit(self._name(), 0, "", asks) for who, asks in ABSENT_ASKS.items()},
            "empty": self._in(*self.empty()),
            "preparing": self._in(*self.preparing()),
            "completing": self._in(*self.completing()),
            "stable": self._in(*self.stable()),
            "stable, static": self._in(*self.stable(INSTANCE), asked=STATIC_ASKS),
        }

    def _in(self, group: str, generation: int, member: str, asked: dict[str, Asks] = ASKS) -> dict[str, int]:
        return {who: self._commit(group, generation, member, asks) for who, asks in asked.items()}

    def _name(self) -> str:
        """Of a group that nobody used yet; its coordinator is ready."""
        group = f"g{next(_groups)}"
        # Apache Kafka makes its __consumer_offsets when a client looks for a coordinator.
        request = FindCoordinatorRequest(key=group)
        deadline = time.monotonic() + TIMEOUT_S
        while self.peer.call(request, 3).error_code in _NOT_READY:
            assert time.monotonic() < deadline
        return group

    def _when_ready(self, request: object, version: int, code_of: Callable[[Any], int]) -> Any:
        """The answer of a coordinator that has loaded its groups."""
        deadline = time.monotonic() + TIMEOUT_S
        while code_of(answer := self.peer.call(request, version)) in _NOT_READY:
            assert time.monotonic() < deadline, answer
        return answer

    # ── states ──

    def _join(self, group: str, member: str = "", instance: str | None = None) -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = self._when_ready(request, 9, lambda joined: joined.error_code)
        if joined.error_code == _MEMBER_ID_REQUIRED:
            return self._join(group, joined.member_id)
        assert joined.error_code == 0, joined
        return joined

    def completing(self, instance: str | None = None) -> tuple[str, int, str]:
        """A member that has joined and not synced."""
        group = self._name()
        joined = self._join(group, instance=instance)
        return group, joined.generation_id, joined.member_id

    def stable(self, instance: str | None = None) -> tuple[str, int, str]:
        group, generation, member = self.completing(instance)
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"all")],
        )
        assert self.peer.call(request, 5).error_code == 0
        return group, generation, member

    def empty(self) -> tuple[str, int, str]:
        """The member has left; its generation was not the last."""
        group, generation, member = self.stable()
        leaving = [MemberIdentity(member_id=member)]
        self.peer.call(LeaveGroupRequest(group_id=group, members=leaving), 5)
        return group, generation + 1, member

    def preparing(self) -> tuple[str, int, str]:
        """A second member waits for the first to join again."""
        group, generation, member = self.stable()
        other = self.connect()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id="",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        request.member_id = other.call(request, 9).member_id
        other.post(request, 9)
        beat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        while self.peer.call(beat, 4).error_code != _REBALANCE_IN_PROGRESS:
            pass
        return group, generation, member

    # ── commits ──

    def _commit(self, group: str, generation: int, member: str, asks: Asks) -> int:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1 if asks.generation is None else generation + asks.generation,
            member_id=member if asks.member == MEMBER else asks.member,
            group_instance_id=asks.instance,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        return _only_code(self._when_ready(request, asks.version, _only_code))


def _only_code(answer: OffsetCommitResponse) -> int:
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return partition.error_code


@pytest.mark.parametrize("delay_ms", [0, 3000])
def test_librdkafka_commits_in_its_rebalance_callback_and_no_record_is_read_twice(delay_ms: int) -> None:
    settings = {"STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": str(delay_ms)}
    with run_broker(environment=settings) as broker, ExitStack() as stack:
        peer = stack.enter_context(KafkaPeer(broker))
        create_topic(peer, "handed-over", partitions=2)
        for partition in range(2):
            values = [f"{partition}-{number}".encode() for number in range(50)]
            answer = peer.call(produce("handed-over", batch_of(values), partition=partition), 9)
            assert only_partition(answer).error_code == 0
        read: Counter[bytes] = Counter()
        commits: list[str] = []
        first = stack.enter_context(closing(consumer(broker, commits)))
        while read.total() < 10:
            take(first, read)
        # The first one hears of it in a heartbeat, and commits before it joins again.
        second = stack.enter_context(closing(consumer(broker, commits)))
        deadline = time.monotonic() + TIMEOUT_S
        while read.total() < 100 and time.monotonic() < deadline:
            for one in (first, second):
                take(one, read)
        assert commits == ["committed"], "in the one rebalance in which somebody had something to give back"
        assert read.total() == len(read) == 100
    assert set(commits) == {"committed"}, "also those of the consumers that closed"


def consumer(broker: BrokerProcess, commits: list[str]) -> Consumer:
    def revoked(one: Consumer, partitions: list[TopicPartition]) -> None:
        if any(position.offset >= 0 for position in one.position(partitions)):
            try:
                one.commit(asynchronous=False)
            except KafkaException as error:
                # It must not leave a callback: the exception that follows would have a context that is no exception.
                # Without an offset, all is committed: the consumer gave its partitions back just before it closed.
                if error.args[0].code() != KafkaError._NO_OFFSET:
                    commits.append(str(error))
            else:
                commits.append("committed")

    made = Consumer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "group.id": "handing-over",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
        }
    )
    made.subscribe(["handed-over"], on_revoke=revoked)
    return made


def take(one: Consumer, read: Counter[bytes]) -> None:
    message = one.poll(0.05)
    if message is not None:
        assert message.error() is None, message.error()
        read[message.value() or b""] += 1


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_stele_accepts_commits_as_in_the_table(stack: ExitStack) -> None:
    broker = stack.enter_context(run_broker())
    assert Table(broker, stack).codes() == EXPECTED


@pytest.mark.long
def test_apache_kafka_accepts_commits_as_in_the_table(stack: ExitStack) -> None:
    with kafka_or_skip():
        kafka = stack.enter_context(apache_kafka(heap="384m"))
    broker = SimpleNamespace(host=kafka.host, kafka_port=kafka.port)
    assert Table(broker, stack).codes() == EXPECTED
