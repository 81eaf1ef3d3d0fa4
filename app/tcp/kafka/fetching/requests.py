"""Read a Fetch request: its partitions, isolation level and sender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stele.wire.isolation_level import IsolationLevel
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from stele.wire.schema import EncodedRows

from ....broker.broker import Broker
from ....security.acl import CLUSTER_ACTION_CLUSTER
from ....work_budget import Pace, Steps
from ..context import Context
from ..sessions.fetch_sessions import FetchedPartition, PartitionKey

FIRST_WITH_SESSIONS = 7
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_REPLICA_STATE = 15

# Of requests that are remembered. More are looked at with pauses, or have kept answers.
PARTITIONS_MAX = 16
# To take one from a request takes about 3 µs.
_PIECES_OF_PARTITION = 3
# An attribute of an enumeration takes several times as long.
_COMMITTED, _UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def requested(context: Context, request: FetchRequest) -> Steps[dict[PartitionKey, FetchedPartition]]:
    """Return the partitions of a request.

    Of one named twice the last counts, as in Kafka.
    """
    named: dict[PartitionKey, FetchedPartition] = {}
    uses_topic_ids = context.version >= FIRST_WITH_TOPIC_IDS
    pace = Pace()
    for topic in request.topics:
        name = topic.topic
        if uses_topic_ids:
            known = context.broker.topic_by_id(topic.topic_id)
            name = "" if known is None else known.name
        topic_key = topic.topic_id if uses_topic_ids else name
        for partition in topic.partitions:
            fetched = fetched_partition(topic, partition, name, is_by_id=uses_topic_ids)
            named[topic_key, partition.partition] = fetched
            if pace.is_due(_PIECES_OF_PARTITION):
                yield
    return named


def fetched_partition(
    topic: FetchTopic, partition: FetchPartition, name: str, *, is_by_id: bool
) -> FetchedPartition:
    """Return a partition of a request; ``name`` is that of its topic, empty if there is none with its id."""
    return FetchedPartition(
        topic=name,
        topic_id=topic.topic_id,
        index=partition.partition,
        offset=partition.fetch_offset,
        max_bytes=max(0, partition.partition_max_bytes),
        leader_epoch=partition.current_leader_epoch,
        is_by_id=is_by_id,
    )


def forgotten(request: FetchRequest, *, uses_topic_ids: bool) -> Iterator[PartitionKey]:
    return (
        (topic.topic_id if uses_topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    )


def is_from_follower(context: Context, request: FetchRequest) -> bool:
    """Return whether the session comes before those of clients.

    With access rules, not every client may say so.
    """
    if context.access is not None and not context.access.sees(CLUSTER_ACTION_CLUSTER):
        return False
    if context.version >= FIRST_WITH_REPLICA_STATE:
        return request.replica_state is not None and request.replica_state.replica_id >= 0
    return request.replica_id >= 0


def isolation_of(request: FetchRequest) -> IsolationLevel:
    """Return the isolation level.

    Of an unknown one, and of versions without it, the one that shows everything.
    """
    return _COMMITTED if request.isolation_level == _COMMITTED else _UNCOMMITTED


def answer_bytes_max(broker: Broker, request: FetchRequest) -> int:
    """Return how many bytes of records the response may bring."""
    return broker.unread.bytes_of_fetch(request.max_bytes)


def owned(request: FetchRequest) -> FetchRequest:
    """Return a copy that later requests of the connection do not overwrite (``request_memo``).

    One with many partitions is not remembered, so none does.
    """
    if len(request.topics) > PARTITIONS_MAX or any(
        len(topic.partitions) > PARTITIONS_MAX for topic in request.topics
    ):
        return request
    topics = [
        topic
        if isinstance(topic.partitions, EncodedRows)
        else replace(topic, partitions=[replace(partition) for partition in topic.partitions])
        for topic in request.topics
    ]
    return replace(request, topics=topics)
