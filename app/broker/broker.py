"""The broker: all that a listener may call, on one event loop.

Listeners translate bytes into these calls and these results and errors into bytes;
they keep nothing that another listener would need.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from itertools import count
from typing import NamedTuple

from stele.wire import record_batch as rb
from stele.wire.messages import ANY_PARTITION, Durability
from stele.wire.partitioner import partition_for_key

from ..clock import Clock, PatientClock
from ..cluster.catalog import Catalog, NamedProducer
from ..errors import (
    BatchTooLarge,
    BrokerClosing,
    InternalTopic,
    InvalidBatch,
    InvalidRequest,
    OffsetOutOfRange,
    ProducerFenced,
    SteleError,
    StorageError,
    StorageFull,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from ..settings import Settings
from ..storage.disk_views import DiskSpace, SegmentState, Verification
from ..storage.engine import (
    AppendTicket,
    LogEngine,
    LogState,
    PartitionFetch,
    PartitionRead,
    TopicPartition,
)
from ..storage.waiters import PartitionWatch
from .broker_configs import BrokerFacts
from .counts import Counts
from .dynamic_configs import DynamicConfigs
from .placement import Placement
from .produce import Acks, PendingProduce, QueuedProduce
from .produce_queue import ProduceQueue
from .producer_state import ProducerStates, ProducerView, StoredBatch
from .reading import PartitionReader
from .recompress import PreparedBatches, has_preparation, needs_preparation, preparation
from .tail_subscriptions import TailSubscription, TailSubscriptions
from .topics import INTERNAL_TOPICS, Topic, Topics
from .virtual import VirtualTopic, VirtualTopics

logger = logging.getLogger(__name__)

# Ids are taken from the catalog in blocks: one synced transaction serves many producers.
_PRODUCER_ID_BLOCK = 1000
_KEYS_REMEMBERED = 16_384
# Enough for programs that delete topics and ask until they are gone.
_DELETED_REMEMBERED = 10_000
# Longer than anybody leaves a job half done; a name is some hundred bytes, and jobs make new ones.
_NAMED_PRODUCERS_KEPT_MS = 30 * 24 * 3_600_000
PRODUCER_NAME_CHARACTERS_MAX = 500
PRODUCER_VERSION_MAX = 2**63 - 1


class Endpoint(NamedTuple):
    """What clients are told: a host and a port that they can reach."""

    host: str
    port: int

    @property
    def joined(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Broker:
    """One broker over one engine and one catalog."""

    def __init__(self, *, engine: LogEngine, catalog: Catalog, clock: Clock, settings: Settings) -> None:
        self.settings = settings
        self.cluster_id = ""
        self.broker_id = settings.broker_id
        self.counts = Counts()
        # Where clients reach each listener, and what is bound, by its name; the composition root knows.
        self.endpoints: dict[str, Endpoint] = {}
        self.listeners: dict[str, Endpoint] = {}
        self._engine = engine
        self._catalog = catalog
        self._clock = clock
        self._producers: dict[TopicPartition, ProducerStates] = {}
        self._topics = Topics(
            catalog=catalog,
            engine=engine,
            make_producer_state=self._make_producer_state,
            partitions_max=settings.partitions_max,
        )
        # What is set on everything but topics; listeners call it directly.
        self.configs = DynamicConfigs(catalog=catalog, topics=self._topics, facts=self._facts)
        self._turns: defaultdict[str, count[int]] = defaultdict(count)
        self._producer_ids = iter(range(0))
        self._producer_ids_lock = asyncio.Lock()
        # Of named producers: partitions learn of a new epoch only when it writes to them.
        self._named_epochs: dict[int, int] = {}
        # Keys repeat: remembering the last ones costs a tenth of hashing them again.
        self._partition_for_key = lru_cache(maxsize=_KEYS_REMEMBERED)(
            partial(partition_for_key, hash_name=settings.partitioner)
        )
        self._deletion_observers: list[Callable[[str], object]] = []
        self._change_observers: list[Callable[[str], object]] = []
        self._tail_subscriptions = TailSubscriptions()
        self._queue = ProduceQueue(
            threads=settings.produce_threads, bytes_max=settings.produce_queue_bytes_max
        )
        self._virtual = VirtualTopics(engine.waiters)
        self._reader = PartitionReader(
            engine=engine,
            topics=self._topics,
            virtual=self._virtual,
            clock=clock,
            settings=settings,
            counts=self.counts,
        )
        # Names of topics that were deleted in this run, the oldest first.
        self._deleted: dict[str, None] = {}
        self._expiry: asyncio.Task[None] | None = None
        self._is_closing = False

    async def open(self) -> None:
        """Open every topic. Raises ``StorageError`` or ``OSError`` if the disk does not allow it."""
        self.cluster_id = await self._topics.in_thread(self._catalog.cluster_id)
        await self.configs.open()
        await self._topics.open()
        self._named_epochs = await self._topics.in_thread(self._catalog.named_epochs)
        self._expiry = asyncio.create_task(self._expire_producers())

    def _facts(self) -> BrokerFacts:
        bound = self.listeners.get("kafka") or Endpoint(self.settings.host, self.settings.kafka_port)
        advertised = self.endpoints.get("kafka") or bound
        return BrokerFacts(
            settings=self.settings,
            broker_id=self.broker_id,
            listener=bound.joined,
            advertised_listener=advertised.joined,
        )

    def begin_close(self) -> None:
        """Refuse what comes from now on, and end the long polls."""
        self._is_closing = True
        self._reader.begin_close()
        self._tail_subscriptions.wake_all()

    async def close(self) -> None:
        """Sync what came. The engine and the catalog are closed with it."""
        self.begin_close()
        if self._expiry is not None:
            self._expiry.cancel()
        await self._queue.close()
        await self._engine.close()
        await self._topics.close()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        """For durations: it goes on as time does, whatever is done to the clock."""
        return self._clock.monotonic_ms()

    @property
    def failure(self) -> StorageError | None:
        """Set once the log directory failed: nothing can be produced any more."""
        return self._engine.failure

    def observe_syncs(self, observer: Callable[[float], None]) -> None:
        """Have ``observer`` called with the seconds of each sync."""
        self._engine.observe_syncs(observer)

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def _make_producer_state(self, topic_partition: TopicPartition) -> ProducerStates:
        states = self._producers[topic_partition] = ProducerStates(self._clock)
        return states

    async def _expire_producers(self) -> None:
        clock = PatientClock(self._clock)
        while True:
            await asyncio.sleep(self.settings.producer_id_expiration_check_interval_ms / 1000)
            before_ms = clock.now_ms() - self.settings.producer_id_expiration_ms
            for states in self._producers.values():
                states.expire(before_ms)
            kept_ms = max(_NAMED_PRODUCERS_KEPT_MS, 2 * self.settings.producer_id_expiration_ms)
            await self._topics.in_thread(self._catalog.forget_named_producers, clock.now_ms() - kept_ms)

    # ── topics ──

    def topic(self, name: str) -> Topic:
        """Raises ``UnknownTopic``, ``InternalTopic``, or ``InvalidTopicName`` if there could be none."""
        return self._topics.topic(name)

    def readable_topic(self, name: str) -> Topic:
        """As ``topic``, and internal topics that are served. Raises ``UnknownTopic``, ``InvalidTopicName``."""
        internal = self._virtual.get(name)
        if internal is not None:
            return internal
        if name in INTERNAL_TOPICS:
            raise UnknownTopic(name)
        return self._topics.topic(name)

    def has_topic(self, name: str) -> bool:
        """True for internal topics that are served, too."""
        return self._topics.get(name) is not None or name in self._virtual

    def was_deleted(self, name: str) -> bool:
        """True if a topic of this name was deleted in this run and has not been made again."""
        return name in self._deleted and not self.has_topic(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id (16 bytes, KIP-516), or None; internal ones have ids, too."""
        return self._topics.by_id(topic_id) or self._virtual.by_id(topic_id)

    def topics(self) -> list[Topic]:
        """All topics, by name, but for internal ones."""
        return self._topics.all()

    def readable_topics(self) -> list[Topic]:
        """All topics, by name, and the internal ones that are served."""
        return sorted((*self._topics.all(), *self._virtual.all()), key=lambda topic: topic.name)

    def serve_virtual(self, virtual: VirtualTopic) -> None:
        """Serve an internal topic from now on. Its name is one of ``INTERNAL_TOPICS``."""
        assert virtual.topic.name in INTERNAL_TOPICS
        self._virtual.add(virtual)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        placement: Placement | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic; when this returns it survives the loss of power.

        ``placement`` says more than ``partitions`` and replaces it. With ``validate_only``
        nothing is made, and it only raises what it would raise.

        Raises:
            TopicExists, InternalTopic, InvalidTopicName, InvalidPartitionCount, TooManyPartitions, InvalidConfig,
            InvalidReplicationFactor, InvalidReplicaAssignment, InvalidRequest: see there.
            StorageFull, LogDirFailed: its directories could not be made.
        """
        self._refuse_when_closing()
        if name in INTERNAL_TOPICS:
            raise TopicExists(name) if name in self._virtual else InternalTopic(name)
        topic = await self._topics.create(
            name,
            placement=placement or Placement(partitions=partitions),
            default_partitions=self.settings.num_partitions,
            broker_id=self.broker_id,
            configs=configs or {},
            validate_only=validate_only,
        )
        if not validate_only:
            self._topic_changed(name)
        return topic

    async def ensure_topic(self, name: str) -> Topic:
        """The topic, created with the defaults if it is not there and that is allowed.

        Raises what ``create_topic`` raises, and ``InternalTopic``.
        """
        if name in INTERNAL_TOPICS:
            raise InternalTopic(name)
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if not self.settings.auto_create_topics_enable:
            return self._topics.topic(name)
        try:
            return await self.create_topic(name)
        except SteleError:
            # Another request may have made it first.
            existing = self._topics.get(name)
            if existing is None:
                raise
            return existing

    async def alter_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Set configurations (None: back to the default) and grow the partitions.

        With ``validate_only`` nothing is changed, and it only raises what it would raise.
        """
        self._refuse_when_closing()
        topic = await self._topics.alter(
            name, partitions=partitions, configs=configs or {}, validate_only=validate_only
        )
        if partitions is not None and not validate_only:
            self._topic_changed(name)
        return topic

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises ``UnknownTopic``."""
        self._refuse_when_closing()
        for topic_partition in await self._topics.delete(name):
            self._producers.pop(topic_partition, None)
        self._turns.pop(name, None)
        self._deleted[name] = None
        if len(self._deleted) > _DELETED_REMEMBERED:
            del self._deleted[next(iter(self._deleted))]
        self._tail_subscriptions.deleted(name)
        for observer in self._deletion_observers:
            observer(name)
        self._topic_changed(name)

    def observe_deletions(self, observer: Callable[[str], object]) -> None:
        """Have ``observer`` called with the name of each topic that was deleted."""
        self._deletion_observers.append(observer)

    def observe_topics(self, observer: Callable[[str], object]) -> None:
        """Have ``observer`` called with the name of each topic that was made, deleted, or got more partitions."""
        self._change_observers.append(observer)

    def _topic_changed(self, name: str) -> None:
        for observer in self._change_observers:
            observer(name)

    def _refuse_when_closing(self) -> None:
        if self._is_closing:
            raise BrokerClosing

    # ── produce ──

    def choose_partition(self, topic: Topic, key: bytes | None) -> int:
        """By the key's hash; without a key in turn."""
        if topic.partitions == 1:
            return 0
        if key is not None:
            return self._partition_for_key(key, topic.partitions)
        return next(self._turns[topic.name]) % topic.partitions

    def produce(
        self,
        topic: str,
        partition: int,
        batches: bytearray | memoryview,
        *,
        acks: Acks,
        sync_later: bool = False,
    ) -> PendingProduce:
        """Append ``batches`` (RecordBatch v2, one or more) now; the durability comes with the result.

        Ownership of ``batches`` passes: offsets are written into it. ``partition``
        -1 lets the broker choose in turn. With ``sync_later`` the sync of acks=all
        begins when the result is waited for: for who appends much before that. A retry of an idempotent batch is
        answered with the offsets of the first time.

        Raises:
            UnknownTopic, UnknownPartition, InvalidTopicName: create the topic first (``ensure_topic``).
            InternalTopic: the broker alone writes to it.
            InvalidBatch, InvalidTimestamp, BatchTooLarge: nothing was stored.
            OutOfOrderSequence, DuplicateSequence, ProducerFenced: see there.
            StorageFull, LogDirFailed, BrokerClosing: nothing was stored.

        Batches that the topic compresses itself, or whose records must be looked at,
        are appended when a thread has done that, in the order of the calls; what is
        wrong with them is raised by the result. Wait for ``produce_room`` first.
        """
        found = self._topics.topic(topic)
        if self._is_closing:
            raise BrokerClosing
        if partition == ANY_PARTITION:
            partition = self.choose_partition(found, None)
        elif not 0 <= partition < found.partitions:
            raise UnknownPartition(topic, partition, partitions=found.partitions)
        try:
            headers = rb.check_produced(batches)
        except rb.CorruptBatchError as error:
            raise InvalidBatch(str(error), is_damaged=isinstance(error, rb.CrcMismatchError)) from error
        name = TopicPartition(topic, partition)
        for header in headers:
            if header.size > found.config.max_message_bytes:
                raise BatchTooLarge(header.size, limit=found.config.max_message_bytes)
            if header.is_control or header.is_transactional:
                raise InvalidBatch("transactional and control batches are not served")
        if self._queue.is_busy(name) or needs_preparation(found.config, headers, self._clock.now_ms()):
            return self._enqueue(found, name, bytearray(batches), headers, acks, sync_later=sync_later)
        return self._append(found, name, batches, headers, acks, sync_later=sync_later)

    def _append(
        self,
        topic: Topic,
        name: TopicPartition,
        batches: bytearray | memoryview,
        headers: list[rb.BatchHeader],
        acks: Acks,
        *,
        sync_later: bool,
    ) -> PendingProduce:
        """Append checked batches unless they are stored already."""
        for header in headers:
            if header.has_producer_id:
                stored = self._check_sequence(name, header, len(headers))
                if stored is not None:
                    return self._produced_before(name, stored, acks)
        is_put_off = sync_later and acks is Acks.ALL and topic.config.storage == "disk"
        try:
            ticket = self._engine.append(name, batches, headers, sync=acks is Acks.ALL and not is_put_off)
        except StorageFull:
            if headers[0].has_producer_id:
                self._producers[name].refused(headers[0])
            raise
        self._tail_subscriptions.appended(*name)
        counts = self.counts
        counts.appended_batches += len(headers)
        counts.appended_records += ticket.last_offset - ticket.base_offset + 1
        counts.appended_bytes += len(batches)
        sync = partial(self._engine.when_synced, name, ticket.last_offset) if is_put_off else None
        return PendingProduce(*name, ticket, acks, sync)

    def _enqueue(
        self,
        topic: Topic,
        name: TopicPartition,
        batches: bytearray,
        headers: list[rb.BatchHeader],
        acks: Acks,
        *,
        sync_later: bool,
    ) -> PendingProduce:
        """Take the place of these batches in their partition, and append them when it is their turn."""
        now_ms = self._clock.now_ms()
        if needs_preparation(topic.config, headers, now_ms):
            prepare = partial(preparation(topic.config, now_ms).run, batches, headers)
        else:
            prepare = partial(PreparedBatches, batches, headers)

        def append(prepared: PreparedBatches) -> PendingProduce:
            current = self._topics.get(name.topic)
            if current is None or current.topic_id != topic.topic_id:
                # Deleted meanwhile.
                raise UnknownTopic(name.topic)
            return self._append(
                current, name, prepared.batches, prepared.headers, acks, sync_later=sync_later
            )

        pending = QueuedProduce(*name, acks)
        self._queue.put(name, len(batches), prepare=prepare, append=append, pending=pending)
        return pending

    @property
    def is_produce_queue_full(self) -> bool:
        return self._queue.is_full

    def may_queue(self, topic: Topic) -> bool:
        """True if batches of records with acceptable timestamps are queued for ``topic`` all the same."""
        is_busy = any(map(self._queue.is_busy, topic.topic_partitions()))
        return is_busy or has_preparation(topic.config)

    def must_wait_for_room(self, topic: str, batches: bytes | bytearray | memoryview) -> bool:
        """True if a produce of ``batches`` would be queued and the queue is full: see ``produce_room``."""
        if not self._queue.is_full:
            return False
        found = self._topics.get(topic)
        if found is None:
            return False
        try:
            headers = list(rb.iter_headers(batches))
        except rb.CorruptBatchError:
            # Refused without being queued.
            return False
        is_busy = any(map(self._queue.is_busy, found.topic_partitions()))
        return is_busy or needs_preparation(found.config, headers, self._clock.now_ms())

    async def produce_room(self) -> None:
        """Wait until the queue of produces has room; call ``produce`` next, without another wait."""
        await self._queue.room()

    def _check_sequence(
        self, name: TopicPartition, header: rb.BatchHeader, batches: int
    ) -> StoredBatch | None:
        if batches != 1:
            raise InvalidBatch("an idempotent producer sends one batch a partition at a time")
        newest = self._named_epochs.get(header.producer_id, header.producer_epoch)
        if header.producer_epoch < newest:
            raise ProducerFenced(
                producer_id=header.producer_id, epoch=header.producer_epoch, current_epoch=newest
            )
        return self._producers[name].check(header)

    def _produced_before(self, name: TopicPartition, stored: StoredBatch, acks: Acks) -> PendingProduce:
        waiting = self._engine.when_synced(name, stored.last_offset) if acks is Acks.ALL else None
        topic = self._topics.topic(name.topic)
        is_disk = topic.config.storage == "disk"
        durability = Durability.SYNCED if acks is Acks.ALL else Durability.APPENDED
        ticket = AppendTicket(
            base_offset=stored.base_offset,
            last_offset=stored.last_offset,
            log_append_time_ms=rb.NO_TIMESTAMP,
            log_start_offset=self._engine.state(name).log_start_offset,
            durability=durability if is_disk else Durability.NONE,
            future=waiting,
        )
        return PendingProduce(name.topic, name.partition, ticket, acks)

    async def init_producer_id(self) -> tuple[int, int]:
        """A producer id that nobody was given before, and its epoch 0."""
        self._refuse_when_closing()
        async with self._producer_ids_lock:
            producer_id = next(self._producer_ids, None)
            if producer_id is None:
                first = await self._topics.in_thread(self._catalog.next_producer_id_block, _PRODUCER_ID_BLOCK)
                self._producer_ids = iter(range(first + 1, first + _PRODUCER_ID_BLOCK))
                producer_id = first
            return producer_id, 0

    async def begin_producer_version(self, name: str, version: int) -> NamedProducer:
        """The producer id and epoch for ``version`` of what ``name`` writes; the same ones when asked again.

        So a job that is run again finds what it had stored: its producer's records with
        that epoch. A newer version means that the one before is complete, and fences it.

        Raises:
            InvalidRequest: a newer version has begun, or this one so long ago that the
                partitions may have forgotten what they have of it.
        """
        if not 0 < len(name) <= PRODUCER_NAME_CHARACTERS_MAX:
            raise InvalidRequest(
                f"a producer's name has {len(name)} characters; it must have 1 to {PRODUCER_NAME_CHARACTERS_MAX}"
            )
        if not 0 <= version <= PRODUCER_VERSION_MAX:
            raise InvalidRequest(f"a producer's version is {version}; it must be 0 or more")
        fresh_id, _ = await self.init_producer_id()
        now_ms = self._clock.now_ms()
        begin = partial(self._catalog.begin_producer_version, name, version, fresh_id=fresh_id, now_ms=now_ms)
        producer = await self._topics.in_thread(begin)
        self._named_epochs[producer.producer_id] = producer.epoch
        if producer.version != version:
            raise InvalidRequest(
                f"version {version} of producer {name!r} is older than version {producer.version}, which has "
                "begun: it is complete, or belongs to a checkpoint that was replaced; go on from that version, "
                "or choose a new name"
            )
        forgotten_ms = self.settings.producer_id_expiration_ms
        if producer.is_resumed and now_ms - producer.begun_at_ms > forgotten_ms:
            raise InvalidRequest(
                f"version {version} of producer {name!r} began more than {forgotten_ms} ms ago "
                "(STELE_PRODUCER_ID_EXPIRATION_MS): what is stored of it can not be told any more; choose a new "
                "name, after looking at what the topic has"
            )
        return producer

    async def flush(self, topic: str | None = None) -> None:
        """Sync everything appended before the call, in one topic or in all.

        Raises:
            UnknownTopic: there is none of that name.
            LogDirFailed: it could not be synced.
        """
        names = None if topic is None else self._topics.topic(topic).topic_partitions()
        await self._queue.drain(names)
        await self._engine.flush(names)

    # ── fetch ──

    async def fetch(
        self,
        requests: Sequence[PartitionFetch],
        *,
        max_bytes: int,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        is_scan: bool = False,
        with_internal: bool = False,
    ) -> list[PartitionRead]:
        """Return whole batches for each request, in the order of the requests.

        A partition that cannot be read has its error in its result; the others have their
        batches. The call waits up to ``max_wait_ms`` until there are ``min_bytes`` in all, or
        as much as the limits allow. An append ends the wait, and so does any error. With
        ``is_scan`` the bytes are not counted as read: the caller only searches them. Internal
        topics are read only ``with_internal``, because the offsets of their records have holes.
        """
        return await self._reader.fetch(
            requests,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            is_scan=is_scan,
            with_internal=with_internal,
        )

    async def wait_for_append(self, positions: Mapping[tuple[str, int], int], timeout_ms: int) -> None:
        """Return when a partition has a record at or after its offset, or after ``timeout_ms``.

        ``positions`` has an offset per topic and partition.
        """
        await self._reader.wait_for_append(positions, timeout_ms)

    def watch(self) -> PartitionWatch:
        """Return a watch that holds no partition yet; end it with ``close``.

        It remembers which of its partitions had appends, a new log start offset or a deletion,
        so that a client that reads the same partitions again need not look at all of them.
        """
        return self._reader.watch()

    def subscribe_tail(
        self, topic: str, partition: int | None = None
    ) -> AbstractContextManager[TailSubscription]:
        """Note the appends to a topic, or to one partition of it, from now on."""
        return self._tail_subscriptions.subscribe(topic, partition)

    # ── one partition's log ──

    def _partition(self, topic: str, partition: int) -> TopicPartition:
        return self._reader.partition(topic, partition)

    async def list_offset(self, topic: str, partition: int, at: int) -> tuple[int, int, int]:
        """Return ``(offset, timestamp in ms, leader epoch)`` for a time or a position.

        ``at`` is a time in ms, or one of the ``…_TIMESTAMP`` constants; ``MAX_TIMESTAMP`` finds
        the record with the newest time (KIP-734). For a time it is the first record at or after
        it, and (-1, -1, epoch) if there is none.

        Raises:
            UnknownTopic, UnknownPartition: the partition does not exist.
        """
        return await self._reader.list_offset(topic, partition, at)

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Move the log start offset up to ``before_offset``; return the new one.

        Raises:
            UnknownTopic, UnknownPartition: the partition does not exist.
            OffsetOutOfRange: it is past the high watermark, or negative.
        """
        name = self._partition(topic, partition)
        self._refuse_when_closing()
        state = self._engine.state(name)
        if not 0 <= before_offset <= state.high_watermark:
            raise OffsetOutOfRange(
                topic=topic,
                partition=partition,
                offset=before_offset,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.log_end_offset,
            )
        return await self._engine.delete_records(name, before_offset)

    def epoch_end_offset(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """Return ``(epoch, end offset)`` of the largest epoch up to ``epoch`` (KIP-101), or (-1, -1)."""
        return self._reader.epoch_end_offset(topic, partition, epoch)

    def producers(self, topic: str, partition: int) -> list[ProducerView]:
        """The idempotent producers that a partition remembers; none of an internal topic."""
        if topic in self._virtual:
            self._virtual.state(topic, partition)
            return []
        return self._producers[self._partition(topic, partition)].views()

    def producer(self, topic: str, partition: int, producer_id: int) -> ProducerView | None:
        """What a partition remembers of one producer. Raises ``UnknownTopic``, ``UnknownPartition``."""
        return self._producers[self._partition(topic, partition)].view(producer_id)

    def segment_count(self, topic: str, partition: int) -> int:
        """Return the number of segment files; 0 if there are none. Raises ``UnknownTopic``, ``UnknownPartition``."""
        return self._reader.segment_count(topic, partition)

    async def segments(self, topic: str, partition: int) -> list[SegmentState]:
        """Return the segment files of a partition, oldest first; none for a topic in memory.

        Raises:
            UnknownTopic, UnknownPartition: the partition does not exist.
        """
        return await self._reader.segments(topic, partition)

    async def verify(
        self, topic: str, partition: int, should_stop: Callable[[], bool]
    ) -> Verification | None:
        """Check every batch and index of a partition; None if ``should_stop``, asked in a thread, returned True.

        Raises:
            UnknownTopic, UnknownPartition: the partition does not exist.
            InvalidRequest: the engine keeps no files on this machine.
            StorageError: the files cannot be read.
        """
        return await self._reader.verify(topic, partition, should_stop)

    async def disk_space(self) -> DiskSpace | None:
        """Return the space of the file system; None if no files are kept. Raises ``StorageError``."""
        return await self._reader.disk_space()

    def log_state(self, topic: str, partition: int) -> LogState:
        """Return the offsets and size of a partition. Raises ``UnknownTopic``, ``UnknownPartition``."""
        return self._reader.log_state(topic, partition)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of ``log_state``, at less cost. Raises ``UnknownTopic``, ``UnknownPartition``."""
        return self._reader.leader_epoch(topic, partition)
