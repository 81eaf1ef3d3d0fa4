"""Fetch sessions as a state machine: slots, the partitions that a round looks at, and lost changes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel

from app.storage.topic_partition import TopicPartition
from app.tcp.kafka.sessions.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    NEW_SESSION_EPOCH,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
    Round,
    next_epoch,
)
from app.work_budget import _PIECES_PER_STEP, Steps, at_once

EPOCH_MAX = 2**31 - 1


class ToyWatch:
    """A watch that the test controls."""

    def __init__(self) -> None:
        self.isolation = IsolationLevel.READ_UNCOMMITTED
        self.names: set[TopicPartition] = set()
        self.changed: list[TopicPartition] = []
        self.interruptions = 0
        self.is_closed = False

    def add(self, topic_partition: TopicPartition) -> None:
        self.names.add(topic_partition)

    def discard(self, topic_partition: TopicPartition) -> None:
        self.names.discard(topic_partition)

    def take(self) -> Iterable[TopicPartition]:
        taken, self.changed = self.changed, []
        return taken

    def interrupt(self) -> None:
        self.interruptions += 1

    def close(self) -> None:
        self.is_closed = True
        self.names.clear()

    async def wait(self, *, min_bytes: int, timeout_ms: int) -> None:
        raise NotImplementedError

    def change(self, name: TopicPartition) -> None:
        if name in self.names:
            self.changed.append(name)


@dataclass
class Cache:
    """A cache, its clock and its watches."""

    slots: int = 2
    partitions_max: int = 1000
    now_ms: int = 0
    watches: list[ToyWatch] = field(default_factory=list[ToyWatch])

    def __post_init__(self) -> None:
        ids = count(1)
        self.cache = FetchSessionCache(
            slots=self.slots,
            partitions_max=self.partitions_max,
            random_id=lambda: next(ids),
            make_watch=self._make_watch,
        )

    def _make_watch(self) -> ToyWatch:
        self.watches.append(ToyWatch())
        return self.watches[-1]

    def begin(self, size: int = 1, *, is_privileged: bool = False, topic: str = "t") -> int:
        return at_once(
            self.cache.begin(
                asked(*range(size), topic=topic),
                is_privileged=is_privileged,
                uses_topic_ids=False,
                now_ms=self.now_ms,
            )
        )

    def take(
        self,
        session_id: int,
        epoch: int,
        partitions: dict[PartitionKey, FetchedPartition] | None = None,
        forgotten: Sequence[PartitionKey] = (),
        *,
        uses_topic_ids: bool = False,
    ) -> Round:
        return at_once(self.taking(session_id, epoch, partitions, forgotten, uses_topic_ids=uses_topic_ids))

    def taking(
        self,
        session_id: int,
        epoch: int,
        partitions: dict[PartitionKey, FetchedPartition] | None = None,
        forgotten: Sequence[PartitionKey] = (),
        *,
        uses_topic_ids: bool = False,
    ) -> Steps[Round]:
        return self.cache.take(
            session_id=session_id,
            epoch=epoch,
            uses_topic_ids=uses_topic_ids,
            requested=partitions or {},
            forgotten=forgotten,
            now_ms=self.now_ms,
        )

    def has(self, session_id: int) -> bool:
        """Looks with an epoch that is never the next one, which changes nothing."""
        return self.take(session_id, -2).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def asked(
    *partitions: int, topic: str = "t", offset: int = 0, topic_id: bytes = bytes(16)
) -> dict[PartitionKey, FetchedPartition]:
    return {
        (topic if topic_id == bytes(16) else topic_id, partition): FetchedPartition(
            topic=topic, topic_id=topic_id, index=partition, offset=offset, max_bytes=1 << 20, leader_epoch=-1
        )
        for partition in partitions
    }


def session_of(found: Round) -> FetchSession:
    assert found.session is not None, found
    return found.session


def settle(session: FetchSession, partition: FetchedPartition, end: int, *, records: bool = False) -> bool:
    return session.settle(
        partition, has_records=records, is_error=False, high_watermark=end, log_start_offset=0
    )


# ── slots ──


@dataclass(frozen=True)
class Eviction:
    """Two slots are taken by sessions of these sizes; the second is used again after ``used_ms``."""

    name: str
    sizes: tuple[int, int]
    privileged: tuple[bool, bool]
    used_ms: int
    newcomer: int
    newcomer_is_privileged: bool
    # The place of the session that goes; None: there is no room.
    gone: int | None


OLD = EVICTION_MS + 1


@pytest.mark.parametrize(
    "case",
    [
        Eviction("young sessions stay", (1, 1), (False, False), 1, 100, False, None),
        Eviction("one that was not used for two minutes goes", (9, 1), (False, False), OLD, 1, False, 0),
        Eviction("a follower's too, if it was not used", (9, 1), (True, False), OLD, 1, False, 0),
        Eviction("a follower takes the place of a consumer", (5, 9), (True, False), 1, 1, True, 1),
        Eviction("of the smallest consumer", (5, 4), (False, False), 1, 1, True, 1),
        Eviction("but not that of another follower", (5, 9), (True, True), 1, 100, True, None),
        Eviction("a consumer never that of a follower in use", (1, 1), (True, True), 1, 100, False, None),
    ],
    ids=lambda case: case.name,
)
def test_which_session_a_new_one_replaces(case: Eviction) -> None:
    cache = Cache()
    ids = [
        cache.begin(size, is_privileged=is_privileged)
        for size, is_privileged in zip(case.sizes, case.privileged, strict=True)
    ]
    cache.now_ms = case.used_ms
    cache.take(ids[1], 1)
    got = cache.begin(case.newcomer, is_privileged=case.newcomer_is_privileged)
    assert (got > 0) == (case.gone is not None)
    assert [cache.has(one) for one in ids] == [place != case.gone for place in range(2)]
    assert len(cache.cache) == 2


@pytest.mark.parametrize(("size", "gone"), [(2, None), (3, None), (4, 0), (100, 0)])
def test_a_larger_session_replaces_one_in_use_that_is_older_than_two_minutes(
    size: int, gone: int | None
) -> None:
    cache = Cache()
    ids = [cache.begin(3), cache.begin(5)]
    # Each is used within two minutes, so neither is stale.
    for epoch in (1, 2):
        cache.now_ms += EVICTION_MS - 1
        for one in ids:
            cache.take(one, epoch)
    assert (cache.begin(size) > 0) == (gone is not None)
    assert [cache.has(one) for one in ids] == [place != gone for place in range(2)]


def test_exactly_two_minutes_are_not_more_than_two_minutes() -> None:
    cache = Cache(slots=1)
    first = cache.begin()
    cache.now_ms = EVICTION_MS
    assert cache.begin(100) == 0
    cache.now_ms += 1
    assert cache.begin() > 0
    assert not cache.has(first)


def test_without_slots_there_are_no_sessions() -> None:
    assert Cache(slots=0).begin() == 0


def test_partitions_are_bounded_over_all_sessions() -> None:
    cache = Cache(slots=10, partitions_max=10)
    first, second = cache.begin(5), cache.begin(4)
    assert cache.begin(2) == 0
    assert cache.cache.partitions == 9
    # A session that grows beyond the bound ends; its client begins again.
    assert cache.take(first, 1, asked(5, 6)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (cache.has(first), cache.has(second), cache.cache.partitions) == (False, True, 4)
    cache.now_ms = OLD
    assert cache.begin(10) > 0
    assert (cache.has(second), cache.cache.partitions) == (False, 10)


def test_a_session_that_ends_watches_nothing_and_interrupts_the_request_that_waits() -> None:
    cache = Cache()
    ended = cache.begin()
    emptied = cache.begin()
    found = session_of(cache.take(ended, 1))
    cache.take(ended, FINAL_EPOCH)
    assert found.is_over
    cache.take(emptied, 1, forgotten=[("t", 0)])
    assert [watch.is_closed for watch in cache.watches] == [True, True]
    assert (len(cache.cache), cache.cache.partitions) == (0, 0)


# ── epochs ──


def test_epochs_go_on_to_the_largest_and_then_to_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, EPOCH_MAX - 1, EPOCH_MAX)] == [1, 2, EPOCH_MAX, 1]
    cache = Cache()
    one = cache.begin()
    session_of(cache.take(one, 1)).epoch = EPOCH_MAX
    assert cache.take(one, EPOCH_MAX).session is not None
    assert cache.take(one, 2).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.take(one, 1).session is not None


def test_what_a_request_is() -> None:
    cache = Cache()
    assert cache.take(0, FINAL_EPOCH) == Round()
    assert cache.take(0, NEW_SESSION_EPOCH) == Round(may_begin=True)
    assert cache.take(7, 1) == Round(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    one = cache.begin()
    assert cache.take(one, 2) == Round(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert cache.take(one, 1, uses_topic_ids=True) == Round(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    assert session_of(cache.take(one, 1)).id == one
    assert cache.take(one, NEW_SESSION_EPOCH) == Round(may_begin=True)
    assert cache.take(one, 2) == Round(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


# ── partitions ──


def test_a_round_looks_at_what_changed_only() -> None:
    cache = Cache()
    one = cache.begin(1000)
    (watch,) = cache.watches
    session = session_of(cache.take(one, 1))
    for partition in at_once(session.candidates()):
        settle(session, partition, 0)
    assert at_once(session.candidates()) == []
    watch.change(TopicPartition("t", 7))
    cache.take(one, 2, asked(3))
    assert [partition.index for partition in at_once(session.candidates())] == [3, 7]


def test_a_partition_that_returned_records_is_read_last() -> None:
    cache = Cache()
    session = session_of(cache.take(cache.begin(4), 1))
    first, second, *_ = at_once(session.candidates())
    settle(session, first, 10, records=True)
    settle(session, second, 10, records=True)
    assert [partition.index for partition in at_once(session.candidates())] == [2, 3, 0, 1]


def test_no_other_request_uses_a_session_while_it_takes_one() -> None:
    cache = Cache()
    one = cache.begin(2)
    many = asked(*range(2 * _PIECES_PER_STEP), offset=7)
    taking = cache.taking(one, 1, many)
    assert next(taking) is None
    for epoch in (1, 2):
        assert cache.cache.find(one, epoch, uses_topic_ids=False) is None
        assert cache.take(one, epoch, asked(1, offset=9)).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session = session_of(at_once(taking))
    assert [partition.offset for partition in at_once(session.candidates())] == [7] * len(many)
    assert session_of(cache.take(one, 2, asked(1, offset=9))).partition(("t", 1)).offset == 9


def test_a_session_that_ends_while_it_takes_a_request_is_not_found() -> None:
    cache = Cache()
    one = cache.begin(1)
    taking = cache.taking(one, 1, asked(*range(2 * _PIECES_PER_STEP)))
    next(taking)
    cache.take(one, -1)
    assert at_once(taking).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache.cache), cache.cache.partitions) == (0, 0)


def test_a_session_that_ends_while_it_begins_takes_no_room() -> None:
    cache = Cache()
    beginning = cache.cache.begin(
        asked(*range(2 * _PIECES_PER_STEP)), is_privileged=False, uses_topic_ids=False, now_ms=0
    )
    next(beginning)
    assert cache.cache.partitions == 2 * _PIECES_PER_STEP
    (one,) = cache.cache._sessions
    cache.take(one, -1)
    assert at_once(beginning) == one
    assert (len(cache.cache), cache.cache.partitions) == (0, 0)
    assert cache.take(one, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_by_id_is_watched_as_soon_as_its_topic_has_a_name() -> None:
    cache, topic_id = Cache(), b"x" * 16
    wanted = asked(0, topic="", topic_id=topic_id)
    one = at_once(cache.cache.begin(wanted, is_privileged=False, uses_topic_ids=True, now_ms=0))
    (watch,) = cache.watches
    session = session_of(cache.take(one, 1, uses_topic_ids=True))
    (partition,) = at_once(session.candidates())
    assert watch.names == set()
    session.resolve(partition, "named")
    settle(session, partition, 0)
    watch.change(TopicPartition("named", 0))
    assert at_once(session.candidates()) == [partition]
    cache.take(one, 2, forgotten=[(topic_id, 0)], uses_topic_ids=True)
    assert watch.names == set()


# ── any history ──


@pytest.mark.parametrize("seed", range(60))
def test_after_any_history_a_round_answers_as_if_it_had_looked_at_every_partition(seed: int) -> None:
    """The model keeps what Kafka keeps, and looks at every partition of the session in every round."""
    rng = random.Random(seed)
    cache = Cache()
    logs = {index: [0, 0] for index in range(8)}  # log start, end
    one = cache.begin(0)
    model: dict[int, list[int]] = {}  # offset, answered end, answered start; in the order of reading
    epoch = 0
    wanted: dict[PartitionKey, FetchedPartition] = asked(0)
    for _ in range(200):
        step = rng.randrange(6)
        index = rng.randrange(8)
        name = TopicPartition("t", index)
        if step == 0:
            logs[index][1] += rng.randint(1, 3)
        elif step == 1:
            logs[index][0] = rng.randint(*logs[index])
        elif step == 2:
            logs[index] = [0, 0]
        if step < 3:
            for watch in cache.watches:
                watch.change(name)
            continue
        asked_now: dict[int, int] = {}
        forgotten: list[int] = []
        for each in rng.sample(range(8), rng.randint(0, 3)):
            asked_now[each] = rng.randint(0, logs[each][1] + 1)
        forgotten = [] if rng.random() < 0.5 else rng.sample(range(8), 2)
        if not epoch:
            asked_now = asked_now or {0: 0}
            wanted = {
                key: value for each, o in asked_now.items() for key, value in asked(each, offset=o).items()
            }
            one = at_once(cache.cache.begin(wanted, is_privileged=False, uses_topic_ids=False, now_ms=0))
            model = {each: [offset, -1, -1] for each, offset in asked_now.items()}
            epoch = 1
            continue
        named = {key: value for each, o in asked_now.items() for key, value in asked(each, offset=o).items()}
        for each, offset in asked_now.items():
            model.setdefault(each, [0, -1, -1])[0] = offset
        for each in forgotten:
            model.pop(each, None)
        found = cache.take(one, epoch, named, [("t", each) for each in forgotten])
        if not model:
            assert found == Round()
            epoch = 0
            continue
        session = session_of(found)
        assert len(session) == len(model) == cache.cache.partitions
        epoch = next_epoch(epoch)
        room = rng.randint(1, 3)

        def read(offset: int, each: int, room: int) -> tuple[bool, bool]:
            start, end = logs[each]
            is_error = not start <= offset <= end
            return is_error, not is_error and offset < end and room > 0

        # All of them, in turn.
        expected: list[int] = []
        left, moved = room, list[int]()
        for each, known in model.items():
            is_error, has_records = read(known[0], each, left)
            start, end = (-1, -1) if is_error else logs[each]
            if is_error or has_records or end != known[1] or start != known[2]:
                expected.append(each)
            known[1:] = [end, start]
            if has_records:
                left -= 1
                moved.append(each)
        for each in moved:
            model[each] = model.pop(each)
        # Those that may have news.
        said: list[int] = []
        left = room
        for partition in at_once(session.candidates()):
            is_error, has_records = read(partition.offset, partition.index, left)
            left -= has_records
            start, end = (-1, -1) if is_error else logs[partition.index]
            if session.settle(
                partition,
                has_records=has_records,
                is_error=is_error,
                high_watermark=end,
                log_start_offset=start,
            ):
                said.append(partition.index)
        assert said == expected, f"seed {seed}"
