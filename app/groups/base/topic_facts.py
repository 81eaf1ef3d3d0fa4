"""Facts about topics that the assignment of partitions needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """Facts about a topic that an assignment needs."""

    topic_id: UUID
    partitions: int


# The facts of those of the named topics that exist.
TopicsOf = Callable[[Iterable[str]], Mapping[str, TopicFacts]]
