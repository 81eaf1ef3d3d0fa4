"""Records of a share group, against a model that keeps the state of each record alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from app.errors import InvalidRecordState, InvalidRequest
from app.groups.base.share_state import (
    Acknowledgement,
    AcquiredRange,
    OffsetRange,
    RecordState,
    ShareLimits,
    ShareState,
)
from app.groups.share.partition import SharePartition, Transition

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LIMITS = ShareLimits(delivery_count=3, lock_ms=100, locks=40)


def partition() -> SharePartition:
    return SharePartition("g", ShareState(start_offset=0, state_epoch=0))


def take(
    shared: SharePartition,
    member: str,
    first: int,
    last: int,
    *,
    records_max: int = 500,
    is_strict: bool = True,
    now_ms: int = 0,
    limits: ShareLimits = LIMITS,
) -> list[AcquiredRange]:
    return shared.acquire(
        member,
        read_from=first,
        read_to=last + 1,
        batches=[OffsetRange(first, last)],
        now_ms=now_ms,
        limits=limits,
        records_max=records_max,
        is_strict=is_strict,
    )


def say(
    shared: SharePartition, member: str, first: int, last: int, *types: int, now_ms: int = 0
) -> Transition:
    return shared.acknowledge(
        member, [Acknowledgement(first=first, last=last, types=types)], now_ms=now_ms, limits=LIMITS
    )


def settle(shared: SharePartition, member: str, first: int, last: int, *types: int) -> None:
    shared.complete(say(shared, member, first, last, *types), is_stored=True)


def test_an_accepted_record_ends_and_a_released_one_is_delivered_again() -> None:
    shared = partition()
    assert take(shared, "a", 0, 9) == [AcquiredRange(0, 9, 1)]
    settle(shared, "a", 0, 4, ACCEPT)
    assert shared.start_offset == 5
    settle(shared, "a", 5, 9, RELEASE)
    assert shared.fetch_offset(LIMITS) == 5
    assert take(shared, "b", 5, 9) == [AcquiredRange(5, 9, 2)]


def test_one_acknowledgement_may_have_a_type_for_each_record() -> None:
    shared = partition()
    take(shared, "a", 0, 4)
    settle(shared, "a", 0, 4, ACCEPT, RELEASE, REJECT, GAP, RELEASE)
    assert shared.start_offset == 1
    assert take(shared, "b", 1, 4) == [AcquiredRange(1, 1, 2), AcquiredRange(4, 4, 2)]


def test_a_record_stays_acquired_until_its_acknowledgement_is_stored() -> None:
    shared = partition()
    take(shared, "a", 0, 1)
    accepted = say(shared, "a", 0, 0, ACCEPT)
    assert shared.start_offset == 0
    assert shared.snapshot().start_offset == 1
    with pytest.raises(InvalidRecordState):
        say(shared, "a", 0, 0, RELEASE)
    assert not shared.expire(50, LIMITS)
    shared.complete(accepted, is_stored=False)
    assert shared.start_offset == 0
    settle(shared, "a", 0, 0, ACCEPT)
    assert shared.start_offset == 1


def test_a_lock_that_ends_while_its_acknowledgement_is_stored_ends_if_that_fails() -> None:
    shared = partition()
    take(shared, "a", 0, 0)
    accepted = say(shared, "a", 0, 0, ACCEPT, now_ms=99)
    assert not shared.expire(100, LIMITS)
    shared.complete(accepted, is_stored=False)
    assert shared.expire(100, LIMITS)
    assert shared.fetch_offset(LIMITS) == 0


def test_a_lock_lasts_until_its_end_unless_it_is_renewed() -> None:
    shared = partition()
    take(shared, "a", 0, 1)
    assert shared.next_deadline_ms() == 100
    say(shared, "a", 1, 1, RENEW, now_ms=50)
    with pytest.raises(InvalidRecordState):
        say(shared, "a", 0, 0, ACCEPT, now_ms=100)
    assert shared.expire(100, LIMITS)
    assert take(shared, "b", 0, 1) == [AcquiredRange(0, 0, 2)]
    settle(shared, "a", 1, 1, ACCEPT)


def test_a_record_that_was_delivered_too_often_is_archived() -> None:
    shared = partition()
    for count in range(1, LIMITS.delivery_count + 1):
        assert take(shared, "a", 0, 0) == [AcquiredRange(0, 0, count)]
        shared.release_member("a", LIMITS)
    assert shared.start_offset == 1


def test_a_record_that_is_given_up_waits_for_its_dead_letter() -> None:
    shared, limits = partition(), ShareLimits(delivery_count=2, lock_ms=100, has_dead_letters=True)
    take(shared, "a", 0, 9, limits=limits)
    rejected = shared.acknowledge(
        "a",
        [Acknowledgement(first=0, last=9, types=[REJECT, GAP, *[RELEASE] * 8])],
        now_ms=0,
        limits=limits,
    )
    assert shared.archiving(100) == []
    shared.complete(rejected, is_stored=True)
    assert shared.archiving(100) == [(0, 0, RecordState.ARCHIVING, 1)]
    assert shared.start_offset == 0
    assert take(shared, "b", 0, 9, limits=limits) == [AcquiredRange(2, 9, 2)]
    shared.expire(100, limits)
    assert shared.archiving(1) == [(0, 0, RecordState.ARCHIVING, 1)]
    assert shared.archiving(2) == [(0, 0, RecordState.ARCHIVING, 1), (2, 2, RecordState.ARCHIVING, 2)]
    again = SharePartition("g", shared.snapshot())
    assert again.archiving(100) == shared.archiving(100)
    with pytest.raises(InvalidRecordState):
        say(shared, "a", 0, 0, ACCEPT)
    shared.archive(shared.archiving(100))
    assert shared.start_offset == 10
    assert shared.archiving(100) == []


def test_records_that_failed_often_come_alone_and_in_the_end_one_by_one() -> None:
    limits = ShareLimits(delivery_count=5, lock_ms=100, locks=1000)
    shared = partition()
    sizes: list[int] = []
    for _ in range(5):
        acquired = take(shared, "a", 0, 63, limits=limits, records_max=64)
        sizes.append(sum(got.last - got.first + 1 for got in acquired))
        shared.expire(100, limits)
    assert sizes == [64, 64, 64, 16, 1]


def test_offsets_without_records_are_passed() -> None:
    shared = partition()
    got = shared.acquire(
        "a",
        read_from=0,
        read_to=30,
        batches=[OffsetRange(5, 6), OffsetRange(10, 11)],
        now_ms=0,
        limits=LIMITS,
        records_max=100,
        is_strict=True,
    )
    assert got == [AcquiredRange(5, 6, 1), AcquiredRange(10, 11, 1)]
    assert (shared.start_offset, shared.end_offset) == (5, 30)
    settle(shared, "a", 5, 6, ACCEPT)
    settle(shared, "a", 10, 11, ACCEPT)
    assert shared.start_offset == 30


def test_a_fetch_that_is_not_strict_takes_whole_batches() -> None:
    shared = partition()
    batches = [OffsetRange(0, 9), OffsetRange(10, 19)]
    for is_strict, last in ((False, 9), (True, 6)):
        shared = partition()
        got = shared.acquire(
            "a",
            read_from=0,
            read_to=20,
            batches=batches,
            now_ms=0,
            limits=LIMITS,
            records_max=7,
            is_strict=is_strict,
        )
        assert got == [AcquiredRange(0, last, 1)]


def test_no_more_records_are_unfinished_than_there_are_locks() -> None:
    shared = partition()
    assert take(shared, "a", 0, 99, is_strict=False) == [AcquiredRange(0, 39, 1)]
    assert shared.fetch_offset(LIMITS) is None
    settle(shared, "a", 10, 19, ACCEPT)
    assert shared.fetch_offset(LIMITS) == 40
    assert take(shared, "b", 40, 99) == [AcquiredRange(40, 49, 1)]


def test_the_start_of_the_log_archives_what_no_member_holds() -> None:
    shared = partition()
    take(shared, "a", 0, 9)
    settle(shared, "a", 0, 4, RELEASE)
    assert shared.trim(3)
    assert shared.start_offset == 3
    shared.trim(20)
    assert (shared.start_offset, shared.end_offset) == (5, 20)
    shared.release_member("a", LIMITS)
    assert shared.start_offset == 20


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([(0, 10, (ACCEPT,))], InvalidRequest),
        ([(1, 0, (ACCEPT,))], InvalidRequest),
        ([(-1, 0, (ACCEPT,))], InvalidRequest),
        ([(0, 2, (ACCEPT, ACCEPT))], InvalidRequest),
        ([(0, 2, ())], InvalidRequest),
        ([(0, 2, (5,))], InvalidRequest),
        ([(0, 2, (ACCEPT,)), (2, 3, (ACCEPT,))], InvalidRequest),
        ([(0, 2, (ACCEPT,)), (5, 6, (ACCEPT,))], InvalidRecordState),
    ],
)
def test_a_wrong_acknowledgement_changes_nothing(
    said: list[tuple[int, int, tuple[int, ...]]], error: type[Exception]
) -> None:
    shared = partition()
    take(shared, "a", 0, 4)
    take(shared, "b", 5, 9)
    before = list(shared.ranges())
    with pytest.raises(error):
        shared.acknowledge(
            "a",
            [Acknowledgement(first=first, last=last, types=types) for first, last, types in said],
            now_ms=0,
            limits=LIMITS,
        )
    assert list(shared.ranges()) == before


def test_a_restart_keeps_what_is_final_and_the_delivery_counts() -> None:
    shared = partition()
    take(shared, "a", 0, 9)
    settle(shared, "a", 0, 9, *([ACCEPT] * 2 + [RELEASE] * 3 + [REJECT] * 5))
    take(shared, "a", 10, 12)
    again = SharePartition("g", shared.snapshot())
    assert (again.start_offset, again.end_offset) == (2, 10)
    assert take(again, "b", 2, 20) == [
        AcquiredRange(2, 4, 2),
        AcquiredRange(10, 20, 1),
    ]


# ── against the model ──


@dataclass(slots=True)
class Record:
    """One offset in the model. ``target`` is set while its acknowledgement is being stored."""

    state: str = "available"
    count: int = 0
    member: str = ""
    deadline: int = 0
    target: str = ""
    # What an acknowledgement that was answered, or may have been stored, has made of it.
    is_done: bool = False


NAMES = {
    RecordState.AVAILABLE: "available",
    RecordState.ACQUIRED: "acquired",
    RecordState.ACKNOWLEDGED: "done",
    RecordState.ARCHIVING: "archiving",
    RecordState.ARCHIVED: "done",
}


class History:
    """A random history of one partition; ``run`` compares after each step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0
        self.log_start = 0
        self.limits = ShareLimits(
            delivery_count=self.random.randint(2, 5),
            lock_ms=self.random.randint(5, 40),
            locks=self.random.randint(5, 60),
            has_dead_letters=self.random.random() < 0.5,
        )
        # Each batch of the log: first, last, and whether it has records.
        self.log: list[tuple[int, int, bool]] = []
        self.records: dict[int, Record] = {}
        self.shared = partition()
        self.stored = self.shared.snapshot()
        self.transitions: list[tuple[Transition, list[int], ShareState]] = []
        self.members = ["a", "b", "c"]
        self.start = 0

    def run(self, steps: int = 60) -> None:
        actions = [
            self.append,
            self.fetch,
            self.fetch,
            self.fetch,
            self.acknowledge,
            self.acknowledge,
            self.acknowledge,
        ]
        actions += [
            self.complete,
            self.complete,
            self.complete,
            self.write_letters,
            self.tick,
            self.leave,
            self.trim,
            self.restart,
        ]
        for _ in range(steps):
            self.random.choice(actions)()
            self.check()
        self.drain()

    def end_of_log(self) -> int:
        return self.log[-1][1] + 1 if self.log else 0

    def append(self) -> None:
        first = self.end_of_log() + self.random.choice([0, 0, 0, 3])
        self.log.append((first, first + self.random.randint(0, 12), self.random.random() < 0.8))

    def read(self, offset: int) -> tuple[int, list[OffsetRange]]:
        batches = [batch for batch in self.log if batch[1] >= max(offset, self.log_start)]
        batches = batches[: self.random.randint(1, 4)]
        if not batches:
            return offset, []
        has = [
            OffsetRange(max(first, self.log_start), last)
            for first, last, has_records in batches
            if has_records
        ]
        return batches[-1][1] + 1, has

    def fetch(self) -> None:
        self.shared.trim(self.log_start)
        self.model_trim()
        offset = self.shared.fetch_offset(self.limits)
        if offset is None:
            assert sum(record.state != "done" for record in self.live().values()) >= self.limits.locks
            return
        read_to, batches = self.read(offset)
        most, is_strict = self.random.randint(1, 20), self.random.random() < 0.5
        member = self.random.choice(self.members)
        acquired = self.shared.acquire(
            member,
            read_from=offset,
            read_to=read_to,
            batches=batches,
            now_ms=self.now,
            limits=self.limits,
            records_max=most,
            is_strict=is_strict,
        )
        count = 0
        for first, last, delivery_count in acquired:
            for at in range(first, last + 1):
                record = self.records.setdefault(at, Record())
                assert any(batch.first <= at <= batch.last for batch in batches), at
                assert record.state == "available", (at, record)
                assert not record.is_done
                record.state, record.member, record.deadline = (
                    "acquired",
                    member,
                    self.now + self.limits.lock_ms,
                )
                record.count += 1
                assert record.count == delivery_count
                assert record.count <= self.limits.delivery_count
                count += 1
        assert count <= most or not is_strict
        for at in range(offset, self.shared.end_offset):
            in_batch = any(batch.first <= at <= batch.last for batch in batches)
            record = self.records.setdefault(at, Record())
            if at < read_to and not in_batch and record.state == "available" and self.state(at) == "done":
                record.state = "done"

    def live(self) -> dict[int, Record]:
        return {at: r for at, r in self.records.items() if r.state != "done" and at < self.shared.end_offset}

    def state(self, at: int) -> str:
        if at < self.shared.start_offset:
            return "done"
        if at >= self.shared.end_offset:
            return "available"
        for kept, _ in self.shared.ranges():
            if kept.first <= at <= kept.last:
                return NAMES[kept.state]
        raise AssertionError(f"offset {at} has no state")

    def acknowledge(self) -> None:
        member = self.random.choice(self.members)
        first = self.random.randint(self.shared.start_offset - 2, self.shared.end_offset)
        held = [
            at
            for at, record in self.records.items()
            if record.state == "acquired" and record.member == member
        ]
        if held and self.random.random() < 0.8:
            first = self.random.choice(held)
        first = max(0, first)
        last = first + self.random.choice([0, 0, 1, 3, 8])
        types = [
            self.random.choice([GAP, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW]) for _ in range(first, last + 1)
        ]
        if self.random.random() < 0.5:
            types = types[:1]
        of = {at: types[0] if len(types) == 1 else types[at - first] for at in range(first, last + 1)}
        of = {at: kind for at, kind in of.items() if at >= self.shared.start_offset}
        is_held = all(
            (record := self.records.get(at)) is not None
            and record.state == "acquired"
            and record.member == member
            and not record.target
            and record.deadline > self.now
            for at in of
        )
        said = [Acknowledgement(first=first, last=last, types=types)]
        try:
            transition = self.shared.acknowledge(member, said, now_ms=self.now, limits=self.limits)
        except InvalidRequest:
            assert last >= self.shared.end_offset
            return
        except InvalidRecordState:
            assert not is_held
            return
        assert is_held
        assert last < self.shared.end_offset
        for at, kind in of.items():
            record = self.records[at]
            if kind == RENEW:
                record.deadline = self.now + self.limits.lock_ms
            elif kind == RELEASE:
                record.target = self.released(at)
            elif kind == REJECT:
                record.target = self.given_up
            else:
                record.target = "done"
        changed = [at for at, kind in of.items() if kind != RENEW]
        self.transitions.append((transition, changed, self.shared.snapshot()))

    @property
    def given_up(self) -> str:
        return "archiving" if self.limits.has_dead_letters else "done"

    def released(self, at: int) -> str:
        if at < self.shared.log_start_offset:
            return "done"
        return self.given_up if self.records[at].count >= self.limits.delivery_count else "available"

    def write_letters(self) -> None:
        waiting = self.shared.archiving(self.random.randint(1, 10))
        given_up = sorted(at for at, record in self.records.items() if record.state == "archiving")
        written = [at for kept in waiting for at in range(kept.first, kept.last + 1)]
        assert written == given_up[: len(written)]
        assert bool(written) == bool(given_up)
        for kept in waiting:
            assert {self.records[at].count for at in range(kept.first, kept.last + 1)} == {
                kept.delivery_count
            }
        self.shared.archive(waiting)
        for at in written:
            self.records[at].state = "done"

    def complete(self) -> None:
        if not self.transitions:
            return
        transition, changed, snapshot = self.transitions.pop(0)
        is_stored = self.random.random() < 0.8
        if is_stored:
            self.stored = snapshot
        self.shared.complete(transition, is_stored=is_stored)
        for at in changed:
            record = self.records[at]
            if is_stored:
                record.state, record.member = record.target, ""
                record.is_done = record.state in ("done", "archiving")
            record.target = ""
        self.model_trim()
        if not is_stored:
            # As the caller does: locks may have ended meanwhile.
            self.tick(0)

    def tick(self, by: int | None = None) -> None:
        self.now += self.random.randint(0, 30) if by is None else by
        self.shared.expire(self.now, self.limits)
        self.take_back(lambda record: record.deadline <= self.now)

    def take_back(self, ends: Callable[[Record], bool]) -> None:
        for at, record in self.records.items():
            if record.state == "acquired" and not record.target and ends(record):
                record.state, record.member = self.released(at), ""
        self.model_trim()

    def leave(self) -> None:
        member = self.random.choice(self.members)
        self.shared.release_member(member, self.limits)
        for record in self.records.values():
            if record.member == member and record.state == "acquired":
                record.deadline = -1
        self.take_back(lambda record: record.member == member)

    def trim(self) -> None:
        if self.random.random() < 0.3:
            self.log_start = max(
                self.log_start, min(self.end_of_log(), self.shared.start_offset + self.random.randint(0, 20))
            )
            self.shared.trim(self.log_start)
            self.model_trim()

    def model_trim(self) -> None:
        for at in range(self.shared.log_start_offset):
            record = self.records.setdefault(at, Record())
            if record.state == "available":
                record.state = "done"

    def restart(self) -> None:
        if self.random.random() > 0.2:
            return
        # Whatever was written last may have arrived, answered or not.
        last = self.transitions[-1][2] if self.transitions and self.random.random() < 0.5 else self.stored
        self.transitions.clear()
        self.shared = SharePartition("g", last)
        self.stored = last
        for at, record in list(self.records.items()):
            now = self.state(at)
            assert now != "acquired"
            # What was accepted or rejected, and answered, never comes back.
            assert now in ("done", "archiving") or not record.is_done, (at, record)
            stored = next((kept for kept, _ in self.shared.ranges() if kept.first <= at <= kept.last), None)
            self.records[at] = Record(
                state=now,
                count=stored.delivery_count if stored and now in ("available", "archiving") else 0,
                is_done=record.is_done,
            )
        self.shared.trim(self.log_start)
        self.model_trim()
        self.start = 0

    def check(self) -> None:
        shared = self.shared
        assert shared.start_offset >= self.start
        self.start = shared.start_offset
        position = shared.start_offset
        for kept, member in shared.ranges():
            assert kept.first == position <= kept.last
            position = kept.last + 1
            for at in range(kept.first, kept.last + 1):
                record = self.records.get(at, Record())
                name = NAMES[kept.state]
                assert record.state == name, (at, record, kept)
                assert record.member == member
        assert position == shared.end_offset
        for at, record in self.records.items():
            if at < shared.start_offset:
                assert record.state == "done", (at, record)
        assert shared.acquired_count <= shared.unfinished_count <= self.limits.locks
        # The states of a long window stay few: finished records join.
        assert sum(1 for _ in shared.ranges()) <= 2 * shared.unfinished_count + 1

    def drain(self) -> None:
        """Accept all that is delivered from now on: the start must reach the end of the log."""
        while self.transitions:
            self.complete()
        for _ in range(10_000):
            self.tick(self.limits.lock_ms)
            self.write_letters()
            self.fetch()
            self.check()
            for member in self.members:
                held = [at for at, record in self.records.items() if record.member == member]
                for at in held:
                    transition = self.shared.acknowledge(
                        member,
                        [Acknowledgement(first=at, last=at, types=[ACCEPT])],
                        now_ms=self.now,
                        limits=self.limits,
                    )
                    self.shared.complete(transition, is_stored=True)
                    record = self.records[at]
                    record.state, record.member = "done", ""
            self.check()
            if self.shared.start_offset >= self.end_of_log():
                return
        raise AssertionError(f"the start stays at {self.shared.start_offset} of {self.end_of_log()}")


