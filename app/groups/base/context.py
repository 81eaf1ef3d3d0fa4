"""The interface through which groups reach settings, clock, topics and store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ...broker.entity_configs import GroupConfigs
from ...broker.topics import Topic
from ...cluster.group_store import GroupChange
from ...errors import SteleError
from ...settings import Settings
from ...storage.topic_partition import TopicPartition
from ...turns import Turns
from .pending_producers import PendingProducers
from .share_state import ShareCounts, StoredRange
from .timers import Scheduler
from .topic_facts import TopicFacts


class GroupContext(Protocol):
    """State shared by the groups of one coordinator; ``GroupTable`` implements it."""

    @property
    def settings(self) -> Settings: ...
    @property
    def configs(self) -> GroupConfigs: ...
    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def share_counts(self) -> ShareCounts: ...
    @property
    def answers(self) -> Turns:
        """The turns in which requests are answered that have waited: ``ANSWERS_PER_TURN`` at a time."""
        ...

    @property
    def pending_producers(self) -> PendingProducers: ...
    def now_ms(self) -> int: ...
    def check_open(self) -> None:
        """Raises ``CoordinatorNotAvailable``, ``CoordinatorFenced`` or ``NotCoordinator``."""
        ...

    def make_id(self) -> str:
        """Return an id that was never returned before."""
        ...

    def topic(self, name: str) -> Topic:
        """Find a topic by its name. Raises ``TopicError``."""
        ...

    def partitions_of(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Return the partition counts of those of ``topics`` that exist."""
        ...

    def topic_facts(self, topics: Iterable[str]) -> Mapping[str, TopicFacts]:
        """Return the ids and partition counts of those of ``topics`` that exist."""
        ...

    def list_offset(self, topic: str, partition: int, at: int, /) -> Awaitable[int]:
        """Return the offset of a time in ms or of a position; -1 if no record is that new.

        Raises ``TopicError``, ``StorageUnavailable``.
        """
        ...

    def write_dead_letters(
        self, group: str, partition: TopicPartition, records: Sequence[StoredRange], /
    ) -> Awaitable[None]:
        """Write dead letters about records that ``group`` has given up.

        See ``DeadLetterWriter.write``.
        """
        ...

    def changed(self, group: str) -> None:
        """Notify watchers that the members or the assignments of ``group`` changed."""
        ...

    def persist(self, changes: Sequence[GroupChange], done: Callable[[SteleError | None], None]) -> None:
        """Write ``changes`` to the store.

        ``done`` is called on the loop, in the order of the calls: with None once the changes are
        durable, or with the error.
        """
        ...
