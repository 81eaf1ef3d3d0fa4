"""The catalog's interface: what exists, remembered over restarts.

Methods block (the embedded catalog syncs a database file): call them in a
thread. Each is one transaction; when it returns, its effect survives the loss
of power.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic as the catalog keeps it; ``configs`` are those set explicitly, by Kafka's names."""

    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """What is set on a resource that is no topic: a broker, a group, a client metrics subscription.

    ``kind`` tells which; ``entity`` is its name, empty for the default of all brokers.
    """

    kind: str
    entity: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedProducer:
    """The producer that writes version ``version`` of what ``name`` writes (ADR-0015).

    ``begun_at_ms`` is when that version began. ``is_resumed``: it had begun before
    this call, so some of it may be stored.
    """

    name: str
    version: int
    producer_id: int
    epoch: int
    begun_at_ms: int
    is_resumed: bool


class Catalog(Protocol):
    def cluster_id(self) -> str:
        """Made at the first start, and the same ever after."""
        ...

    def topics(self) -> list[TopicRecord]: ...
    def create_topic(self, topic: TopicRecord) -> bool:
        """False if the name is taken."""
        ...

    def update_topic(self, topic: TopicRecord) -> bool:
        """Replace partitions and configs; False if the topic id is not there any more."""
        ...

    def delete_topic(self, topic_id: UUID) -> bool: ...
    def configs(self) -> list[ConfigRecord]: ...
    def set_configs(self, record: ConfigRecord) -> None:
        """Replace what is set on this resource; nothing of it is kept if there is nothing."""
        ...

    def next_producer_id_block(self, size: int) -> int:
        """The first of ``size`` producer ids that nobody was ever given."""
        ...

    def begin_producer_version(self, name: str, version: int, *, fresh_id: int, now_ms: int) -> NamedProducer:
        """The producer of ``name`` for ``version``: begun now, or resumed if it had begun.

        A newer version raises the epoch; ``fresh_id`` is taken if there is no producer
        of that name, or its epochs are used up. A version that is older than the one
        that has begun changes nothing: the answer is that newer one.
        """
        ...

    def named_epochs(self) -> dict[int, int]:
        """Producer id → epoch of every named producer."""
        ...

    def forget_named_producers(self, before_ms: int) -> None:
        """Those whose version began before that."""
        ...

    def close(self) -> None: ...
