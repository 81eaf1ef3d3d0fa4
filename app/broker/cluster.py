"""The other brokers.

Which ones there are, what they change, and what only one of them does at a time.

``SharedCluster`` asks the database four times per second what has changed, and reports at least once per second that
this broker is alive. A caller that must know at once, because a topic is unknown or is about to be changed,
awaits ``refresh``: a query that begins after the call. Callers that come while a query runs share the next
one.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import UUID

from ..clock import Clock
from ..cluster.leaders import Leaders
from ..cluster.membership import (
    ClusterState,
    Displaced,
    Lease,
    Member,
    Membership,
)
from ..errors import BrokerIdTaken, StorageError, StorageUnavailable
from .lease_keeper import LeaseKeeper, LeaseWork
from .surveys import Surveys

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_POLL_INTERVAL_MS = 250
# Clients may ask for unknown topics all the time.
_FIND_INTERVAL_MS = 50
# A broker that leaves serves on for as long: two looks of the others, the first of which may be under way.
_LEAVE_MS = 2 * _POLL_INTERVAL_MS


class Cluster(Protocol):
    """The broker's view of its cluster; without shared storage it has no brokers."""

    @property
    def is_shared(self) -> bool:
        """Return whether there may be other brokers."""
        ...

    @property
    def is_leaving(self) -> bool:
        """Return whether this broker shuts down, and serves only until the others know."""
        ...

    @property
    def stall(self) -> StorageError | None:
        """Return why this broker counts as dead to the others, or None."""
        ...

    @property
    def heartbeat_age_ms(self) -> int:
        """Time since the last successful heartbeat began; 0 without heartbeats."""
        ...

    @property
    def members(self) -> Sequence[Member]:
        """The live brokers by ascending id."""
        ...

    @property
    def leaders(self) -> Leaders:
        """Return which brokers clients are sent to for a partition."""
        ...

    def lease(self, name: str) -> Lease | None:
        """Return the lease; None if no broker is known to have it."""
        ...

    @property
    def leases(self) -> Mapping[str, Lease]:
        """All leases in force, by name."""
        ...

    @property
    def surveys(self) -> Surveys | None:
        """Surveys of all brokers; None without shared storage."""
        ...

    def moved(self) -> asyncio.Future[None]:
        """Return a future for when other brokers are alive or hold a lease."""
        ...

    def report_by(self, make: Callable[[], Mapping[str, Any]]) -> None:
        """Let each heartbeat carry what ``make`` returns, a small JSON object; surveys show it."""
        ...

    async def refresh(self) -> None:
        """Take over all changes that any broker made before the call.

        Raises ``StorageUnavailable``.
        """
        ...

    async def find(self) -> None:
        """As ``refresh``, at a bounded rate: a call may wait for the next one.

        Raises ``StorageUnavailable``.
        """
        ...

    def observe(self, kind: str, observer: Callable[[], Awaitable[None]]) -> None:
        """Call ``observer`` when something of ``kind`` changed, until it succeeds."""
        ...


class SoloCluster:
    """One broker that shares nothing."""

    is_shared = False
    is_leaving = False
    stall = None
    heartbeat_age_ms = 0
    members: Sequence[Member] = ()
    leaders = Leaders(())
    surveys = None

    @property
    def leases(self) -> Mapping[str, Lease]:
        return {}

    def lease(self, name: str) -> Lease | None:
        return None

    def moved(self) -> asyncio.Future[None]:
        """Return a future that never ends."""
        return asyncio.get_running_loop().create_future()

    def report_by(self, make: Callable[[], Mapping[str, Any]]) -> None:
        """Do nothing: no other broker wants to know."""

    async def refresh(self) -> None:
        """Return: no other broker changes anything."""

    async def find(self) -> None:
        """Return: no other broker changes anything."""

    def observe(self, kind: str, observer: Callable[[], Awaitable[None]]) -> None:
        """Do nothing: no other broker changes anything."""


def _patience_ms(member: Member) -> int:
    """Return for how long an earlier incarnation that has ended may have the id of a broker.

    It is registered until it counts as dead.
    """
    return 2 * member.session_timeout_ms


