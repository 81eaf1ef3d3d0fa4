"""Creates, alters and deletes topics: their names, partitions and configurations.

The catalog decides what exists. New partitions are made first, as far as the engine can,
so that a change that is refused leaves the catalog as it was; a crash in between leaves
directories without records, which are removed when the name is used again. With shared storage
the catalog makes the partitions, and other brokers use them at once: a failure after that is
reported and undoes nothing, and the next refresh opens what the catalog has. A deletion is
done when the catalog has it: files that cannot be removed then go later, or at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..cluster.catalog import Catalog, TopicRecord
from ..errors import (
    InternalTopic,
    InvalidConfig,
    InvalidPartitionCount,
    InvalidTopicName,
    SteleError,
    StorageError,
    StorageUnavailable,
    TooManyPartitions,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from ..storage.config_types import as_stored
from ..storage.engine import LogEngine, PartitionSpec, ProducerState
from ..storage.topic_config import (
    CONFIG_ENTRIES,
    MIRROR,
    TopicConfig,
    check_topic_config,
    contract_of,
    explicit_configs,
    parse_topic_config,
    stored_topic_config,
    type_of_topic_config,
    without_aliases,
)
from ..storage.topic_partition import TopicPartition
from ..work_budget import WorkBudget, visited
from .catalog_thread import CatalogThread, whole
from .placement import Placement

logger = logging.getLogger(__name__)

# Names that belong to the broker, as in Kafka: clients cannot create or alter such topics.
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE))
# The topic of the schema registry, which clients may read and write.
SCHEMAS = "_schemas"

NAME_LENGTH_MAX = 249
# More conflicts in a row mean that something else is wrong.
_ALTER_ATTEMPTS = 10
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic at one moment; each change makes a new object.

    ``configs`` are those that were set on the topic, ``shown`` are all in effect as
    clients see them, and ``config`` is what the broker acts on. ``is_internal``: the
    topic belongs to the broker and is read-only (ADR-0022).
    """

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str]
    shown: TopicConfig
    config: TopicConfig
    is_internal: bool = False

    @property
    def effective_configs(self) -> dict[str, str]:
        """Return every configuration in effect, by its Kafka name."""
        return self.shown.as_strings()

    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in range(self.partitions)]


