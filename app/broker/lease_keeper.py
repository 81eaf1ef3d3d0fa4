"""Keeps the leases of a broker: takes those that are free, renews them together, and says who works.

A lease that is *spread* has a preferred broker, by rendezvous hashing of its name over the live brokers. A broker
gives such a lease to its preferred one once that is alive: it ends the work, then releases the lease, so the work
never runs twice. Work of different leases begins and ends side by side, and renewals do not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from ..clock import Clock
from ..cluster.leaders import ranked
from ..cluster.membership import Lease, Member, Membership
from ..errors import StorageUnavailable

logger = logging.getLogger(__name__)

_INTERVAL_MS = 250
# Incarnations that are remembered; live ones always are.
_INCARNATIONS_MAX = 1_000
# How long the preferred broker of a free lease may take before others do.
_PREFERRED_MS = 2_000
# A broker that counted as dead for a second time within this time, although it ran, gets no more leases until it has
# stayed for as long: on a machine without CPU time it would have them for seconds, again and again.
_UNSTEADY_MS = 30_000
# How long a lease stays here whose preferred broker was given it and did not keep it, although it was alive.
_GIVEN_AGAIN_MS = 60_000


class LeaseWork(Protocol):
    """Callbacks for the holder of a lease, called one at a time."""

    async def begin(self, epoch: int) -> None: ...
    async def end(self) -> None:
        """End it, because the lease is lost or about to be given back."""
        ...


class _HeldLease:
    def __init__(self, work: LeaseWork, *, is_spread: bool) -> None:
        self.work = work
        self.is_spread = is_spread
        self.epoch = 0
        # Until when the lease is certainly in force; None while this broker does not have it.
        self.until_ms: int | None = None
        self.is_begun = False
        # The calls of ``work`` that have not returned; a call waits for the last one.
        self.calls: set[asyncio.Task[None]] = set()
        self.turn = asyncio.Lock()
        self.free_since_ms: int | None = None
        # The broker that was given the lease last, when it had joined, and when it was given the lease.
        self.given: tuple[UUID, int, int] | None = None


class LeaseKeeper:
    """The leases that one broker wants.

    ``run_blocking`` runs a call of ``membership`` in its thread.

    ``known`` returns the lease in force, ``members`` the live brokers, as of the last look at the cluster.

    A lease is certain for some time after a renewal, and only while heartbeats succeed as well: others take the leases
    of a broker that counts as dead, even if it has just renewed them.
    """

    def __init__(
        self,
        membership: Membership,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        *,
        clock: Clock,
        known: Callable[[str], Lease | None],
        members: Callable[[], Sequence[Member]],
    ) -> None:
        self._membership = membership
        self._run = run_blocking
        self._clock = clock
        self._known = known
        self._members = members
        self._leases: dict[str, _HeldLease] = {}
        self._renew_ms = 0
        # Until ``joined`` no lease is held.
        self._certain_ms = 0
        # By incarnation: when it joined last, and when it came back the last times, by the clock of this broker.
        self._joined: dict[UUID, int] = {}
        self._returned: dict[UUID, deque[int]] = {}
        # When the last heartbeat that succeeded began, and since when no heartbeat was late.
        self._beat_ms = 0
        self._alive_since_ms = 0

    def hold(self, name: str, work: LeaseWork, *, is_spread: bool) -> None:
        self._leases[name] = _HeldLease(work, is_spread=is_spread)

    def is_held(self, name: str) -> bool:
        """Return whether this broker has the lease, and certainly no other."""
        held = self._leases.get(name)
        return held is not None and self._is_in_force(held)

    def _is_in_force(self, held: _HeldLease) -> bool:
        if held.until_ms is None or held.until_ms - self._certain_ms < self._alive_since_ms:
            return False
        return self._is_alive() and self._clock.monotonic_ms() < held.until_ms

    def _is_alive(self) -> bool:
        """Return whether this broker certainly does not count as dead."""
        return self._clock.monotonic_ms() < self._beat_ms + self._certain_ms

    def joined(self, member: Member) -> None:
        """Note that ``member``, which is this broker, has registered; ``beat`` follows."""
        self._certain_ms = member.certain_ms

    def beat(self, begun_ms: int) -> None:
        """Note a heartbeat that succeeded.

        If it is late, this broker may have counted as dead before it. Then leases are uncertain until they are
        renewed: another broker may have taken one after a renewal that was on its way at the same time.
        """
        if not self._is_alive():
            self._alive_since_ms = self._clock.monotonic_ms()
        self._beat_ms = begun_ms

    def history_changed(self) -> None:
        """Give up all leases.

        The database may have given them to others, and forgotten what their work did.
        """
        for name, held in self._leases.items():
            if held.until_ms is not None:
                self._lose(held, f"the lease {name} was given in an earlier history of the database")

    async def keep(self, member: Member) -> None:
        """Keep the leases until this is cancelled."""
        while True:
            try:
                await self._round(member)
            except Exception:  # the edge of a task: the next round tries again
                logger.exception("the leases of this broker could not be kept")
            await asyncio.sleep(_INTERVAL_MS / 1000)

    async def leave(self) -> None:
        """End all work. The caller gives the leases back after that."""
        for held in self._leases.values():
            held.until_ms = None
            self._call(held, partial(self._end, held))
        calls = [call for held in self._leases.values() for call in held.calls]
        await asyncio.gather(*calls, return_exceptions=True)

    async def _round(self, member: Member) -> None:
        self._note_returns()
        for name, held in self._leases.items():
            if held.until_ms is not None and not self._is_in_force(held):
                self._lose(held, f"the lease {name} is uncertain: a renewal or a heartbeat was late")
        await self._renew_if_due(member)
        for name, held in self._leases.items():
            if held.calls:
                continue
            if held.until_ms is None:
                # What it took while it may count as dead would be uncertain.
                if self._is_alive() and self._wants(name, held, member):
                    await self._take(name, held, member)
                    # Each lease may be locked for seconds by a broker that is paused.
                    await self._renew_if_due(member)
            elif held.is_spread:
                self._give(name, held, member)

    async def _renew_if_due(self, member: Member) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._renew_ms:
            self._renew_ms = now_ms + member.renew_interval_ms
            await self._renew(member)

    async def _renew(self, member: Member) -> None:
        names = [name for name, held in self._leases.items() if held.until_ms is not None]
        if not names:
            return
        begun_ms = self._clock.monotonic_ms()
        try:
            epochs = await self._run(lambda: self._membership.renew(names, member))
        except StorageUnavailable as error:
            logger.warning("%s", error)
            return
        for name in names:
            held, epoch = self._leases[name], epochs.get(name)
            if held.until_ms is None:
                # Given up meanwhile, because its work could not begin: a lease that is held without work would
                # keep other brokers from it for good.
                continue
            if epoch is None:
                self._lose(held, f"another broker has taken the lease {name}")
            elif epoch != held.epoch:
                # Another broker had the lease while this renewal was on its way.
                self._lose(held, f"another broker had the lease {name} in between")
                self._begin(name, held, member, epoch, begun_ms)
            else:
                held.until_ms = begun_ms + self._certain_ms

    def _wants(self, name: str, held: _HeldLease, member: Member) -> bool:
        lease, now_ms = self._known(name), self._clock.monotonic_ms()
        if lease is not None and lease.incarnation != member.incarnation:
            held.free_since_ms = None
            return False
        if held.free_since_ms is None:
            held.free_since_ms = now_ms
        preferred = self._preferred(name) if held.is_spread else None
        return (
            preferred is None
            or preferred.incarnation == member.incarnation
            or now_ms - held.free_since_ms >= _PREFERRED_MS
        )

    def _preferred(self, name: str) -> Member | None:
        members = self._members()
        steady = [member for member in members if not self._is_unsteady(member)]
        return ranked(name.encode(), steady or members)[0] if members else None

    def _note_returns(self) -> None:
        """Note which brokers have counted as dead and are back, without a start."""
        members = self._members()
        now_ms = self._clock.monotonic_ms()
        for member in members:
            joined_ms = self._joined.get(member.incarnation)
            if joined_ms is not None and joined_ms != member.started_at_ms:
                self._returned.setdefault(member.incarnation, deque(maxlen=2)).append(now_ms)
            self._joined[member.incarnation] = member.started_at_ms
        if len(self._joined) > _INCARNATIONS_MAX:
            live = {member.incarnation for member in members}
            self._joined = {each: at for each, at in self._joined.items() if each in live}
            self._returned = {each: at for each, at in self._returned.items() if each in live}

    def _is_unsteady(self, member: Member) -> bool:
        returned = self._returned.get(member.incarnation, ())
        if len(returned) < 2:
            return False
        now_ms = self._clock.monotonic_ms()
        return now_ms - returned[-1] < _UNSTEADY_MS and returned[-1] - returned[0] < 2 * _UNSTEADY_MS

    async def _take(self, name: str, held: _HeldLease, member: Member) -> None:
        begun_ms = self._clock.monotonic_ms()
        try:
            epoch = await self._run(lambda: self._membership.acquire(name, member))
        except StorageUnavailable:
            # The heartbeat fails as well, and says so.
            return
        if epoch is not None:
            self._begin(name, held, member, epoch, begun_ms)

    def _give(self, name: str, held: _HeldLease, member: Member) -> None:
        preferred, now_ms = self._preferred(name), self._clock.monotonic_ms()
        if preferred is None or preferred.incarnation == member.incarnation:
            return
        if held.given is not None:
            incarnation, joined_ms, given_ms = held.given
            # One that joined since then has lost the lease because it counted as dead.
            is_same = (incarnation, joined_ms) == (preferred.incarnation, preferred.started_at_ms)
            if is_same and now_ms - given_ms < _GIVEN_AGAIN_MS:
                return
        logger.info("giving the lease %s to broker %d", name, preferred.broker_id)
        held.given = (preferred.incarnation, preferred.started_at_ms, now_ms)
        held.until_ms = None
        held.free_since_ms = now_ms

        async def give() -> None:
            await self._end(held)
            await self._run(lambda: self._membership.release(name, member))

        self._call(held, give)

    def _lose(self, held: _HeldLease, reason: str) -> None:
        logger.warning("%s", reason)
        held.until_ms = None
        self._call(held, partial(self._end, held))

    def _begin(self, name: str, held: _HeldLease, member: Member, epoch: int, begun_ms: int) -> None:
        held.until_ms, held.epoch, held.free_since_ms = begun_ms + self._certain_ms, epoch, None
        logger.info("this broker has the lease %s, epoch %d", name, epoch)

        async def begin() -> None:
            if held.until_ms is None or held.epoch != epoch:
                return
            held.is_begun = True
            try:
                await held.work.begin(epoch)
            except BaseException:
                # Let another broker try.
                held.until_ms = None
                await self._end(held)
                await self._run(lambda: self._membership.release(name, member))
                raise

        self._call(held, begin)

    async def _end(self, held: _HeldLease) -> None:
        if held.is_begun:
            held.is_begun = False
            await held.work.end()

    def _call(self, held: _HeldLease, call: Callable[[], Awaitable[None]]) -> None:
        """Run ``call`` after those before it."""

        async def run() -> None:
            async with held.turn:
                try:
                    await call()
                except Exception:  # the edge of a task: the next round tries again
                    logger.exception("the work of a lease could not begin or end")

        task = asyncio.create_task(run())
        held.calls.add(task)
        task.add_done_callback(held.calls.discard)
