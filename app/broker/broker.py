"""The facade of the broker: everything that a listener may call, on one loop.

Listeners translate bytes into these calls, and results and errors into bytes; they
keep no state that another listener would need. Each part of the broker has its state
in a class of its own: topics and their changes, configurations, producers, appending.
The facade connects them, starts and ends them in order, and delegates. However long, it is
one class: a method states what a listener may rely on, and calls the part that does it.
"""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain, starmap

from stele.wire.isolation_level import IsolationLevel

from ..clock import Clock
from ..cluster.catalog import Catalog, NamedProducer
from ..errors import BrokerClosing, MirroredTopic, OffsetOutOfRange, StorageError, UnknownTopic
from ..settings import Settings
from ..storage.engine import (
    AppendTicket,
    LogEngine,
    LogState,
    PartitionFetch,
    PartitionRead,
    TierOffsets,
)
from ..storage.sequences import ProducerView
from ..storage.topic_partition import TopicPartition
from ..storage.transactional_produce import TransactionalProduce
from ..storage.waiters import PartitionWatch
from ..work_budget import SMALL_VISIT, visited
from .broker_configs import BrokerFacts
from .catalog_thread import CatalogThread
from .cluster import Cluster, SoloCluster
from .counts import Counts
from .dynamic_configs import DynamicConfigs
from .listeners import Endpoint
from .mirrors import MirrorDefinitions
from .placement import Placement
from .producing.appending import Appender
from .producing.contracts import Contracts
from .producing.copies import Copies
from .producing.partitioner import Partitioner
from .producing.produce import Acks, PendingProduce
from .producing.produce_queue import QueueSize
from .producing.producer_state import OpenTransaction
from .producing.producers import Producers
from .producing.transaction_gate import MarkerOrder, TransactionGate
from .quotas.manager import Quotas
from .quotas.rate import Window
from .reading.decoded_bytes import DecodedBytes, DecodedReader
from .reading.keyed_reading import KeyedReader, KeyedRecord
from .reading.partition_reader import PartitionReader
from .reading.tail_subscriptions import TailSubscription, TailSubscriptions
from .reading.unread_responses import UnreadResponses
from .storage_views import StorageViews
from .topic_changes import TopicChanges
from .topics import INTERNAL_TOPICS, Topic, Topics
from .virtual import PartitionLeader, VirtualTopic, VirtualTopics


