"""Polls: records of a group's partitions, given out under a lease.

The polls of a group share one managed member. What that member is assigned is
given out to polls, each partition to one poll at a time, so that its records stay
in order.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from ...errors import InvalidRequest, UnknownMember
from ...turns import Turns
from ...work_budget import sorted_in_turns
from ..base.checks import check_group_id
from ..base.consumer_protocol import AssignedPartition
from ..base.messages import Membership
from .context import LeaseContext
from .lease import LEASE_PARTITIONS_MAX, Lease, Polled, PollRequest, Skipped, check_lease_ms
from .pool import HeldLease, LeasePool
from .reads import read_again, read_new

MAX_RECORDS = 100_000
_POLL_ID_CHARACTERS_MAX = 200
# All polls together look at so many times 50 partitions in one turn of the loop, in some 5 µs each.
_LOOKS_PER_TURN = 10


class LeasePolls:
    """Serves polls, and puts their leases in force."""

    def __init__(self, context: LeaseContext) -> None:
        self._context = context
        self._turns = Turns(_LOOKS_PER_TURN)

    async def poll(self, request: PollRequest) -> Polled:
        """Return the group's next records under a lease; without a lease if none came in time.

        More ``max_bytes`` than ``UnreadResponses`` allows count as that many.

        Raises:
            InvalidRequest, InvalidGroupId, UnknownTopic: change the request.
            CorruptLog: the next records of a partition are corrupt; the error says where to continue.
            CoordinatorNotAvailable, GroupStoreFailed, …: as ``GroupCoordinator.join_managed``.
        """
        self._check(request)
        pool = self._context.pools.get(request.group)
        self._context.pools.add(pool)
        deadline_ms = self._context.clock.monotonic_ms() + request.wait_ms
        pool.polling += 1
        try:
            while True:
                left_ms = deadline_ms - self._context.clock.monotonic_ms()
                membership = await self._context.member.join(pool, request, timeout_ms=left_ms)
                held = pool.held_for(request.poll_id, request.topics)
                if held is not None:
                    return await self._repeat(held)
                positions: dict[AssignedPartition, int] = {}
                skipped: list[Skipped] = []
                if membership is not None:
                    # Before the positions are looked up: those of another topic of this name are no use.
                    topic_ids = self._topic_ids(request)
                    share = _Share(pool, membership, request)
                    try:
                        positions, skipped = await self._context.positions.next_offsets(
                            pool.group,
                            membership,
                            await _free(pool, membership, request),
                            start=request.start,
                            turns=self._turns,
                            look=share.look,
                        )
                        polled = await self._give_out(
                            pool, membership, request, positions, share.chosen, skipped, topic_ids
                        )
                    finally:
                        share.give_back()
                    if polled is not None:
                        return polled
                left_ms = deadline_ms - self._context.clock.monotonic_ms()
                if left_ms <= 0 or self._context.broker.is_closing:
                    return Polled(skipped=skipped)
                await self._wait(pool, positions, left_ms)
        finally:
            pool.polling -= 1
            self._context.pools.drop_if_idle(pool)

    def _check(self, request: PollRequest) -> None:
        check_group_id(request.group)
        check_lease_ms(request.lease_ms)
        limits = (
            ("max_records", request.max_records, 1, MAX_RECORDS),
            ("wait_ms", request.wait_ms, 0, self._context.broker.settings.fetch_wait_ms_max),
        )
        for name, value, minimum, maximum in limits:
            if not minimum <= value <= maximum:
                raise InvalidRequest(
                    f"{name} is {value}; it must be a whole number from {minimum} to {maximum}"
                )
        for name, value in (("max_bytes", request.max_bytes), ("max_partitions", request.max_partitions)):
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} is {value}; it must be at least 1")
        if not request.topics:
            raise InvalidRequest("a poll names at least one topic")
        for topic in request.topics:
            self._context.broker.topic(topic)
        if request.start not in ("earliest", "latest"):
            raise InvalidRequest(f"from is {request.start[:40]!r}; it must be earliest or latest")
        if request.poll_id is not None and not 0 < len(request.poll_id) <= _POLL_ID_CHARACTERS_MAX:
            raise InvalidRequest(f"poll_id must have 1 to {_POLL_ID_CHARACTERS_MAX} characters")

    async def _give_out(
        self,
        pool: LeasePool,
        membership: Membership,
        request: PollRequest,
        positions: dict[AssignedPartition, int],
        chosen: dict[AssignedPartition, int],
        skipped: Sequence[Skipped],
        topic_ids: Mapping[str, UUID],
    ) -> Polled | None:
        """Lease this poll the records after the positions in ``chosen``; None if there are no records."""
        if not chosen:
            return None
        try:
            read = await read_new(
                self._context.broker,
                chosen,
                max_records=request.max_records,
                max_bytes=self._context.broker.unread.bytes_of_fetch(request.max_bytes),
                is_decoded=request.is_decoded,
                failures=lambda part, position: self._context.redelivery.failures(pool, part, position),
            )
            leased_parts = {part.key for part, _ in read}
            passed = {
                part: position
                for part, position in chosen.items()
                if position > positions[part] and part not in leased_parts
            }
            if passed:
                await self._context.positions.pass_over(pool.group, membership, passed)
            positions |= chosen
            current = self._context.coordinator.membership(pool.group, membership.member_id)
            topics_now = self._topic_ids(request)
            leased = [
                (
                    replace(
                        part,
                        deliveries=self._context.redelivery.failures(pool, part.key, part.offset) + 1,
                        topic_id=topic_ids[part.topic],
                    ),
                    fetched,
                )
                for part, fetched in read
                if part.key in current.assigned
                and not current.is_rebalancing
                and part.topic in topic_ids
                and topics_now.get(part.topic) == topic_ids[part.topic]
            ]
        except UnknownMember:
            leased = []
        if not leased:
            pool.wake()
            return None
        lease = Lease(
            group=pool.group, lease_id=secrets.token_urlsafe(12), partitions=tuple(part for part, _ in leased)
        )
        held = self._context.pools.hold(
            pool,
            lease,
            lease_ms=request.lease_ms,
            poll_id=request.poll_id,
            expire=self._context.redelivery.expire,
        )
        if len(leased) < len(chosen):
            pool.wake()
        return Polled(lease=lease, expires_at_ms=held.expires_at_ms, fetched=leased, skipped=skipped)

    def _topic_ids(self, request: PollRequest) -> dict[str, UUID]:
        """Return the ids of the topics that a poll names, without those that were deleted meanwhile."""
        topics = {name: self._context.broker.topic_by_name(name) for name in request.topics}
        return {name: topic.topic_id for name, topic in topics.items() if topic is not None}

    async def _repeat(self, held: HeldLease) -> Polled:
        """Answer a poll with the lease that the same poll got before."""
        pairs = [(part, await read_again(self._context.broker, part)) for part in held.lease.partitions]
        return Polled(lease=held.lease, expires_at_ms=held.expires_at_ms, fetched=pairs)

    async def _wait(self, pool: LeasePool, positions: dict[AssignedPartition, int], left_ms: int) -> None:
        """Wait for a record in a free partition, a change in the pool, or the time-out."""
        change = asyncio.create_task(pool.wait_for_change(left_ms))
        waits = [change]
        free = {part: position for part, position in positions.items() if part not in pool.taken}
        if free:
            positions_by_name = {(part.topic, part.partition): position for part, position in free.items()}
            waits.append(
                asyncio.create_task(self._context.broker.wait_for_append(positions_by_name, left_ms))
            )
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


class _Share:
    """The partitions with records that one poll takes, at most a fair share of those that the group is assigned."""

    def __init__(self, pool: LeasePool, membership: Membership, request: PollRequest) -> None:
        # With their positions.
        self.chosen: dict[AssignedPartition, int] = {}
        self._pool = pool
        share = -(-len(membership.assigned) // (len(pool.held) + pool.polling))
        self._left = min(share, LEASE_PARTITIONS_MAX, request.max_partitions or share)
        self._records_left = request.max_records

    def look(self, part: AssignedPartition, position: int, ready: int) -> None:
        """Take a partition that has ``ready`` offsets to read, if no other poll has it and the share allows it."""
        if ready > 0 and self._left > 0 and self._records_left > 0 and part not in self._pool.taken:
            self._pool.taken[part] = None
            self.chosen[part] = position
            self._left -= 1
            self._records_left -= ready

    def give_back(self) -> None:
        """Let other polls take what is not leased."""
        taken = self._pool.taken
        for part in self.chosen:
            if part in taken and taken[part] is None:
                del taken[part]


async def _free(pool: LeasePool, membership: Membership, request: PollRequest) -> Sequence[AssignedPartition]:
    """Return the requested partitions that are not leased.

    Each call starts at another one, in turn.
    """
    free = await sorted_in_turns(
        [part for part in membership.assigned if part.topic in request.topics and part not in pool.taken],
        key=lambda part: part,
    )
    pool.turns += 1
    start = pool.turns % len(free) if free else 0
    return free[start:] + free[:start]
