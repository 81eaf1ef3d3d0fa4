"""Transactional producers of the Kafka protocol, frame by frame, as different clients send them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stele.wire import record_batch as rb
from stele.wire.isolation_level import IsolationLevel
from stele.wire.kafka.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from stele.wire.kafka.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, fetch, only_partition, produce, records_in

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of the requests that a client sends."""

    name: str
    init: int
    add_partitions: int
    add_offsets: int
    produce: int
    commit_offsets: int
    end: int

    def __str__(self) -> str:
        return self.name

    @property
    def raises_epochs(self) -> bool:
        """Whether each end of a transaction gives the producer a new epoch (KIP-890)."""
        return self.end >= 5


AIOKAFKA = Versions("aiokafka", 0, 0, 0, 7, 0, 0)
KAFKAJS = Versions("KafkaJS", 1, 1, 1, 7, 1, 1)
SARAMA = Versions("sarama", 4, 2, 2, 9, 2, 2)
LIBRDKAFKA = Versions("librdkafka", 4, 0, 0, 10, 3, 1)
JAVA_3 = Versions("Java 3", 5, 3, 4, 11, 4, 4)
JAVA_4 = Versions("Java 4", 5, 3, 4, 13, 5, 5)
CLIENTS = (AIOKAFKA, KAFKAJS, SARAMA, LIBRDKAFKA, JAVA_3, JAVA_4)


@dataclass(slots=True)
class TransactionalPeer:
    """A transactional producer; each call returns the error code, or what the broker answered."""

    peer: KafkaPeer
    transactional_id: str
    versions: Versions = JAVA_3
    producer_id: int = -1
    epoch: int = -1
    # The next sequence by topic and partition.
    sequences: dict[tuple[str | bytes, int], int] = field(default_factory=dict[tuple[str | bytes, int], int])

    def init(self, *, timeout_ms: int = 60_000, continues: bool = False) -> int:
        answer = self.peer.call(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=self.producer_id if continues else -1,
                producer_epoch=self.epoch if continues else -1,
            ),
            self.versions.init,
        )
        if not answer.error_code:
            self.continue_as(answer.producer_id, answer.producer_epoch)
        return answer.error_code

    def continue_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    def add(self, *partitions: tuple[str, int]) -> dict[tuple[str, int], int]:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        answer = self.peer.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in topics.items()
                ],
            ),
            self.versions.add_partitions,
        )
        return {
            (topic.name, partition.partition_index): partition.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }

    def batch(self, topic: str | bytes, *values: bytes, partition: int = 0) -> bytearray:
        """The next batch for a partition."""
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values)
        return batch_of(
            values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    def send(self, topic: str | bytes, *values: bytes, partition: int = 0, acks: int = -1) -> Any:
        """Produce one batch without adding its partition first."""
        batch = self.batch(topic, *values, partition=partition)
        return self.send_batch(topic, batch, partition=partition, acks=acks)

    def send_batch(self, topic: str | bytes, batch: bytearray, *, partition: int = 0, acks: int = -1) -> Any:
        request = produce(
            topic, batch, partition=partition, acks=acks, transactional_id=self.transactional_id
        )
        return only_partition(self.peer.call(request, self.versions.produce))

    def put(self, topic: str, topic_id: bytes, *values: bytes, partition: int = 0) -> int:
        """Produce as the client does, into a transaction that begins with it; return the first offset."""
        if not self.versions.raises_epochs:
            assert self.add((topic, partition)) == {(topic, partition): 0}
        done = self.send(topic_id if self.versions.produce >= 13 else topic, *values, partition=partition)
        assert done.error_code == 0, done
        return done.base_offset

    def add_offsets(self, group: str) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return self.peer.call(request, self.versions.add_offsets).error_code

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> int:
        """Commit one offset within the transaction, which must hold the group unless the version adds it."""
        (answered,) = self.peer.call(
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=partition, committed_offset=offset, committed_metadata="m"
                            )
                        ],
                    )
                ],
            ),
            self.versions.commit_offsets,
        ).topics
        return answered.partitions[0].error_code

    def end(self, *, commit: bool) -> int:
        answer = self.peer.call(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            self.versions.end,
        )
        if not answer.error_code and self.versions.raises_epochs:
            self.continue_as(answer.producer_id, answer.producer_epoch)
        return answer.error_code


# ── readers ──


def read(
    peer: KafkaPeer, topic: str, offset: int = 0, *, isolation: IsolationLevel = COMMITTED, **options: Any
) -> Any:
    """One partition of a fetch."""
    request = fetch(topic, offset, **options)
    request.isolation_level = isolation
    return only_partition(peer.call(request, 12))


def visible_headers(partition: Any) -> list[rb.BatchHeader]:
    """Batches that a client that reads committed records shows: by the rule of the protocol, not by ours."""
    aborted = sorted((one.first_offset, one.producer_id) for one in partition.aborted_transactions or ())
    skipped: set[int] = set()
    shown: list[rb.BatchHeader] = []
    position, batches = 0, partition.records
    while position < len(batches):
        header = rb.read_header(batches, position)
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            shown.append(header)
        position += header.size
    return shown


def offsets_and_values(partition: Any) -> list[tuple[int, bytes | None]]:
    """Records as a client that reads committed ones shows them."""
    batches = partition.records
    return [
        record
        for header in visible_headers(partition)
        for record in records_in(batches[header.position : header.position + header.size])
    ]


def end_offset(peer: KafkaPeer, topic: str, isolation: IsolationLevel, *, at: int = -1) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=at)])
        ],
    )
    (found,) = peer.call(request, 7).topics
    assert found.partitions[0].error_code == 0
    return found.partitions[0].offset