@pytest.mark.parametrize("seed", range(0, 300, 50))
def test_random_histories_agree_with_a_model_of_single_records(seed: int) -> None:
    for number in range(seed, seed + 50):
        try:
            History(number).run()
        except BaseException as error:
            error.add_note(f"seed {number}")
            raise


@pytest.mark.torture
def test_many_random_histories_agree_with_the_model() -> None:
    for number in range(1_000, 101_000):
        try:
            History(number).run()
        except BaseException as error:
            error.add_note(f"seed {number}")
            raise


def test_who_holds_records_is_known_without_a_walk_over_them() -> None:
    shared = partition()
    take(shared, "a", 0, 9)
    take(shared, "b", 10, 19)
    assert (shared.is_holder("a"), shared.is_holder("b"), shared.is_holder("c")) == (True, True, False)
    shared.complete(say(shared, "a", 0, 4, ACCEPT), is_stored=True)
    shared.complete(say(shared, "a", 5, 9, RELEASE), is_stored=False)
    assert shared.is_holder("a"), "it was not stored"
    shared.complete(say(shared, "a", 5, 9, RELEASE), is_stored=True)
    shared.release_member("b", LIMITS)
    assert not shared.is_holder("a")
    assert not shared.is_holder("b")


def test_a_reset_forgets_holders_whose_acknowledgement_is_under_way() -> None:
    shared = partition()
    take(shared, "a", 0, 9)
    under_way = say(shared, "a", 0, 9, ACCEPT)
    shared.reset(100)
    assert not shared.is_holder("a")
    take(shared, "a", 100, 104)
    shared.complete(under_way, is_stored=True)
    assert shared.is_holder("a")
    shared.expire(1000, LIMITS)
    assert not shared.is_holder("a")


