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
    def next_producer_id_block(self, size: int) -> int:
        """The first of ``size`` producer ids that nobody was ever given."""
        ...

    def close(self) -> None: ...
