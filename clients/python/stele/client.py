# Generated from async_client.py by clients/python/unasync.py: edit that, then run `make format`.
"""The blocking client for single calls.

It is the base of ``Producer`` and ``Consumer``.

One class holds every call that a program may make, because that is how it is used and looked up; a
method is a signature, its documentation, and a line or two over ``operations``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from . import calls
from .calls import AcksLike, At, Isolation
from .concurrency import Closing, SharedCalls, sleep
from .config import ClientConfig, FilePath
from .credentials import LoginOptions
from .errors import ConnectionLostError, ProduceError, SteleClientError, TopicExistsError, UnknownTopicError
from .operations import groups, topics
from .operations.base import Operation
from .operations.fetch import FETCH_BYTES_MAX, PARTITION_BYTES_MAX, Fetch, ListOffset, SimpleConsume
from .operations.produce import Produce, SimpleProduce
from .operations.tables import LookUpKey
from .records import (
    ClusterMetadata,
    FetchedRecords,
    HeadersLike,
    Membership,
    NewRecord,
    Record,
    RecordMetadata,
    Timestamp,
    TopicDescription,
    TopicPartition,
)
from .serializers import Deserializer, bytes_deserializer
from .transport.base import REPETITIONS_MAX, backoff
from .transport.transport import Transport, open_transport
from .wire import messages as m
from .wire.compression import Compression

if TYPE_CHECKING:
    from .grouping.core import GroupSettings
    from .grouping.group import Group
    from .grouping.queue import Queue
    from .grouping.queue_core import QueueSettings
    from .tables.core import TableSettings
    from .tables.table import Table
    from .transactions.transaction import Transaction

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class Client(Closing):
    """A connection to one broker, over the transport that its URL selects.

    It connects on the first call, and reconnects after an outage of the broker.
    Any number of threads or gevent greenlets may use it at once. The child of a fork
    may go on with it, over connections of its own.
    Without a URL it reads the environment (``stele.config.url_from_environment``).

    With ``stele+tls://`` and ``https://``, ``ca_file`` names the CAs to trust instead of
    those of the system; ``certificate_file`` and ``key_file`` are the client's own. They may
    also stand in the URL or in the environment (``stele.config.TlsFiles``).
    ``stele.credentials.LoginOptions`` has the arguments of a login.

    Every call takes at most ``timeout_s`` and raises only subclasses of
    ``SteleClientError``. While the broker is down that is ``BrokerUnavailableError``,
    which is retriable.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout_s: float | None = None,
        connect_timeout_s: float | None = None,
        ca_file: FilePath | None = None,
        certificate_file: FilePath | None = None,
        key_file: FilePath | None = None,
        config: ClientConfig | None = None,
        **login: Unpack[LoginOptions],
    ) -> None:
        """``config`` takes the place of all other arguments."""
        self.config: ClientConfig = config or calls.make_config(
            url,
            timeout_s,
            connect_timeout_s,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            **login,
        )
        self.transport: Transport = open_transport(self.config)
        self._partition_counts = calls.PartitionCounts()
        self._lookups: SharedCalls[tuple[str, bool], int] = SharedCalls()

    @property
    def url(self) -> str:
        return self.config.url

    def close(self) -> None:
        """Close the connections; pending calls fail with ConnectionLostError."""
        self.transport.close()

    def call(self, operation: Operation[R], *, timeout_s: float | None = None) -> R:
        """Execute an operation; retry a repeatable one if the connection breaks."""
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        if not operation.is_repeatable:
            return self.transport.call(operation, timeout_s=timeout_s)
        deadline_s = time.monotonic() + timeout_s
        for _, pause_s in zip(range(REPETITIONS_MAX), backoff(), strict=False):
            try:
                return self.transport.call(operation, timeout_s=max(deadline_s - time.monotonic(), 0.001))
            except ConnectionLostError:
                if time.monotonic() + pause_s >= deadline_s:
                    raise
            sleep(pause_s)
        return self.transport.call(operation, timeout_s=max(deadline_s - time.monotonic(), 0.001))

    # ── records ──

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: Timestamp | None = None,
        acks: AcksLike = "all",
        expected_end: int | None = None,
        timeout_s: float | None = None,
    ) -> RecordMetadata:
        """Store one record and return its receipt.

        ``acks``: with ``"all"`` a stored record survives a power failure, with ``1``
        a crash of the broker, with ``0`` there is no guarantee. The call is not
        retried, because a retry could store the record twice: check the error's
        ``is_outcome_unknown``, or use a producer.

        With ``expected_end`` the record is stored only at this offset of ``partition``, as the next one. If the
        outcome is unknown, fetch the record at ``expected_end``: it is this one, another one, or there is none yet.

        Raises:
            UnexpectedEndError: the partition ends elsewhere than at ``expected_end``.
            SteleClientError: the record was not stored, or its outcome is unknown.
        """
        record = NewRecord(value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        try:
            (receipt,) = self._produce(topic, [record], acks, Compression.NONE, expected_end, timeout_s)
        except ProduceError as error:
            raise error.errors[0] from None
        return receipt

    def produce_many(
        self,
        topic: str,
        records: Iterable[NewRecord | bytes | str],
        *,
        acks: AcksLike = "all",
        compression: Compression = Compression.NONE,
        expected_end: int | None = None,
        timeout_s: float | None = None,
    ) -> list[RecordMetadata]:
        """Store records in as few batches as possible; return receipts in the order given.

        With ``expected_end`` all of them are stored, as one batch, or none: see ``produce``. They must name one
        partition. An error is raised as it is, not as a ProduceError.

        Raises:
            UnexpectedEndError: the partition ends elsewhere than at ``expected_end``.
            ProduceError: some records were not accepted. It has their errors by index,
                and the receipts of the others.
        """
        return self._produce(topic, records, acks, compression, expected_end, timeout_s)

    def _produce(
        self,
        topic: str,
        given: Iterable[NewRecord | bytes | str],
        acks: AcksLike,
        compression: Compression,
        expected_end: int | None,
        timeout_s: float | None,
    ) -> list[RecordMetadata]:
        timeout_s = self.config.timeout_s if timeout_s is None else timeout_s
        records, partitions = calls.prepare(given)
        if not records:
            return []
        count = None
        if not self.transport.broker_partitions_by_key and calls.needs_partition_count(records, partitions):
            count = self.partition_count(topic, auto_create=True)
        if expected_end is None:
            groups = calls.group(records, partitions, count)
        else:
            groups = calls.conditional_group(records, partitions)
        number, timeout_ms = calls.parse_acks(acks), max(int(timeout_s * 1000), 1)
        operations = [
            Produce(
                topic=topic,
                partition=target.partition,
                records=target.records,
                acks=number,
                timeout_ms=timeout_ms,
                compression=compression,
                expected_end=expected_end,
            )
            for target in groups
        ]
        outcomes = self.transport.call_all(operations, timeout_s=timeout_s)
        if any(isinstance(outcome, UnknownTopicError) for outcome in outcomes):
            self._partition_counts.forget(topic)
        if expected_end is not None and isinstance(outcomes[0], SteleClientError):
            raise outcomes[0]
        return calls.collect(groups, outcomes, len(records))

    def fetch(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        max_records: int | None = None,
        max_bytes: int = PARTITION_BYTES_MAX,
        min_bytes: int = 1,
        wait_ms: int = 0,
        isolation: Isolation = "read_committed",
        timeout_s: float | None = None,
    ) -> FetchedRecords:
        """Read records from ``offset`` on, without a consumer's position.

        Waits up to ``wait_ms`` for ``min_bytes``; the result may be empty. The first
        batch is returned even if it is larger than ``max_bytes``.

        Raises:
            OffsetOutOfRangeError: ``offset`` was deleted by retention, or is past the
                log end.
        """
        if offset < 0:
            raise ValueError(f"offset is {offset}; use list_offset for 'earliest' and 'latest'")
        if not 0 < max_bytes <= FETCH_BYTES_MAX:
            raise ValueError(f"max_bytes is {max_bytes}; it must be from 1 to {FETCH_BYTES_MAX}")
        operation = Fetch(
            partitions=(
                m.FetchPartition(topic=topic, partition=partition, offset=offset, max_bytes=max_bytes),
            ),
            wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation=calls.parse_isolation(isolation),
        )
        return calls.fetched(self.call(operation, timeout_s=timeout_s), max_records)

    def list_offset(
        self,
        topic: str,
        partition: int = 0,
        at: At = "latest",
        *,
        isolation: Isolation = "read_committed",
    ) -> int | None:
        """Return the offset at ``at``; None if no record is that late.

        ``at``: ``"earliest"``, ``"latest"`` (the offset of the next record), or a time,
        for the first record at or after it: a datetime with a time zone, or ms since
        the epoch.
        """
        operation = ListOffset(
            topic=topic,
            partition=partition,
            timestamp_ms=calls.parse_at(at),
            isolation=calls.parse_isolation(isolation),
        )
        return self.call(operation)

    def lookup(
        self,
        topic: str,
        key: bytes | str,
        *,
        partition: int | None = None,
        timeout_s: float | None = None,
    ) -> Record[bytes] | None:
        """Return the newest record of ``key`` in a compacted topic.

        None if there is none, or it was deleted.

        Without ``partition`` all partitions are looked at. If several have records of the
        key, the record with the newest timestamp counts.

        Raises:
            InvalidRequestError: the topic is not compacted.
        """
        operation = LookUpKey(
            topic=topic,
            key=key.encode() if isinstance(key, str) else key,
            partition=m.ALL_PARTITIONS if partition is None else partition,
        )
        record = self.call(operation, timeout_s=timeout_s)
        return None if record is None or record.value is None else record

    @overload
    def table(
        self, topic: str, *, key: None = None, value: None = None, **settings: Unpack[TableSettings]
    ) -> Table[bytes, bytes]: ...
    @overload
    def table(
        self, topic: str, *, key: Deserializer[K], value: None = None, **settings: Unpack[TableSettings]
    ) -> Table[K, bytes]: ...
    @overload
    def table(
        self, topic: str, *, key: None = None, value: Deserializer[V], **settings: Unpack[TableSettings]
    ) -> Table[bytes, V]: ...
    @overload
    def table(
        self, topic: str, *, key: Deserializer[K], value: Deserializer[V], **settings: Unpack[TableSettings]
    ) -> Table[K, V]: ...
    def table(
        self,
        topic: str,
        *,
        key: Deserializer[Any] | None = None,
        value: Deserializer[Any] | None = None,
        **settings: Unpack[TableSettings],
    ) -> Table[Any, Any]:
        """Open a compacted topic as a mapping that follows its changes.

        See ``Table`` and ``TableOptions``.

        ``key`` and ``value`` are deserializers; without them, keys and values are bytes.
        """
        from .tables.table import Table

        # A separate connection, because responses come in request order and a long poll would delay them.
        own = Client(config=self.config)
        return Table(own, topic, key=key or bytes_deserializer, value=value or bytes_deserializer, **settings)

    # ── topics ──

    def topics(self) -> list[TopicDescription]:
        """List all topics, without their configurations."""
        listed, after = self.call(topics.ListTopics())
        while after is not None:
            page, after = self.call(topics.ListTopics(after=after))
            listed += page
        return listed

    def create_topic(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, object] | None = None
    ) -> TopicDescription:
        """Create a topic; ``partitions`` None is the broker's default.

        Raises:
            TopicExistsError: use ``ensure_topic`` if that is not an error.
        """
        self._partition_counts.forget(topic)
        return self.call(topics.CreateTopic(**calls.topic_settings(topic, partitions, configs)))

    def ensure_topic(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, object] | None = None
    ) -> TopicDescription:
        """Create ``topic`` unless it exists; return its description either way.

        An existing topic keeps its partitions and configuration.
        """
        try:
            return self.create_topic(topic, partitions=partitions, configs=configs)
        except TopicExistsError:
            return self.describe_topic(topic)

    def describe_topic(self, topic: str) -> TopicDescription:
        return self.call(topics.DescribeTopic(topic=topic))

    def alter_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> TopicDescription:
        """Change a topic's partitions or configuration; the rest stays as it is.

        The number of partitions can only grow. A configuration of None is reset to its
        default.
        """
        self._partition_counts.forget(topic)
        return self.call(topics.AlterTopic(**calls.topic_settings(topic, partitions, configs)))

    def delete_topic(self, topic: str) -> None:
        self._partition_counts.forget(topic)
        self.call(topics.DeleteTopic(topic=topic))

    def partition_count(self, topic: str, *, auto_create: bool = False) -> int:
        """Return the number of partitions of ``topic``, from a cache of one minute.

        With ``auto_create`` an unknown topic is created, if the broker's settings allow.
        """
        count = self._partition_counts.get(topic)
        if count is None:
            # Of many callers with records for an unknown topic, one asks the broker.
            count = self._lookups.call(
                (topic, auto_create), lambda: self._ask_partition_count(topic, auto_create)
            )
        return count

    def _ask_partition_count(self, topic: str, auto_create: bool) -> int:
        operation = topics.PartitionCount(topic=topic, auto_create=auto_create)
        try:
            count = self.call(operation)
        except UnknownTopicError:
            # Over TCP the broker has already created the topic, if it may.
            if not (auto_create and self.transport.broker_partitions_by_key):
                raise
            self.call(topics.ProduceNothing(topic=topic))
            count = self.call(operation)
        self._partition_counts.put(topic, count)
        return count

    def known_partition_count(self, topic: str) -> int | None:
        """Return the cached result of ``partition_count``; None if there is none."""
        return self._partition_counts.get(topic)

    def forget_partition_count(self, topic: str) -> None:
        """Drop the cached result of ``partition_count``."""
        self._partition_counts.forget(topic)

    # ── transactions ──

    def transaction(self, transactional_id: str, *, timeout_s: float = 60.0) -> Transaction:
        """Write records and settle leases as one unit, over an ``http://`` URL.

        ::

            with client.transaction("job-7") as tx:
                tx.produce("invoices", b"…")
                tx.ack(batch)

        The end of the block commits, and an exception aborts. ``transactional_id`` names the program: when
        it begins again, what it left open is aborted, and another process that uses the id is fenced. See
        ``Transaction``.
        """
        from .transactions.transaction import Transaction

        return Transaction(self, transactional_id, timeout_s=timeout_s)

    # ── groups ──

    def group(self, group: str, *topics: str, **options: Unpack[GroupSettings]) -> Group:
        """Read ``topics`` as one of the readers of ``group``.

        See ``Group`` and ``GroupOptions``.
        """
        from .grouping.group import Group

        # A separate connection, because responses come in request order and a long poll would delay them.
        own = Client(config=self.config)
        return Group(own, group, *topics, **options)

    def queue(self, group: str, *topics: str, **options: Unpack[QueueSettings]) -> Queue:
        """Take single records of ``topics`` as a reader of the share group ``group``.

        See ``Queue`` and ``QueueOptions``. Over HTTP only.
        """
        from .grouping.queue import Queue

        # A separate connection, because a long poll would delay other requests.
        own = Client(config=self.config)
        return Queue(own, group, *topics, **options)

    def join_group(
        self, group: str, *topics: str, session_timeout_s: float = 45.0, member_id: str = ""
    ) -> Membership:
        """Join ``group`` as a managed member.

        For applications that claim partitions and commit offsets themselves; ``group``
        does without.
        """
        operation = groups.JoinGroup(
            group=group, topics=topics, session_timeout_ms=int(session_timeout_s * 1000), member_id=member_id
        )
        return self.call(operation)

    def heartbeat(self, group: str, member: Membership) -> Membership:
        """Keep the membership alive and return the current assignment.

        Raises:
            GroupError: the member was removed from the group.
        """
        operation = groups.Heartbeat(group=group, member_id=member.member_id, generation=member.generation)
        return self.call(operation)

    def leave_group(self, group: str, member: Membership) -> None:
        self.call(groups.LeaveGroup(group=group, member_id=member.member_id))

    def claim(self, group: str, member: Membership, partition: TopicPartition) -> None:
        """Become the owner of a partition that is assigned to ``member``.

        Raises GroupError.
        """
        self.call(groups.Claim(group=group, **calls.ownership(member, partition)))

    def release(self, group: str, member: Membership, partition: TopicPartition) -> None:
        """Stop owning a partition. Raises GroupError."""
        self.call(groups.Release(group=group, **calls.ownership(member, partition)))

    def commit(
        self, group: str, member: Membership, partition: TopicPartition, offset: int, *, metadata: str = ""
    ) -> None:
        """Commit the offset of the next record to read, as the owner of the partition.

        The offset is durable on return.

        Raises:
            GroupError: the member does not own the partition.
        """
        owner = calls.ownership(member, partition)
        self.call(groups.Commit(group=group, **owner, offset=offset, metadata=metadata))

    def committed(self, group: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of ``group``; None if it has committed none."""
        return self.call(groups.Committed(group=group, **partition._asdict()))

    # ── the broker ──

    def flush(self, topic: str | None = None) -> None:
        """Wait until everything appended before is on disk, in ``topic`` or in all."""
        self.call(topics.Flush(topic=topic))

    def metadata(self) -> ClusterMetadata:
        return self.call(topics.Metadata())

    def ping(self) -> None:
        """Wait for an answer of the broker."""
        self.call(topics.Ping())

    # ── the six messages of ADR-0009, over stele:// only ──

    def simple_produce(self, topic: str, data: bytes) -> int:
        """Store a record without a key in partition 0 with acks=1; return its offset."""
        return self.call(SimpleProduce(topic=topic, data=data))

    def simple_produce_many(self, topic: str, values: Iterable[bytes]) -> list[int]:
        """Send a PRODUCE request per value, pipelined; return the offsets in order.

        Raises:
            SteleClientError: the first failure; other values may have been stored.
        """
        operations = [SimpleProduce(topic=topic, data=value) for value in values]
        offsets: list[int] = []
        for outcome in self.transport.call_all(operations, timeout_s=self.config.timeout_s):
            if isinstance(outcome, SteleClientError):
                raise outcome
            offsets.append(outcome)
        return offsets

    def simple_consume(
        self, topic: str, offset: int, batch_size: int = 100
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Read up to ``batch_size`` messages of partition 0.

        The result is ``([(offset, data)…], next offset)``.
        """
        return self.call(SimpleConsume(topic=topic, offset=offset, batch_size=batch_size))