class SharedCluster:
    """One broker of several. ``displaced`` is called if another process takes its id."""

    is_shared = True
    keeper_class = LeaseKeeper

    def __init__(
        self,
        membership: Membership,
        *,
        clock: Clock,
        displaced: Callable[[], object],
        surveys: Surveys | None = None,
    ) -> None:
        self.surveys = surveys
        self._make_report: Callable[[], Mapping[str, Any]] | None = None
        self._membership = membership
        self._clock = clock
        self._displaced = displaced
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="stele-cluster")
        self._observers: dict[str, list[Callable[[], Awaitable[None]]]] = {}
        self._member_observers: list[Callable[[Sequence[Member]], object]] = []
        self._history_observers: list[Callable[[int], Awaitable[None]]] = []
        self._epoch_observers: list[Callable[[int], object]] = []
        self._seen: dict[str, int] = {}
        self._state = ClusterState()
        self._leaders = Leaders(())
        self._self: Member | None = None
        self._beat_ms = 0
        self._next: asyncio.Future[None] | None = None
        self._moved: asyncio.Future[None] | None = None
        self._look: asyncio.Task[None] | None = None
        self._find: asyncio.Task[None] | None = None
        self._found_ms: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._keeper = self.keeper_class(
            membership, self._run, clock=clock, known=self.lease, members=lambda: self.members
        )
        self._is_reachable = True
        self._is_leaving = False

    # ── what is known ──

    @property
    def is_leaving(self) -> bool:
        return self._is_leaving

    @property
    def heartbeat_age_ms(self) -> int:
        return 0 if self._self is None else self._clock.monotonic_ms() - self._beat_ms

    @property
    def stall(self) -> StorageError | None:
        own, age_ms = self._self, self.heartbeat_age_ms
        if own is None or age_ms < own.session_timeout_ms:
            return None
        return StorageUnavailable(
            "serving clients", f"no heartbeat has reached PostgreSQL for {age_ms // 1000} seconds"
        )

    @property
    def members(self) -> Sequence[Member]:
        return self.leaders.members

    @property
    def leaders(self) -> Leaders:
        self._check_alone()
        return self._leaders

    def lease(self, name: str) -> Lease | None:
        return self._state.leases.get(name)

    @property
    def leases(self) -> Mapping[str, Lease]:
        return self._state.leases

    def report_by(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make_report = make

    def moved(self) -> asyncio.Future[None]:
        if self._moved is None:
            self._moved = asyncio.get_running_loop().create_future()
        return self._moved

    def is_held(self, name: str) -> bool:
        """Return whether this broker has the lease, and certainly no other."""
        return self._keeper.is_held(name)

    def _check_alone(self) -> None:
        """Hide this broker from clients while it cannot reach the database."""
        own = self._self
        if own is None or self.stall is None:
            return
        others = tuple(member for member in self._leaders.members if member.broker_id != own.broker_id)
        if others and len(others) < len(self._leaders.members):
            self._leaders = Leaders(others)

    # ── changes ──

    def observe(self, kind: str, observer: Callable[[], Awaitable[None]]) -> None:
        self._observers.setdefault(kind, []).append(observer)

    def observe_history(self, observer: Callable[[int], Awaitable[None]]) -> None:
        """Call ``observer`` with the epoch of each history, until it succeeds."""
        self._history_observers.append(observer)

    def observe_leader_epoch(self, observer: Callable[[int], object]) -> None:
        """Call ``observer`` with the leader epoch that clients are shown, after each look."""
        self._epoch_observers.append(observer)

    def observe_members(self, observer: Callable[[Sequence[Member]], object]) -> None:
        """Call ``observer`` with the live brokers when these are others than before."""
        self._member_observers.append(observer)

    async def refresh(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        answer = self._next
        if self._look is None:
            self._look = asyncio.create_task(self._answer())
        await asyncio.shield(answer)

    async def find(self) -> None:
        if self._find is None:
            self._find = asyncio.create_task(self._find_next())
            # The callers may have given up.
            self._find.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._find)

    async def _find_next(self) -> None:
        if self._found_ms is not None:
            left_ms = self._found_ms + _FIND_INTERVAL_MS - self._clock.monotonic_ms()
            await asyncio.sleep(max(0, left_ms) / 1000)
        # Callers from now on need the next lookup.
        self._find, self._found_ms = None, self._clock.monotonic_ms()
        await self.refresh()

    async def _answer(self) -> None:
        """Look at the cluster until no caller waits for a look that begins later."""
        try:
            while self._next is not None:
                answer, self._next = self._next, None
                try:
                    await self._take_over(await self._run(self._membership.look))
                except StorageUnavailable as error:
                    answer.set_exception(error)
                    # The callers may have given up.
                    answer.exception()
                except Exception as error:  # the edge of a task: those who wait must be answered
                    logger.exception("changes of other brokers were not taken over")
                    answer.set_exception(
                        StorageUnavailable("taking over changes of other brokers", str(error))
                    )
                    answer.exception()
                else:
                    answer.set_result(None)
        finally:
            self._look = None

    async def _take_over(self, state: ClusterState) -> None:
        if state.history != self._state.history:
            # Whatever this broker remembers may be of another history (ADR-0071).
            self._seen.clear()
            self._keeper.history_changed()
            for adopt in self._history_observers:
                await adopt(state.history)
        for show in self._epoch_observers:
            show(state.leader_epoch)
        has_moved = state.members != self._leaders.members or _epochs(state) != _epochs(self._state)
        if state.members != self._leaders.members:
            known = {member.broker_id for member in self._leaders.members}
            new = {member.broker_id for member in state.members}
            if known != new and self._self is not None:
                logger.info("the live brokers are %s", ", ".join(map(str, sorted(new))) or "none")
            self._leaders = Leaders(state.members)
            for observe in self._member_observers:
                observe(state.members)
        self._state = state
        if self._moved is not None and has_moved:
            self._moved.set_result(None)
            self._moved = None
        for kind, version in state.versions.items():
            if version != self._seen.get(kind):
                for observer in self._observers.get(kind, ()):
                    await observer()
                self._seen[kind] = version

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_INTERVAL_MS / 1000)
            try:
                await self.refresh()
            except StorageUnavailable as error:
                if self._is_reachable:
                    logger.warning("changes of other brokers are not noticed: %s", error)
                self._is_reachable = False
            else:
                self._is_reachable = True

    # ── membership ──

    async def join(self, member: Member, *, previous: UUID | None = None) -> None:
        """Register this broker, so that clients are sent to it.

        ``previous`` is the incarnation of an earlier start, which has ended.

        Raises:
            BrokerIdTaken: a live broker has its id.
            StorageUnavailable: the database cannot be reached.
        """
        begun_ms = self._clock.monotonic_ms()
        until_ms = begun_ms + _patience_ms(member)
        while not await self._run(lambda: self._membership.register(member, previous=previous)):
            if self._clock.monotonic_ms() >= until_ms:
                raise BrokerIdTaken(member.broker_id)
            await asyncio.sleep(_POLL_INTERVAL_MS / 1000)
            begun_ms = self._clock.monotonic_ms()
        self._self = member
        self._keeper.joined(member)
        self._alive(begun_ms)
        await self.refresh()
        self._tasks = [asyncio.create_task(self._beat(member)), asyncio.create_task(self._poll())]
        self._tasks.append(asyncio.create_task(self._keeper.keep(member)))

    async def _beat(self, member: Member) -> None:
        displaced_ms: int | None = None
        while True:
            begun_ms = self._clock.monotonic_ms()
            try:
                report = None if self._make_report is None else json.dumps(self._make_report())
                await self._run(partial(self._membership.heartbeat, member, report))
            except StorageUnavailable as error:
                logger.warning("%s", error)
            except Displaced as error:
                # A standby that was promoted may know this broker by an incarnation that has ended.
                displaced_ms = begun_ms if displaced_ms is None else displaced_ms
                if begun_ms >= displaced_ms + _patience_ms(member):
                    logger.error("%s; shutting down", error)
                    self._displaced()
                    return
                logger.warning("%s", error)
            except Exception:  # the edge of a task
                logger.exception("a heartbeat failed")
            else:
                displaced_ms = None
                self._alive(begun_ms)
            await asyncio.sleep(member.heartbeat_interval_ms / 1000)

    def _alive(self, begun_ms: int) -> None:
        self._beat_ms = begun_ms
        self._keeper.beat(begun_ms)

    async def leave(self) -> None:
        """Give the leases back and leave; returns when the others know.

        Until then clients are sent to this broker, and it must serve them.
        """
        self._is_leaving = True
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._keeper.leave()
        member, self._self = self._self, None
        if member is None:
            return
        try:
            await self._run(lambda: self._membership.leave(member))
            # Clients that ask this broker meanwhile are sent to the others, too.
            await self.refresh()
        except StorageUnavailable as error:
            logger.warning("%s", error)
            return
        if self._leaders.members:
            await asyncio.sleep(_LEAVE_MS / 1000)

    async def close(self) -> None:
        """Leave, and close the connection."""
        await self.leave()
        if self._find is not None:
            self._find.cancel()
        if self._look is not None:
            await asyncio.gather(self._look, return_exceptions=True)
        if self.surveys is not None:
            await self.surveys.close()
        await self._run(self._membership.close)
        self._threads.shutdown()

    # ── leases ──

    def hold(self, name: str, work: LeaseWork, *, is_spread: bool = False) -> None:
        """Do ``work`` whenever this broker has the lease; call this before ``join``.

        A lease that is spread moves to its preferred broker when that comes back.
        """
        self._keeper.hold(name, work, is_spread=is_spread)

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _epochs(state: ClusterState) -> dict[str, int]:
    return {name: lease.epoch for name, lease in state.leases.items()}
