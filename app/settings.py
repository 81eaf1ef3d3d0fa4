"""Every setting, once: its unit in its name, its default and the reason for it.

A setting is read, in this order, from the command line of ``stele serve``, from
the environment (``STELE_`` and the name in capitals), from the default here.
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

    # ── where ──
    data_dir: Path = Field(default=Path("data"), description="Directory of the logs and the metadata store.")
    broker_id: int = Field(
        default=1, ge=0, le=2**31 - 1, description="Id of this broker (Kafka's node.id), which clients see."
    )
    host: str = Field(
        default="127.0.0.1", description="Address to bind; loopback, for nothing is encrypted yet."
    )
    http_port: int = Field(default=8080, ge=0, le=65535, description="HTTP listener; 0 takes a free port.")
    binary_port: int = Field(
        default=9009, ge=0, le=65535, description="Binary listener; 0 takes a free port."
    )
    kafka_port: int = Field(default=9092, ge=0, le=65535, description="Kafka listener; 0 takes a free port.")
    advertised_host: str | None = Field(
        default=None, description="Host told to clients; the bound one if unset."
    )
    http_allowed_hosts: str | None = Field(
        default=None,
        description="Names, with commas between, that requests over loopback may call this broker by, "
        "beside localhost and its addresses; * is any (a proxy that sees to it).",
    )
    advertised_kafka_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Kafka port told to clients, where another is forwarded to it; the bound one if unset.",
    )

    # ── topics ──
    auto_create_topics_enable: bool = Field(
        default=True, description="A produce to an unknown topic creates it."
    )
    num_partitions: int = Field(
        default=1, ge=1, le=10_000, description="Partitions of a topic made without a number."
    )
    partitions_max: int = Field(
        default=10_000, ge=1, description="Partitions in all; each costs a file handle or two."
    )
    partitioner: Literal["murmur2", "fnv1a"] = Field(
        default="murmur2", description="Key hash: murmur2 (as Kafka) or fnv1a."
    )

    # ── log ──
    log_flush_interval_ms: int = Field(
        default=100, ge=1, description="Background sync of what acks=1 appended."
    )
    log_flush_bytes: int = Field(
        default=4 * MIB,
        ge=1,
        description="As much of it unsynced in a partition starts a sync at once: one big sync holds appends up.",
    )
    log_retention_check_interval_ms: int = Field(
        default=30_000, ge=10, description="How often retention looks."
    )
    log_checkpoint_interval_ms: int = Field(
        default=10_000, ge=10, description="How often the recovery point is saved."
    )
    log_sync_threads: int = Field(
        default=8, ge=1, le=64, description="Files synced at once; the journal merges them."
    )
    open_segments_max: int = Field(
        default=512, ge=16, description="Sealed segment files kept open for readers."
    )
    producer_id_expiration_ms: int = Field(
        default=86_400_000, ge=1000, description="A silent producer id is forgotten."
    )
    producer_id_expiration_check_interval_ms: int = Field(
        default=600_000, ge=10, description="How often silent producer ids are looked for."
    )

    # ── change data capture ──
    cdc_dsn: SecretStr | None = Field(
        default=None, description="PostgreSQL whose changes the broker follows; none if unset."
    )
    cdc_tables: str = Field(default="", description="Tables to follow, as SCHEMA.TABLE, with commas between.")
    cdc_channels: str = Field(default="", description="Channels of NOTIFY to follow, with commas between.")
    cdc_slot: str = Field(default="stele", description="Replication slot.")
    cdc_publication: str = Field(default="stele", description="Publication.")
    cdc_prefix: str = Field(default="pg", description="Topics are PREFIX.SCHEMA.TABLE.")
    cdc_notify_prefix: str = Field(default="pgcdc", description="Topics of channels are PREFIX.NAME.")
    cdc_partitions: int = Field(default=8, ge=1, le=10_000, description="Partitions of topics it makes.")
    cdc_storage: Literal["disk", "memory"] = Field(default="disk", description="Storage of topics it makes.")
    cdc_key_column: str = Field(
        default="id", description="Key of a table without one, and field of a notification that is its key."
    )
    cdc_tombstones: bool = Field(default=False, description="Behind each delete a record without a value.")
    cdc_snapshot: Literal["initial", "never"] = Field(
        default="initial", description="Whether it copies what is in a table first."
    )

    # ── groups ──
    group_initial_rebalance_delay_ms: int = Field(
        default=3000,
        ge=0,
        description="How long the first rebalance of an empty group waits for more Kafka members; 0 in tests.",
    )
    group_min_session_timeout_ms: int = Field(
        default=6000, ge=1, description="Shortest session timeout a member may ask for."
    )
    group_max_session_timeout_ms: int = Field(
        default=1_800_000, ge=1, description="Longest session timeout a member may ask for."
    )
    group_size_max: int = Field(
        default=1000, ge=1, description="Members of one group, and ids handed out that have not joined."
    )
    group_member_bytes_max: int = Field(
        default=MIB, ge=1024, description="Names and metadata that one member brings along."
    )
    groups_max: int = Field(default=100_000, ge=1, description="Groups in all; each stays in memory.")
    offset_metadata_bytes_max: int = Field(
        default=4096, ge=0, description="Metadata beside one committed offset."
    )
    offsets_retention_ms: int = Field(
        default=604_800_000,
        ge=1,
        description="Offsets of a group that has been empty for this long are dropped.",
    )
    offsets_retention_check_interval_ms: int = Field(
        default=600_000, ge=10, description="How often offsets that are due are looked for."
    )

    # ── limits ──
    frame_bytes_max: int = Field(
        default=16 * MIB, ge=KIB, description="Largest frame of the binary protocol."
    )
    connections_max: int = Field(
        default=10_000, ge=1, description="Connections of each listener: HTTP, binary and Kafka."
    )
    pipelined_requests_max: int = Field(
        default=10_000, ge=1, description="Unanswered requests of one connection before it is paused."
    )
    output_bytes_max: int = Field(
        default=4 * MIB, ge=KIB, description="Unsent answer bytes before a reader is paused."
    )
    frame_timeout_ms: int = Field(
        default=30_000, ge=100, description="A frame that has begun must end within this."
    )
    idle_timeout_ms: int = Field(
        default=600_000,
        ge=100,
        description="A connection that asks for nothing and waits for nothing is closed after this (Kafka: connections.max.idle.ms).",
    )
    produce_threads: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Batches compressed, or checked record by record, at once; each takes up to 256 MiB.",
    )
    produce_queue_bytes_max: int = Field(
        default=64 * MIB,
        ge=KIB,
        description="Batches that wait for these threads; above it their producers are not read from.",
    )
    fetch_bytes_max: int = Field(
        default=8 * MIB, ge=KIB, description="Bytes of one fetch answer, over all partitions."
    )
    fetch_wait_ms_max: int = Field(default=60_000, ge=0, description="Longest long poll.")
    fetch_sessions_max: int = Field(
        default=1000,
        ge=0,
        description="Kafka fetch sessions kept (Kafka: max.incremental.fetch.session.cache.slots); 0 keeps none.",
    )
    fetch_session_partitions_max: int = Field(
        default=100_000, ge=0, description="Partitions in all Kafka fetch sessions together."
    )
    request_body_bytes_max: int = Field(
        default=32 * MIB,
        ge=KIB,
        description="Body of one JSON or octet-stream request; NDJSON streams have no limit.",
    )
    ndjson_line_bytes_max: int = Field(default=2 * MIB, ge=KIB, description="One line of an NDJSON upload.")
    request_timeout_ms: int = Field(default=30_000, ge=1, description="Longest wait for acks=all.")
    shutdown_timeout_ms: int = Field(
        default=10_000, ge=0, description="Answers in flight get this long at a shutdown."
    )

    # ── telling ──
    sample_interval_ms: int = Field(
        default=5000, ge=100, description="How often rates, sizes and lag are noted; 720 notes are kept."
    )
    metrics_topics_max: int = Field(
        default=200, ge=0, description="Topics with series of their own in /metrics; the others are added up."
    )
    metrics_groups_max: int = Field(
        default=200,
        ge=0,
        description="Groups with series of their own in /metrics and a history of their lag; the others are added up.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is logged."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Log lines for people, or one JSON object a line."
    )
    otel_enable: bool = Field(
        default=False, description="Export traces with OpenTelemetry (extra otel); OTEL_… say where to."
    )
    trace_connections: bool = Field(
        default=False, description="Log each Kafka request and response: api, version, correlation id, size."
    )
    trace_hex: bool = Field(default=False, description="With trace_connections: their bytes as well.")
