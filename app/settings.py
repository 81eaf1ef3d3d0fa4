"""Define every setting of the broker: its name with its unit, default and purpose.

A setting comes from the command line of ``stele serve``, otherwise from the environment
(``STELE_`` and the name in capitals), otherwise from its default here. A setting of a group has the name of the
group in front: ``kafka_port``, ``STELE_KAFKA_PORT`` and ``settings.kafka.port`` are the same.

The command line, docs/settings.md and the checks of combinations come from these declarations, so they stand in one
place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic.fields import FieldInfo
from stele.wire.notation import parse_boolean

from .spelling import nearest

_PREFIX = "STELE_"
_REGISTRY_PORT = 8081
KIB = 1024
MIB = 1024 * KIB

ListenerName = Literal["http", "binary", "kafka", "registry"]
ClientAuth = Literal["none", "requested", "required"]
LoginMode = Literal["none", "optional", "required"]
# Whether groups with members change their protocol: group.consumer.migration.policy of Kafka.
MigrationPolicy = Literal["bidirectional", "upgrade", "downgrade", "disabled"]


class ListenerSettings(BaseModel):
    """What each listener has. Where a field is None, the setting of all listeners with its name applies."""

    model_config = ConfigDict(frozen=True)

    port: int = Field(ge=0, le=65535, description="Port of the listener; 0 picks a free one.")
    authentication: LoginMode | None = Field(
        default=None, description="Overrides `authentication` for the listener."
    )
    tls_enable: bool | None = Field(
        default=None, description="TLS on the listener; if unset, on if it has a certificate."
    )
    tls_certificate_file: Path | None = Field(
        default=None, description="Overrides `tls_certificate_file` for the listener."
    )
    tls_key_file: Path | None = Field(default=None, description="Overrides `tls_key_file` for the listener.")
    tls_client_ca_file: Path | None = Field(
        default=None, description="Overrides `tls_client_ca_file` for the listener."
    )
    tls_client_auth: ClientAuth | None = Field(
        default=None, description="Overrides `tls_client_auth` for the listener."
    )


class RegistrySettings(ListenerSettings):
    """The listener of the schema registry, which can be turned off."""

    enable: bool | None = Field(
        default=None,
        description="Serve the schema registry on a listener of its own. If unset, it is served unless another process has its default port.",
    )


class CdcSettings(BaseModel):
    """The options of the broker's own ``stele cdc``."""

    model_config = ConfigDict(frozen=True)

    dsn: SecretStr | None = Field(
        default=None,
        description="Connection string of the PostgreSQL database whose changes the broker captures; none if unset.",
    )
    tables: str = Field(default="", description="Tables to capture, as SCHEMA.TABLE, separated by commas.")
    channels: str = Field(default="", description="NOTIFY channels to capture, separated by commas.")
    messages: str = Field(
        default="",
        description="Topics that pg_logical_emit_message may name, separated by commas, * at the end for any; none for none. If empty, all with tables.",
    )
    slot: str = Field(default="stele", description="Name of the replication slot.")
    publication: str = Field(default="stele", description="Name of the publication.")
    prefix: str = Field(default="pg", description="Prefix of the topics of tables: PREFIX.SCHEMA.TABLE.")
    notify_prefix: str = Field(default="pgcdc", description="Prefix of the topics of channels: PREFIX.NAME.")
    partitions: int = Field(
        default=8, ge=1, le=10_000, description="Partitions of topics that the connector creates."
    )
    storage: Literal["disk", "memory"] = Field(
        default="disk", description="Storage of topics that the connector creates: disk or memory."
    )
    key_column: str = Field(
        default="id",
        description="Key column of a table without a primary key, and key field of a notification.",
    )
    tombstones: bool = Field(default=False, description="Append a tombstone after the record of each delete.")
    compact: bool = Field(
        default=False, description="Create compacted topics, which keep the newest record of each row."
    )
    value: Literal["envelope", "row"] = Field(
        default="envelope",
        description="Value of records: envelope, with the operation, or row; then a delete is a tombstone.",
    )
    format: Literal["json", "avro", "json-schema", "debezium", "debezium-schemas", "debezium-avro"] = Field(
        default="json",
        description="Format of values: json, avro or json-schema with a schema in the registry of this broker, or debezium, debezium-schemas or debezium-avro (with a schema there).",
    )
    times: Literal["adaptive", "connect"] = Field(
        default="adaptive",
        description="Dates and times in Debezium's envelope: adaptive or connect, as time.precision.mode.",
    )
    decimals: Literal["precise", "string", "double"] = Field(
        default="precise", description="Decimals in Debezium's envelope: precise, string or double."
    )
    snapshot: Literal["initial", "never"] = Field(
        default="initial", description="Whether to copy the existing rows of a table first: initial or never."
    )
    max_slot_lag: int = Field(
        default=0,
        ge=0,
        description="Bytes of WAL that the slot may hold back before slot_lag_action; 0 for any number.",
    )
    slot_lag_action: Literal["warn", "pause-copies", "drop-slot"] = Field(
        default="warn",
        description="Beyond max_slot_lag: warn, pause-copies (those beside the stream), or drop-slot.",
    )
    accept_gap: str = Field(
        default="",
        description="LSN from which on changes may be missing, as the connector names it, to go on all the same; any for all gaps.",
    )
    transactions: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Keep the changes of a PostgreSQL transaction together: on, off, or auto: on for new connectors.",
    )
    transaction_timeout: int = Field(
        default=900, gt=0, description="Longest time to write one PostgreSQL transaction, in seconds."
    )


