"""Fetch sessions (KIP-227): the broker remembers what a consumer reads.

This is a state machine without I/O.

A *full* request (epoch 0) names all its partitions and may begin a session. The
*incremental* requests that follow (epochs 1, 2, …) name only what changed, and their
responses leave out partitions that have nothing new. Sessions belong to the listener,
not to a connection: a client that reconnects may continue its session.

Unlike Kafka's cache, a session knows from a watch which of its partitions may have
something new (``FetchSession.candidates``), so idle partitions cost a request nothing.

Sessions live in slots, as in Kafka. When all slots are taken, a new session replaces
one that was not used for two minutes; or, if the new session is privileged (a
follower's), an ordinary one; or a session that is older than two minutes and has fewer
partitions. Otherwise its client gets no session and names all partitions each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel

from ....storage.topic_partition import TopicPartition
from ....work_budget import Pace, Steps, sorted_in_steps

# Session id 0 means no session. Epoch 0 asks for a new session; -1 ends the named one and begins none.
NO_SESSION_ID = 0
NEW_SESSION_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
# That of no request, because theirs have 32 bits: of a session that takes a request just now.
_NO_EPOCH = -(2**31) - 1
# Kafka's value. After that time without use, any new session may replace a session; before, only a follower's.
EVICTION_MS = 120_000

# Whether it is privileged, its number of partitions, its id: the least is evicted first.
_Worth = tuple[bool, int, int]
# A topic's name, or its id (16 bytes) in sessions that use ids; and the partition.
PartitionKey = tuple[str | bytes, int]


def next_epoch(epoch: int) -> int:
    """Return the epoch after ``epoch``.

    1 after the largest, because 0 begins a session.
    """
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class Watch(Protocol):
    """Notes which of its partitions changed; see ``storage.waiters.PartitionWatch``."""

    @property
    def isolation(self) -> IsolationLevel: ...
    @isolation.setter
    def isolation(self, isolation: IsolationLevel) -> None: ...

    def add(self, topic_partition: TopicPartition) -> None: ...
    def discard(self, topic_partition: TopicPartition) -> None: ...
    def take(self) -> Iterable[TopicPartition]: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...
    async def wait(self, *, min_bytes: int, timeout_ms: int) -> None: ...


@dataclass(slots=True, eq=False)
class FetchedPartition:
    """A partition of a request or session, and the session's last answer for it.

    ``topic`` is empty while no topic has this id. With ``is_by_id`` the request named
    the topic by its id, which may be all zeros.
    """

    topic: str
    topic_id: bytes
    index: int
    offset: int
    max_bytes: int
    leader_epoch: int
    is_by_id: bool = False
    # As last answered; -1: the next response must have the partition.
    high_watermark: int = -1
    log_start_offset: int = -1
    # Orders the partitions of a session: one that returned records goes to the end.
    turn: int = 0

    def update(self, other: FetchedPartition) -> None:
        """Take over the offset, limit and leader epoch of a later request."""
        self.offset, self.max_bytes = other.offset, other.max_bytes
        self.leader_epoch = other.leader_epoch

    def note_answer(
        self, *, has_records: bool, is_error: bool, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Note an answer; return whether the response must have it.

        It must if the answer has records or an error, or if the high watermark or the
        log start offset has moved.
        """
        is_news = (
            has_records
            or is_error
            or high_watermark != self.high_watermark
            or log_start_offset != self.log_start_offset
        )
        # After an error the next answer is sent in any case: the client must learn that the error is gone.
        self.high_watermark = -1 if is_error else high_watermark
        self.log_start_offset = log_start_offset
        return is_news


