"""What a group, its members and its committed offsets need of the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ..broker.topics import Topic
from ..cluster.group_store import GroupChange
from ..errors import SteleError
from ..settings import Settings
from .timers import Scheduler


class GroupContext(Protocol):
    """What the groups of one coordinator share."""

    @property
    def settings(self) -> Settings: ...
    @property
    def scheduler(self) -> Scheduler: ...
    def now_ms(self) -> int: ...
    def make_id(self) -> str:
        """Never the same twice."""
        ...

    def topic(self, name: str) -> Topic:
        """Raises ``TopicError``."""
        ...

    def partitions_of(self, topics: Iterable[str]) -> Mapping[str, int]:
        """How many each of those topics has that exist."""
        ...

    def changed(self, group: str) -> None:
        """What its members are assigned is another, or somebody left: whoever watches may look."""
        ...

    def persist(self, changes: Sequence[GroupChange], done: Callable[[SteleError | None], None]) -> None:
        """Keep ``changes``; ``done`` comes on the loop, in the order of the calls, with what went wrong."""
        ...
