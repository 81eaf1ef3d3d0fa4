"""Records, receipts, and descriptions of topics, groups and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Generic, NamedTuple, TypeVar, cast

from .wire.messages import Durability
from .wire.notation import INT64_MAX

V = TypeVar("V")

Headers = tuple[tuple[str, bytes | None], ...]
HeadersLike = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
Timestamp = int | datetime


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class Record(Generic[V]):
    """A stored record.

    ``timestamp`` is in ms since the epoch. ``value`` is None for a tombstone,
    otherwise the bytes, or the result of the consumer's deserializer.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: V | None
    headers: Headers = ()


@dataclass(slots=True)
class NewRecord:
    """A record to store.

    ``partition`` None: chosen by the hash of the key, or in turn without a key.
    ``timestamp``: ms since the epoch, or a datetime with a time zone; None is now.
    ``value`` None: a tombstone.
    """

    value: bytes | str | None
    _: KW_ONLY
    key: bytes | str | None = None
    headers: HeadersLike = ()
    partition: int | None = None
    timestamp: Timestamp | None = None


@dataclass(slots=True)
class OutgoingRecord:
    """A record ready to send: bytes, and a timestamp that stays the same in retries."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def size(self) -> int:
        """An upper bound of its size in a batch, in bytes."""
        size = 32
        if self.key is not None:
            size += len(self.key)
        if self.value is not None:
            size += len(self.value)
        for name, value in self.headers:
            # A character of UTF-8 takes at most 4 bytes.
            size += 10 + 4 * len(name) + len(value or b"")
        return size


@dataclass(slots=True)
class RecordMetadata:
    """The receipt of an accepted record.

    ``offset`` is -1 if unknown: with acks=0, or for a repeated batch so old that the
    broker only knows that it is stored. ``timestamp`` is in ms since the epoch.
    ``durability`` is the state of the record when the broker answered.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    durability: Durability


@dataclass(slots=True, kw_only=True)
class PartitionCompaction:
    """The dirty part of a compacted partition, and what the cleaner does about it.

    ``dirty_ratio`` is 0 to 1. ``cleaner`` is ``off``, ``running``, ``failed``, ``due`` or ``idle``.
    """

    partition: int
    dirty_ratio: float
    cleaner: str


@dataclass(slots=True, kw_only=True)
class TopicDescription:
    """A topic; ``configs`` are the values in effect, by Kafka's names.

    ``compaction`` has an entry per partition of a compacted topic. The binary protocol
    does not carry it, so there it is empty.
    """

    topic: str
    partitions: int
    configs: dict[str, str] = field(default_factory=dict[str, str])
    compaction: list[PartitionCompaction] = field(default_factory=list["PartitionCompaction"])


@dataclass(slots=True, kw_only=True)
class BrokerAddress:
    """The address of a broker's binary listener; ``port`` is 0 if unknown."""

    id: int
    host: str
    port: int


@dataclass(slots=True, kw_only=True)
class ClusterMetadata:
    cluster_id: str
    brokers: list[BrokerAddress]


@dataclass(slots=True, kw_only=True)
class FetchedRecords:
    """Records of one partition in offset order, and the bounds of its log.

    ``next_offset`` is the offset to fetch next. It can be more than one past the last
    record, because some offsets hold no record. ``high_watermark`` is the offset up to which
    the fetch could read: the last stable offset, unless the isolation level is read_uncommitted.
    """

    topic: str
    partition: int
    records: list[Record[bytes]]
    next_offset: int
    high_watermark: int
    log_start_offset: int


@dataclass(slots=True, kw_only=True)
class Membership:
    """A membership: its generation, and the partitions that the member may claim.

    ``is_rebalancing``: a rebalance is under way, and this is the last assignment.
    """

    member_id: str
    generation: int
    assigned: list[TopicPartition]
    is_rebalancing: bool = False


