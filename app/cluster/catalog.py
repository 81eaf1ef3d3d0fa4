"""The interface of the store that keeps topics, configurations and producers.

Methods block (the embedded catalog syncs a database file): call them in a
thread. Each is one transaction; when it returns, its effect survives a loss of
power. When it raises ``StorageFull``, ``CatalogFailed`` or ``StorageUnavailable``,
it has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

# The last use of a named producer is stored so often at most: not with each batch.
USE_STORED_MS = 24 * 3_600_000


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


class Catalog(Protocol):
    def cluster_id(self) -> str:
        """Return the id of the cluster; it is made at the first start and never changes."""
        ...

    def topics(self) -> list[TopicRecord]: ...
    def create_topic(self, topic: TopicRecord) -> bool:
        """Store a new topic; return False if the name is taken."""
        ...

    def update_topic(self, topic: TopicRecord, *, previous: TopicRecord | None = None) -> bool:
        """Replace partitions and configs; return False if the topic id no longer exists.

        A catalog that brokers share also returns False if they are no longer those of ``previous``.
        """
        ...

    def delete_topic(self, topic_id: UUID) -> bool:
        """Delete a topic; return False if there is none.

        A catalog of files remembers it until ``forget_deleted_topic``.
        """
        ...

    def deleted_topics(self) -> list[DeletedTopic]: ...
    def forget_deleted_topic(self, topic_id: UUID) -> None:
        """Note that the files of a deleted topic are gone."""
        ...

    def configs(self) -> list[ConfigRecord]: ...
    def set_configs(self, record: ConfigRecord) -> None:
        """Replace the configurations of a resource; empty ``configs`` remove its row."""
        ...

    def next_producer_id_block(self, size: int) -> int:
        """Return the first of ``size`` producer ids that were never given out before."""
        ...

    def begin_producer_version(self, name: str, version: int, *, fresh_id: int, now_ms: int) -> NamedProducer:
        """Begin ``version`` of the producer ``name``, or resume it if it has begun.

        A newer version raises the epoch. ``fresh_id`` is used if there is no producer
        of that name, or its epochs are used up. A version older than the current one
        changes nothing; the current one is returned.
        """
        ...

    def named_epochs(self) -> dict[int, int]:
        """Return the epoch of every named producer, by producer id."""
        ...

    def forget_named_producers(self, *, now_ms: int, kept_ms: int, last_uses: Mapping[int, int]) -> list[int]:
        """Delete named producers that were last used more than ``kept_ms`` ago.

        Return their producer ids. A use is the beginning of a version, or a batch. ``last_uses`` has the time of the last batch, by
        producer id, of those that partitions still know. It is stored once it is ``USE_STORED_MS`` newer than
        what is stored. A catalog that brokers share takes last uses and the time from its database instead.
        """
        ...

    def close(self) -> None: ...
