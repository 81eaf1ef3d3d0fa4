"""What happens to an idempotent producer whose state is lost: one table for Stele and for Apache Kafka.

Each case is a story of one partition. Its writes are answered with an error code
and, if it is 0, a base offset; both are the same whatever the version of Produce.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from stele.wire.kafka.transactions import DescribeProducersRequest, DescribeProducersTopic

from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, create_topic, delete_topic, only_partition, produce

# Produce before it names records (v3), before KIP-360 (v7), and by name as late as it goes.
VERSIONS = (3, 7, 12)
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
# Apache Kafka, for a moment after its start.
_NOT_LEADER = 6
DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@dataclass(frozen=True, kw_only=True)
class Write:
    """A batch of ``count`` records; ``answer`` is a base offset or an error, Kafka's ``kafka`` if it differs."""

    sequence: int
    answer: int | ErrorCode
    count: int = 1
    producer: int = 1
    epoch: int = 0
    kafka: int | ErrorCode | None = None


@dataclass(frozen=True)
class DeleteAllRecords:
    """DeleteRecords up to the log end."""

    before_offset: int


@dataclass(frozen=True)
class Recreate:
    """Delete the topic and create it again."""


@dataclass(frozen=True)
class Restart:
    """End the broker, by SIGTERM or by SIGKILL, and start it again."""

    is_kill: bool


@dataclass(frozen=True)
class Expire:
    """Wait until the broker has forgotten its producers."""


Step = Write | DeleteAllRecords | Recreate | Restart | Expire


@dataclass(frozen=True)
class Case:
    steps: Sequence[Step]

    @property
    def needs_expiry(self) -> bool:
        return any(isinstance(step, Expire) for step in self.steps)

    @property
    def has_restart(self) -> bool:
        return any(isinstance(step, Restart) for step in self.steps)


def _after_restart(*, is_kill: bool) -> tuple[Step, ...]:
    return (
        Write(sequence=0, count=2, answer=0),
        Restart(is_kill),
        Write(sequence=0, count=2, answer=0),
        Write(sequence=5, answer=GAP),
        Write(sequence=2, answer=2),
        Write(producer=2, sequence=7, answer=3),
    )


CASES = {
    "a partition never written to": Case(
        (
            Write(sequence=7, answer=0),
            Write(sequence=8, answer=1),
            Write(sequence=10, answer=GAP),
            # What came before the first batch is not known to be stored.
            Write(sequence=6, answer=GAP),
            Write(sequence=7, answer=0),
        )
    ),
    "a partition that others write to": Case(
        (
            Write(producer=2, sequence=0, answer=0),
            Write(producer=1, sequence=9, answer=1),
            Write(producer=1, sequence=11, answer=GAP),
        )
    ),
    "a newer epoch": Case(
        (
            Write(sequence=0, answer=0),
            Write(epoch=1, sequence=1, answer=GAP),
            Write(epoch=1, sequence=0, answer=1),
            Write(epoch=0, sequence=1, answer=FENCED),
        )
    ),
    "more than five batches ago": Case(
        (
            *(Write(sequence=number, answer=number) for number in range(7)),
            Write(sequence=2, answer=2),
            # Stele knows that it is stored, and its own clients have more than five in flight.
            Write(sequence=1, answer=DUPLICATE, kafka=GAP),
            Write(sequence=6, count=2, answer=GAP),
        )
    ),
    "after DeleteRecords emptied it": Case(
        (
            Write(sequence=0, count=2, answer=0),
            DeleteAllRecords(2),
            # The state outlives the records.
            Write(sequence=5, answer=GAP),
            Write(sequence=0, count=2, answer=0),
            Write(sequence=2, answer=2),
            Write(producer=2, sequence=4, answer=3),
        )
    ),
    "after the topic was created again": Case(
        (
            Write(sequence=0, count=2, answer=0),
            Recreate(),
            Write(sequence=2, answer=0),
            Write(sequence=0, count=2, answer=GAP),
        )
    ),
    "after it expired": Case(
        (
            Write(sequence=0, count=2, answer=0),
            Expire(),
            Write(sequence=5, answer=2),
            Write(sequence=7, answer=GAP),
            Write(sequence=2, count=3, answer=GAP),
        )
    ),
    "after a restart": Case(_after_restart(is_kill=False)),
    "after kill -9": Case(_after_restart(is_kill=True)),
    "after DeleteRecords and a restart": Case(
        (
            Write(sequence=0, count=2, answer=0),
            DeleteAllRecords(2),
            Restart(is_kill=False),
            # Apache Kafka deletes the snapshot together with the records; Stele keeps it, and sees the gap.
            Write(sequence=5, answer=GAP, kafka=2),
            Write(sequence=2, answer=2, kafka=GAP),
        )
    ),
}


class Story:
    """Plays cases to a broker; ``connect`` makes a peer, ``restart`` ends it and starts it again."""

    def __init__(self, connect: Callable[[], KafkaPeer], restart: Callable[[bool], None]) -> None:
        self._connect = connect
        self._restart = restart

    def play(self, case: Case, topic: str, version: int) -> list[tuple[Write, int]]:
        """Each write with what it was answered: a base offset, or an error code negated."""
        answers: list[tuple[Write, int]] = []
        peer = self._connect()
        create_topic(peer, topic)
        _await_leader(peer, topic)
        for step in case.steps:
            if isinstance(step, Write):
                answers.append((step, _write(peer, topic, step, version)))
            elif isinstance(step, DeleteAllRecords):
                _delete_records(peer, topic, step.before_offset)
            elif isinstance(step, Recreate):
                delete_topic(peer, topic)
                _create_again(peer, topic)
            elif isinstance(step, Expire):
                while _producers(peer, topic):
                    pass
            else:
                peer.close()
                self._restart(step.is_kill)
                peer = self._connect()
                _await_leader(peer, topic)
        peer.close()
        return answers


def _write(peer: KafkaPeer, topic: str, step: Write, version: int) -> int:
    batch = batch_of(
        [b"x"] * step.count,
        # Retention must not take it.
        timestamp_ms=int(time.time() * 1000),
        producer_id=step.producer,
        producer_epoch=step.epoch,
        base_sequence=step.sequence,
    )
    while True:
        done = only_partition(peer.call(produce(topic, batch, acks=-1), version))
        # Apache Kafka may not know a topic yet right after it created it.
        if done.error_code not in (_NOT_LEADER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            break
    return done.base_offset if done.error_code == ErrorCode.NONE else -done.error_code


def _delete_records(peer: KafkaPeer, topic: str, before_offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=before_offset)
    asked = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30_000
    )
    (done,) = peer.call(asked, 2).topics[0].partitions
    assert (done.error_code, done.low_watermark) == (ErrorCode.NONE, before_offset)


def _producers(peer: KafkaPeer, topic: str) -> list[int]:
    asked = DescribeProducersRequest(topics=[DescribeProducersTopic(name=topic, partition_indexes=[0])])
    (found,) = peer.call(asked, 0).topics[0].partitions
    assert found.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NOT_LEADER), found
    if found.error_code:
        return [-1]
    return [one.producer_id for one in found.active_producers]


def _await_leader(peer: KafkaPeer, topic: str) -> None:
    """Apache Kafka answers that a topic is made before it can be written to."""
    while -1 in _producers(peer, topic):
        pass


def _create_again(peer: KafkaPeer, topic: str) -> None:
    while True:
        try:
            create_topic(peer, topic)
            break
        except AssertionError as error:
            # Apache Kafka deletes it in the background.
            if "error_code=36" not in str(error):
                raise
    # What answers may be the old one still.
    while _producers(peer, topic):
        pass
