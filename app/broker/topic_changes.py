"""Changes of topics, and what each change means for the other parts of the broker.

``Topics`` makes a change durable. This module then drops the producer states and
tails of a deleted topic, and calls the observers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import BrokerClosing, InternalTopic, SteleError, TopicExists
from ..settings import Settings
from ..storage.topic_partition import TopicPartition
from .cluster import Cluster
from .placement import Placement
from .producing.partitioner import Partitioner
from .producing.producers import Producers
from .reading.tail_subscriptions import TailSubscriptions
from .topics import INTERNAL_TOPICS, Topic, Topics
from .virtual import VirtualTopics

# Enough for programs that delete topics and poll until they are gone.
_DELETED_REMEMBERED = 10_000


class TopicChanges:
    """Changes the topics of one broker; ``Broker`` has the same methods and documents them."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        topics: Topics,
        virtual: VirtualTopics,
        producers: Producers,
        partitioner: Partitioner,
        tail_subscriptions: TailSubscriptions,
        settings: Settings,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        topics.observe_refresh(self._refreshed)
        cluster.observe("topics", topics.refresh)
        self._virtual = virtual
        self._producers = producers
        self._partitioner = partitioner
        self._tail_subscriptions = tail_subscriptions
        self._settings = settings
        self._deletion_observers: list[Callable[[str], object]] = []
        self._change_observers: list[Callable[[str], object]] = []
        # Names of topics that were deleted in this run, oldest first.
        self._deleted: dict[str, None] = {}
        self._is_closing = False

    def begin_close(self) -> None:
        """Refuse changes from now on."""
        self._is_closing = True

    async def create(
        self,
        name: str,
        *,
        placement: Placement,
        configs: Mapping[str, str | None],
        validate_only: bool,
    ) -> Topic:
        self._refuse_when_closing()
        if name in INTERNAL_TOPICS:
            raise TopicExists(name) if name in self._virtual else InternalTopic(name)
        await self._cluster.refresh()
        topic = await self._topics.create(
            name,
            placement=placement,
            default_partitions=self._settings.num_partitions,
            broker_ids=[member.broker_id for member in self._cluster.members] or (self._settings.broker_id,),
            configs=configs,
            validate_only=validate_only,
        )
        if not validate_only:
            self._changed(name)
        return topic

    async def ensure(self, name: str) -> Topic:
        if name in INTERNAL_TOPICS:
            raise InternalTopic(name)
        topic = self._topics.get(name)
        if topic is None:
            await self._cluster.refresh()
            topic = self._topics.get(name)
        if topic is not None:
            return topic
        if not self._settings.auto_create_topics_enable:
            return self._topics.topic(name)
        try:
            return await self.create(
                name, placement=Placement(partitions=None), configs={}, validate_only=False
            )
        except SteleError:
            # Another request may have created it first.
            existing = self._topics.get(name)
            if existing is None:
                raise
            return existing

    async def alter(
        self,
        name: str,
        *,
        partitions: int | None,
        configs: Mapping[str, str | None],
        validate_only: bool,
    ) -> Topic:
        self._refuse_when_closing()
        await self._cluster.refresh()
        before = self._topics.get(name)
        topic = await self._topics.alter(
            name, partitions=partitions, configs=configs, validate_only=validate_only
        )
        if not validate_only and (before is None or _has_changed(before, topic)):
            self._changed(name)
        return topic

    async def delete(self, name: str) -> None:
        self._refuse_when_closing()
        await self._cluster.refresh()
        self._forget(name, await self._topics.delete(name))

    def _refreshed(self, before: Topic | None, after: Topic | None) -> None:
        """Do what a change of another broker means for this one."""
        if after is None:
            assert before is not None
            self._forget(before.name, before.topic_partitions())
        elif before is None or _has_changed(before, after):
            self._changed(after.name)

    def _forget(self, name: str, partitions: Sequence[TopicPartition]) -> None:
        self._producers.forget_partitions(partitions)
        self._partitioner.forget(name)
        self._deleted[name] = None
        if len(self._deleted) > _DELETED_REMEMBERED:
            del self._deleted[next(iter(self._deleted))]
        self._tail_subscriptions.deleted(name)
        for observer in self._deletion_observers:
            observer(name)
        self._changed(name)

    def was_deleted(self, name: str) -> bool:
        is_there = self._topics.get(name) is not None or name in self._virtual
        return name in self._deleted and not is_there

    def observe_deletions(self, observer: Callable[[str], object]) -> None:
        self._deletion_observers.append(observer)

    def observe(self, observer: Callable[[str], object]) -> None:
        """Call ``observer`` with the name of each topic that is created, deleted, grown, or made a table."""
        self._change_observers.append(observer)

    def _changed(self, name: str) -> None:
        for observer in self._change_observers:
            observer(name)

    def _refuse_when_closing(self) -> None:
        if self._is_closing:
            raise BrokerClosing


def _has_changed(before: Topic, after: Topic) -> bool:
    """Return whether observers of topics want to know of a change."""
    return before.partitions != after.partitions or before.config.iceberg_mode != after.config.iceberg_mode
