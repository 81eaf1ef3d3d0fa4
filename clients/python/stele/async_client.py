"""The asyncio client: single calls. ``AsyncProducer`` and ``AsyncConsumer`` build on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from . import calls
from .calls import AcksLike, At
from .errors import ConnectionLostError, ProduceError, SteleClientError, TopicExistsError, UnknownTopicError
from .operations import groups, topics
from .operations.base import Operation
from .operations.fetch import PARTITION_BYTES_MAX, SimpleConsume
from .operations.produce import RecordOutcome, SimpleProduce
from .records import (
    ClusterMetadata,
    FetchedRecords,
    HeadersLike,
    Membership,
    NewRecord,
    RecordMetadata,
    Timestamp,
    TopicDescription,
    TopicPartition,
)
from .transport import open_async
from .transport.base import REPETITIONS_MAX, AsyncTransport, backoff
from .wire.compression import Compression

if TYPE_CHECKING:
    from .grouping.async_group import AsyncGroup
    from .grouping.core import GroupSettings

R = TypeVar("R")


class AsyncClient:
    """Calls to one broker, over the transport its URL names.

    It connects on the first call and connects again after the broker was away.
    Any number of tasks of one event loop may use it at once. Without a URL the
    environment decides (``stele.config.url_from_environment``).

    Every call takes at most ``timeout_s`` and raises ``SteleClientError``s only;
    while the broker is down that is ``BrokerUnavailableError``, which is retriable.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout_s: float | None = None,
        connect_timeout_s: float | None = None,
    ) -> None:
        self.config = calls.make_config(url, timeout_s, connect_timeout_s)
        self.transport: AsyncTransport = open_async(self.config)
        self._partition_counts = calls.PartitionCounts()
        self._asking: dict[tuple[str, bool], asyncio.Task[int]] = {}

    @property
    def url(self) -> str:
        return self.config.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls under way fail with ConnectionLostError."""
        await self.transport.close()

    async def call(self, operation: Operation[R], *, timeout_s: float | None = None) -> R:
        """Carry out one operation; a repeatable one again if the connection breaks meanwhile."""
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        if not operation.is_repeatable:
            return await self.transport.call(operation, timeout_s=timeout_s)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        for _, pause_s in zip(range(REPETITIONS_MAX), backoff(), strict=False):
            try:
                return await self.transport.call(operation, timeout_s=max(deadline_s - loop.time(), 0.001))
            except ConnectionLostError:
                if loop.time() + pause_s >= deadline_s:
                    raise
            await asyncio.sleep(pause_s)
        return await self.transport.call(operation, timeout_s=max(deadline_s - loop.time(), 0.001))

    # ── records ──

    async def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
        acks: AcksLike = "all",
        timeout_s: float | None = None,
    ) -> RecordMetadata:
        """Store one record and return its receipt when ``acks`` is fulfilled.

        ``acks``: ``"all"`` survives loss of power, ``1`` survives a crash of the
        broker, ``0`` promises nothing. It is not repeated by itself, for that
        could store it twice: see the error's ``is_outcome_unknown``, or use a producer.
        """
        record = NewRecord(value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        try:
            (receipt,) = await self._produce(topic, [record], acks, Compression.NONE, timeout_s)
        except ProduceError as error:
            raise error.errors[0] from None
        return receipt

    async def produce_many(
        self,
        topic: str,
        records: Iterable[NewRecord | bytes | str],
        *,
        acks: AcksLike = "all",
        compression: Compression = Compression.NONE,
        timeout_s: float | None = None,
    ) -> list[RecordMetadata]:
        """Store records as few batches; receipts come in the order given.

        Raises:
            ProduceError: some were not accepted; it says which, and holds the other receipts.
        """
        return await self._produce(topic, records, acks, compression, timeout_s)

    async def _produce(
        self,
        topic: str,
        given: Iterable[NewRecord | bytes | str],
        acks: AcksLike,
        compression: Compression,
        timeout_s: float | None,
    ) -> list[RecordMetadata]:
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        records, asked = calls.prepare(given)
        if not records:
            return []
        count = None
        if not self.transport.broker_partitions_by_key and calls.needs_partition_count(records, asked):
            count = await self.partition_count(topic, auto_create=True)
        groups = calls.group(records, asked, count)
        number = calls.parse_acks(acks)
        outcomes: list[list[RecordOutcome] | SteleClientError] = []
        for target in groups:
            operation = calls.produce_operation(
                topic, target, acks=number, timeout_s=timeout_s, compression=compression
            )
            try:
                outcomes.append(await self.call(operation, timeout_s=timeout_s))
            except SteleClientError as error:
                if isinstance(error, UnknownTopicError):
                    self._partition_counts.forget(topic)
                outcomes.append(error)
        return calls.collect(groups, outcomes, len(records))

    async def fetch(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        max_records: int | None = None,
        max_bytes: int = PARTITION_BYTES_MAX,
        min_bytes: int = 1,
        wait_ms: int = 0,
        timeout_s: float | None = None,
    ) -> FetchedRecords:
        """Records from ``offset`` on; moves no position anywhere.

        Waits up to ``wait_ms`` for ``min_bytes``; an empty answer is no error. At
        least one batch comes even if it is larger than ``max_bytes``.

        Raises:
            OffsetOutOfRangeError: deleted by retention, or not written yet.
        """
        operation = calls.fetch_operation(
            topic, partition, offset, max_bytes=max_bytes, wait_ms=wait_ms, min_bytes=min_bytes
        )
        return calls.fetched(await self.call(operation, timeout_s=timeout_s), max_records)

    async def list_offset(self, topic: str, partition: int = 0, at: At = "latest") -> int | None:
        """The offset at ``at``: earliest, latest (the next to be written), or of the first record
        at or after a time (a datetime with a time zone, or ms since the epoch); None if there is none."""
        return await self.call(calls.list_offset_operation(topic, partition, at))

    # ── topics ──

    async def topics(self) -> list[TopicDescription]:
        """Names and partition counts of all topics."""
        found, after = await self.call(topics.ListTopics())
        while after is not None:
            page, after = await self.call(topics.ListTopics(after=after))
            found += page
        return found

    async def create_topic(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, object] | None = None
    ) -> TopicDescription:
        """Raises TopicExistsError; ``ensure_topic`` is the call that may be repeated."""
        self._partition_counts.forget(topic)
        return await self.call(
            topics.CreateTopic(topic=topic, partitions=partitions, configs=calls.text_configs(configs))
        )

    async def ensure_topic(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, object] | None = None
    ) -> TopicDescription:
        """Create ``topic``, or leave it as it is if it exists, whatever its shape; what it is then."""
        try:
            return await self.create_topic(topic, partitions=partitions, configs=configs)
        except TopicExistsError:
            return await self.describe_topic(topic)

    async def describe_topic(self, topic: str) -> TopicDescription:
        return await self.call(topics.DescribeTopic(topic=topic))

    async def alter_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> TopicDescription:
        """Change what is named. Partitions can only grow; a configuration of None goes back to its default."""
        self._partition_counts.forget(topic)
        changes = {n: None if v is None else calls.config_text(v) for n, v in (configs or {}).items()}
        return await self.call(topics.AlterTopic(topic=topic, partitions=partitions, configs=changes))

    async def delete_topic(self, topic: str) -> None:
        self._partition_counts.forget(topic)
        await self.call(topics.DeleteTopic(topic=topic))

    async def partition_count(self, topic: str, *, auto_create: bool = False) -> int:
        """How many partitions ``topic`` has; remembered for a minute.

        With ``auto_create`` an unknown topic is made, as a produce would.
        """
        count = self._partition_counts.get(topic)
        if count is not None:
            return count
        key = topic, auto_create
        task = self._asking.get(key)
        if task is None:
            # A thousand records for a topic that is not known yet ask once.
            task = asyncio.get_running_loop().create_task(self._ask_partition_count(topic, auto_create))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._asked(key, done))
        try:
            return await asyncio.shield(task)
        except SteleClientError as error:
            raise error.twin() from None

    async def _ask_partition_count(self, topic: str, auto_create: bool) -> int:
        operation = topics.PartitionCount(topic=topic, auto_create=auto_create)
        try:
            count = await self.call(operation)
        except UnknownTopicError:
            # Over TCP the broker has created it already, if it does that.
            if not (auto_create and self.transport.broker_partitions_by_key):
                raise
            await self.call(topics.ProduceNothing(topic=topic))
            count = await self.call(operation)
        self._partition_counts.put(topic, count)
        return count

    def _asked(self, key: tuple[str, bool], done: asyncio.Task[int]) -> None:
        del self._asking[key]
        if not done.cancelled():
            # Its callers may all have gone.
            done.exception()

    def known_partition_count(self, topic: str) -> int | None:
        """What ``partition_count`` remembers, without asking."""
        return self._partition_counts.get(topic)

    def forget_partition_count(self, topic: str) -> None:
        """Ask the broker again next time."""
        self._partition_counts.forget(topic)

    # ── groups ──

    def group(self, group: str, *topics: str, **options: Unpack[GroupSettings]) -> AsyncGroup:
        """Read ``topics`` together with all others that read as ``group``: see ``AsyncGroup`` and ``GroupOptions``."""
        from .grouping.async_group import AsyncGroup

        # A separate connection, because responses come in request order and a long poll would delay them.
        own = AsyncClient(
            self.url, timeout_s=self.config.timeout_s, connect_timeout_s=self.config.connect_timeout_s
        )
        return AsyncGroup(own, group, *topics, **options)

    async def join_group(
        self, group: str, *topics: str, session_timeout_s: float = 45.0, member_id: str = ""
    ) -> Membership:
        """Become a member, for who claims partitions and commits offsets himself; ``group`` needs none of that."""
        operation = groups.JoinGroup(
            group=group, topics=topics, session_timeout_ms=int(session_timeout_s * 1000), member_id=member_id
        )
        return await self.call(operation)

    async def heartbeat(self, group: str, member: Membership) -> Membership:
        """Stay a member, and hear what is assigned now. Raises GroupError when it is one no more."""
        operation = groups.Heartbeat(group=group, member_id=member.member_id, generation=member.generation)
        return await self.call(operation)

    async def leave_group(self, group: str, member: Membership) -> None:
        await self.call(groups.LeaveGroup(group=group, member_id=member.member_id))

    async def claim(self, group: str, member: Membership, partition: TopicPartition) -> None:
        """Become the owner of a partition that is assigned to ``member``. Raises GroupError."""
        operation = groups.Claim(
            group=group, member_id=member.member_id, generation=member.generation, partition=partition
        )
        await self.call(operation)

    async def release(self, group: str, member: Membership, partition: TopicPartition) -> None:
        """Own it no more. Raises GroupError."""
        operation = groups.Release(
            group=group, member_id=member.member_id, generation=member.generation, partition=partition
        )
        await self.call(operation)

    async def commit(
        self, group: str, member: Membership, partition: TopicPartition, offset: int, *, metadata: str = ""
    ) -> None:
        """Commit the offset of the next record to read, as the owner; durable on return. Raises GroupError."""
        operation = groups.Commit(
            group=group,
            member_id=member.member_id,
            generation=member.generation,
            partition=partition,
            offset=offset,
            metadata=metadata,
        )
        await self.call(operation)

    async def committed(self, group: str, partition: TopicPartition) -> int | None:
        """The offset from which ``group`` reads on; None if it has committed none."""
        return await self.call(groups.Committed(group=group, partition=partition))

    # ── the broker ──

    async def flush(self, topic: str | None = None) -> None:
        """Returns when everything appended before the call is on disk, in ``topic`` or everywhere."""
        await self.call(topics.Flush(topic=topic))

    async def metadata(self) -> ClusterMetadata:
        return await self.call(topics.Metadata())

    async def ping(self) -> None:
        """Returns when the broker has answered."""
        await self.call(topics.Ping())

    # ── ADR-0009 as it is, over stele:// only ──

    async def simple_produce(self, topic: str, data: bytes) -> int:
        """One record without key into partition 0, acks=1; its offset."""
        return await self.call(SimpleProduce(topic=topic, data=data))

    async def simple_produce_many(self, topic: str, values: Iterable[bytes]) -> list[int]:
        """One PRODUCE request for each value, pipelined; their offsets in order.

        Raises:
            SteleClientError: the first that failed; others may have been stored.
        """
        return await asyncio.gather(*(self.simple_produce(topic, value) for value in values))

    async def simple_consume(
        self, topic: str, offset: int, batch_size: int = 100
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Up to ``batch_size`` messages of partition 0: ``([(offset, data)…], next offset)``."""
        return await self.call(SimpleConsume(topic=topic, offset=offset, batch_size=batch_size))