def validate_topic_name(name: str) -> None:
    """Check a topic name by Kafka's rules.

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


def _check_config(name: str, config: TopicConfig) -> None:
    """Check what values mean together, and for this topic. Raises ``InvalidConfig``."""
    check_topic_config(config)
    if name == SCHEMAS and config.has_contract:
        raise InvalidConfig(
            *contract_of(config),
            f"topic '{SCHEMAS}' has the schemas themselves, and its records have none",
        )


def is_topic_name(name: str) -> bool:
    """Return whether a topic can have this name."""
    try:
        validate_topic_name(name)
    except InvalidTopicName:
        return False
    return True


def _collision_key(name: str) -> str:
    """Return the same key for names that differ only in '.' and '_', as metrics do."""
    return name.replace(".", "_")


class TopicsRefreshed(Protocol):
    """Gets a topic as it was before a change of another broker and after it; None where it did not exist."""

    def __call__(self, before: Topic | None, after: Topic | None) -> None: ...


def _ignore(before: Topic | None, after: Topic | None) -> None:
    """Do nothing about a change of another broker."""


class Topics:
    """The topics of this broker: in memory for readers, durable in the catalog."""

    def __init__(
        self,
        *,
        catalog: CatalogThread,
        engine: LogEngine,
        make_producer_state: Callable[[TopicPartition], ProducerState],
        partitions_max: int,
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._make_producer_state = make_producer_state
        self._partitions_max = partitions_max
        self._topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        # More than one name per key only if an earlier release created them; new ones are refused.
        self._colliding: dict[str, set[str]] = {}
        self._defaults = TopicConfig()
        self._changes = asyncio.Lock()
        self._refreshed: TopicsRefreshed = _ignore

    async def open(self) -> None:
        """Load all topics and open their partitions."""
        topics: list[Topic] = []
        for record in await self._catalog.run(lambda catalog: catalog.topics()):
            if record.name in INTERNAL_TOPICS:
                # Earlier releases let clients create such a topic.
                logger.warning(
                    "topic %r of an earlier release is not served: the name belongs to the broker now; "
                    "its files are kept",
                    record.name,
                )
                continue
            topics.append(self._topic(record))
        await self._engine.create([spec for topic in topics for spec in await self._specs(topic)])
        for topic in topics:
            self._set(topic)
        for deleted in await self._catalog.run(lambda catalog: catalog.deleted_topics()):
            # The last run ended, or met a disk that was full or broken, before all files were gone.
            if await self._engine.remove_leftovers(deleted.name, deleted.partitions, deleted.topic_id):
                await self._forget_deleted(deleted.topic_id)

    def _topic(self, record: TopicRecord) -> Topic:
        shown = stored_topic_config(record.configs, defaults=self._defaults)
        return Topic(
            name=record.name,
            topic_id=record.topic_id,
            partitions=record.partitions,
            configs=dict(record.configs),
            shown=shown,
            config=shown.enforced(),
        )

    def _set(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._names[topic.topic_id.bytes] = topic.name
        self._colliding.setdefault(_collision_key(topic.name), set()).add(topic.name)

    def _unset(self, topic: Topic) -> None:
        del self._topics[topic.name]
        del self._names[topic.topic_id.bytes]
        key = _collision_key(topic.name)
        self._colliding[key].discard(topic.name)
        if not self._colliding[key]:
            del self._colliding[key]

    @property
    def defaults(self) -> TopicConfig:
        """Return the configuration of a topic that sets none of its own."""
        return self._defaults

    async def set_defaults(self, defaults: TopicConfig) -> None:
        """Apply ``defaults`` to every topic, where it sets no value of its own."""
        async with self._changes:
            self._defaults = defaults
            budget = WorkBudget()
            for topic in self.all():
                shown = stored_topic_config(topic.configs, defaults=defaults)
                changed = replace(topic, shown=shown, config=shown.enforced())
                self._topics[topic.name] = changed
                await self._configure(topic.topic_partitions(), changed.config, budget)

    def by_id(self, topic_id: bytes) -> Topic | None:
        name = self._names.get(topic_id)
        return None if name is None else self._topics[name]

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            if name in INTERNAL_TOPICS:
                raise InternalTopic(name)
            validate_topic_name(name)
            raise UnknownTopic(name)
        return topic

    def partition(self, name: str, partition: int) -> TopicPartition:
        """Name a partition that exists. Raises ``UnknownPartition``, and as ``topic``."""
        topic = self.topic(name)
        if not 0 <= partition < topic.partitions:
            raise UnknownPartition(name, partition, partitions=topic.partitions)
        return TopicPartition(name, partition)

    def all(self) -> list[Topic]:
        return [self._topics[name] for name in sorted(self._topics)]

    async def _specs(self, topic: Topic, *, first_partition: int = 0) -> list[PartitionSpec]:
        return [
            PartitionSpec(
                topic_partition=name,
                topic_id=topic.topic_id,
                config=topic.config,
                producer_state=self._make_producer_state(name),
            )
            async for name in visited(topic.topic_partitions()[first_partition:])
        ]

    def _check_partitions(self, name: str, partitions: int, *, more: int) -> None:
        if partitions < 1:
            raise InvalidPartitionCount(name, partitions, "it needs at least one")
        total = sum(topic.partitions for topic in self._topics.values()) + more
        if more > 0 and total > self._partitions_max:
            raise TooManyPartitions(name, total=total, limit=self._partitions_max)

    def _refuse_name(self, name: str) -> None:
        """Check the name of a new topic. Raises ``InvalidTopicName``, ``TopicExists``."""
        validate_topic_name(name)
        if name in self._topics:
            raise TopicExists(name)
        for other in self._colliding.get(_collision_key(name), ()):
            raise InvalidTopicName(
                name,
                "'.' and '_' are the same in the names of metrics",
                message=f"Topic '{name}' collides with existing topic: {other}; choose a name that differs in more "
                "than '.' and '_'",
            )

    async def create(
        self,
        name: str,
        *,
        placement: Placement,
        default_partitions: int,
        broker_ids: Collection[int],
        configs: Mapping[str, str | None],
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic; the checks come in Kafka's order (ADR-0019): name, configurations, placement.

        ``broker_ids`` are the brokers that may be named in an assignment.
        """
        async with self._changes:
            self._refuse_name(name)
            explicit = explicit_configs(configs)
            _check_config(name, parse_topic_config(explicit, defaults=self._defaults))
            partitions = placement.count(name, default=default_partitions, broker_ids=broker_ids)
            self._check_partitions(name, partitions, more=partitions)
            record = TopicRecord(name=name, topic_id=uuid.uuid4(), partitions=partitions, configs=explicit)
            self._engine.check_config(self._topic(record).config)
            if validate_only:
                return self._topic(record)
            topic = self._topic(record)
            return await whole(self._create(topic, record))

    async def _create(self, topic: Topic, record: TopicRecord) -> Topic:
        specs = await self._specs(topic)
        await self._engine.prepare(specs)
        try:
            if not await self._catalog.run(lambda catalog: catalog.create_topic(record)):
                raise TopicExists(topic.name)
            try:
                await self._engine.create(specs)
            except BaseException:
                if not self._engine.is_shared:
                    await self._catalog.run(lambda catalog: catalog.delete_topic(record.topic_id))
                raise
        except BaseException:
            await self._undo(specs)
            raise
        self._set(topic)
        return topic

    async def _undo(self, specs: Sequence[PartitionSpec]) -> None:
        """Drop partitions that the catalog did not get."""
        try:
            await self._engine.drop([spec.topic_partition for spec in specs])
        except SteleError:
            # What failed before is reported.
            logger.exception("partitions whose creation was refused are not removed")

    async def alter(
        self,
        name: str,
        *,
        partitions: int | None,
        configs: Mapping[str, str | None],
        validate_only: bool = False,
        ends_mirror: bool = False,
    ) -> Topic:
        """Set configurations and add partitions.

        As in Kafka, the configurations are checked before the topic is looked up. Only with ``ends_mirror`` may
        ``stele.mirror`` change: the promotion of a copy has more to do (``producing.copies``).
        """
        validate_topic_name(name)
        for _ in range(_ALTER_ATTEMPTS):
            altered = await self._alter(
                name,
                partitions=partitions,
                configs=configs,
                validate_only=validate_only,
                ends_mirror=ends_mirror,
            )
            if altered is not None:
                return altered
            # Another broker has changed or deleted the topic in the meantime.
            await self.refresh()
        raise StorageUnavailable(f"altering topic {name!r}", "other brokers change it all the time")

    async def _alter(
        self,
        name: str,
        *,
        partitions: int | None,
        configs: Mapping[str, str | None],
        validate_only: bool,
        ends_mirror: bool,
    ) -> Topic | None:
        """Alter a topic; return None if the catalog has another state of it than this broker knows."""
        async with self._changes:
            existing = self._topics.get(name)
            merged = {} if existing is None else as_stored(existing.configs, type_of_topic_config)
            for key, value in without_aliases(configs).items():
                if value is None:
                    if key not in CONFIG_ENTRIES:
                        raise InvalidConfig.unknown(key, None)
                    merged.pop(key, None)
                else:
                    merged[key] = value
            shown = parse_topic_config(merged, defaults=self._defaults)
            _check_config(name, shown)
            topic = self.topic(name)
            config = shown.enforced()
            if config.storage != topic.config.storage:
                # Moving the records is not implemented: they would be lost.
                raise InvalidConfig(
                    "stele.storage",
                    config.storage,
                    f"the storage of topic {name!r} cannot change from {topic.config.storage}; create another topic",
                )
            if config.mirror != topic.config.mirror and not ends_mirror:
                raise InvalidConfig(
                    MIRROR,
                    config.mirror,
                    f"it cannot change from {topic.config.mirror!r}: a mirror makes its copies, and "
                    "'stele mirror promote' makes ordinary topics of them",
                )
            count = topic.partitions if partitions is None else partitions
            if count < topic.partitions:
                raise InvalidPartitionCount(
                    name, count, f"it has {topic.partitions}, and their number can only grow"
                )
            self._check_partitions(name, count, more=count - topic.partitions)
            record = TopicRecord(name=name, topic_id=topic.topic_id, partitions=count, configs=merged)
            self._engine.check_config(config)
            if validate_only:
                return self._topic(record)
            previous = TopicRecord(
                name=name, topic_id=topic.topic_id, partitions=topic.partitions, configs=topic.configs
            )
            return await whole(self._replace(topic, record, previous))

    async def _replace(self, topic: Topic, record: TopicRecord, previous: TopicRecord) -> Topic | None:
        altered = self._topic(record)
        specs = await self._specs(altered, first_partition=topic.partitions)
        await self._engine.prepare(specs)
        try:
            # A lower retention frees space.
            if not await self._stored(
                lambda catalog: catalog.update_topic(record, previous=previous), may_free_space=not specs
            ):
                await self._undo(specs)
                return None
            try:
                await self._engine.create(specs)
            except BaseException:
                if not self._engine.is_shared:
                    await self._catalog.run(lambda catalog: catalog.update_topic(previous, previous=record))
                raise
        except BaseException:
            await self._undo(specs)
            raise
        await self._configure(topic.topic_partitions(), altered.config)
        self._topics[topic.name] = altered
        return altered

    async def _configure(
        self,
        topic_partitions: Iterable[TopicPartition],
        config: TopicConfig,
        budget: WorkBudget | None = None,
    ) -> None:
        async for topic_partition in visited(topic_partitions, budget=budget):
            self._engine.configure(topic_partition, config)

    async def delete(self, name: str) -> Sequence[TopicPartition]:
        async with self._changes:
            return await whole(self._delete(self.topic(name)))

    async def _delete(self, topic: Topic) -> Sequence[TopicPartition]:
        await self._stored(lambda catalog: catalog.delete_topic(topic.topic_id), may_free_space=True)
        self._unset(topic)
        names = topic.topic_partitions()
        if await self._engine.drop(names):
            await self._forget_deleted(topic.topic_id)
        return names

    async def _forget_deleted(self, topic_id: uuid.UUID) -> None:
        try:
            await self._catalog.run(lambda catalog: catalog.forget_deleted_topic(topic_id))
        except StorageError as error:
            logger.warning("the next start looks for files of deleted topic %s: %s", topic_id, error)

    async def _stored(self, work: Callable[[Catalog], bool], *, may_free_space: bool) -> bool:
        """Change the catalog.

        On a full disk, what may free space gets what is kept back for it.
        """
        if not may_free_space:
            return await self._catalog.run(work)
        return await self._engine.with_kept_space(lambda: self._catalog.run(work))

    # ── changes of other brokers ──

    def observe_refresh(self, observer: TopicsRefreshed) -> None:
        """Call ``observer`` with what each refresh changed."""
        self._refreshed = observer

    async def refresh(self) -> None:
        """Take over what other brokers created, altered and deleted."""
        async with self._changes:
            records = {
                record.name: record
                for record in await self._catalog.run(lambda catalog: catalog.topics())
                if record.name not in INTERNAL_TOPICS
            }
            for topic in self.all():
                record = records.get(topic.name)
                if record is None or record.topic_id != topic.topic_id:
                    self._unset(topic)
                    try:
                        await self._engine.drop(topic.topic_partitions())
                    finally:
                        self._refreshed(topic, None)
            for record in records.values():
                await self._take_over(record)

    async def _take_over(self, record: TopicRecord) -> None:
        known = self._topics.get(record.name)
        if known is not None and (known.partitions, known.configs) == (record.partitions, record.configs):
            return
        topic = self._topic(record)
        specs = await self._specs(topic, first_partition=0 if known is None else known.partitions)
        try:
            await self._engine.create(specs)
        except UnknownTopic:
            # It was deleted after it was read; the next refresh finds it gone.
            return
        if known is None:
            self._set(topic)
        else:
            await self._configure(known.topic_partitions(), topic.config)
            self._topics[topic.name] = topic
        self._refreshed(known, topic)