class FetchSession:
    """The partitions of one session, in the order in which they are read."""

    def __init__(
        self,
        session_id: int,
        watch: Watch,
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms
        # The epoch of the next request.
        self.epoch = next_epoch(NEW_SESSION_EPOCH)
        self.watch = watch
        # The session was evicted or ended; a request in progress still gets its response.
        self.is_over = False
        self._partitions: dict[PartitionKey, FetchedPartition] = {}
        self._keys: dict[TopicPartition, PartitionKey] = {}
        self._turns = 0
        # The partitions that may have something new.
        self._unsettled: dict[PartitionKey, FetchedPartition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def update(
        self, requested: Mapping[PartitionKey, FetchedPartition], forgotten: Iterable[PartitionKey]
    ) -> Steps[None]:
        """Add and change the ``requested`` partitions, then remove the ``forgotten`` ones."""
        pace = Pace()
        for key, partition in requested.items():
            if pace.is_due():
                yield
            known = self._partitions.get(key)
            if known is None:
                self._turns += 1
                partition.turn = self._turns
                self._partitions[key] = known = partition
                if partition.topic:
                    self._watch(key, partition)
            else:
                known.update(partition)
            self._unsettled[key] = known
        for key in forgotten:
            if pace.is_due():
                yield
            known = self._partitions.pop(key, None)
            self._unsettled.pop(key, None)
            if known is not None:
                name = TopicPartition(known.topic, known.index)
                if self._keys.get(name) == key:
                    del self._keys[name]
                    self.watch.discard(name)

    def _watch(self, key: PartitionKey, partition: FetchedPartition) -> None:
        name = TopicPartition(partition.topic, partition.index)
        self._keys[name] = key
        self.watch.add(name)

    def resolve(self, partition: FetchedPartition, topic: str) -> None:
        """Note the name of the topic, which was created after a request named its id."""
        partition.topic = topic
        self._watch((partition.topic_id, partition.index), partition)

    def candidates(self) -> Steps[list[FetchedPartition]]:
        """Return the partitions that may have news, in the order in which to read them."""
        return sorted_in_steps(list(self._with_news().values()), _turn)

    def _with_news(self) -> Mapping[PartitionKey, FetchedPartition]:
        for name in self.watch.take():
            key = self._keys.get(name)
            if key is not None:
                self._unsettled[key] = self._partitions[key]
        return self._unsettled

    def partition(self, key: PartitionKey) -> FetchedPartition:
        """Return a partition of the session."""
        return self._partitions[key]

    def has_news_only_of(self, key: PartitionKey, topic: str) -> bool:
        """Return whether the partition with ``key`` is here, and no other is a candidate."""
        known = self._partitions.get(key)
        if known is None or known.topic != topic:
            return False
        candidates = self._with_news()
        return not candidates or (len(candidates) == 1 and key in candidates)

    def ask_again(self, key: PartitionKey, *, offset: int, max_bytes: int, leader_epoch: int) -> None:
        """``update`` for one partition of the session."""
        known = self._partitions[key]
        known.offset, known.max_bytes, known.leader_epoch = offset, max_bytes, leader_epoch
        self._unsettled[key] = known

    def settle(
        self,
        partition: FetchedPartition,
        *,
        has_records: bool,
        is_error: bool,
        high_watermark: int,
        log_start_offset: int,
    ) -> bool:
        """Note what a partition had; return whether the response must have it.

        A partition that returned records is read last from now on. One without an
        error and without records at or after its offset is no candidate again until it
        changes or a request names it.
        """
        if has_records:
            self._turns += 1
            partition.turn = self._turns
        if not is_error and partition.offset >= high_watermark:
            self._unsettled.pop((self._name(partition), partition.index), None)
        return partition.note_answer(
            has_records=has_records,
            is_error=is_error,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
        )

    def _name(self, partition: FetchedPartition) -> str | bytes:
        return partition.topic_id if self.uses_topic_ids else partition.topic


def _turn(partition: FetchedPartition) -> int:
    return partition.turn


@dataclass(frozen=True, slots=True)
class Round:
    """What to do with a request.

    Refuse it, fetch for ``session``, or fetch without a session.

    In the last case the request may begin a session if ``may_begin``.
    """

    error: ErrorCode = ErrorCode.NONE
    session: FetchSession | None = None
    may_begin: bool = False


_WITHOUT_SESSION, _BEGINNING = Round(), Round(may_begin=True)


class FetchSessionCache:
    """The sessions of a listener.

    There are at most ``slots``, with at most ``partitions_max`` partitions in all.

    Times are in ms of a monotonic clock. ``random_id`` returns numbers from 1 to
    2^31 - 1, and ``make_watch`` a watch for each session.
    """

    def __init__(
        self,
        *,
        slots: int,
        partitions_max: int,
        random_id: Callable[[], int],
        make_watch: Callable[[], Watch],
    ) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._random_id = random_id
        self._make_watch = make_watch
        # Least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        self._sizes: dict[int, int] = {}
        # The sessions that any new session may replace, and those that only a privileged one may, as
        # of their last use.
        self._evictable: dict[int, _Worth] = {}
        self._evictable_by_privileged: dict[int, _Worth] = {}
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def is_over_full(self) -> bool:
        """Whether a session that is used now ends, because sessions have grown."""
        return self.partitions > self._partitions_max

    def find(self, session_id: int, epoch: int, *, uses_topic_ids: bool) -> FetchSession | None:
        """Return the session that would ``take`` a request.

        None if there is none, or it would refuse it.
        """
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or session.uses_topic_ids != uses_topic_ids:
            return None
        return session

    def take(
        self,
        *,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        requested: Mapping[PartitionKey, FetchedPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> Steps[Round]:
        """Decide what to do with a request, and apply it to its session.

        This ends the wait of the session's previous request, if it still waits.
        """
        if epoch in (NEW_SESSION_EPOCH, FINAL_EPOCH):
            # Both end the session that they name.
            self._remove(session_id)
            return _WITHOUT_SESSION if epoch == FINAL_EPOCH else _BEGINNING
        session = self._sessions.get(session_id)
        if session is None:
            return Round(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return Round(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return Round(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # No other request may change it meanwhile.
        session.epoch = _NO_EPOCH
        session.watch.interrupt()
        yield from session.update(requested, forgotten)
        session.epoch = next_epoch(epoch)
        if session.is_over:
            return Round(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not len(session):
            # An empty session ends; the request is answered without one.
            self._remove(session_id)
            return _WITHOUT_SESSION
        self._touch(session, now_ms, size=len(session))
        if self.is_over_full:
            # The client sends a full request next, which gets a session if there is room.
            self._remove(session_id)
            return Round(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return Round(session=session)

    def use(
        self,
        session: FetchSession,
        key: PartitionKey,
        *,
        offset: int,
        max_bytes: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Do what ``take`` does with a request for one partition that ``session`` has.

        ``find`` has returned the session, and the cache is not ``is_over_full``.
        """
        session.ask_again(key, offset=offset, max_bytes=max_bytes, leader_epoch=leader_epoch)
        session.watch.interrupt()
        self._touch(session, now_ms, size=len(session))
        session.epoch = next_epoch(session.epoch)

    def begin(
        self,
        partitions: Mapping[PartitionKey, FetchedPartition],
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> Steps[int]:
        """Begin a session whose first response is made.

        Return its id, or 0 if there is no room.
        """
        if not self._make_room(len(partitions), is_privileged=is_privileged, now_ms=now_ms):
            return NO_SESSION_ID
        session_id = self._random_id()
        while session_id in self._sessions:
            session_id = self._random_id()
        session = FetchSession(
            session_id,
            self._make_watch(),
            is_privileged=is_privileged,
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
        )
        self._sessions[session_id] = session
        self._sizes[session_id] = 0
        # It takes its room before it has them.
        self._touch(session, now_ms, size=len(partitions))
        yield from session.update(partitions, ())
        return session_id

    def _touch(self, session: FetchSession, now_ms: int, *, size: int) -> None:
        session.used_ms = now_ms
        session_id = session.id
        self._sessions[session_id] = self._sessions.pop(session_id)
        self.partitions += size - self._sizes[session_id]
        self._sizes[session_id] = size
        worth = (session.is_privileged, size, session_id)
        is_old = now_ms - session.created_ms > EVICTION_MS
        if is_old:
            self._evictable[session_id] = worth
        if is_old or not session.is_privileged:
            self._evictable_by_privileged[session_id] = worth

    def _make_room(self, size: int, *, is_privileged: bool, now_ms: int) -> bool:
        if size > self._partitions_max:
            return False
        while self.partitions + size > self._partitions_max:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.used_ms <= EVICTION_MS:
                return False
            self._remove(oldest.id)
        if len(self._sessions) < self._slots:
            return True
        victim = self._victim((is_privileged, size, NO_SESSION_ID), now_ms)
        if victim is None:
            return False
        self._remove(victim.id)
        return True

    def _victim(self, newcomer: _Worth, now_ms: int) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms > EVICTION_MS:
            return oldest
        evictable = self._evictable_by_privileged if newcomer[0] else self._evictable
        least = min(evictable.values(), default=None)
        return None if least is None or newcomer < least else self._sessions[least[2]]

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= self._sizes.pop(session_id)
            self._evictable.pop(session_id, None)
            self._evictable_by_privileged.pop(session_id, None)
            session.is_over = True
            session.watch.close()
