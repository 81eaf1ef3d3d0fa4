"""A member of a share group over the Kafka protocol, which does what a test says when it says so (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from stele.wire.kafka.share_groups import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)

from .kafka_peer import KafkaPeer

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_RESOURCE = 32


def configure(peer: KafkaPeer, group: str, **configs: str) -> None:
    (done,) = peer.call(
        AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=GROUP_RESOURCE,
                    resource_name=group,
                    configs=[
                        AlterableConfig(name=name.replace("_", "."), value=value)
                        for name, value in configs.items()
                    ],
                )
            ],
            validate_only=False,
        ),
        2,
    ).responses
    assert done.error_code == E.NONE, done


class Member:
    """A member with a share session on ``peer``; what it acquired is in ``held``, by partition."""

    def __init__(self, peer: KafkaPeer, group: str, topic: str) -> None:
        self.peer, self.group, self.topic = peer, group, topic
        self.member_id = str(uuid4())
        self.epoch = 0
        self.session_epoch = 0
        self.partitions: list[tuple[bytes, int]] = []

    def beat(self, **fields: Any) -> Any:
        known: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "subscribed_topic_names": [self.topic] if self.epoch == 0 else None,
        }
        answer = self.peer.call(ShareGroupHeartbeatRequest(**(known | fields)), 1)
        if not answer.error_code:
            self.epoch = max(0, answer.member_epoch)
            if answer.assignment is not None:
                self.partitions = [
                    (one.topic_id, number)
                    for one in answer.assignment.topic_partitions
                    for number in one.partitions
                ]
        return answer

    def _topics(
        self, make: Any, acks: dict[int, Sequence[tuple[int, int, int]]], partition: Any, batch: Any
    ) -> Any:
        topics: dict[bytes, list[Any]] = {}
        for topic_id, number in self.partitions:
            told = acks.get(number, ())
            if told or self.session_epoch == 0:
                topics.setdefault(topic_id, []).append(
                    partition(
                        partition_index=number,
                        acknowledgement_batches=[
                            batch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                            for first, last, kind in told
                        ],
                    )
                )
        return [make(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]

    def fetch_request(
        self, acks: dict[int, Sequence[tuple[int, int, int]]] | None = None, **fields: Any
    ) -> ShareFetchRequest:
        known: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 1,
            "topics": self._topics(
                FetchTopic,
                acks or {},
                FetchPartition,
                AcknowledgementBatch,
            ),
            "forgotten_topics_data": (),
        }
        return ShareFetchRequest(**(known | fields))

    def took(self, answer: Any) -> dict[int, list[tuple[int, int, int]]]:
        """Note an answer; return the ranges that were acquired by partition, with their delivery counts."""
        assert answer.error_code == E.NONE, answer
        self.session_epoch += 1
        acquired: dict[int, list[tuple[int, int, int]]] = {}
        for one in answer.responses:
            for partition in one.partitions:
                assert partition.error_code == E.NONE, partition
                if partition.acquired_records:
                    acquired[partition.partition_index] = [
                        (range_.first_offset, range_.last_offset, range_.delivery_count)
                        for range_ in partition.acquired_records
                    ]
        return acquired

    def fetch(
        self,
        acks: dict[int, Sequence[tuple[int, int, int]]] | None = None,
        *,
        version: int = 2,
        **fields: Any,
    ) -> dict[int, list[tuple[int, int, int]]]:
        return self.took(self.peer.call(self.fetch_request(acks, **fields), version))

    def acknowledge(
        self, acks: dict[int, Sequence[tuple[int, int, int]]], *, version: int = 2, **fields: Any
    ) -> dict[int, int]:
        """Return the error codes by partition."""
        known: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "topics": self._topics(
                AcknowledgeTopic,
                acks,
                AcknowledgePartition,
                AcknowledgementBatch,
            ),
        }
        answer = self.peer.call(ShareAcknowledgeRequest(**(known | fields)), version)
        assert answer.error_code == E.NONE, answer
        self.session_epoch += 1
        return {
            partition.partition_index: partition.error_code
            for one in answer.responses
            for partition in one.partitions
        }


def joined(peer: KafkaPeer, group: str, topic: str) -> Member:
    member = Member(peer, group, topic)
    assert member.beat().error_code == E.NONE
    return member


def offsets_of(peer: KafkaPeer, group: str) -> dict[int, tuple[int, int]]:
    """Start offset and lag by partition."""
    (described,) = peer.call(
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
        ),
        1,
    ).groups
    assert described.error_code == E.NONE, described
    return {
        partition.partition_index: (partition.start_offset, partition.lag)
        for topic in described.topics
        for partition in topic.partitions
    }
