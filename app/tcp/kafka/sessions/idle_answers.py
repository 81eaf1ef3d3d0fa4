"""Cache the encoded answers of a connection for partitions that have nothing new.

A client without a fetch session (KIP-227) names all its partitions in each Fetch, and most of them have been idle since
the one before. The entry of such a partition has the same bytes in each request, and its answer stays the same until
something happens in the partition, of which a watch tells. What it saves is in ``docs/notes/performance.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stele.wire.isolation_level import IsolationLevel

from ....storage.topic_partition import TopicPartition
from .fetch_sessions import Watch

# Each takes some 700 bytes.
ANSWERS_MAX = 100_000


@dataclass(slots=True)
class Room:
    """How many more answers the connections of a listener may keep together."""

    left: int = ANSWERS_MAX


@dataclass(slots=True)
class TopicAnswers:
    """The answers for one topic. There is at most one for each partition."""

    by_entry: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    entries: dict[int, bytes] = field(default_factory=dict[int, bytes])

    def pop(self, partition: int) -> bool:
        """Forget the answer for a partition; return whether there was one."""
        entry = self.entries.pop(partition, None)
        if entry is None:
            return False
        del self.by_entry[entry]
        return True


_NONE = TopicAnswers()


class IdleAnswers:
    """What one connection keeps.

    ``make_watch`` returns a new watch each time, which notes each change, whatever its isolation level shows.
    """

    __slots__ = ("_by_topic", "_count", "_is_closed", "_kind", "_make_watch", "_room", "_watch", "is_in_use")

    def __init__(self, room: Room, make_watch: Callable[[], Watch]) -> None:
        self._room = room
        self._make_watch = make_watch
        # Of exactly those partitions that have an answer here; None until the first is asked for.
        self._watch: Watch | None = None
        # Whether a request looks at them, or waits for a change.
        self.is_in_use = False
        self._is_closed = False
        self._kind: tuple[int, IsolationLevel] | None = None
        self._by_topic: dict[str, TopicAnswers] = {}
        self._count = 0

    @property
    def is_closed(self) -> bool:
        """Whether nothing is kept or watched any more."""
        return self._is_closed

    @property
    def watch(self) -> Watch:
        """What notes changes of the partitions that have an answer here, after ``begin``."""
        assert self._watch is not None
        return self._watch

    def begin(self, version: int, isolation: IsolationLevel) -> None:
        """Keep answers of this kind from now on; those of another one look different."""
        kind = version, isolation
        if kind != self._kind:
            self._clear()
            self._kind = kind
            self._watch = self._make_watch()
            self._watch.isolation = isolation

    def of(self, topic: str) -> TopicAnswers:
        """Return the answers for a topic, not to be changed."""
        return self._by_topic.get(topic, _NONE)

    def forget_changed(self) -> None:
        """Forget the answers for the partitions in which something has happened."""
        for name in self.watch.take():
            self._forget(name)

    def has_room(self, more: int = 1) -> bool:
        """Return whether ``more`` answers may be kept."""
        return self._room.left >= more and not self._is_closed

    def keep(self, name: TopicPartition, entry: bytes, answer: bytes) -> None:
        """Keep the ``answer`` for ``entry``, as of now.

        It takes the place of an earlier one for the partition. There must be room, and this must not be closed.
        """
        answers = self._by_topic.get(name.topic)
        if answers is None:
            answers = self._by_topic[name.topic] = TopicAnswers()
        if not answers.pop(name.partition):
            self._count += 1
            self._room.left -= 1
            self.watch.add(name)
        answers.by_entry[entry] = answer
        answers.entries[name.partition] = entry

    def _forget(self, name: TopicPartition) -> None:
        answers = self._by_topic.get(name.topic)
        if answers is not None and answers.pop(name.partition):
            self._count -= 1
            self._room.left += 1
            self.watch.discard(name)
            if not answers.entries:
                del self._by_topic[name.topic]

    def _clear(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._by_topic.clear()
        self._room.left += self._count
        self._count = 0

    def close(self) -> None:
        """Forget all of them for good."""
        self._clear()
        self._is_closed = True
