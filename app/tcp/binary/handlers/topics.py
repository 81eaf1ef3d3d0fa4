"""Topics and their configurations, and the address of the HTTP listener."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit

from stele.wire import messages as m

from ....broker.broker import Broker
from ....broker.topics import Topic
from ....errors import InvalidRequest, SteleError, TopicError
from ....security.acl import DESCRIBE_CONFIGS_TOPIC, DESCRIBE_TOPIC
from ....work_budget import SMALL_VISIT, WorkBudget, visited
from ...errors import error_code_of
from ...response_queue import Buffers
from .context import BinaryListener, encoded

METADATA_TOPICS_MAX = 10_000


async def metadata(listener: BinaryListener, request: m.MetadataRequest) -> Buffers:
    broker, access = listener.broker, listener.access
    topics: list[m.TopicMetadata] = []
    budget = WorkBudget()
    if request.topics is None:
        await broker.try_to_find_all_topics()
        async for topic in visited(broker.topics(), SMALL_VISIT, budget):
            if access is None or access.sees(DESCRIBE_TOPIC, topic.name):
                # It may be deleted during a pause.
                with suppress(TopicError):
                    topics.append(await _topic_metadata(broker, topic, budget))
    elif len(request.topics) > METADATA_TOPICS_MAX:
        raise InvalidRequest(
            f"{len(request.topics)} topics asked for at once; the limit is {METADATA_TOPICS_MAX}"
        )
    else:
        # Only what the client may see: otherwise the time of a refusal would tell whether a topic exists.
        await broker.try_to_find_topics(
            name for name in request.topics if access is None or access.sees(DESCRIBE_TOPIC, name)
        )
        async for name in visited(request.topics, budget=budget):
            try:
                if access is not None:
                    access.require(DESCRIBE_TOPIC, name)
                    if request.auto_create and not broker.has_topic(name):
                        access.require_create(name)
                topic = await broker.ensure_topic(name) if request.auto_create else broker.topic(name)
                topics.append(await _topic_metadata(broker, topic, budget))
            except SteleError as error:
                topics.append(m.TopicMetadata(topic=name[:1000], code=error_code_of(error)))
    response = m.MetadataResponse(
        cluster_id=broker.cluster_id,
        brokers=[m.BrokerEndpoint(id=broker.broker_id, host=listener.host, port=listener.port)],
        topics=topics,
    )
    return await encoded(response, sum([1 + len(topic.partitions) for topic in topics]))


async def _topic_metadata(broker: Broker, topic: Topic, budget: WorkBudget) -> m.TopicMetadata:
    """Raises ``TopicError`` if the topic is deleted meanwhile."""
    return m.TopicMetadata(
        topic=topic.name,
        topic_id=topic.topic_id.bytes,
        partitions=[
            m.PartitionMetadata(
                partition=partition,
                leader=broker.broker_id,
                leader_epoch=broker.log_state(topic.name, partition).leader_epoch,
            )
            async for partition in visited(range(topic.partitions), SMALL_VISIT, budget)
        ],
    )


def http_listener(listener: BinaryListener, request: m.HttpListenerRequest) -> Buffers:
    """Return the HTTP listener, which is on the host that the client knows already."""
    url = urlsplit(listener.broker.http_url or "")
    return m.HttpListenerResponse(port=url.port or 0, has_tls=url.scheme == "https").encode()


async def create_topic(listener: BinaryListener, request: m.CreateTopicRequest) -> Buffers:
    partitions = None if request.partitions == m.DEFAULT_PARTITIONS else request.partitions
    topic = await listener.broker.create_topic(
        request.topic, partitions=partitions, configs=dict(request.configs)
    )
    return m.CreateTopicResponse(
        topic_id=topic.topic_id.bytes, partitions=topic.partitions, configs=tuple(topic.configs.items())
    ).encode()


async def delete_topic(listener: BinaryListener, request: m.DeleteTopicRequest) -> Buffers:
    await listener.broker.delete_topic(request.topic)
    return m.DeleteTopicResponse().encode()


async def describe_topic(listener: BinaryListener, request: m.DescribeTopicRequest) -> Buffers:
    topic = listener.broker.topic(request.topic)
    return m.DescribeTopicResponse(
        topic_id=topic.topic_id.bytes,
        partitions=topic.partitions,
        configs=_shown_configs(listener, topic),
    ).encode()


def _shown_configs(listener: BinaryListener, topic: Topic) -> tuple[tuple[str, str], ...]:
    access = listener.access
    is_shown = access is None or access.sees(DESCRIBE_CONFIGS_TOPIC, topic.name)
    return tuple(topic.effective_configs.items()) if is_shown else ()


async def alter_topic(listener: BinaryListener, request: m.AlterTopicRequest) -> Buffers:
    partitions = None if request.partitions == m.DEFAULT_PARTITIONS else request.partitions
    topic = await listener.broker.alter_topic(
        request.topic, partitions=partitions, configs=dict(request.configs)
    )
    return m.AlterTopicResponse(
        topic_id=topic.topic_id.bytes,
        partitions=topic.partitions,
        configs=_shown_configs(listener, topic),
    ).encode()
