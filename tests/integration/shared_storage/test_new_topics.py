"""A topic that one broker has just created is known at the other, whatever a client asks first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import httpx
import pytest
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.configs import DescribeConfigsRequest, DescribeConfigsResource
from stele.wire.kafka.metadata import DescribeTopicPartitionsRequest, MetadataRequest, TopicRequest
from stele.wire.kafka.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from stele.wire.kafka.share_groups import FetchPartition, FetchTopic, ShareFetchRequest

from tests.support.batches import batch_of
from tests.support.binary_peer import Peer
from tests.support.brokers import Brokers
from tests.support.kafka_peer import KafkaPeer, create_topic, fetch, only_partition, produce

BROKERS = 2
# A Produce must find a topic, not create it.
ENVIRONMENT = {"STELE_AUTO_CREATE_TOPICS_ENABLE": "false"}

# A broker learns of new topics four times a second by itself, which a test that asks once may just meet.
_TIMES = 5
_names = count()


def fetch_by_name(peer: KafkaPeer, name: str, topic_id: bytes) -> int:
    return only_partition(peer.call(fetch(name, 0), 11)).error_code


def fetch_by_id(peer: KafkaPeer, name: str, topic_id: bytes) -> int:
    return only_partition(peer.call(fetch(topic_id, 0), 16)).error_code


def list_offsets(peer: KafkaPeer, name: str, topic_id: bytes) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])])
    (topic,) = peer.call(request, 5).topics
    return topic.partitions[0].error_code


def describe_configs(peer: KafkaPeer, name: str, topic_id: bytes) -> int:
    resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    return peer.call(DescribeConfigsRequest(resources=[resource]), 4).results[0].error_code


def describe_partitions(peer: KafkaPeer, name: str, topic_id: bytes) -> int:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
    return peer.call(request, 0).topics[0].error_code


def delete_records(peer: KafkaPeer, name: str, topic_id: bytes) -> int:
    partition = DeleteRecordsPartition(partition_index=0, offset=0)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[partition])], timeout_ms=9000
    )
    return peer.call(request, 2).topics[0].partitions[0].error_code


def produce_by_name(peer: KafkaPeer, name: str, topic_id: bytes) -> int:
    return only_partition(peer.call(produce(name, batch_of([b"x"])), 9)).error_code


def produce_by_id(peer: KafkaPeer, name: str, topic_id: bytes) -> int:
    return only_partition(peer.call(produce(topic_id, batch_of([b"x"])), 13)).error_code


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "ask",
    [
        fetch_by_name,
        fetch_by_id,
        list_offsets,
        describe_configs,
        describe_partitions,
        delete_records,
        produce_by_name,
        produce_by_id,
    ],
)
def test_kafka_clients_find_it(brokers: Brokers, ask: Callable[[KafkaPeer, str, bytes], int]) -> None:
    with KafkaPeer(brokers[1]) as first, KafkaPeer(brokers[2]) as second:
        for _ in range(_TIMES):
            name = f"new-{next(_names)}"
            assert ask(second, name, create_topic(first, name)) == ErrorCode.NONE


def test_produces_to_topics_that_do_not_exist_are_refused_and_those_after_them_keep_their_order(
    brokers: Brokers,
) -> None:
    with KafkaPeer(brokers[1]) as first, KafkaPeer(brokers[2]) as second:
        name = f"new-{next(_names)}"
        create_topic(first, name)
        for topic in ("missing", name, "missing", name):
            second.post(produce(topic, batch_of([b"x"])), 9)
        answers = [only_partition(second.next_answer()[1]) for _ in range(4)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [answer.error_code for answer in answers] == [unknown, 0, unknown, 0]
    assert [answer.base_offset for answer in answers] == [-1, 0, -1, 1]


def test_share_fetches_find_it(brokers: Brokers) -> None:
    """The group is one of the queue over HTTP, because Kafka members cannot join with shared storage."""
    group = next(name for name in map(str, count()) if brokers.coordinator(name) == 2)
    with KafkaPeer(brokers[1]) as first, KafkaPeer(brokers[2]) as second:
        for number in range(_TIMES):
            name = f"new-{next(_names)}"
            topic_id = create_topic(first, name)
            if number == 0:
                polled = httpx.post(
                    f"{brokers[2].http_url}/v1/groups/{group}/share/poll", json={"topics": [name]}
                )
                assert polled.status_code == 200, polled.text
                continue
            request = ShareFetchRequest(
                group_id=group,
                member_id=f"member-{number}",
                share_session_epoch=0,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1000,
                max_records=10,
                batch_size=10,
                share_acquire_mode=0,
                topics=[
                    FetchTopic(
                        topic_id=topic_id,
                        partitions=[FetchPartition(partition_index=0, acknowledgement_batches=())],
                    )
                ],
                forgotten_topics_data=(),
            )
            answer = second.call(request, 2)
            assert answer.error_code == ErrorCode.NONE, answer
            assert ErrorCode.UNKNOWN_TOPIC_ID not in [
                partition.error_code for topic in answer.responses for partition in topic.partitions
            ]


def binary_requests(name: str) -> list[m.Request]:
    return [
        m.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            partitions=[m.FetchPartition(topic=name, partition=0, offset=0, max_bytes=1000)],
        ),
        m.ListOffsetsRequest(topic=name, partition=0, timestamp_ms=-1),
        m.ConsumeRequest(topic=name, offset=0, batch_size=1),
        m.DescribeTopicRequest(topic=name),
        m.MetadataRequest(topics=[name], auto_create=False),
        m.FlushTopicRequest(topic=name),
        m.ProducerStateRequest(topic=name, partition=0, producer_id=1),
    ]


@pytest.mark.parametrize("kind", range(len(binary_requests(""))))
def test_binary_clients_find_it(brokers: Brokers, kind: int) -> None:
    with KafkaPeer(brokers[1]) as first, Peer(brokers[2]) as second:
        for _ in range(_TIMES):
            name = f"new-{next(_names)}"
            create_topic(first, name)
            answer = second.call(binary_requests(name)[kind])
            assert not isinstance(answer, m.ErrorResponse), answer
            if isinstance(answer, m.FetchResponse):
                assert [part.code for part in answer.partitions] == [m.ErrorCode.NONE]
            if isinstance(answer, m.MetadataResponse):
                assert [topic.code for topic in answer.topics] == [m.ErrorCode.NONE]


def listed_over_http(brokers: Brokers) -> set[str]:
    answer = httpx.get(f"{brokers[2].http_url}/v1/topics", params={"prefix": "new-"})
    return {topic["name"] for topic in answer.json()["topics"]}


def listed_over_binary(brokers: Brokers) -> set[str]:
    with Peer(brokers[2]) as peer:
        answer = peer.call(m.MetadataRequest(topics=None, auto_create=False))
    assert isinstance(answer, m.MetadataResponse)
    return {topic.topic for topic in answer.topics}


def listed_over_kafka(brokers: Brokers) -> set[str | None]:
    with KafkaPeer(brokers[2]) as peer:
        return {topic.name for topic in peer.call(MetadataRequest(topics=None), 12).topics}


@pytest.mark.parametrize("listed", [listed_over_http, listed_over_binary, listed_over_kafka])
def test_lists_have_it(brokers: Brokers, listed: Callable[[Brokers], set[str]]) -> None:
    with KafkaPeer(brokers[1]) as first:
        for _ in range(_TIMES):
            name = f"new-{next(_names)}"
            create_topic(first, name)
            assert name in listed(brokers)