class Broker:
    """One broker over one engine and one catalog."""

    def __init__(
        self,
        *,
        engine: LogEngine,
        catalog: Catalog,
        clock: Clock,
        settings: Settings,
        cluster: Cluster | None = None,
    ) -> None:
        self.settings = settings
        # Listeners call it directly.
        self.cluster: Cluster = cluster or SoloCluster()
        self.cluster_id = ""
        self.broker_id = settings.broker_id
        self.counts = Counts()
        # Everything that unpacks batches holds room in it.
        self.decoded = DecodedBytes(settings.decoded_bytes_max)
        # What clients have not read of the responses of TCP listeners.
        self.unread = UnreadResponses(fetch_bytes_max=settings.fetch_bytes_max)
        # The advertised and the bound address of each listener, by its name; ``app.main`` sets them.
        self.endpoints: dict[str, Endpoint] = {}
        # Where clients reach the HTTP listener; None until it has an address.
        self.http_url: str | None = None
        self.listeners: dict[str, Endpoint] = {}
        self.kafka_security_protocol = "PLAINTEXT"
        self._engine = engine
        self._clock = clock
        self._catalog = CatalogThread(catalog)
        self._producers = Producers(catalog=self._catalog, clock=clock, settings=settings)
        self._topics = Topics(
            catalog=self._catalog,
            engine=engine,
            make_producer_state=self._producers.add_partition,
            partitions_max=settings.partitions_max,
        )
        self.configs = DynamicConfigs(
            catalog=self._catalog,
            topics=self._topics,
            facts=self._facts,
            cluster=self.cluster,
            set_cleaner_backoff=engine.set_cleaner_backoff,
        )
        # Listeners call it directly, as they call ``configs``.
        self.quotas = Quotas(
            catalog=self._catalog,
            now_ms=clock.monotonic_ms,
            clock_s=time.perf_counter,
            window=Window(settings.quota_window_num, settings.quota_window_size_seconds * 1000),
            cluster=self.cluster,
        )
        self._partitioner = Partitioner(settings.partitioner)
        self._tail_subscriptions = TailSubscriptions(engine.waiters.turns)
        self._appender = Appender(
            engine=engine,
            topics=self._topics,
            producers=self._producers,
            partitioner=self._partitioner,
            counts=self.counts,
            clock=clock,
            settings=settings,
        )
        # Listeners call it directly.
        self.copies = Copies(
            engine=engine,
            topics=self._topics,
            producers=self._producers,
            appender=self._appender,
            # With shared storage, copies are counted only when they are committed.
            activity=lambda: (
                self.counts.appended_batches - self.counts.copied_batches + self.counts.fetched_bytes
            ),
        )
        engine.observe_appends(
            lambda name: self._tail_subscriptions.readable(*name),
            lambda: self._tail_subscriptions.partitions(self._topics),
        )
        self._virtual = VirtualTopics(engine.waiters)
        self._topic_changes = TopicChanges(
            cluster=self.cluster,
            topics=self._topics,
            virtual=self._virtual,
            producers=self._producers,
            partitioner=self._partitioner,
            tail_subscriptions=self._tail_subscriptions,
            settings=settings,
        )
        self._reader = PartitionReader(
            engine=engine,
            topics=self._topics,
            virtual=self._virtual,
            clock=clock,
            settings=settings,
            counts=self.counts,
        )
        # Listeners call it directly, as they call ``keyed``.
        self.storage = StorageViews(engine=engine, topics=self._topics, virtual=self._virtual)
        # Listeners call it directly.
        self.mirrors = MirrorDefinitions(self._catalog)
        # Compacted topics by key; listeners call it directly.
        self.keyed = KeyedReader(engine=engine, topics=self._topics)
        self._is_closing = False

    async def open(self) -> None:
        """Open every topic. Raises ``StorageError`` or ``OSError`` if the disk fails."""
        self.cluster_id = await self._catalog.run(lambda catalog: catalog.cluster_id())
        await self.configs.open()
        await self.quotas.open()
        await self._topics.open()
        await self._producers.open()

    def _facts(self) -> BrokerFacts:
        bound = self.listeners.get("kafka") or Endpoint(self.settings.host, self.settings.kafka.port)
        advertised = self.endpoints.get("kafka") or bound
        return BrokerFacts(
            settings=self.settings,
            broker_id=self.broker_id,
            listener=bound.joined,
            advertised_listener=advertised.joined,
            security_protocol=self.kafka_security_protocol,
        )

    def begin_close(self) -> None:
        """Refuse new writes and changes, and end the long polls."""
        self._is_closing = True
        self.quotas.begin_close()
        self._topic_changes.begin_close()
        self._appender.begin_close()
        self.copies.begin_close()
        self._producers.begin_close()
        self._reader.begin_close()
        self._tail_subscriptions.wake_all()

    async def close(self) -> None:
        """Append and sync what was accepted, then close the engine and the catalog."""
        self.begin_close()
        self._producers.close()
        await self._appender.close()
        await self._engine.close()
        await self._catalog.close()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        """Return a time for durations; changes to the clock do not affect it."""
        return self._clock.monotonic_ms()

    @property
    def failure(self) -> StorageError | None:
        """The error of the log directory, after which nothing can be produced; or None."""
        return self._engine.failure

    async def check_writable(self) -> None:
        """Check whether records can be stored.

        Raises:
            StorageFull: not while the disk is full.
            StorageError: the engine has stopped.
        """
        await self._engine.check_writable()

    @property
    def stall(self) -> StorageError | None:
        """The reason not to direct new clients here for now, or None."""
        return self._engine.stall or self.cluster.stall

    def observe_syncs(self, observer: Callable[[float], None]) -> None:
        """Call ``observer`` with the seconds of each sync."""
        self._engine.observe_syncs(observer)

    def run_in_catalog(self, call: Callable[[], bool]) -> Future[bool]:
        """Run ``call`` in the thread of the catalog, which has it before this returns."""
        return self._catalog.submit(call)

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    # ── topics ──

    def topic(self, name: str) -> Topic:
        """Return a topic.

        Raises ``UnknownTopic``, ``InternalTopic``, ``InvalidTopicName``.
        """
        return self._topics.topic(name)

    def readable_topic(self, name: str) -> Topic:
        """Return a topic, or an internal one that is served.

        Raises ``UnknownTopic``, ``InvalidTopicName``.
        """
        internal = self._virtual.get(name)
        if internal is not None:
            return internal
        if name in INTERNAL_TOPICS:
            raise UnknownTopic(name)
        return self._topics.topic(name)

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists, or an internal one of this name is served."""
        return self._topics.get(name) is not None or name in self._virtual

    def knows(
        self,
        names: Iterable[str] = (),
        *,
        ids: Iterable[bytes] = (),
        partitions: Iterable[tuple[str | bytes, int]] = (),
    ) -> bool:
        """Return whether this broker knows all of these; then no look is needed."""
        return all(self._known(names, ids, partitions))

    def _known(
        self, names: Iterable[str], ids: Iterable[bytes], partitions: Iterable[tuple[str | bytes, int]]
    ) -> Iterator[object]:
        """Return something true for each that this broker knows."""
        return chain(
            map(self.has_topic, names), map(self.topic_by_id, ids), starmap(self._has_partition, partitions)
        )

    def _has_partition(self, name: str | bytes, number: int) -> bool:
        """``name`` is that of a topic, or its id."""
        if isinstance(name, bytes):
            topic = self.topic_by_id(name)
        else:
            topic = self._topics.get(name) or self._virtual.get(name)
        return topic is not None and number < topic.partitions

    async def find_topics(
        self,
        names: Iterable[str] = (),
        *,
        ids: Iterable[bytes] = (),
        partitions: Iterable[tuple[str | bytes, int]] = (),
    ) -> None:
        """Look at what other brokers have created or grown, unless all is known here.

        The rule for every request that names a topic, a partition or an id: unknown, one look, then the answer, which
        ``topic`` and ``topic_by_id`` have. The number of looks is bounded, however often clients ask for topics
        that do not exist; a caller that comes too early waits for the next look.

        Raises ``StorageUnavailable``.
        """
        if not self.cluster.is_shared:
            return
        async for is_known in visited(self._known(names, ids, partitions), SMALL_VISIT):
            if not is_known:
                await self.cluster.find()
                return

    async def try_to_find_topics(
        self,
        names: Iterable[str] = (),
        *,
        ids: Iterable[bytes] = (),
        partitions: Iterable[tuple[str | bytes, int]] = (),
    ) -> None:
        """As ``find_topics``, without an error.

        Without an answer, what this broker knows is as good as it gets.
        """
        with suppress(StorageError):
            await self.find_topics(names, ids=ids, partitions=partitions)

    async def try_to_find_all_topics(self) -> None:
        """Look at what other brokers have created, before all topics are listed.

        As ``try_to_find_topics``: at the same rate, and without an error.
        """
        with suppress(StorageError):
            await self.cluster.find()

    def was_deleted(self, name: str) -> bool:
        """Return whether this topic was deleted in this run and not created again."""
        return self._topic_changes.was_deleted(name)

    def topic_by_name(self, name: str) -> Topic | None:
        """Return the topic with this name, None if there is none."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic, also an internal one, with this 16-byte id (KIP-516)."""
        return self._topics.by_id(topic_id) or self._virtual.by_id(topic_id)

    def topics(self) -> list[Topic]:
        """Return all topics except internal ones, sorted by name."""
        return self._topics.all()

    def readable_topics(self) -> list[Topic]:
        """Return all topics and the internal ones that are served, sorted by name."""
        return sorted((*self._topics.all(), *self._virtual.all()), key=lambda topic: topic.name)

    def serve_virtual(self, virtual: VirtualTopic) -> None:
        """Serve an internal topic; its name must be one of ``INTERNAL_TOPICS``."""
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
        """Create a topic; when this returns, the topic survives a loss of power.

        ``placement`` takes precedence over ``partitions``. With ``validate_only`` nothing
        is created, but the same errors are raised.

        Raises:
            TopicExists, InternalTopic, InvalidTopicName, InvalidPartitionCount, TooManyPartitions, InvalidConfig,
            InvalidReplicationFactor, InvalidReplicaAssignment, InvalidRequest: see there.
            StorageFull, LogDirFailed: its directories could not be created.
        """
        return await self._topic_changes.create(
            name,
            placement=placement or Placement(partitions=partitions),
            configs=configs or {},
            validate_only=validate_only,
        )

    async def ensure_topic(self, name: str) -> Topic:
        """Return a topic; create it with the defaults if auto-creation is enabled.

        Raises what ``create_topic`` raises, and ``InternalTopic``.
        """
        return await self._topic_changes.ensure(name)

    async def alter_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Set configurations (None resets one to the default) and add partitions.

        With ``validate_only`` nothing is changed, but the same errors are raised.
        """
        return await self._topic_changes.alter(
            name, partitions=partitions, configs=configs or {}, validate_only=validate_only
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises ``UnknownTopic``."""
        await self._topic_changes.delete(name)

    def observe_deletions(self, observer: Callable[[str], object]) -> None:
        """Call ``observer`` with the name of each deleted topic."""
        self._topic_changes.observe_deletions(observer)

    def observe_topics(self, observer: Callable[[str], object]) -> None:
        """Call ``observer`` with the name of each topic that is created, deleted, grown, or made a table."""
        self._topic_changes.observe(observer)

    # ── produce ──

    def choose_partition(self, topic: Topic, key: bytes | None) -> int:
        """Return the partition for a record, by its key or round-robin without one."""
        return self._partitioner.choose(topic, key)

    def produce(
        self,
        topic: str,
        partition: int,
        batches: bytearray | memoryview,
        *,
        acks: Acks,
        sync_later: bool = False,
        transaction: TransactionalProduce | None = None,
        expected_end: int | None = None,
    ) -> PendingProduce:
        """Append ``batches`` (RecordBatch v2) and return their pending receipt.

        The broker takes ownership of ``batches`` and writes offsets into it.
        ``partition`` -1 lets the broker choose in turn. With ``sync_later`` the sync of
        acks=all begins only when the result is awaited, for callers that append much
        before that. A retry of an idempotent batch is answered with the offsets of the
        first time.

        Batches that the topic compresses itself, or whose records must be looked at, are
        appended after a thread has done that, and large ones in slices, in the order of the
        calls; errors in such batches are raised by the result. Await ``produce_room`` first.

        Raises:
            UnknownTopic, UnknownPartition, InvalidTopicName: create the topic first (``ensure_topic``).
            InternalTopic: only the broker writes to it.
            MirroredTopic: only its mirror does.
            InvalidBatch, InvalidTimestamp, MissingKey, BrokenContract, BatchTooLarge: nothing was stored.
            OutOfOrderSequence, DuplicateSequence, ProducerFenced: see there.
            UnexpectedEnd: see below.
            InvalidTransactionState: the batch is outside of the open transaction of its producer.
            StorageFull, LogDirFailed, BrokerClosing: nothing was stored.

        A transactional batch needs ``transaction``, and is appended if the gate admits it: what
        ``TransactionGate.admit`` raises is raised, too, and ``InvalidRequest`` for a topic in memory.

        With ``expected_end`` the append is conditional: a single batch, with acks 1 or all, which is stored only if
        the log end offset of the partition is ``expected_end`` when it gets its offsets. Control records and what
        readers do not see yet count. Otherwise the call or the result raises ``UnexpectedEnd`` with the actual end.
        A retry of an idempotent batch that was stored is a repeat, as without a condition. Without a producer id the
        caller of an append with an unknown outcome must read what is at ``expected_end``.
        """
        return self._appender.produce(topic, partition, batches, acks, sync_later, transaction, expected_end)

    def set_contracts(self, contracts: Contracts) -> None:
        """Hold topics to ``contracts``; without them, topics that have one accept no records."""
        self._appender.contracts = contracts

    # ── transactions ──

    def set_transaction_gate(self, gate: TransactionGate) -> None:
        """Let ``gate`` decide about transactional batches; without one they are refused."""
        self._appender.gate = gate

    def append_markers(self, orders: Sequence[MarkerOrder], *, sync: bool = False) -> list[AppendTicket]:
        """Append the markers of ended transactions in this turn of the event loop.

        Returns a ticket per order. Readers see the end of the transactions at once, if the data was synced; with ``sync``
        a ticket is done when its marker is synced. Nothing is appended, and the ticket has no
        offset, if the partition has no open transaction of the producer and knows the epoch
        already: then the marker was appended before, so a call that failed may be repeated.

        Raises:
            UnknownTopic, UnknownPartition: a partition does not exist; nothing was appended.
            ProducerFenced: a partition knows a newer epoch; nothing was appended.
            CoordinatorFenced: a newer coordinator has ended a transaction; nothing was appended.
            StorageFull, LogDirFailed: some markers may have been appended.
            BrokerClosing: nothing was appended.
        """
        return self._appender.append_markers(orders, sync=sync)

    def open_since(self, topic_partition: TopicPartition, producer_id: int) -> int | None:
        """Return where the open transaction of a producer begins in a partition; None if it has none there.

        Thousands of others may be open there. Raises ``UnknownTopic``, ``UnknownPartition``.
        """
        return self._producers.open_since(self._partition(*topic_partition), producer_id)

    def open_transactions(self, topic_partition: TopicPartition | None = None) -> list[OpenTransaction]:
        """Return the transactions without a marker, of one partition or of all.

        Raises ``UnknownTopic``, ``UnknownPartition``.
        """
        name = None if topic_partition is None else self._partition(*topic_partition)
        return self._producers.open_transactions(name)

    async def sync(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Sync what was appended to these partitions before the call; those that do not exist are left out.

        Raises ``LogDirFailed``.
        """
        if topic_partitions:
            await self._engine.flush(topic_partitions)

    @property
    def producer_counts(self) -> tuple[int, int]:
        """How many producers partitions remember, and how many they forgot because there were too many."""
        return self._producers.count, self._producers.forgotten

    @property
    def produce_queue(self) -> QueueSize:
        """The size of the queue of batches that are large or that a thread must prepare."""
        return self._appender.queue.size

    @property
    def is_produce_queue_full(self) -> bool:
        """True if batches that are large or need a thread must wait for ``produce_room``."""
        return self._appender.queue.is_full

    def may_queue(self, topic: Topic) -> bool:
        """Return whether batches with acceptable timestamps are queued for ``topic``."""
        return self._appender.may_queue(topic)

    def must_wait_for_room(self, topic: str, batches: bytes | bytearray | memoryview) -> bool:
        """Return whether to await ``produce_room`` before producing ``batches``."""
        return self._appender.must_wait_for_room(topic, batches)

    async def produce_room(self) -> None:
        """Wait for room in the produce queue; then ``produce`` without another await."""
        await self._appender.queue.room()

    async def init_producer_id(self) -> tuple[int, int]:
        """Return a producer id that was never given out before, and its epoch 0.

        Raises ``BrokerClosing``.
        """
        return await self._producers.new_id()

    async def begin_producer_version(self, name: str, version: int) -> NamedProducer:
        """Begin or resume ``version`` of the producer ``name``.

        Raises ``InvalidRequest``, ``BrokerClosing``: see ``Producers.begin_version``.
        """
        return await self._producers.begin_version(name, version)

    async def flush(self, topic: str | None = None) -> None:
        """Sync everything appended before the call, in one topic or in all.

        Raises:
            UnknownTopic: there is none of that name.
            LogDirFailed: it could not be synced.
        """
        names = None if topic is None else self._topics.topic(topic).topic_partitions()
        await self._appender.queue.drain(names)
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

    async def read(
        self, requests: Sequence[PartitionFetch], *, max_bytes: int, refreshes: bool
    ) -> list[PartitionRead]:
        """Read once, internal topics too; the bytes are not counted.

        A caller that does not wait afterwards ``refreshes``: if there is nothing, it is asked whether the ends have
        moved.
        """
        return await self._reader.read(requests, max_bytes=max_bytes, with_internal=True, refreshes=refreshes)

    def fetch_now(self, requests: Sequence[PartitionFetch], *, max_bytes: int) -> list[PartitionRead] | None:
        """Read a few stored partitions, if no disk must be waited for.

        The result is that of ``read``; None for every error.
        """
        return self._reader.fetch_now(requests, max_bytes=max_bytes)

    async def wait_for_more(
        self,
        requests: Sequence[PartitionFetch],
        reads: Sequence[PartitionRead],
        *,
        min_bytes: int,
        timeout_ms: int,
    ) -> None:
        """Wait until ``min_bytes`` have come since ``reads``, as ``fetch`` does."""
        await self._reader.wait_for_more(requests, reads, min_bytes=min_bytes, timeout_ms=timeout_ms)

    async def newest_record(
        self, topic: str, key: bytes, reader: DecodedReader, *, partition: int | None = None
    ) -> KeyedRecord | None:
        """See ``KeyedReader``."""
        return await self.keyed.newest_record(topic, key, reader, partition=partition)

    async def wait_for_append(
        self,
        positions: Mapping[tuple[str, int], int],
        timeout_ms: int,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        """Wait for a record at or after the offset of any partition, or the timeout.

        ``positions`` has an offset per topic and partition. With READ_COMMITTED records of open
        transactions do not count.
        """
        await self._reader.wait_for_append(positions, timeout_ms, isolation=isolation)

    def watch(self, *, notes_hidden: bool = False) -> PartitionWatch:
        """Return a watch that holds no partition yet; end it with ``close``.

        It remembers which of its partitions had appends, a new log start offset or a deletion,
        so that a client that reads the same partitions again need not look at all of them. Set its
        ``isolation`` to READ_COMMITTED to leave out the batches of open transactions; with ``notes_hidden``
        they are remembered all the same, and end no wait.
        """
        return self._reader.watch(notes_hidden=notes_hidden)

    def subscribe_tail(
        self, topic: str, partition: int | None = None
    ) -> AbstractContextManager[TailSubscription]:
        """Note the appends to a topic, or to one partition of it, from now on."""
        return self._tail_subscriptions.subscribe(topic, partition)

    # ── one partition's log ──

    def _partition(self, topic: str, partition: int) -> TopicPartition:
        return self._topics.partition(topic, partition)

    async def refresh(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Refresh ``log_state`` with all earlier appends of any broker to ``partitions``.

        Await it before a request is refused because of an end, or is answered with one. Partitions that do
        not exist, or are internal, are left out.

        Raises ``StorageUnavailable``.
        """
        await self._reader.refresh(partitions)

    async def list_offset(
        self,
        topic: str,
        partition: int,
        at: int,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        is_refreshed: bool = False,
    ) -> tuple[int, int, int]:
        """Return ``(offset, timestamp in ms, leader epoch)`` for a time or a position.

        ``at`` is a time in ms, or one of the ``…_TIMESTAMP`` constants; ``MAX_TIMESTAMP`` finds
        the record with the newest time (KIP-734). For a time it is the first record at or after
        it, and (-1, -1, epoch) if there is none. With READ_COMMITTED the end is the last stable
        offset, and there is no record at or after it. ``is_refreshed``: the caller has awaited ``refresh``.

        Raises:
            UnknownTopic, UnknownPartition: the partition does not exist.
            StorageUnavailable: the end cannot be determined now.
            NotLeader: another broker serves this partition of an internal topic.
        """
        return await self._reader.list_offset(
            topic, partition, at, isolation=isolation, is_refreshed=is_refreshed
        )

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Move the log start offset up to ``before_offset``; return the new one.

        Raises:
            UnknownTopic, UnknownPartition: the partition does not exist.
            OffsetOutOfRange: it is past the high watermark, or negative.
            MirroredTopic: it begins where its source does.
        """
        name = self._partition(topic, partition)
        if mirror := self._topics.topic(topic).config.mirror:
            raise MirroredTopic(topic, mirror)
        if self._is_closing:
            raise BrokerClosing
        await self._engine.refresh([name])
        state = self._engine.state(name)
        if not 0 <= before_offset <= state.high_watermark:
            raise OffsetOutOfRange(
                topic=topic,
                partition=partition,
                offset=before_offset,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.high_watermark,
            )
        return await self._engine.delete_records(name, before_offset)

    def epoch_end_offset(self, topic: str, partition: int, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch``, itself if all are later, and its end offset (KIP-101).

        (-1, -1) for an epoch that has not begun.
        """
        return self._reader.epoch_end_offset(topic, partition, epoch)

    async def producers(self, topic: str, partition: int) -> list[ProducerView]:
        """Return the producers that a partition remembers; none for an internal topic.

        Raises ``UnknownTopic``, ``UnknownPartition``, and ``NotLeader`` for an internal topic.
        """
        if topic in self._virtual:
            self._virtual.state(topic, partition)
            return []
        return await self._engine.producers(self._partition(topic, partition))

    async def producer(self, topic: str, partition: int, producer_id: int) -> ProducerView | None:
        """Return what a partition remembers of one producer; None if nothing.

        Raises ``UnknownTopic``, ``UnknownPartition``.
        """
        return await self._engine.producer(self._partition(topic, partition), producer_id)

    def log_state(self, topic: str, partition: int) -> LogState:
        """Return the offsets and size of a partition.

        Raises ``UnknownTopic``, ``UnknownPartition``, and ``NotLeader`` for an internal topic.
        """
        return self._reader.log_state(topic, partition)

    def check_partition(self, topic: str, partition: int) -> None:
        """Raises ``UnknownTopic``, ``UnknownPartition``."""
        self._reader.check_partition(topic, partition)

    def leader(self, topic: str, partition: int) -> PartitionLeader | None:
        """Return which broker serves a partition of an internal topic.

        None if every broker would: ``cluster.leaders`` says where clients are sent. Raises ``UnknownPartition``.
        """
        return self._reader.leader(topic, partition)

    def tiers(self, topic: str, partition: int) -> TierOffsets:
        """Return which records of a partition are on this disk, and which in the bucket."""
        if topic in self._virtual:
            return TierOffsets(self.log_state(topic, partition).log_start_offset, -1)
        return self._engine.tiers(self._partition(topic, partition))

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch that clients are shown; raises as ``log_state``."""
        return self._reader.leader_epoch(topic, partition)

    def oldest_leader_epoch(self, topic: str, partition: int) -> int:
        """Return the oldest epoch that a client may know without having missed anything."""
        return self._reader.oldest_leader_epoch(topic, partition)
