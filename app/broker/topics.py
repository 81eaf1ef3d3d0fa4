"""Topics: names, partition counts, configurations; created, altered and deleted.

The order of steps is the same for each change: the catalog first, because what
it holds survives; then the engine. A crash between the two is mended at the next
start, which opens what the catalog lists and removes what it does not.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from ..cluster.catalog import Catalog, TopicRecord
from ..errors import InvalidConfig, InvalidPartitionCount, InvalidTopicName, TopicExists, UnknownTopic
from ..storage.engine import BatchLedger, LogEngine, PartitionSpec, TopicPartition
from ..storage.topic_config import TopicConfig, parse_topic_config

_T = TypeVar("_T")

NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as it stands now; a change makes a new one.

    ``configs`` are those set explicitly, ``config`` is what is in effect.
    """

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str]
    config: TopicConfig

    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in range(self.partitions)]


def validate_topic_name(name: str) -> None:
    """Kafka's rules.

    Raises:
        InvalidTopicName: it could not be a topic of any Kafka-compatible broker.
    """
    if not name:
        raise InvalidTopicName(name, "it is empty")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopicName(name, f"it is longer than {NAME_LENGTH_MAX} characters")
    if name in (".", ".."):
        raise InvalidTopicName(name, "'.' and '..' are directories")
    if not _NAME.fullmatch(name):
        raise InvalidTopicName(name, "it may have letters, digits, '.', '_' and '-'")


def _topic(record: TopicRecord) -> Topic:
    return Topic(
        name=record.name,
        topic_id=record.topic_id,
        partitions=record.partitions,
        configs=dict(record.configs),
        config=parse_topic_config(record.configs),
    )


class Topics:
    """The topics of this broker, in memory for readers and in the catalog for good."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        engine: LogEngine,
        make_ledger: Callable[[TopicPartition], BatchLedger],
        partitions_max: int,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._make_ledger = make_ledger
        self._partitions_max = partitions_max
        self._topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        self._changes = asyncio.Lock()
        # SQLite: one writer, and none of it on the event loop.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-catalog")

    async def in_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Run ``work`` on the catalog's own thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def open(self) -> None:
        """Load all topics and open their partitions."""
        topics = [_topic(record) for record in await self.in_thread(self._catalog.topics)]
        await self._engine.create([spec for topic in topics for spec in self._specs(topic)])
        for topic in topics:
            self._set(topic)

    async def close(self) -> None:
        await self.in_thread(self._catalog.close)
        self._thread.shutdown()

    def _set(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._names[topic.topic_id.bytes] = topic.name

    def by_id(self, topic_id: bytes) -> Topic | None:
        name = self._names.get(topic_id)
        return None if name is None else self._topics[name]

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            validate_topic_name(name)
            raise UnknownTopic(name)
        return topic

    def all(self) -> list[Topic]:
        return [self._topics[name] for name in sorted(self._topics)]

    def _specs(self, topic: Topic, *, first_partition: int = 0) -> list[PartitionSpec]:
        return [
            PartitionSpec(
                topic_partition=name,
                topic_id=topic.topic_id,
                config=topic.config,
                ledger=self._make_ledger(name),
            )
            for name in topic.topic_partitions()[first_partition:]
        ]

    def _check_partitions(self, name: str, partitions: int, *, more: int) -> None:
        if partitions < 1:
            raise InvalidPartitionCount(name, partitions, "it needs at least one")
        total = sum(topic.partitions for topic in self._topics.values()) + more
        if total > self._partitions_max:
            raise InvalidPartitionCount(
                name, partitions, f"that makes {total} in all, and the limit is {self._partitions_max}"
            )

    async def create(
        self, name: str, *, partitions: int, configs: Mapping[str, str], validate_only: bool = False
    ) -> Topic:
        validate_topic_name(name)
        parse_topic_config(configs)
        async with self._changes:
            if name in self._topics:
                raise TopicExists(name)
            self._check_partitions(name, partitions, more=partitions)
            record = TopicRecord(
                name=name, topic_id=uuid.uuid4(), partitions=partitions, configs=dict(configs)
            )
            if validate_only:
                return _topic(record)
            if not await self.in_thread(self._catalog.create_topic, record):
                raise TopicExists(name)
            topic = _topic(record)
            try:
                await self._engine.create(self._specs(topic))
            except BaseException:
                await self.in_thread(self._catalog.delete_topic, record.topic_id)
                raise
            self._set(topic)
            return topic

    async def alter(
        self,
        name: str,
        *,
        partitions: int | None,
        configs: Mapping[str, str | None],
        validate_only: bool = False,
    ) -> Topic:
        async with self._changes:
            topic = self.topic(name)
            merged = {**topic.configs, **{key: value for key, value in configs.items() if value is not None}}
            for key, value in configs.items():
                if value is None:
                    parse_topic_config({key: topic.config.as_strings().get(key, "")})
                    merged.pop(key, None)
            config = parse_topic_config(merged)
            if config.storage != topic.config.storage:
                # Its records would be lost on the way.
                raise InvalidConfig(
                    "stele.storage", config.storage, f"the topic is on {topic.config.storage} for good"
                )
            count = topic.partitions if partitions is None else partitions
            if count < topic.partitions:
                raise InvalidPartitionCount(name, count, f"it has {topic.partitions}, and they can only grow")
            self._check_partitions(name, count, more=count - topic.partitions)
            record = TopicRecord(name=name, topic_id=topic.topic_id, partitions=count, configs=merged)
            if validate_only:
                return _topic(record)
            if not await self.in_thread(self._catalog.update_topic, record):
                raise UnknownTopic(name)
            altered = _topic(record)
            for topic_partition in topic.topic_partitions():
                self._engine.configure(topic_partition, config)
            await self._engine.create(self._specs(altered, first_partition=topic.partitions))
            self._topics[name] = altered
            return altered

    async def delete(self, name: str) -> Sequence[TopicPartition]:
        async with self._changes:
            topic = self.topic(name)
            await self.in_thread(self._catalog.delete_topic, topic.topic_id)
            del self._topics[name]
            del self._names[topic.topic_id.bytes]
            names = topic.topic_partitions()
            await self._engine.drop(names)
            return names
