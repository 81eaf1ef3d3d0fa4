"""Parsed options of the data source; ``parsing`` creates them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ..calls import Isolation
from ..config import Endpoint

FORMAT = "stele"

EARLIEST = -2
LATEST = -1

Transport = Literal["tcp", "http"]
PartitionOffsets = Mapping[str, Mapping[int, int]]

BROKER_TIMEOUT_MS = 120_000
# The broker's default limit, STELE_TRANSACTION_MAX_TIMEOUT_MS.
TRANSACTION_TIMEOUT_MS = 15 * 60_000
# Measured: less costs more fetches, more exceeds the CPU cache. More is better for a distant broker.
FETCH_BYTES = 1024 * 1024
FETCH_BYTES_LEAST, FETCH_BYTES_MOST = 64 * 1024, 8 * 1024 * 1024


class OptionError(ValueError):
    """An invalid option; the message says which, why, and what to write instead."""


class Use(Enum):
    """The operation that the options are for, as named in error messages."""

    BATCH_READ = "spark.read"
    STREAM_READ = "spark.readStream"
    BATCH_WRITE = "write"
    STREAM_WRITE = "writeStream"

    @property
    def is_stream(self) -> bool:
        return self in (Use.STREAM_READ, Use.STREAM_WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """``subscribe``: all partitions of these topics, which must exist."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribePattern:
    """``subscribePattern``: all partitions of present and future topics that match."""

    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """``assign``: exactly these partitions."""

    partitions: tuple[tuple[str, int], ...]


Selection = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEnd:
    """Every partition at ``EARLIEST`` or ``LATEST``."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """An offset, ``EARLIEST`` or ``LATEST`` per partition; all must be named."""

    offsets: PartitionOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimestamp:
    """The first record at or after a time in ms, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimestamps:
    """The first record at or after a time in ms per partition; all must be named."""

    timestamps: PartitionOffsets


Bound = AtEnd | AtOffsets | AtTimestamp | AtTimestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The broker, as reached from the driver and every executor.

    ``broker_timeout_ms`` is how long calls are retried while the broker is down. ``isolation``
    is that of all reads.
    """

    url: str
    broker_timeout_ms: int = BROKER_TIMEOUT_MS
    isolation: Isolation = "read_committed"
    # Files of the driver and of each executor; without them, the login is in their environment.
    user: str | None = None
    password_file: str | None = None
    api_key_file: str | None = None

    @property
    def transport(self) -> Transport:
        return Endpoint.parse(self.url).transport


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """The schema registry; ``url`` None is that of the broker, whose login it then has."""

    url: str | None = None
    user: str | None = None
    password_file: str | None = None
    api_key_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """The schema of a column, ``key`` or ``value``.

    ``version`` None is the newest. ``message`` names the message of a Protobuf schema; None is the first one.
    """

    column: str
    subject: str
    version: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """The columns that have a schema, and the registry.

    ``nulls``: what cannot be decoded is null. ``registers``: a schema of the DataFrame is registered if the subject
    has none.
    """

    connection: Connection
    registry: RegistryOptions
    columns: tuple[ColumnSchema, ...]
    nulls: bool = False
    registers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a read; ``is_table``: the newest record per key instead of ranges of offsets."""

    connection: Connection
    selection: Selection
    start: Bound
    end: Bound
    fail_on_data_loss: bool
    include_headers: bool
    start_beyond_last: Literal["error", "latest"]
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    fetch_bytes: int = FETCH_BYTES
    is_table: bool = False
    schemas: SchemaOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a write.

    ``application_id`` None is the id of the streaming query, or a random id per batch
    write. ``version`` is the number of a repeatable batch write. ``transactional``: readers see
    all rows of a write, or of a micro-batch, at once (ADR-0037).
    """

    connection: Connection
    topic: str | None
    acks: Literal["all", "1"]
    compression: str
    exactly_once: bool
    application_id: str | None
    version: int | None
    transactional: bool
    transaction_timeout_ms: int
    schemas: SchemaOptions | None = None
