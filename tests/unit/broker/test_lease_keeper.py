"""A spread lease moves to its preferred broker when that joins, and its work never runs at two brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from app.broker.lease_keeper import LeaseKeeper
from app.cluster.leaders import ranked
from app.cluster.membership import Lease, Member
from app.errors import StorageUnavailable
from tests.support.one_lease import HandClock

_T = TypeVar("_T")
NAME = "groups-00"


def member_of(broker_id: int) -> Member:
    return Member(broker_id=broker_id, incarnation=UUID(int=broker_id), rack=None, endpoints={})


FIRST, SECOND = ranked(NAME.encode(), [member_of(1), member_of(2)])


class OneRow:
    """The row of one lease, which does not expire by itself, and who is alive."""

    def __init__(self) -> None:
        self.holder: Member | None = None
        self.epoch = 0
        self.members: list[Member] = []
        self.log: list[str] = []
        self.renewed = asyncio.Event()
        self.looked = asyncio.Event()
        # Answers of the database are on their way while this is clear.
        self.answers = asyncio.Event()
        self.answers.set()

    async def run(self, call: Callable[[], _T]) -> _T:
        answer = call()
        await self.answers.wait()
        return answer

    async def looked_at(self) -> None:
        """Return when a round has seen the members of now: the one after the next."""
        for _ in range(2):
            self.looked.clear()
            await self.looked.wait()

    def acquire(self, name: str, member: Member) -> int | None:
        if self.holder is None:
            self.holder, self.epoch = member, self.epoch + 1
        return self.epoch if self.holder == member else None

    def renew(self, names: Sequence[str], member: Member) -> Mapping[str, int]:
        self.renewed.set()
        return dict.fromkeys(names, self.epoch) if self.holder == member else {}

    def release(self, name: str, member: Member) -> None:
        assert self.holder == member
        self.log.append(f"released by {member.broker_id}")
        self.holder = None

    async def renewed_after(self, clock: HandClock, ms: int) -> None:
        """Wait for a renewal that begins ``ms`` later."""
        self.renewed.clear()
        clock.ms += ms
        await self.renewed.wait()

    def known(self, name: str) -> Lease | None:
        self.looked.set()
        holder = self.holder
        if holder is None:
            return None
        return Lease(
            broker_id=holder.broker_id, incarnation=holder.incarnation, epoch=self.epoch, expires_in_ms=6000
        )


class Work:
    def __init__(self, row: OneRow, member: Member) -> None:
        self._row, self._id = row, member.broker_id
        self.is_asked, self.has_begun, self.has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        # What ``begin`` waits for, and may raise.
        self.begins: asyncio.Future[None] | None = None

    async def begin(self, epoch: int) -> None:
        self.is_asked.set()
        if self.begins is not None:
            await self.begins
        self._row.log.append(f"begun by {self._id}")
        self.has_begun.set()

    async def end(self) -> None:
        self._row.log.append(f"ended by {self._id}")
        self.has_ended.set()


class LiveKeeper(LeaseKeeper):
    """A heartbeat succeeds whenever a renewal may be due."""

    async def _renew_if_due(self, member: Member) -> None:
        self.beat(self._clock.monotonic_ms())
        await super()._renew_if_due(member)


def keeper_of(
    row: OneRow,
    clock: HandClock,
    member: Member,
    work: Work,
    *,
    keeper_class: type[LeaseKeeper] = LiveKeeper,
) -> tuple[LeaseKeeper, asyncio.Task[None]]:
    keeper = keeper_class(
        row,  # pyright: ignore[reportArgumentType] - the part that a keeper uses
        row.run,
        clock=clock,
        known=row.known,
        members=lambda: row.members,
    )
    keeper.joined(member)
    keeper.hold(NAME, work, is_spread=True)
    return keeper, asyncio.create_task(keeper.keep(member))


async def test_a_lease_is_given_to_its_preferred_broker_after_the_work_has_ended() -> None:
    row, clock = OneRow(), HandClock()
    row.members = [SECOND]
    works = [Work(row, member) for member in (FIRST, SECOND)]
    second, keeping_second = keeper_of(row, clock, SECOND, works[1])
    await works[1].has_begun.wait()
    row.members = [FIRST, SECOND]
    first, keeping_first = keeper_of(row, clock, FIRST, works[0])
    await works[0].has_begun.wait()
    assert row.log == [
        f"begun by {SECOND.broker_id}",
        f"ended by {SECOND.broker_id}",
        f"released by {SECOND.broker_id}",
        f"begun by {FIRST.broker_id}",
    ]
    assert first.is_held(NAME)
    assert not second.is_held(NAME)
    for task in (keeping_first, keeping_second):
        task.cancel()
    await first.leave()
    assert works[0].has_ended.is_set()


async def test_a_lease_that_its_preferred_broker_does_not_take_is_taken_back_and_kept() -> None:
    row, clock = OneRow(), HandClock()
    # The preferred broker is alive, and does nothing.
    row.members = [FIRST, SECOND]
    work = Work(row, SECOND)
    keeper, keeping = keeper_of(row, clock, SECOND, work)
    for _ in range(2):
        # Noted as free at the first round; not taken while its preferred broker may come.
        await asyncio.sleep(0)
    assert work.has_begun.is_set() is False
    clock.ms += 2_000
    await work.has_begun.wait()
    await work.has_ended.wait()
    work.has_begun.clear()
    work.has_ended.clear()
    clock.ms += 2_000
    await work.has_begun.wait()
    for _ in range(2):
        # A round has ended when the next one renews.
        await row.renewed_after(clock, 2_000)
    # Not given again at once.
    assert keeper.is_held(NAME)
    assert not work.has_ended.is_set()
    keeping.cancel()
    await keeper.leave()


async def test_a_lease_is_given_again_at_once_to_a_broker_that_counted_as_dead() -> None:
    """It had been given the lease within the last minute, and lost it because it was paused."""
    row, clock = OneRow(), HandClock()
    row.members = [SECOND]
    work = Work(row, SECOND)
    keeper, keeping = keeper_of(row, clock, SECOND, work)
    await work.has_begun.wait()
    # The other one joins, and gets the lease.
    row.members = [FIRST, SECOND]
    await work.has_ended.wait()
    row.holder, row.epoch = FIRST, 2
    work.has_begun.clear()
    work.has_ended.clear()
    # The other one is paused, and counts as dead.
    row.members, row.holder = [SECOND], None
    await work.has_begun.wait()
    # It comes back.
    row.members = [replace(FIRST, started_at_ms=7_000), SECOND]
    await work.has_ended.wait()
    assert not keeper.is_held(NAME)
    keeping.cancel()
    await keeper.leave()


async def test_a_broker_that_counts_as_dead_again_and_again_gets_a_lease_when_it_has_stayed() -> None:
    """On a machine without CPU time it would have the lease for seconds, and nobody would serve its clients."""
    row, clock = OneRow(), HandClock()
    row.members = [FIRST, SECOND]
    row.holder, row.epoch = FIRST, 1
    work = Work(row, SECOND)
    keeper, keeping = keeper_of(row, clock, SECOND, work)
    for joined_ms in (7_000, 8_000):
        await row.looked_at()
        # It counts as dead, and comes back.
        row.members, row.holder = [SECOND], None
        work.has_begun.clear()
        work.has_ended.clear()
        await work.has_begun.wait()
        row.members = [replace(FIRST, started_at_ms=joined_ms), SECOND]
        if joined_ms == 7_000:
            await work.has_ended.wait()
            row.holder = FIRST
    for _ in range(10):
        await row.renewed_after(clock, 2_000)
        assert keeper.is_held(NAME)
    assert not work.has_ended.is_set()
    for _ in range(5):
        await row.renewed_after(clock, 2_000)
    clock.ms += 2_000
    await work.has_ended.wait()
    assert not keeper.is_held(NAME)
    keeping.cancel()
    await keeper.leave()


async def test_a_renewal_does_not_bring_back_a_lease_whose_work_could_not_begin() -> None:
    """Otherwise the broker would hold it for ever and refuse requests that need that work."""
    row, clock = OneRow(), HandClock()
    row.members = [FIRST]
    work = Work(row, FIRST)
    work.begins = asyncio.get_running_loop().create_future()
    keeper, keeping = keeper_of(row, clock, FIRST, work)
    await work.is_asked.wait()
    # The work cannot begin while the next renewal is on its way.
    row.answers.clear()
    await row.renewed_after(clock, 2_000)
    failing, work.begins = work.begins, None
    failing.set_exception(StorageUnavailable("reading groups", "the database is away"))
    await work.has_ended.wait()
    row.answers.set()
    await work.has_begun.wait()
    assert keeper.is_held(NAME)
    keeping.cancel()
    await keeper.leave()


async def test_leases_that_are_locked_do_not_hold_up_renewals() -> None:
    """A broker that is paused in its writes locks the rows of their leases for seconds."""
    clock = HandClock()

    class LockedRows(OneRow):
        def __init__(self) -> None:
            super().__init__()
            self.tries = 0
            self.two_rounds = asyncio.Event()

        def acquire(self, name: str, member: Member) -> int | None:
            if name == NAME:
                return super().acquire(name, member)
            clock.ms += 2_000
            self.tries += 1
            if self.tries == 2 * len(locked):
                self.two_rounds.set()
            raise StorageUnavailable(f"taking the lease {name}", "lock timeout")

        def known(self, name: str) -> Lease | None:
            return super().known(name) if name == NAME else None

    locked = [f"groups-{number:02}" for number in range(1, 6)]
    row = LockedRows()
    row.members = [FIRST]
    work = Work(row, FIRST)
    keeper, keeping = keeper_of(row, clock, FIRST, work)
    for name in locked:
        keeper.hold(name, Work(row, FIRST), is_spread=True)
    await row.two_rounds.wait()
    assert keeper.is_held(NAME)
    assert not work.has_ended.is_set()
    keeping.cancel()
    await keeper.leave()


async def test_a_lease_is_certain_only_while_heartbeats_succeed() -> None:
    """Others take the leases of a broker that counts as dead, even those that it has just renewed."""
    row, clock = OneRow(), HandClock()
    row.members = [FIRST]
    work = Work(row, FIRST)
    keeper, keeping = keeper_of(row, clock, FIRST, work, keeper_class=LeaseKeeper)
    keeper.beat(clock.ms)
    await work.has_begun.wait()
    for _ in range(2):
        await row.renewed_after(clock, 2_000)
    await asyncio.sleep(0)
    assert keeper.is_held(NAME)
    clock.ms += 1_000
    assert not keeper.is_held(NAME)
    # It may have counted as dead before this heartbeat, which was late.
    keeper.beat(clock.ms - 500)
    assert not keeper.is_held(NAME)

    work.has_begun.clear()
    await work.has_ended.wait()
    await work.has_begun.wait()
    assert keeper.is_held(NAME)
    keeping.cancel()
    await keeper.leave()