def test_counts_of_states_are_those_of_a_walk_over_them() -> None:
    shared = partition()
    take(shared, "a", 0, 29)
    shared.complete(say(shared, "a", 10, 14, ACCEPT), is_stored=True)
    shared.complete(say(shared, "a", 20, 24, RELEASE), is_stored=True)
    walked = dict.fromkeys(RecordState, 0)
    for kept, _ in shared.ranges():
        walked[kept.state] += kept.last - kept.first + 1
    assert shared.acquired_count == walked[RecordState.ACQUIRED] == 20
    assert shared.unfinished_count == 20 + walked[RecordState.AVAILABLE] == 25
    assert shared.finished_count == 5
    assert shared.fetch_offset(LIMITS) == 20
    shared.trim(12)
    shared.release_member("a", LIMITS)
    assert (shared.acquired_count, shared.start_offset, shared.unfinished_count) == (0, 15, 15)
    shared.reset(7)
    assert (shared.unfinished_count, shared.finished_count, shared.fetch_offset(LIMITS)) == (0, 0, 7)


def test_a_log_that_is_cut_back_takes_its_states_with_it() -> None:
    shared = partition()
    take(shared, "a", 0, 29)
    shared.complete(say(shared, "a", 10, 14, ACCEPT), is_stored=True)
    shared.complete(say(shared, "a", 18, 24, RELEASE), is_stored=True)
    under_way = say(shared, "a", 26, 27, ACCEPT)
    shared.cut(20)
    assert (shared.start_offset, shared.end_offset, shared.acquired_count) == (0, 20, 0)
    assert [(kept.first, kept.last, kept.state) for kept, _ in shared.ranges()] == [
        (0, 9, RecordState.AVAILABLE),
        (10, 14, RecordState.ACKNOWLEDGED),
        (15, 17, RecordState.AVAILABLE),
        # Released, so its delivery counts.
        (18, 19, RecordState.AVAILABLE),
    ]
    shared.complete(under_way, is_stored=True)
    # What comes at these offsets is new to it.
    assert [span.last for span in take(shared, "b", 20, 29)][-1] == 29
    assert shared.snapshot().state_epoch == 1
    shared.complete(say(shared, "b", 20, 21, ACCEPT), is_stored=True)
    # All of it was before what the group has finished.
    accepted = partition()
    take(accepted, "a", 0, 29)
    accepted.complete(say(accepted, "a", 0, 29, ACCEPT), is_stored=True)
    accepted.cut(12)
    assert (accepted.start_offset, accepted.end_offset, accepted.fetch_offset(LIMITS)) == (12, 12, 12)
