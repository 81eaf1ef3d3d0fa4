"""Groups without members of their own: polls are given records under a lease, acknowledgements commit them.

All who poll one group are together **one member** of it, for which the broker
joins. What is assigned to that member is given out to polls, a partition to one
at a time, so that its records stay in order; Kafka's members and those of the
other listeners share the group with it as with any member (ADR-0017).

A lease ends by its ack, by a nack, by its time, or because its partitions were
assigned to another member. Leases are not kept on disk, and need not be: a
lease that this process does not know holds as long as nobody else was given
its records and the committed offset is still the one from which they were read.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from stele.wire import record_batch as rb

from ..broker.broker import Broker
from ..broker.fetch import Fetched, PartitionFetch, records_from
from ..clock import Clock
from ..errors import (
    GroupNotFound,
    IllegalGeneration,
    InvalidRequest,
    LeaseFenced,
    PartitionNotAssigned,
    RebalanceInProgress,
    RequestTimedOut,
    SteleError,
    TopicError,
    UnknownMember,
)
from .checks import check_group_id
from .consumer_protocol import AssignedPartition
from .coordinator import GroupCoordinator
from .lease import ACKED_BY, FAILURES, Lease, LeasedPartition, Polled, PollRequest, Skipped
from .messages import NO_MEMBER, LeavingMember, ManagedJoin, Membership, OffsetToCommit, Results
from .timers import Timer

logger = logging.getLogger(__name__)

# The member that all polls of a group are; what its member id begins with.
POLL_CLIENT_ID = "stele-poll"
MAX_RECORDS = 100_000
LEASE_MS_MIN, LEASE_MS_MAX = 100, 3_600_000
_POLL_ID_CHARACTERS_MAX = 200
# What a poll waits for its own member's join, even if it came without a wait.
_JOIN_MS_MIN = 2000
# The member stays this long behind its last poll or lease.
_SESSION_MARGIN_MS = 30_000
_ENDED_REMEMBERED = 10_000


@dataclass(slots=True)
class _Held:
    """A lease that is in force. ``is_settling``: its ack is on its way to the disk, so its time does not matter."""

    lease: Lease
    expires_at_ms: int
    timer: Timer
    poll_id: str | None
    is_settling: bool = False


@dataclass(slots=True)
class _Pool:
    """All who poll one group."""

    group: str
    member_id: str = NO_MEMBER
    topics: frozenset[str] = frozenset()
    session_timeout_ms: int = 0
    polling: int = 0
    # Failures on their way to the disk: what ``failures`` says is not to be read there yet.
    counting: int = 0
    turn: int = 0
    held: dict[str, _Held] = field(default_factory=dict[str, _Held])
    # Given out, or about to be: by partition the lease, or None while its records are read.
    taken: dict[AssignedPartition, str | None] = field(default_factory=dict[AssignedPartition, str | None])
    # How often the records from an offset on were given out in vain.
    failures: dict[AssignedPartition, tuple[int, int]] = field(
        default_factory=dict[AssignedPartition, tuple[int, int]]
    )
    waiters: set[asyncio.Future[None]] = field(default_factory=set[asyncio.Future[None]])

    def wake(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def change(self, timeout_ms: int) -> None:
        """Return when something changed, or in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=timeout_ms / 1000)
        finally:
            self.waiters.discard(waiter)