class Settings(BaseModel):
    """All settings, checked."""

    model_config = ConfigDict(frozen=True)

    # ── addresses and data ──
    data_dir: Path = Field(default=Path("data"), description="Directory for logs and metadata.")
    broker_id: int = Field(
        default=1,
        ge=0,
        le=2**31 - 1,
        description="Id of this broker, which Kafka clients see (Kafka: node.id).",
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address to bind; any but loopback requires authentication or allow_anonymous_network.",
    )
    http: ListenerSettings = ListenerSettings(port=8080)
    binary: ListenerSettings = ListenerSettings(port=9009)
    kafka: ListenerSettings = ListenerSettings(port=9092)
    registry: RegistrySettings = RegistrySettings(port=_REGISTRY_PORT)
    advertised_host: str | None = Field(
        default=None, description="Host that clients should connect to; the bound address if unset."
    )
    http_allowed_hosts: str | None = Field(
        default=None,
        description="Additional Host headers accepted over loopback, separated by commas, besides localhost and the broker's addresses; * accepts any, for a proxy that checks the name.",
    )
    advertised_kafka_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Kafka port that clients should connect to, for port forwarding; the bound port if unset.",
    )

    broker_rack: str | None = Field(
        default=None,
        max_length=255,
        description="Rack or zone of the broker, as Kafka clients see it; with shared storage, consumers with the same client.rack read from it (Kafka: broker.rack).",
    )
    broker_session_timeout_ms: int = Field(
        default=5_000,
        # A broker may wait for 2 s for a lock that a paused one holds, and must send its heartbeat after that.
        ge=4_000,
        le=60_000,
        description="With shared storage: time after its last heartbeat at which other brokers consider this one dead and take over its work (Kafka: broker.session.timeout.ms).",
    )

    # ── replica in a bucket ──
    replicate_to: str | None = Field(
        default=None,
        description="Bucket that gets a replica of the data directory: s3://BUCKET/PREFIX?endpoint=URL, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX?account=NAME or file:///DIRECTORY (extra bucket).",
    )
    replica_interval_ms: int = Field(
        default=1_000,
        ge=100,
        description="Time between two cuts of the replica, if anything has changed: what may be lost with the disk.",
    )
    replica_retention_ms: int = Field(
        default=24 * 3600 * 1000,
        ge=60_000,
        description="How far back a restore from the replica can go.",
    )
    remote_cache_bytes_max: int = Field(
        default=128 * MIB,
        ge=16 * MIB,
        description="Bytes in memory of segments that are in the bucket alone (remote.storage.enable).",
    )
    restore_if_empty: str | None = Field(
        default=None,
        description="Restore the data directory at the start if it does not exist or is empty: true takes the replica of replicate_to, any other value is the URL of one.",
    )

    # ── mirrors ──
    mirror_secrets_dir: Path | None = Field(
        default=None,
        description="Directory of the files that mirrors may name as ${file:NAME} for secrets of their sources.",
    )

    # ── SQL ──
    sql_statements_max: int = Field(
        default=2, ge=0, le=64, description="SQL statements at a time, each in a process; 0 turns SQL off."
    )
    sql_memory_bytes_max: int = Field(
        default=512 * MIB, ge=256 * MIB, description="Memory of a process that runs a SQL statement."
    )
    sql_threads: int = Field(default=2, ge=1, le=256, description="Threads of a SQL statement.")
    sql_timeout_ms: int = Field(default=60_000, ge=1, description="Time of a SQL statement.")
    sql_scan_bytes_max: int = Field(
        default=4096 * MIB, ge=1, description="Bytes of batches that a SQL statement may read from logs."
    )
    sql_rows_max: int = Field(default=1_000_000, ge=1, description="Rows of the answer to a SQL statement.")
    sql_answer_bytes_max: int = Field(
        default=256 * MIB, ge=1, description="Bytes of the answer to a SQL statement."
    )

    # ── Iceberg tables ──
    iceberg_enable: bool = Field(
        default=True,
        description="Write the tables of topics with stele.iceberg.mode beside the broker (extra iceberg); false: with stele iceberg run elsewhere.",
    )
    iceberg_warehouse: str | None = Field(
        default=None,
        description="Where Iceberg tables are: a directory or s3://BUCKET/PREFIX?endpoint=URL; if unset, iceberg/warehouse in the data directory.",
    )

    # ── shared storage ──
    storage: Literal["embedded", "shared"] = Field(
        default="embedded",
        description="Where records are stored: embedded (in the data directory) or shared (in PostgreSQL and an object store; extra cluster).",
    )
    postgres_url: SecretStr | None = Field(
        default=None,
        description="URL of the PostgreSQL server for shared storage; required with storage=shared.",
    )
    object_store: str = Field(
        default="inline",
        description="Object store of shared storage: s3://BUCKET/PREFIX?endpoint=URL, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX?account=NAME, file:///DIRECTORY for tests, or inline for PostgreSQL itself.",
    )
    shared_linger_ms: int | None = Field(
        default=None,
        ge=0,
        description="Time during which appends are collected into one object of shared storage; if unset, 250 with an object store and 5 with inline.",
    )
    shared_buffer_bytes_max: int = Field(
        default=256 * MIB,
        ge=MIB,
        description="Maximum bytes of appends waiting for shared storage; further appends are refused.",
    )
    shared_cache_bytes_max: int = Field(
        default=512 * MIB, ge=MIB, description="Bytes of objects cached in memory for readers."
    )

    # ── TLS ──
    tls_certificate_file: Path | None = Field(
        default=None,
        description="Certificate chain of all listeners, in PEM, the broker's own certificate first; if unset, no TLS.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="Private key of the certificate, in PEM, without a password."
    )
    tls_client_ca_file: Path | None = Field(
        default=None, description="CA certificates for client certificates, in PEM."
    )
    tls_client_auth: ClientAuth = Field(
        default="none",
        description="Whether clients present a certificate: none, requested or required (Kafka: ssl.client.auth).",
    )
    tls_principal_mapping_rules: str = Field(
        default="DEFAULT",
        description="Rules that map the subject of a client's certificate to a principal (Kafka: ssl.principal.mapping.rules).",
    )
    tls_handshake_timeout_ms: int = Field(default=10_000, ge=1, description="Time limit for a TLS handshake.")
    tls_reload_interval_ms: int = Field(
        default=10_000,
        ge=0,
        description="Interval of the check for changed TLS files; 0 reloads them only on SIGHUP.",
    )
    cluster_tls_ca_file: Path | None = Field(
        default=None,
        description="CAs that issue the certificates of the HTTP listeners of all brokers, in PEM; if unset, those of the system and of clients, and a certificate that all share.",
    )
    cluster_tls_certificate_file: Path | None = Field(
        default=None,
        description="Certificate chain that the broker presents to the HTTP listeners of other brokers; if unset, that of its own HTTP listener where this requires client certificates.",
    )
    cluster_tls_key_file: Path | None = Field(
        default=None, description="Key of the certificate for other brokers, in PEM, without a password."
    )

    # ── authentication ──
    authentication: LoginMode = Field(
        default="none",
        description="Whether clients log in: none, optional (without a login they are anonymous) or required.",
    )
    sasl_mechanisms: str = Field(
        default="SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        description="SASL mechanisms offered, separated by commas; oauth_jwks adds OAUTHBEARER.",
    )
    allow_anonymous_network: bool = Field(
        default=False,
        description="Listen on an address other than loopback although a listener does not require logins.",
    )
    allow_plaintext_passwords: bool = Field(
        default=False,
        description="Accept passwords and keys without TLS on an address other than loopback.",
    )
    metrics_anonymous_enable: bool = Field(
        default=False, description="Serve /metrics without a login where the HTTP listener requires one."
    )
    login_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        description="Time limit for a login after the connection, where a login is required.",
    )
    login_failures_free: int = Field(
        default=5,
        ge=0,
        description="Failed logins per address or user before further ones are delayed; one is forgiven per second.",
    )
    audit_log_file: Path | None = Field(
        default=None,
        description="File of the audit log, reopened after log rotation; if unset, the broker's log.",
    )
    connections_max_reauth_ms: int = Field(
        default=0,
        ge=0,
        description="Time after which clients of the TCP listeners must log in again; 0 for never (Kafka: connections.max.reauth.ms).",
    )
    oauth_jwks: str | None = Field(
        default=None,
        description="File or https URL with the public keys of the token issuer; if unset, tokens are not accepted.",
    )
    oauth_issuer: str | None = Field(
        default=None, description="Required issuer of tokens; required with oauth_jwks."
    )
    oauth_audience: str | None = Field(
        default=None, description="Required audience of tokens; required with oauth_jwks."
    )
    oauth_principal_claim: str = Field(default="sub", description="Token claim that contains the user name.")

    # ── authorization ──
    authorization: Literal["none", "acls"] | None = Field(
        default=None,
        description="Authorization: none or acls; if unset, acls if a listener requires logins.",
    )
    super_users: str = Field(
        default="",
        description="Principals that bypass access rules, such as User:alice, separated by semicolons (Kafka: super.users).",
    )
    allow_everyone_if_no_acl_found: bool = Field(
        default=False,
        description="Allow all operations on resources without ACLs (Kafka: allow.everyone.if.no.acl.found).",
    )

    # ── quotas ──
    quota_window_num: int = Field(
        default=11,
        ge=2,
        le=1000,
        description="Number of samples over which quota rates are measured (Kafka: quota.window.num).",
    )
    quota_window_size_seconds: int = Field(
        default=1,
        ge=1,
        le=3600,
        description="Length of each sample (Kafka: quota.window.size.seconds).",
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
    dead_letter_topic_prefix: str = Field(
        default="dlq.",
        max_length=100,
        description="Required prefix of dead-letter topics of share groups (Kafka: errors.deadletterqueue.topic.name.prefix).",
    )
    dead_letter_auto_create_topics_enable: bool = Field(
        default=False,
        description="Create a dead-letter topic when its first letter is written (Kafka: errors.deadletterqueue.auto.create.topics.enable).",
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
    log_retention_check_interval_ms: int = Field(
        default=30_000, ge=10, description="Interval of retention checks."
    )
    log_checkpoint_interval_ms: int = Field(
        default=10_000, ge=10, description="Interval at which recovery points are saved."
    )
    log_cleaner_enable: bool = Field(
        default=True, description="Compact topics with cleanup.policy=compact in the background."
    )
    log_cleaner_dedupe_buffer_size: int = Field(
        default=128 * MIB,
        ge=MIB,
        description="Maximum bytes of the key map of a compaction pass; partitions with more keys take several passes.",
    )
    log_cleaner_io_max_bytes_per_second: float | None = Field(
        default=None,
        gt=0,
        description="Maximum bytes per second that compaction reads and writes; if unset, unlimited.",
    )
    log_cleaner_backoff_ms: int = Field(
        default=15_000,
        ge=10,
        description="Interval at which compaction looks for partitions to clean.",
    )
    table_memory_bytes_max: int = Field(
        default=64 * MIB,
        ge=MIB,
        description="Maximum bytes of keys in memory, separately for reads by key, for table snapshots being built, and for cached snapshots.",
    )
    producer_id_expiration_ms: int = Field(
        default=86_400_000,
        ge=1000,
        description="Time without a produce after which a producer id expires (Kafka: producer.id.expiration.ms).",
    )
    producer_states_max: int = Field(
        default=1_000_000,
        ge=1000,
        description=(
            "Producer ids that the broker remembers, once for each partition they wrote to; each takes about 1 KiB. "
            "Beyond it those idle for longest expire early, but none with an open transaction."
        ),
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
    group_consumer_size_max: int = Field(
        default=1000,
        ge=1,
        description="Maximum members of a group whose partitions the broker assigns.",
    )
    group_share_record_lock_duration_ms: int = Field(
        default=30_000,
        ge=1000,
        le=3_600_000,
        description="How long a member of a share group holds the records it acquired, unless the group overrides it.",
    )
    group_share_min_record_lock_duration_ms: int = Field(
        default=15_000,
        ge=1000,
        le=30_000,
        description="Shortest lock duration that a share group may set.",
    )
    group_share_max_record_lock_duration_ms: int = Field(
        default=60_000,
        ge=30_000,
        le=3_600_000,
        description="Longest lock duration that a share group may set.",
    )
    group_consumer_migration_policy: MigrationPolicy = Field(
        default="bidirectional",
        description="Whether groups with members change their protocol: to group.protocol=consumer (upgrade), "
        "back (downgrade), both (bidirectional), or not at all (disabled).",
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

    # ── transactions ──
    transaction_max_timeout_ms: int = Field(
        default=900_000,
        ge=1,
        description="Longest timeout that a producer may request for its transactions (Kafka: transaction.max.timeout.ms).",
    )
    transaction_check_interval_ms: int = Field(
        default=10_000,
        ge=10,
        description="Interval of the check for transactions past their timeout (Kafka: transaction.abort.timed.out.transaction.cleanup.interval.ms).",
    )
    transactional_ids_max: int = Field(
        default=100_000, ge=1, description="Maximum number of transactional ids; each stays in memory."
    )
    transactional_id_expiration_ms: int = Field(
        default=604_800_000,
        ge=1,
        description="Time without use after which a transactional id expires (Kafka: transactional.id.expiration.ms).",
    )

    transaction_request_records_max: int = Field(
        default=10_000,
        ge=1,
        description="Maximum number of records in one HTTP request that produces in a transaction.",
    )
    idempotency_keys_max: int = Field(
        default=10_000,
        ge=1,
        description="Number of responses kept for requests with an `Idempotency-Key`; the oldest is dropped first.",
    )
    idempotency_key_expiration_ms: int = Field(
        default=86_400_000,
        ge=1,
        description="How long the response to a request with an `Idempotency-Key` is kept.",
    )

    # ── limits ──
    frame_bytes_max: int = Field(
        default=16 * MIB, ge=KIB, description="Largest frame of the binary protocol."
    )
    connections_max: int = Field(
        default=10_000,
        ge=1,
        description="Maximum connections per listener: HTTP, binary, Kafka and registry. Over HTTP it is also the maximum of live tails and long polls, because each holds a connection.",
    )
    connections_per_address_max: int | None = Field(
        default=None,
        ge=1,
        description="Maximum connections per listener from one address; unlimited if unset (Kafka: max.connections.per.ip).",
    )
    connections_accept_rate_max: float | None = Field(
        default=None,
        gt=0,
        description="Connections accepted per second and listener; further ones wait. Unlimited if unset (Kafka: max.connection.creation.rate).",
    )
    pipelined_requests_max: int = Field(
        default=10_000,
        ge=1,
        description="Unanswered requests of a connection at which the broker stops reading from it.",
    )
    output_bytes_max: int = Field(
        default=4 * MIB,
        ge=KIB,
        description="Response bytes of a connection that wait for an earlier response, at which the broker stops reading from it.",
    )
    frame_timeout_ms: int = Field(
        default=30_000, ge=100, description="Time limit for a frame, from its first byte."
    )
    idle_timeout_ms: int = Field(
        default=600_000,
        ge=100,
        description="Idle time after which a connection without requests in flight is closed (Kafka: connections.max.idle.ms).",
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
        description="Bytes of batches waiting for codec threads, or to be written because they exceed 2 MiB, at which the broker stops reading from their producers.",
    )
    fetch_bytes_max: int = Field(
        default=8 * MIB, ge=KIB, description="Maximum bytes of one fetch response, over all partitions."
    )
    decoded_bytes_max: int = Field(
        default=128 * MIB,
        ge=128 * MIB,
        description="Maximum bytes of decompressed batches that all reads hold at once; further reads wait. Batches of up to 256 KiB do not count.",
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
        description="Largest body of a request with records, as JSON or octet-stream; NDJSON streams have no limit, and other JSON bodies one of 256 KiB, or 2 MiB for schemas and for lists of offsets, leases, locked records, ranges and access rules.",
    )
    pending_request_bytes_max: int = Field(
        default=256 * MIB,
        ge=MIB,
        description="Bytes of requests that a listener holds before their end, and over HTTP before their response, above 64 KiB of each connection; a request beyond them is refused (as Kafka: queued.max.request.bytes).",
    )
    ndjson_line_bytes_max: int = Field(
        default=2 * MIB, ge=KIB, description="Longest line of an NDJSON upload, in bytes."
    )
    request_timeout_ms: int = Field(
        default=30_000, ge=1, description="Longest wait of a produce with acks=all for its sync."
    )
    shutdown_timeout_ms: int = Field(
        default=10_000, ge=0, description="How long a shutdown waits for requests in progress."
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

    # ── change data capture ──
    cdc: CdcSettings = CdcSettings()

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Put the variables of the environment, and ``given``, which goes before them, into their groups."""
        if unknown := unknown_settings(given):
            raise ValueError("; ".join(unknown))
        variables = {
            name.lower().removeprefix(_PREFIX.lower()): value
            for name, value in os.environ.items()
            if name.upper().startswith(_PREFIX)
        }
        values: dict[str, Any] = {
            name: dict(info.default)
            for name, info in cls.model_fields.items()
            if isinstance(info.default, BaseModel)
        }
        for name, value in {**variables, **given}.items():
            setting = SETTINGS.get(name)
            if setting is None:
                continue
            group = values if setting.group is None else values[setting.group]
            group[setting.field] = value
        return values

    @model_validator(mode="after")
    def _check_share_locks(self) -> Settings:
        low, high = self.group_share_min_record_lock_duration_ms, self.group_share_max_record_lock_duration_ms
        if not low <= self.group_share_record_lock_duration_ms <= high:
            raise ValueError(
                f"group_share_record_lock_duration_ms is {self.group_share_record_lock_duration_ms}; it must be from "
                f"{low} (group_share_min_record_lock_duration_ms) to {high} (group_share_max_record_lock_duration_ms)"
            )
        return self

    @model_validator(mode="after")
    def _check_restore(self) -> Settings:
        if self.restore_if_empty is None or parse_boolean(self.restore_if_empty) is False:
            return self
        if self.storage != "embedded":
            raise ValueError("restore_if_empty needs storage=embedded: shared storage has no replica")
        if self.restore_from is None:
            raise ValueError(
                "restore_if_empty=true restores from the bucket of replicate_to, which is not set"
            )
        return self

    @property
    def restore_from(self) -> str | None:
        """The URL of the replica for an empty data directory; None if it stays empty."""
        given = None if self.restore_if_empty is None else parse_boolean(self.restore_if_empty)
        if given is None:
            return self.restore_if_empty
        return self.replicate_to if given else None

    def listener(self, name: ListenerName) -> ListenerSettings:
        return {"http": self.http, "binary": self.binary, "kafka": self.kafka, "registry": self.registry}[
            name
        ]

    def is_optional(self, name: ListenerName) -> bool:
        """Whether the broker starts without this listener if another process has its port."""
        registry = self.registry
        return name == "registry" and registry.enable is None and registry.port == _REGISTRY_PORT

    @property
    def listeners(self) -> tuple[ListenerName, ...]:
        """The listeners that are turned on."""
        return tuple(
            name for name in get_args(ListenerName) if name != "registry" or self.registry.enable is not False
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting. ``group`` is the field of ``Settings`` that has it, None for itself."""

    group: str | None
    field: str
    info: FieldInfo
    default: Any

    def value(self, settings: Settings) -> Any:
        return getattr(settings if self.group is None else getattr(settings, self.group), self.field)


def _declared() -> Iterator[tuple[str, Setting]]:
    for name, info in Settings.model_fields.items():
        group = info.default
        if isinstance(group, BaseModel):
            for field, inner in type(group).model_fields.items():
                yield f"{name}_{field}", Setting(name, field, inner, getattr(group, field))
        else:
            yield name, Setting(None, name, info, info.default)


# By the name that users give, in the order of the declarations.
SETTINGS = dict(_declared())


def is_secret(name: str) -> bool:
    """Return whether ``name`` is a setting that may hold a password."""
    if name not in SETTINGS:
        return False
    annotation = SETTINGS[name].info.annotation
    return SecretStr in getattr(annotation, "__args__", (annotation,))


# Variables that are no settings of the broker: of the client library and the commands, and of the tests.
_OTHER_VARIABLES = re.compile(
    r"(API_KEY|CA|CERTIFICATE|KEY|PASSWORD)_FILE|API_KEY|CDC_.+|CLIENT_.+|ICEBERG_(BROKER|CATALOG)|LEASE_SILENCE|MIRROR_(BROKER(_CONFIG|_URL)?|DEFINITION|SECRET_.+)|NEW_PASSWORD|PASSWORD|(REGISTRY_)?URL|USER"
    r"|(CONFORMANCE|CONSOLE|FAULTS|TEST|TORTURE)(_.+)?|.+_SEED"
)


def unknown_settings(names: Iterable[str]) -> list[str]:
    """Return a sentence per unknown name, with the setting that was probably meant."""
    return [
        f"there is no setting {name}{_suggestion(name.lower())}" for name in names if name not in SETTINGS
    ]


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Return a sentence for each variable called ``STELE_...`` that nothing reads."""
    given = sorted(name.removeprefix(_PREFIX) for name in environment if name.startswith(_PREFIX))
    return [
        f"nothing reads the variable {_PREFIX}{name}{_suggestion(name.lower(), _PREFIX)}"
        for name in given
        if name.lower() not in SETTINGS and not _OTHER_VARIABLES.fullmatch(name)
    ]


def _suggestion(name: str, prefix: str = "") -> str:
    meant = nearest(name, SETTINGS)
    if meant is None:
        return "; docs/settings.md lists all settings"
    return f"; did you mean {prefix + meant.upper() if prefix else meant}?"