@dataclass(slots=True, kw_only=True)
class LeasedPartition:
    """Leased records ``[offset, next_offset)`` of a partition.

    ``deliveries`` counts how often they were delivered, including this time.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int
    deliveries: int


@dataclass(slots=True, kw_only=True)
class SkippedRecords:
    """Records ``[offset, next_offset)`` that were deleted before the group read them.

    Retention deleted them.
    """

    topic: str
    partition: int
    offset: int
    next_offset: int


@dataclass(slots=True, kw_only=True)
class Polled:
    """The result of a poll: records by partition, in offset order.

    ``lease`` is None if no record came in time.
    """

    lease: str | None
    expires_at_ms: int
    records: list[Record[bytes]]
    partitions: list[LeasedPartition]
    skipped: list[SkippedRecords]


@dataclass(slots=True, kw_only=True)
class SharePolled:
    """Records of a share group under a lock, with their delivery counts.

    The count includes this delivery.

    ``lock`` is None if no record came in time. Times in ms.
    """

    lock: str | None
    expires_in_ms: int
    records: list[tuple[Record[bytes], int]]


@dataclass(slots=True, kw_only=True)
class Redriven:
    """Counts of redriven and of lost dead letters, and whether there are more.

    A letter is lost if its record is gone.
    """

    redriven: int
    lost: int
    is_more: bool


@dataclass(slots=True, kw_only=True)
class GroupMember:
    """``epoch`` is None unless the group has type ``consumer``.

    The broker assigns the partitions of such a group.
    """

    member_id: str
    client_id: str
    client_host: str
    assigned: list[TopicPartition]
    owned: list[TopicPartition]
    epoch: int | None = None


@dataclass(slots=True, kw_only=True)
class PartitionLag:
    """The lag of a group in a partition.

    ``committed`` is None if the group has committed nothing; ``lag`` then counts all
    records of the partition. Of a share group ``committed`` is the first offset that is not
    finished, and ``in_flight`` counts the records that are locked; elsewhere it is None.
    """

    topic: str
    partition: int
    committed: int | None
    high_watermark: int
    lag: int
    member_id: str | None
    in_flight: int | None = None


@dataclass(slots=True, kw_only=True)
class GroupDescription:
    """``generation`` is the group epoch if ``type`` is ``consumer`` or ``share``."""

    group: str
    state: str
    generation: int
    protocol: str
    lag: int
    members: list[GroupMember]
    partitions: list[PartitionLag]
    type: str = "classic"


def keys_of(records: Iterable[Record[bytes]]) -> Iterator[tuple[bytes, Headers]]:
    """Yield the keys of records, and the headers beside them."""
    return ((record.key, record.headers) for record in records if record.key is not None)


def values_of(records: Iterable[Record[bytes]]) -> Iterator[tuple[bytes, Headers]]:
    """Yield the values of records, and the headers beside them; none of a tombstone."""
    return ((record.value, record.headers) for record in records if record.value is not None)


def to_bytes(value: bytes | str | None) -> bytes | None:
    """Encode text as UTF-8; return bytes and None as they are.

    Raises:
        TypeError: another type, for which a serializer is needed.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] (callers without types)
        return value.encode()
    if isinstance(value, bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
        return bytes(value)
    raise TypeError(
        f"a key or a value must be bytes, str or None, not {type(value).__name__}; use a serializer"
    )


def to_headers(headers: HeadersLike) -> list[tuple[str, bytes | None]]:
    if isinstance(headers, Mapping):
        headers = cast("Mapping[str, bytes | str | None]", headers).items()
    return [(name, to_bytes(value)) for name, value in headers]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_timestamp_ms(moment: Timestamp) -> int:
    """Return a timestamp in ms since the epoch.

    Raises:
        ValueError: a datetime has no time zone, so its meaning depends on the machine, or a number is too large.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{moment!r} has no time zone; write e.g. datetime(..., tzinfo=UTC)")
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    if not -INT64_MAX - 1 <= moment <= INT64_MAX:
        raise ValueError(f"timestamp {moment} has more than 64 bits; give ms since 1970, or -1 for none")
    return moment


def outgoing(record: NewRecord | bytes | str, now_ms: int) -> OutgoingRecord:
    if not isinstance(record, NewRecord):
        return OutgoingRecord(now_ms, None, to_bytes(record), [])
    return OutgoingRecord(
        now_ms if record.timestamp is None else to_timestamp_ms(record.timestamp),
        to_bytes(record.key),
        to_bytes(record.value),
        to_headers(record.headers) if record.headers else [],
    )
