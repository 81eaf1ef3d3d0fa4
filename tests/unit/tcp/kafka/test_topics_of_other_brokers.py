"""Every API that names a topic, a partition or an id looks once for what another broker has made."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.cluster import DESCRIBE_QUORUM_API
from stele.wire.kafka.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from stele.wire.kafka.fetch import FETCH_API
from stele.wire.kafka.metadata import METADATA_API
from stele.wire.kafka.produce import PRODUCE_API
from stele.wire.kafka.share_groups import SHARE_FETCH_API, SHARE_GROUP_HEARTBEAT_API
from stele.wire.kafka.topics import CREATE_TOPICS_API
from stele.wire.kafka.transactions import ADD_PARTITIONS_TO_TXN_API, TXN_OFFSET_COMMIT_API
from stele.wire.schema import NO_UUID

from app.broker.cluster import SoloCluster
from app.broker.placement import Placement
from app.broker.topics import Topic, Topics
from app.tcp.kafka.apis import SERVED, Served
from app.tcp.kafka.topics_named import names_topics
from tests.support.kafka_application import kafka_listener
from tests.support.kafka_peer import read_response, request_frame
from tests.support.kafka_wire import KafkaWire, codes_of
from tests.support.sample_messages import TOPIC, sample

# Coordinators look for the topics of transactions (``SharedTransactionCoordinator``), changes of topics at the catalog.
# DescribeQuorum is about one topic, which no client creates; a share session is there before its fetches.
ELSEWHERE = {
    ADD_PARTITIONS_TO_TXN_API.key,
    TXN_OFFSET_COMMIT_API.key,
    CREATE_TOPICS_API.key,
    DESCRIBE_QUORUM_API.key,
    SHARE_FETCH_API.key,
}
RESOURCES = {DESCRIBE_CONFIGS_API.key, ALTER_CONFIGS_API.key, INCREMENTAL_ALTER_CONFIGS_API.key}
LOOKING = {PRODUCE_API.key, FETCH_API.key, METADATA_API.key, SHARE_GROUP_HEARTBEAT_API.key}
NAMING = [
    row
    for row in SERVED.values()
    if row.api.key not in ELSEWHERE | RESOURCES and (names_topics(row.api.request) or row.api.key in LOOKING)
]
ROWS = [pytest.param(row, id=row.api.name) for row in NAMING]
UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}


class OtherBrokers(SoloCluster):
    """A cluster in which a look takes over what another broker has done."""

    is_shared = True

    def __init__(self, take_over: Callable[[], None]) -> None:
        self.looks = 0
        self._take_over = take_over

    async def find(self) -> None:
        self.looks += 1
        self._take_over()


@asynccontextmanager
async def listener(
    path: Path, hide: Callable[[Topics, Topic], None]
) -> AsyncGenerator[tuple[KafkaWire, OtherBrokers, bytes, Callable[[], None]]]:
    """Yield a connection, the cluster, the id of the topic, and what hides it again."""
    async with kafka_listener(path) as at:
        topic = await at.broker.create_topic(TOPIC, placement=Placement(partitions=2))
        topics = at.broker._topics

        def take_over() -> None:
            if topics.get(TOPIC) is not None:
                topics._unset(topics.topic(TOPIC))
            topics._set(topic)

        cluster = OtherBrokers(take_over)
        at.broker.cluster = cluster

        def again() -> None:
            cluster.looks = 0
            if topics.get(TOPIC) is not None:
                topics._unset(topics.topic(TOPIC))
            hide(topics, topic)

        again()
        yield KafkaWire(at, at.broker.settings), cluster, topic.topic_id.bytes, again


def absent(_topics: Topics, _topic: Topic) -> None:
    """The topic was created at another broker a moment ago."""


def smaller(topics: Topics, topic: Topic) -> None:
    """Another broker has added its second partition a moment ago."""
    topics._set(replace(topic, partitions=1))


async def codes(wire: KafkaWire, row: Served, version: int, topic_id: bytes, *, partition: int) -> set[int]:
    request = sample(row.api.request, version, topic_id=topic_id, partition=partition)
    (frame,) = await wire.ask(request_frame(request, version))
    return codes_of(read_response(frame, row.api, version)[1])


@pytest.mark.every(3)
@pytest.mark.parametrize("row", ROWS)
async def test_a_topic_of_another_broker_is_found_by_one_look(row: Served, tmp_path: Path) -> None:
    async with listener(tmp_path, absent) as (wire, cluster, topic_id, again):
        for version in dict.fromkeys(row.api.versions):
            again()
            found = await codes(wire, row, version, topic_id, partition=1)
            assert (found & UNKNOWN, cluster.looks) == (set(), 1), version


def has_partitions(row: Served) -> bool:
    shown = str(sample(row.api.request, row.api.versions[0], topic_id=NO_UUID, partition=17))
    return "=17" in shown or "[17]" in shown


@pytest.mark.every(3)
@pytest.mark.parametrize("row", [pytest.param(row, id=row.api.name) for row in NAMING if has_partitions(row)])
async def test_a_partition_that_another_broker_has_added_is_found_by_one_look(
    row: Served, tmp_path: Path
) -> None:
    async with listener(tmp_path, smaller) as (wire, cluster, topic_id, again):
        for version in dict.fromkeys(row.api.versions):
            again()
            found = await codes(wire, row, version, topic_id, partition=1)
            assert (found & UNKNOWN, cluster.looks) == (set(), 1), version


# A member that joins a share group must know what its client said at another broker a moment ago.
@pytest.mark.every(3)
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.api.name) for row in NAMING if row.api.key != SHARE_GROUP_HEARTBEAT_API.key],
)
async def test_what_is_known_needs_no_look(row: Served, tmp_path: Path) -> None:
    async with listener(tmp_path, Topics._set) as (
        wire,
        cluster,
        topic_id,
        _,
    ):
        await codes(wire, row, row.api.versions[0], topic_id, partition=1)
        assert cluster.looks == 0
