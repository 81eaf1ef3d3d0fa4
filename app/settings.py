"""Define every setting of the broker: its name with its unit, default and purpose.

A setting comes from the command line of ``stele serve``, otherwise from the environment
(``STELE_`` and the name in capitals), otherwise from its default here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

KIB = 1024
MIB = 1024 * KIB


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="STELE_", extra="ignore", frozen=True)

    # ── addresses and data ──
    data_dir: Path = Field(default=Path("data"), description="Directory of the logs and the metadata.")
    broker_id: int = Field(
        default=1,
        ge=0,
        le=2**31 - 1,
        description="Id of this broker, which Kafka clients see (Kafka: node.id).",
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address to bind. Loopback by default: there is no TLS and no authentication yet.",
    )
    http_port: int = Field(
        default=8080, ge=0, le=65535, description="Port of the HTTP listener; 0 picks a free one."
    )
    binary_port: int = Field(
        default=9009, ge=0, le=65535, description="Port of the binary listener; 0 picks a free one."
    )
    kafka_port: int = Field(
        default=9092, ge=0, le=65535, description="Port of the Kafka listener; 0 picks a free one."
    )
    advertised_host: str | None = Field(
        default=None, description="Host that clients should connect to; the bound address if unset."
    )
    http_allowed_hosts: str | None = Field(
        default=None,
        description="Further host names that requests over loopback may use, separated by commas, "
        "besides localhost and the addresses of the broker; * allows any, for a proxy that checks the name.",
    )
    advertised_kafka_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Kafka port that clients should connect to, for port forwarding; the bound port if unset.",
    )

    # ── topics ──
    auto_create_topics_enable: bool = Field(
        default=True, description="Create an unknown topic when a client produces to it."
    )
    num_partitions: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Partitions of a topic created without a number of partitions.",
    )
    partitions_max: int = Field(
        default=10_000,
        ge=1,
        description="Maximum partitions of all topics; each needs one or two open files.",
    )
    partitioner: Literal["murmur2", "fnv1a"] = Field(
        default="murmur2",
        description="Hash that maps keys to partitions: murmur2 (as Kafka clients do) or fnv1a.",
    )

    # ── log ──
    log_flush_interval_ms: int = Field(
        default=100,
        ge=1,
        description="Interval of the background sync of records appended with acks=1 or acks=0.",
    )
    log_flush_bytes: int = Field(
        default=4 * MIB,
        ge=1,
        description="Unsynced bytes per partition that trigger an immediate sync, because one large sync delays appends.",
    )
    log_retention_check_interval_ms: int = Field(
        default=30_000, ge=10, description="Interval of retention checks."
    )
    log_checkpoint_interval_ms: int = Field(
        default=10_000, ge=10, description="Interval at which recovery points are saved."
    )
    log_sync_threads: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Files synced concurrently; the journal of the file system merges the syncs.",
    )
    open_segments_max: int = Field(
        default=512, ge=16, description="Sealed segment files kept open for reads."
    )
    log_cleaner_enable: bool = Field(
        default=True, description="Compact topics with cleanup.policy=compact in the background."
    )
    log_cleaner_dedupe_buffer_size: int = Field(
        default=128 * MIB,
        ge=MIB,
        description="Maximum bytes of the key map of one pass of compaction; partitions with more keys take several.",
    )
    log_cleaner_io_max_bytes_per_second: float | None = Field(
        default=None,
        gt=0,
        description="Bytes per second that compaction reads and writes at most; unlimited if unset.",
    )
    log_cleaner_backoff_ms: int = Field(
        default=15_000,
        ge=10,
        description="Interval at which compaction looks for partitions to clean.",
    )
    producer_id_expiration_ms: int = Field(
        default=86_400_000,
        ge=1000,
        description="The broker forgets a producer id that has not produced for this long (Kafka: producer.id.expiration.ms).",
    )
    producer_id_expiration_check_interval_ms: int = Field(
        default=600_000, ge=10, description="Interval of the check for expired producer ids."
    )

    # ── change data capture ──
    cdc_dsn: SecretStr | None = Field(
        default=None,
        description="Connection string of the PostgreSQL database whose changes the broker captures; none if unset.",
    )
    cdc_tables: str = Field(
        default="", description="Tables to capture, as SCHEMA.TABLE, separated by commas."
    )
    cdc_channels: str = Field(default="", description="NOTIFY channels to capture, separated by commas.")
    cdc_slot: str = Field(default="stele", description="Name of the replication slot.")
    cdc_publication: str = Field(default="stele", description="Name of the publication.")
    cdc_prefix: str = Field(default="pg", description="Prefix of the topics of tables: PREFIX.SCHEMA.TABLE.")
    cdc_notify_prefix: str = Field(
        default="pgcdc", description="Prefix of the topics of channels: PREFIX.NAME."
    )
    cdc_partitions: int = Field(
        default=8, ge=1, le=10_000, description="Partitions of topics that the connector creates."
    )
    cdc_storage: Literal["disk", "memory"] = Field(
        default="disk", description="Storage of topics that the connector creates: disk or memory."
    )
    cdc_key_column: str = Field(
        default="id",
        description="Key column of a table without a primary key, and key field of a notification.",
    )
    cdc_tombstones: bool = Field(
        default=False, description="Append a tombstone after the record of each delete."
    )
    cdc_snapshot: Literal["initial", "never"] = Field(
        default="initial", description="Copy the existing rows of a table first: initial or never."
    )

    # ── groups ──
    group_initial_rebalance_delay_ms: int = Field(
        default=3000,
        ge=0,
        description="How long the first rebalance of an empty group waits for more Kafka members.",
    )
    group_min_session_timeout_ms: int = Field(
        default=6000, ge=1, description="Shortest session timeout that a member may request."
    )
    group_max_session_timeout_ms: int = Field(
        default=1_800_000, ge=1, description="Longest session timeout that a member may request."
    )
    group_size_max: int = Field(
        default=1000,
        ge=1,
        description="Maximum members of a group, including member ids that have been assigned but have not joined.",
    )
    group_member_bytes_max: int = Field(
        default=MIB, ge=1024, description="Maximum bytes of the names and the metadata of one member."
    )
    groups_max: int = Field(
        default=100_000, ge=1, description="Maximum number of groups; each stays in memory."
    )
    offset_metadata_bytes_max: int = Field(
        default=4096, ge=0, description="Maximum bytes of metadata of one committed offset."
    )
    offsets_retention_ms: int = Field(
        default=604_800_000,
        ge=1,
        description="Delete the offsets of a group that has been empty for this long.",
    )
    offsets_retention_check_interval_ms: int = Field(
        default=600_000, ge=10, description="Interval of the check for expired offsets."
    )

    # ── limits ──
    frame_bytes_max: int = Field(
        default=16 * MIB, ge=KIB, description="Largest frame of the binary protocol."
    )
    connections_max: int = Field(
        default=10_000, ge=1, description="Maximum connections per listener: HTTP, binary and Kafka."
    )
    pipelined_requests_max: int = Field(
        default=10_000,
        ge=1,
        description="Unanswered requests of a connection at which the broker stops reading from it.",
    )
    output_bytes_max: int = Field(
        default=4 * MIB,
        ge=KIB,
        description="Unsent response bytes of a connection at which the broker stops reading from it.",
    )
    frame_timeout_ms: int = Field(
        default=30_000, ge=100, description="A frame must be complete within this time after its first byte."
    )
    idle_timeout_ms: int = Field(
        default=600_000,
        ge=100,
        description="Close a connection that sends no request and awaits no response for this long (Kafka: connections.max.idle.ms).",
    )
    produce_threads: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Threads that compress batches or check them record by record; each may need 256 MiB.",
    )
    produce_queue_bytes_max: int = Field(
        default=64 * MIB,
        ge=KIB,
        description="Bytes of batches waiting for these threads at which the broker stops reading from their producers.",
    )
    fetch_bytes_max: int = Field(
        default=8 * MIB, ge=KIB, description="Maximum bytes of one fetch response, over all partitions."
    )
    fetch_wait_ms_max: int = Field(
        default=60_000, ge=0, description="Longest wait of a fetch for new records."
    )
    fetch_sessions_max: int = Field(
        default=1000,
        ge=0,
        description="Kafka fetch sessions kept; 0 keeps none (Kafka: max.incremental.fetch.session.cache.slots).",
    )
    fetch_session_partitions_max: int = Field(
        default=100_000, ge=0, description="Maximum partitions of all Kafka fetch sessions together."
    )
    request_body_bytes_max: int = Field(
        default=32 * MIB,
        ge=KIB,
        description="Largest body of a JSON or octet-stream request; NDJSON streams have no limit.",
    )
    ndjson_line_bytes_max: int = Field(
        default=2 * MIB, ge=KIB, description="Longest line of an NDJSON upload, in bytes."
    )
    request_timeout_ms: int = Field(
        default=30_000, ge=1, description="Longest wait of a produce with acks=all for its sync."
    )
    shutdown_timeout_ms: int = Field(
        default=10_000, ge=0, description="How long a shutdown waits for answers in progress."
    )

    # ── monitoring ──
    sample_interval_ms: int = Field(
        default=5000,
        ge=100,
        description="Interval of the samples of rates, sizes and lag; 720 samples are kept.",
    )
    metrics_topics_max: int = Field(
        default=200, ge=0, description="Topics with their own series in /metrics; the others are summed up."
    )
    metrics_groups_max: int = Field(
        default=200,
        ge=0,
        description="Groups with their own series in /metrics and a history of their lag; the others are summed up.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Log format: text lines, or one JSON object per line."
    )
    otel_enable: bool = Field(
        default=False,
        description="Export traces with OpenTelemetry (extra otel); the standard OTEL_… variables configure it.",
    )
    trace_connections: bool = Field(
        default=False,
        description="Log each Kafka request and response with API, version, correlation id and size.",
    )
    trace_hex: bool = Field(
        default=False, description="With trace_connections, also log the bytes of requests and responses."
    )
