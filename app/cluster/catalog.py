"""The store that keeps topics, configurations and producers (ADR-0008, ADR-0046).

Methods block (the embedded catalog syncs a database file): call them in a thread, one at a time. Each is one
transaction that can be repeated after a lost answer; when it returns, its effect survives a loss of power. When it
raises ``StorageFull``, ``CatalogFailed`` or ``StorageUnavailable``, it has none. A change of topics or configurations
raises a version in the same transaction, by which other brokers notice it.
"""

from __future__ import annotations

import base64
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from .database import ChangeKind, Database, SqlTransaction, stored_once, text_of, upsert, uuid_of

_T = TypeVar("_T")

# The last use of a named producer is stored so often at most: not with each batch.
USE_STORED_MS = 24 * 3_600_000
# A batch stores the epoch as a signed 16-bit number.
_EPOCH_MAX = 2**15 - 1

_INSERT_CONFIGS = upsert("configs", "kind, entity", "configs")
_NEXT_BLOCK = """
    INSERT INTO numbers VALUES ('next_producer_id', %s)
    ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(numbers.value AS bigint) + %s AS text) RETURNING value
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A stored topic; ``configs`` are those set explicitly, by Kafka's names."""

    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that was deleted, and whose files may still be there."""

    topic_id: UUID
    name: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """Configurations of a broker, a group or a client metrics subscription, or quotas.

    ``kind`` tells which; ``entity`` is its name, empty for the default of all brokers.
    """

    kind: str
    entity: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedProducer:
    """The producer id and epoch for a version of a named producer (ADR-0015).

    ``begun_at_ms`` is when that version began. ``is_resumed``: it had begun before
    this call, so some of its records may be stored.
    """

    name: str
    version: int
    producer_id: int
    epoch: int
    begun_at_ms: int
    is_resumed: bool


class Catalog(ABC):
    """What both engines do in the same way; deletions of topics and of named producers differ."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def _run(self, work: Callable[[SqlTransaction], _T]) -> _T:
        return self.database.run("a call to the catalog", work)

    def cluster_id(self) -> str:
        """Return the id of the cluster; it is made at the first start and never changes."""

        # Kafka's form: 16 random bytes in 22 URL-safe characters.
        def make() -> str:
            return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()

        return self._run(lambda sql: stored_once(sql, "cluster_id", make))

    # ── topics ──

    def topics(self) -> list[TopicRecord]:
        query = "SELECT name, topic_id, partitions, configs FROM topics ORDER BY name"
        return [
            TopicRecord(
                name=name, topic_id=uuid_of(topic_id), partitions=partitions, configs=json.loads(configs)
            )
            for name, topic_id, partitions, configs in self._run(lambda sql: sql.execute(query).fetchall())
        ]

    def create_topic(self, topic: TopicRecord) -> bool:
        """Store a new topic; return False if the name is taken."""

        def work(sql: SqlTransaction) -> bool:
            sql.changed(ChangeKind.TOPICS)
            sql.execute(
                "INSERT INTO topics (topic_id, name, partitions, configs) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                (topic.topic_id, topic.name, topic.partitions, _json(topic.configs)),
            )
            # An earlier attempt, whose answer was lost, may have stored it.
            row = sql.execute("SELECT topic_id FROM topics WHERE name = %s", (topic.name,)).fetchone()
            if row is None or uuid_of(row[0]) != topic.topic_id:
                return False
            self._create_logs(sql, topic)
            return True

        return self._run(work)

    def update_topic(self, topic: TopicRecord, *, previous: TopicRecord | None = None) -> bool:
        """Replace partitions and configs.

        Return False if the topic id no longer exists, or they are no longer those of ``previous``.
        """

        def work(sql: SqlTransaction) -> bool:
            sql.changed(ChangeKind.TOPICS)
            row = sql.execute(
                "SELECT partitions, configs FROM topics WHERE topic_id = %s FOR UPDATE", (topic.topic_id,)
            ).fetchone()
            if row is None:
                return False
            expected = [
                (record.partitions, dict(record.configs))
                for record in (topic, previous)
                if record is not None
            ]
            if previous is not None and (row[0], json.loads(row[1])) not in expected:
                return False
            sql.execute(
                "UPDATE topics SET partitions = %s, configs = %s WHERE topic_id = %s",
                (topic.partitions, _json(topic.configs), topic.topic_id),
            )
            self._create_logs(sql, topic)
            return True

        return self._run(work)

    @abstractmethod
    def _create_logs(self, sql: SqlTransaction, topic: TopicRecord) -> None:
        """Create the logs of a topic that do not exist, where they are rows of the database."""

    @abstractmethod
    def delete_topic(self, topic_id: UUID) -> bool:
        """Delete a topic; return False if there is none.

        A catalog of files remembers it until ``forget_deleted_topic``.
        """

    @abstractmethod
    def deleted_topics(self) -> list[DeletedTopic]: ...
    @abstractmethod
    def forget_deleted_topic(self, topic_id: UUID) -> None:
        """Note that the files of a deleted topic are gone."""

    # ── configurations ──

    def configs(self) -> list[ConfigRecord]:
        query = "SELECT kind, entity, configs FROM configs ORDER BY kind, entity"
        return [
            ConfigRecord(kind=kind, entity=text_of(entity), configs=json.loads(configs))
            for kind, entity, configs in self._run(lambda sql: sql.execute(query).fetchall())
        ]

    def set_configs(self, record: ConfigRecord) -> None:
        """Replace the configurations of a resource; empty ``configs`` remove its row."""

        def work(sql: SqlTransaction) -> None:
            key = (record.kind, sql.name(record.entity))
            sql.changed(ChangeKind.CONFIGS)
            if record.configs:
                sql.execute(_INSERT_CONFIGS, (*key, _json(record.configs)))
            else:
                sql.execute("DELETE FROM configs WHERE kind = %s AND entity = %s", key)

        self._run(work)

    # ── producers ──

    def reserve_producer_ids(self, newest_id: int) -> None:
        """Give out no ids up to ``newest_id``."""

        def work(sql: SqlTransaction) -> None:
            row = sql.execute(
                "SELECT value FROM numbers WHERE name = 'next_producer_id' FOR UPDATE"
            ).fetchone()
            missing = newest_id + 1 - (1 if row is None else int(row[0]))
            if missing > 0:
                sql.execute(_NEXT_BLOCK, (str(1 + missing), missing))

        self._run(work)

    def next_producer_id_block(self, size: int) -> int:
        """Return the first of ``size`` producer ids that were never given out before."""
        # An attempt whose answer is lost leaves a block unused.
        row = self._run(lambda sql: sql.execute(_NEXT_BLOCK, (str(1 + size), size)).fetchone())
        assert row is not None
        return int(row[0]) - size

    def begin_producer_version(self, name: str, version: int, *, fresh_id: int, now_ms: int) -> NamedProducer:
        """Begin ``version`` of the producer ``name``, or resume it if it has begun.

        A newer version raises the epoch. ``fresh_id`` is used if there is no producer
        of that name, or its epochs are used up. A version older than the current one
        changes nothing; the current one is returned.
        """

        def work(sql: SqlTransaction) -> NamedProducer:
            # Stored times are those of the database; the caller gets them by its own clock.
            key, clock_ms = sql.name(name), sql.now_ms(now_ms)
            row = sql.execute(
                "SELECT version, producer_id, epoch, begun_at_ms FROM named_producers WHERE name = %s FOR UPDATE",
                (key,),
            ).fetchone()
            producer_id, epoch = fresh_id, 0
            if row is not None:
                begun, last_id, last_epoch, begun_at_ms = row
                if version <= begun:
                    return NamedProducer(
                        name=name,
                        version=begun,
                        producer_id=last_id,
                        epoch=last_epoch,
                        begun_at_ms=now_ms - clock_ms + begun_at_ms,
                        is_resumed=True,
                    )
                next_epoch = last_epoch + 1 + self._epochs_forgotten(sql, name)
                if next_epoch <= _EPOCH_MAX:
                    producer_id, epoch = last_id, next_epoch
                sql.execute(
                    "UPDATE named_producers SET version = %s, producer_id = %s, epoch = %s, begun_at_ms = %s"
                    " WHERE name = %s",
                    (version, producer_id, epoch, clock_ms, key),
                )
            else:
                inserted = sql.execute(
                    "INSERT INTO named_producers (name, version, producer_id, epoch, begun_at_ms)"
                    " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (name) DO NOTHING",
                    (key, version, producer_id, epoch, clock_ms),
                )
                if inserted.rowcount == 0:
                    # Another broker began the name a moment ago; its row is visible now.
                    return work(sql)
                self._epochs_forgotten(sql, name)
            return NamedProducer(
                name=name,
                version=version,
                producer_id=producer_id,
                epoch=epoch,
                begun_at_ms=now_ms,
                is_resumed=False,
            )

        return self._run(work)

    def _epochs_forgotten(self, sql: SqlTransaction, name: str) -> int:
        """Return how many epochs of a named producer may have been given out and forgotten, before it gets the next one."""
        return 0

    def named_epochs(self) -> dict[int, int]:
        """Return the epoch of every named producer, by producer id."""
        query = "SELECT producer_id, epoch FROM named_producers"
        return dict(self._run(lambda sql: sql.execute(query).fetchall()))

    @abstractmethod
    def forget_named_producers(self, *, now_ms: int, kept_ms: int, last_uses: Mapping[int, int]) -> list[int]:
        """Delete named producers that were last used more than ``kept_ms`` ago.

        Return their producer ids. A use is the beginning of a version, or a batch. ``last_uses`` has the time of the last batch, by
        producer id, of those that partitions still know. It is stored once it is ``USE_STORED_MS`` newer than
        what is stored. A catalog that brokers share takes last uses and the time from its database instead.
        """

    def close(self) -> None:
        self.database.close()


def _json(configs: Mapping[str, str]) -> str:
    # ASCII, so NUL is an escape sequence.
    return json.dumps(dict(configs))
