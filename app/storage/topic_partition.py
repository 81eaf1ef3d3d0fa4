"""The name of a partition, and what the broker keeps per partition."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from ..errors import UnknownTopic

_T = TypeVar("_T")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ByPartition(dict[TopicPartition, _T]):
    """A map from open partitions to values.

    A topic may be deleted, at this broker or another one, between the look-up of its name and the use of its
    partition: ``[]`` then raises ``UnknownTopic``.
    """

    __slots__ = ()

    def __missing__(self, name: TopicPartition) -> _T:
        raise UnknownTopic(name.topic)
