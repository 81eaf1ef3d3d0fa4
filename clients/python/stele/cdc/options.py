"""Options of a connector."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..config import Endpoint
from ..wire import cdc_requests
from .decoding.notation import lsn_of, split_name
from .records.debezium_types import Decimals, Times

Storage = Literal["disk", "memory"]
SnapshotMode = Literal["initial", "never", "again"]
TransactionMode = Literal["auto", "on", "off"]
SlotLagAction = Literal["warn", "pause-copies", "drop-slot"]
ValueFormat = Literal["envelope", "row"]
Format = Literal["json", "avro", "json-schema", "debezium", "debezium-schemas", "debezium-avro"]

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_TOPIC_PART = re.compile(r"[A-Za-z0-9._-]{1,150}")
DEFAULT_BROKER = "stele://127.0.0.1:9009"


class CdcOptionError(ValueError):
    """An invalid option; the message says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcOptions:
    """Validated options; at least one table or channel is required.

    - ``tables``: names as ``schema.table``; ``channels``: channels of NOTIFY.
    - ``added``: those of ``tables`` that were requested while the connector ran (``stele.cdc.requests``).
    - ``messages``: topics that ``pg_logical_emit_message`` may name, ``*`` at the end stands for anything; ``none``
      for no messages; empty for all with ``tables``, and none without.
    - ``partitions``, ``storage``: of the topics that the connector creates.
    - ``snapshot``: ``initial`` copies each table once, ``never`` none, ``again`` copies
      all tables again.
    - ``spool_dir``: the directory that holds large transactions until they commit; None
      is the system's directory for temporary files.
    - ``compact``: created topics are compacted. ``value``: of records, an ``envelope`` with the
      operation, or the ``row`` itself. With either, each row has a record of its own
      (``has_record_per_row``).
    - ``format``: of values; those of ``avro``, ``json-schema`` and ``debezium-avro`` have a schema in ``registry``,
      without which it is that of the broker. Those of ``debezium`` are Debezium's, without schemas, with them, or in
      Avro with its keys, with ``decimals`` as its ``decimal.handling.mode`` and ``times`` as its
      ``time.precision.mode``.
    - ``transactions``: ``on`` keeps the changes of each transaction of PostgreSQL together,
      ``off`` does not; ``auto`` is as before, and ``on`` for a new connector if it can be.
    - ``transaction_timeout``: seconds until the broker aborts a transaction that is not ended.
    - ``max_slot_lag``: bytes of WAL that the slot may hold back before ``slot_lag_action``; 0 for any.
    - ``accept_gap``: the LSN from which on changes may be missing, to go on all the same, or ``any``.
    - ``patience_s``: how long to retry a write while the broker is down.
    """

    dsn: str = field(repr=False)
    tables: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    messages: str = ""
    slot: str = "stele"
    publication: str = "stele"
    prefix: str = "pg"
    notify_prefix: str = "pgcdc"
    broker: str = field(default=DEFAULT_BROKER, repr=False)
    partitions: int = 8
    storage: Storage = "disk"
    key_column: str = "id"
    tombstones: bool = False
    snapshot: SnapshotMode = "initial"
    compact: bool = False
    value: ValueFormat = "envelope"
    format: Format = "json"
    decimals: Decimals = "precise"
    times: Times = "adaptive"
    registry: str = field(default="", repr=False)
    spool_dir: Path | None = None
    transactions: TransactionMode = "auto"
    transaction_timeout: float = 900.0
    max_slot_lag: int = 0
    slot_lag_action: SlotLagAction = "warn"
    accept_gap: str = ""
    patience_s: float = 60.0

    def __post_init__(self) -> None:
        """Raises CdcOptionError."""
        if not self.dsn:
            raise CdcOptionError(
                "the DSN of PostgreSQL is missing; pass --dsn postgresql://USER@HOST/DATABASE, or set STELE_CDC_DSN"
            )
        if not self.has_slot and not self.channels:
            raise CdcOptionError(
                "there is nothing to follow; pass --tables public.orders,public.items, --channels NAME or --messages '*'"
            )
        if not _SLOT.fullmatch(self.slot):
            raise CdcOptionError(
                f"slot is {self.slot!r}; it must be 1 to 63 lower case letters, digits and _"
            )
        try:
            Endpoint.parse(self.broker)
        except ValueError as error:
            raise CdcOptionError(f"broker: {error}") from None
        self._check_registry()
        self.topics()
        for name, value in (("prefix", self.prefix), ("notify prefix", self.notify_prefix)):
            if not _TOPIC_PART.fullmatch(value):
                raise CdcOptionError(f"{name} is {value!r}; it may have letters, digits, . _ and -")
        if not 1 <= self.partitions <= 10_000:
            raise CdcOptionError(f"partitions is {self.partitions}; it must be 1 to 10000")
        if self.max_slot_lag < 0:
            raise CdcOptionError(f"max slot lag is {self.max_slot_lag}; it must be 0 or more bytes")
        if self.accept_gap not in ("", "any") and not _LSN.fullmatch(self.accept_gap):
            raise CdcOptionError(
                f"accept gap is {self.accept_gap!r}; it must be the first LSN of the gap as the connector reports it, such "
                "as 0/3000060, or any"
            )
        if not self.transaction_timeout > 0:
            raise CdcOptionError(
                f"transaction timeout is {self.transaction_timeout:g}; it must be more than 0 seconds"
            )
        if self.has_record_per_row and (self.transactions == "off" or not self.can_be_transactional):
            # A truncate is many tombstones, and a half of them must not remain.
            raise CdcOptionError(
                "--compact and --value row need transactions, topics on disk and a broker URL stele://HOST:9009; "
                "change --transactions, --storage or --broker"
            )
        if self.transactions == "on" and not self.can_be_transactional:
            raise CdcOptionError(
                "transactions need topics on disk and a broker URL stele://HOST:9009; change --storage or --broker, "
                "or pass --transactions off"
            )

    def _check_registry(self) -> None:
        if not self.registry:
            return
        try:
            transport = Endpoint.parse(self.registry).transport
        except ValueError as error:
            raise CdcOptionError(f"registry: {error}") from None
        if transport != "http":
            raise CdcOptionError("registry: a schema registry is reached over HTTP; write http://HOST:8081")

    def topics(self) -> dict[str, str]:
        """Map topics to tables. Raises CdcOptionError if two tables have the same topic."""
        tables: dict[str, str] = {}
        for name in self.tables:
            schema, dot, table = name.partition(".")
            topic = self.topic_of(schema, table) if dot else self.topic_of("public", name)
            other = tables.setdefault(topic, name)
            if other != name:
                raise CdcOptionError(
                    f"tables {other} and {name} have the same topic, {topic}; follow one of them"
                )
        return tables

    @property
    def full_names(self) -> set[str]:
        """The tables to follow, each with its schema."""
        return {".".join(split_name(name)) for name in self.tables}

    @property
    def has_messages(self) -> bool:
        """Whether messages of ``pg_logical_emit_message`` are followed."""
        return bool(self.tables) if not self.messages else self.messages != "none"

    def accepts(self, lsn: int) -> bool:
        """Return whether to go on although changes may be missing from ``lsn`` on."""
        return self.accept_gap == "any" or (self.accept_gap != "" and lsn_of(self.accept_gap) == lsn)

    @property
    def requests_topic(self) -> str:
        return cdc_requests.topic_of(self.prefix, self.slot)

    @property
    def has_slot(self) -> bool:
        """Whether there is a slot to read; NOTIFY needs none."""
        return bool(self.tables) or self.has_messages

    def refusal_of(self, topic: str) -> str | None:
        """Return why a message must not name ``topic``; None if it may."""
        if topic.startswith(("__", f"{self.prefix}.")) or topic == "_schemas":
            return f"topic {topic} is written by the connector or the broker alone"
        patterns = [pattern.strip() for pattern in (self.messages or "*").split(",")]
        if any(topic == p or (p.endswith("*") and topic.startswith(p[:-1])) for p in patterns):
            return None
        return f"--messages {self.messages} does not allow topic {topic}"

    @property
    def refused_topic(self) -> str:
        """The topic that keeps messages which name no topic that could have them."""
        return topic_name(f"{self.prefix}.refused-messages")

    @property
    def schema_topic(self) -> str:
        """The topic with the columns of the tables, whenever they change."""
        return topic_name(f"{self.prefix}.schema-changes")

    @property
    def state_topic(self) -> str:
        """The topic in which the connector records the tables it has copied."""
        return f"__cdc.{self.prefix}.{self.slot}"

    @property
    def positions_topic(self) -> str:
        """The topic with the position of each transaction of the log."""
        return f"__cdc_positions.{self.prefix}.{self.slot}"

    @property
    def can_be_transactional(self) -> bool:
        return self.storage == "disk" and self.broker.startswith("stele")

    @property
    def is_debezium(self) -> bool:
        return self.format.startswith("debezium")

    @property
    def has_record_per_row(self) -> bool:
        """Whether the newest record of a key stands for its row, and a tombstone for none.

        A truncate and the start of a repeated copy then are tombstones, too.
        """
        return self.compact or self.value == "row"

    def is_transactional(self, *, is_new: bool, was_transactional: bool | None) -> bool:
        """Return whether to write transactions; ``was_transactional`` is what the last run did."""
        if self.transactions != "auto":
            return self.transactions == "on"
        if self.has_record_per_row:
            return True
        return self.can_be_transactional and (is_new or bool(was_transactional))

    def producer_name(self, system: str, database: str) -> str:
        """Return the producer name for a cluster identifier and one of its databases."""
        return f"cdc/{self.prefix}/{self.slot}/{system}/{database}"

    @property
    def topic_configs(self) -> dict[str, str]:
        """Configurations of created topics.

        Topics on disk keep all changes, because PostgreSQL cannot send them again.
        """
        return self.message_topic_configs | ({"cleanup.policy": "compact"} if self.compact else {})

    @property
    def message_topic_configs(self) -> dict[str, str]:
        """Those of topics that are created for messages."""
        if self.storage == "memory":
            return {"stele.storage": "memory"}
        return {"retention.ms": "-1", "max.message.bytes": str(15 * 1024 * 1024)}

    def topic_of(self, schema: str, table: str) -> str:
        return topic_name(f"{self.prefix}.{schema}.{table}")

    def topic_of_channel(self, channel: str) -> str:
        """``pgcdc:orders`` → ``pgcdc.orders``; a channel without a colon gets the prefix."""
        _, colon, rest = channel.partition(":")
        return topic_name(f"{self.notify_prefix}.{rest if colon else channel}")


def topic_name(text: str) -> str:
    """Replace characters that topic names do not allow with ``_``."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:249]