class LeaseManager:
    """All leases of one broker. On its event loop, above the coordinator."""

    def __init__(self, *, broker: Broker, coordinator: GroupCoordinator, clock: Clock) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._clock = clock
        self._pools: dict[str, _Pool] = {}
        # Leases that were ended by who held them, True by an ack: one whose answer was lost comes again.
        self._ended: OrderedDict[str, bool] = OrderedDict()
        coordinator.table.watch(self._changed)

    def close(self) -> None:
        """End the waits."""
        for pool in self._pools.values():
            pool.wake()

    def _changed(self, group: str) -> None:
        pool = self._pools.get(group)
        if pool is not None:
            pool.wake()
            self._drop_if_idle(pool)

    # ── poll ──

    async def poll(self, request: PollRequest) -> Polled:
        """Records from where the group is, held for whoever asks; without a lease if none came in time.

        Raises:
            InvalidRequest, InvalidGroupId, UnknownTopic: change the request.
            CorruptLog: the next records of a partition are damaged; it says where to go on.
            CoordinatorNotAvailable, GroupStoreFailed, …: as ``GroupCoordinator.join_managed``.
        """
        self._check(request)
        pool = self._pools.get(request.group)
        if pool is None:
            pool = self._pools[request.group] = _Pool(request.group)
        deadline_ms = self._clock.monotonic_ms() + request.wait_ms
        pool.polling += 1
        try:
            while True:
                membership = await self._join(pool, request, deadline_ms)
                again = self._held_for(pool, request.poll_id)
                if again is not None:
                    return await self._read_again(again)
                skipped: list[Skipped] = []
                positions: dict[AssignedPartition, int] = {}
                if membership is not None:
                    positions = await self._positions(pool, membership, request, skipped)
                    polled = await self._give_out(pool, membership, request, positions, skipped)
                    if polled is not None:
                        return polled
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0 or self._broker.is_closing:
                    return Polled(skipped=skipped)
                await self._wait(pool, positions, left_ms)
        finally:
            pool.polling -= 1
            self._drop_if_idle(pool)

    def _check(self, request: PollRequest) -> None:
        check_group_id(request.group)
        limits = (
            ("max_records", request.max_records, 1, MAX_RECORDS),
            ("max_bytes", request.max_bytes, 1, self._broker.settings.fetch_bytes_max),
            ("wait_ms", request.wait_ms, 0, self._broker.settings.fetch_wait_ms_max),
            ("lease_ms", request.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX),
        )
        for name, value, minimum, maximum in limits:
            if not minimum <= value <= maximum:
                raise InvalidRequest(
                    f"{name} is {value}; it must be a whole number from {minimum} to {maximum}"
                )
        if request.max_partitions is not None and request.max_partitions < 1:
            raise InvalidRequest(f"max_partitions is {request.max_partitions}; it must be at least 1")
        if not request.topics:
            raise InvalidRequest("a poll names at least one topic")
        for topic in request.topics:
            self._broker.topic(topic)
        if request.start not in ("earliest", "latest"):
            raise InvalidRequest(f"from is {request.start[:40]!r}; it must be earliest or latest")
        if request.poll_id is not None and not 0 < len(request.poll_id) <= _POLL_ID_CHARACTERS_MAX:
            raise InvalidRequest(f"poll_id must have 1 to {_POLL_ID_CHARACTERS_MAX} characters")

    async def _join(self, pool: _Pool, request: PollRequest, deadline_ms: int) -> Membership | None:
        """The member that the polls are, its session begun anew; None if the group is still rebalancing."""
        known = self._member(pool)
        needed_ms = min(
            max(request.lease_ms, request.wait_ms) + _SESSION_MARGIN_MS,
            self._broker.settings.group_max_session_timeout_ms,
        )
        if known is not None and request.topics <= pool.topics and needed_ms <= pool.session_timeout_ms:
            return None if known.is_rebalancing else known
        joining = self._coordinator.join_managed(
            ManagedJoin(
                group=pool.group,
                topics=request.topics | {topic for topic in pool.topics if self._broker.has_topic(topic)},
                member_id=pool.member_id,
                client_id=POLL_CLIENT_ID,
                client_host=request.client_host,
                session_timeout_ms=max(
                    pool.session_timeout_ms, needed_ms, self._broker.settings.group_min_session_timeout_ms
                ),
            )
        )
        left_ms = max(deadline_ms - self._clock.monotonic_ms(), _JOIN_MS_MIN)
        done, _ = await asyncio.wait((joining,), timeout=left_ms / 1000)
        if not done:
            return None
        try:
            membership = joining.result()
        except RebalanceInProgress:
            # Another poll joined with yet other topics meanwhile.
            return None
        pool.member_id = membership.member_id
        self._member(pool)
        return membership

    def _member(self, pool: _Pool) -> Membership | None:
        """The member of ``pool`` as the coordinator has it, also one of before a restart; its session begins anew."""
        try:
            described = self._coordinator.describe(pool.group)
        except GroupNotFound:
            described = None
        for member in () if described is None else described.members:
            if member.is_managed and member.client_id == POLL_CLIENT_ID:
                pool.member_id = member.member_id
                pool.topics = member.topics
                pool.session_timeout_ms = member.session_timeout_ms
                return self._coordinator.membership(pool.group, member.member_id)
        pool.member_id, pool.topics, pool.session_timeout_ms = NO_MEMBER, frozenset(), 0
        return None

    async def _positions(
        self, pool: _Pool, membership: Membership, request: PollRequest, skipped: list[Skipped]
    ) -> dict[AssignedPartition, int]:
        """From where each partition that nobody holds is to be read, in turn."""
        free = sorted(
            part for part in membership.assigned if part.topic in request.topics and part not in pool.taken
        )
        pool.turn += 1
        start = pool.turn % len(free) if free else 0
        positions: dict[AssignedPartition, int] = {}
        unpinned: list[OffsetToCommit] = []
        for part in free[start:] + free[:start]:
            try:
                state = self._broker.log_state(*part)
            except TopicError:
                # Deleted; the next generation is without it.
                continue
            (committed,) = self._coordinator.committed(pool.group, [part])
            position = committed.offset
            if position < 0:
                position = state.log_start_offset
                if request.start == "latest":
                    position = state.high_watermark
                    unpinned.append(
                        OffsetToCommit(topic=part.topic, partition=part.partition, offset=position)
                    )
            elif position < state.log_start_offset:
                skipped.append(
                    Skipped(
                        topic=part.topic,
                        partition=part.partition,
                        offset=position,
                        next_offset=state.log_start_offset,
                    )
                )
                position = state.log_start_offset
            positions[part] = min(position, state.high_watermark)
        if unpinned:
            # The group begins here, and does so also if it is told only at its next poll.
            await self._coordinator.commit_assigned(membership, pool.group, unpinned)
        return positions

    async def _give_out(
        self,
        pool: _Pool,
        membership: Membership,
        request: PollRequest,
        positions: dict[AssignedPartition, int],
        skipped: Sequence[Skipped],
    ) -> Polled | None:
        """A lease on what is there of ``positions``, for this poll its fair share; None if there is nothing."""
        share = -(-len(membership.assigned) // (len(pool.held) + pool.polling))
        share = share if request.max_partitions is None else min(share, request.max_partitions)
        chosen: dict[AssignedPartition, int] = {}
        available = 0
        for part, position in positions.items():
            if part in pool.taken:
                continue
            ready = self._broker.log_state(*part).high_watermark - position
            if ready > 0:
                chosen[part] = position
                available += ready
            if len(chosen) >= share or available >= request.max_records:
                break
        if not chosen:
            return None
        pool.taken.update(dict.fromkeys(chosen))
        try:
            fetched = await self._read(pool, chosen, request.max_records, request.max_bytes)
            still = self._coordinator.membership(pool.group, membership.member_id)
            leased = [
                (replace(part, deliveries=self._failures(pool, part.key, part.offset) + 1), one)
                for part, one in fetched
                if part.key in still.assigned and not still.is_rebalancing
            ]
        except UnknownMember:
            leased = []
        finally:
            for part in chosen:
                pool.taken.pop(part, None)
        if not leased:
            pool.wake()
            return None
        lease = Lease(
            group=pool.group, lease_id=secrets.token_urlsafe(12), partitions=tuple(part for part, _ in leased)
        )
        held = self._hold(pool, lease, request.lease_ms, request.poll_id)
        if len(leased) < len(chosen):
            pool.wake()
        return Polled(lease=lease, expires_at_ms=held.expires_at_ms, fetched=leased, skipped=skipped)

    async def _read(
        self, pool: _Pool, positions: dict[AssignedPartition, int], max_records: int, max_bytes: int
    ) -> list[tuple[LeasedPartition, Fetched]]:
        """Of each partition what fits, the first ones most; where that failed before, a quarter for each time.

        So one record that cannot be handled is alone in the end. Raises ``CorruptLog`` if damage is all there is.
        """
        at_most = max_records
        fetched = await self._broker.fetch(
            [
                PartitionFetch(
                    topic=part.topic, partition=part.partition, offset=position, max_bytes=max_bytes
                )
                for part, position in positions.items()
            ],
            max_bytes=max_bytes,
        )
        read: list[tuple[LeasedPartition, Fetched]] = []
        failure: SteleError | None = None
        for (part, position), one in zip(positions.items(), fetched, strict=True):
            if one.error is not None:
                failure = failure or one.error
                continue
            try:
                tries = self._failures(pool, part, position)
                piece = max(1, at_most >> min(2 * tries, 60)) if tries else max_records
                next_offset = min(_end_of(one, position), position + min(piece, max_records))
            except SteleError as error:
                failure = failure or error
                continue
            if next_offset > position:
                max_records -= next_offset - position
                leased = LeasedPartition(
                    topic=part.topic, partition=part.partition, offset=position, next_offset=next_offset
                )
                read.append((leased, one))
            if max_records <= 0:
                break
        if not read and failure is not None:
            raise failure
        return read

    async def _wait(self, pool: _Pool, positions: dict[AssignedPartition, int], left_ms: int) -> None:
        """Until a record comes to a partition that is free, something changes in the group, or in time."""
        change = asyncio.create_task(pool.change(left_ms))
        waits = [change]
        free = {part: position for part, position in positions.items() if part not in pool.taken}
        if free:
            positions_by_name = {(part.topic, part.partition): position for part, position in free.items()}
            waits.append(asyncio.create_task(self._broker.wait_for_append(positions_by_name, left_ms)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    # ── leases in force ──

    def _hold(self, pool: _Pool, lease: Lease, lease_ms: int, poll_id: str | None) -> _Held:
        timer = Timer(self._coordinator.table.scheduler, lambda: self._expire(pool, lease.lease_id))
        held = _Held(lease, self._clock.now_ms() + lease_ms, timer, poll_id)
        pool.held[lease.lease_id] = held
        for part in lease.partitions:
            pool.taken[part.key] = lease.lease_id
        timer.start(lease_ms)
        return held

    def _free(self, pool: _Pool, held: _Held) -> None:
        held.timer.stop()
        pool.held.pop(held.lease.lease_id, None)
        for part in held.lease.partitions:
            if pool.taken.get(part.key) == held.lease.lease_id:
                del pool.taken[part.key]
        pool.wake()
        self._drop_if_idle(pool)

    def _held_for(self, pool: _Pool, poll_id: str | None) -> _Held | None:
        if poll_id is None:
            return None
        return next((held for held in pool.held.values() if held.poll_id == poll_id), None)

    async def _read_again(self, held: _Held) -> Polled:
        pairs = [(part, await self._read_part(part)) for part in held.lease.partitions]
        return Polled(lease=held.lease, expires_at_ms=held.expires_at_ms, fetched=pairs)

    async def _read_part(self, part: LeasedPartition) -> Fetched:
        """The batches of a leased partition; what came after them stays out, since it could crowd out others."""
        max_bytes = self._broker.settings.fetch_bytes_max
        request = PartitionFetch(
            topic=part.topic, partition=part.partition, offset=part.offset, max_bytes=max_bytes
        )
        (fetched,) = await self._broker.fetch([request], max_bytes=max_bytes)
        if fetched.error is not None:
            raise fetched.error
        end = 0
        for header in rb.iter_headers(fetched.batches):
            if header.base_offset >= part.next_offset:
                break
            end = header.position + header.size
        return replace(fetched, batches=fetched.batches[:end])

    def _expire(self, pool: _Pool, lease_id: str) -> None:
        held = pool.held.get(lease_id)
        if held is not None and not held.is_settling:
            logger.info("group %r: a lease ran out, its records are delivered again", pool.group)
            self._fail(pool, held)

    def _fail(self, pool: _Pool, held: _Held) -> asyncio.Future[Results] | None:
        """Nobody handled it: give it to the next poll, and count that, also for after a restart."""
        offsets: list[OffsetToCommit] = []
        for part in held.lease.partitions:
            if not self._is_next(pool.group, part):
                continue
            failures = self._failures(pool, part.key, part.offset) + 1
            pool.failures[part.key] = (part.offset, failures)
            offsets.append(
                OffsetToCommit(
                    topic=part.topic,
                    partition=part.partition,
                    offset=part.offset,
                    metadata=f"{FAILURES}{failures}",
                )
            )
        pool.counting += 1
        self._free(pool, held)

        def counted() -> None:
            pool.counting -= 1
            self._drop_if_idle(pool)

        try:
            membership = self._coordinator.membership(pool.group, pool.member_id)
            counting = self._coordinator.commit_assigned(membership, pool.group, offsets)
        except SteleError as error:
            logger.info("group %r: a failed delivery is not counted: %s", pool.group, error)
            counted()
            return None
        counting.add_done_callback(lambda _: counted())
        return counting

    def _failures(self, pool: _Pool, part: AssignedPartition, position: int) -> int:
        """How often the records from ``position`` on were given out in vain."""
        offset, failures = pool.failures.get(part, (-1, 0))
        if offset == position:
            return failures
        (committed,) = self._coordinator.committed(pool.group, [part])
        count = committed.metadata.removeprefix(FAILURES)
        is_count = committed.metadata.startswith(FAILURES) and count.isascii() and count.isdigit()
        return int(count[:9]) if is_count and committed.offset == position else 0

    # ── the ends of leases ──

    async def ack(self, group: str, token: str) -> Sequence[LeasedPartition]:
        """Commit what the lease held. The same again is answered in the same way.

        Raises:
            InvalidRequest: that is no lease of the group.
            LeaseFenced: its records were given, or assigned, to somebody else.
            GroupStoreFailed, CoordinatorNotAvailable: ack again.
        """
        lease = Lease.of_token(group, token)
        # Whoever asked may go away meanwhile; what was begun is ended all the same.
        return await asyncio.shield(asyncio.ensure_future(self._ack(lease)))

    async def _ack(self, lease: Lease) -> Sequence[LeasedPartition]:
        while True:
            if self._was_acked(lease):
                return lease.partitions
            pool, held = self._find(lease)
            if not held.is_settling:
                break
            # The same ack came before, and its answer was given up.
            await pool.change(self._broker.settings.request_timeout_ms)
        held.is_settling = True
        try:
            await self._commit(pool, held.lease)
        except LeaseFenced:
            self._free(pool, held)
            raise
        except BaseException:
            held.is_settling = False
            if held.expires_at_ms <= self._clock.now_ms():
                self._free(pool, held)
            raise
        for part in lease.partitions:
            pool.failures.pop(part.key, None)
        self._remember(lease, is_acked=True)
        self._free(pool, held)
        return lease.partitions

    async def _commit(self, pool: _Pool, lease: Lease) -> None:
        offsets = [
            OffsetToCommit(
                topic=part.topic,
                partition=part.partition,
                offset=part.next_offset,
                metadata=f"{ACKED_BY}{lease.lease_id}",
            )
            for part in lease.partitions
        ]
        timeout_ms = self._broker.settings.request_timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            try:
                membership = self._coordinator.membership(pool.group, pool.member_id)
                results = await self._coordinator.commit_assigned(membership, pool.group, offsets)
            except RebalanceInProgress:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise RequestTimedOut(
                        f"the rebalance of group {pool.group!r}", timeout_ms=timeout_ms
                    ) from None
                await pool.change(left_ms)
            except (PartitionNotAssigned, UnknownMember, IllegalGeneration) as error:
                raise LeaseFenced(pool.group, "its partitions were assigned to another member") from error
            else:
                break
        for error in results:
            if error is not None:
                raise LeaseFenced(pool.group, str(error)) from error

    async def nack(self, group: str, token: str) -> None:
        """Give it back: the next poll gets it at once. Returns when that is counted for good.

        Raises ``InvalidRequest``, ``LeaseFenced``; ``GroupStoreFailed``: it is given back, and not counted.
        """
        pool, held = self._find(Lease.of_token(group, token))
        if held.is_settling:
            raise LeaseFenced(group, "it is being acknowledged")
        self._remember(held.lease, is_acked=False)
        counting = self._fail(pool, held)
        if counting is not None:
            await asyncio.shield(counting)

    def extend(self, group: str, token: str, lease_ms: int) -> int:
        """Hold it for ``lease_ms`` from now on; returns when it ends, in ms since the epoch. Raises as ``nack``."""
        if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
            raise InvalidRequest(
                f"lease_ms is {lease_ms}; it must be a whole number from {LEASE_MS_MIN} to {LEASE_MS_MAX}"
            )
        _, held = self._find(Lease.of_token(group, token))
        held.expires_at_ms = self._clock.now_ms() + lease_ms
        held.timer.start(lease_ms)
        return held.expires_at_ms

    def _find(self, lease: Lease) -> tuple[_Pool, _Held]:
        """The lease in force, or in force again. Raises ``LeaseFenced``."""
        check_group_id(lease.group)
        pool = self._pools.get(lease.group) or _Pool(lease.group)
        membership = self._member(pool)
        if membership is None:
            raise LeaseFenced(lease.group, "nobody has polled the group for long, or it was reset")
        held = pool.held.get(lease.lease_id)
        parts = {part.key for part in lease.partitions}
        if held is not None:
            if {part.key for part in held.lease.partitions} != parts:
                raise LeaseFenced(lease.group, "it is not the one that was given out")
            return pool, held
        if lease.lease_id in self._ended:
            raise LeaseFenced(lease.group, "it was given back, or is acknowledged")
        for part in lease.partitions:
            if part.key in pool.taken:
                raise LeaseFenced(lease.group, "it ran out, and another poll has its records")
            if not membership.is_rebalancing and part.key not in membership.assigned:
                raise LeaseFenced(lease.group, "its partitions were assigned to another member")
            if not self._is_next(lease.group, part):
                raise LeaseFenced(lease.group, "its records were acknowledged by another")
        # It ran out and nobody was given its records, or it is of before a restart.
        self._pools[lease.group] = pool
        return pool, self._hold(pool, lease, LEASE_MS_MIN, None)

    def _is_next(self, group: str, part: LeasedPartition) -> bool:
        """The group has come to the first record of ``part``, and not beyond."""
        try:
            state = self._broker.log_state(part.topic, part.partition)
        except TopicError:
            return False
        (committed,) = self._coordinator.committed(group, [part.key])
        position = max(committed.offset, state.log_start_offset)
        return part.offset == position and part.next_offset <= state.high_watermark

    def _was_acked(self, lease: Lease) -> bool:
        if lease.lease_id in self._ended:
            return self._ended[lease.lease_id]
        committed = self._coordinator.committed(lease.group, [part.key for part in lease.partitions])
        return all(
            one.offset == part.next_offset and one.metadata == f"{ACKED_BY}{lease.lease_id}"
            for one, part in zip(committed, lease.partitions, strict=True)
        )

    def _remember(self, lease: Lease, *, is_acked: bool) -> None:
        self._ended[lease.lease_id] = is_acked
        if len(self._ended) > _ENDED_REMEMBERED:
            self._ended.popitem(last=False)

    # ── looking, and leaving ──

    def leases(self, group: str) -> list[tuple[Lease, int]]:
        """Those in force, with the time of their end in ms since the epoch."""
        pool = self._pools.get(group)
        return [] if pool is None else [(held.lease, held.expires_at_ms) for held in pool.held.values()]

    def retire(self, group: str) -> None:
        """Let the member that the polls are leave, if nobody polls and nothing is held: for who resets the group."""
        pool = self._pools.get(group) or _Pool(group)
        if not pool.held and not pool.polling and self._member(pool) is not None:
            self._coordinator.leave(group, [LeavingMember(member_id=pool.member_id)])

    def _drop_if_idle(self, pool: _Pool) -> None:
        """Its member stays until its session ends; ``_member`` finds it again."""
        if (
            not (pool.polling or pool.counting or pool.held or pool.taken)
            and self._pools.get(pool.group) is pool
        ):
            del self._pools[pool.group]


def _end_of(fetched: Fetched, offset: int) -> int:
    """Behind the last whole and good batch. Raises ``CorruptLog`` if the first is neither."""
    position, end = 0, offset
    batches = fetched.batches
    while position < len(batches):
        try:
            header = rb.check_batch(batches, position)
        except rb.CorruptBatchError:
            if not position:
                next(iter(records_from(fetched, offset)))
            break
        position += header.size
        end = header.next_offset
    return end


def leased_records(leased: LeasedPartition, fetched: Fetched) -> Iterable[list[rb.RecordView]]:
    """The records of a leased partition, some at a time. Raises ``CorruptLog``."""
    for records in records_from(fetched, leased.offset):
        if records[-1].offset < leased.next_offset:
            yield records
        else:
            yield [record for record in records if record.offset < leased.next_offset]
            return
