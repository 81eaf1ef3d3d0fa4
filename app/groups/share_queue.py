"""A share group for clients that do not join: a queue over topics (ADR-0045).

A poll takes records under a *lock*, which is its member id in the share group. Any client that knows the
lock may acknowledge, release, reject or renew the records, one by one or all of them. Nothing is kept of a
lock but the records that it holds. So the clients need no session, and share the records with the members
that use the Kafka protocol.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..broker.broker import Broker
from ..broker.reading.decoded_bytes import DecodedReader
from ..broker.reading.fetch import records_in_turns
from ..broker.reading.record_counts import DecodedLimit
from ..errors import InvalidRecordState, InvalidRequest, LockNotHeld, ReadMemoryFull
from ..errors.base import short
from ..storage.topic_partition import TopicPartition
from .base.share_state import Acknowledgement, AcknowledgeType, AcquiredRange
from .share.live_group import LiveShareGroup
from .share.reads import SharedRecords, ShareRead, acquire_records, read_held
from .share_groups import ShareGroups

RECORDS_MAX = 10_000
LOCK_LENGTH_MAX = 200
# Member ids of the Kafka protocol are UUIDs, so a lock can never be that of such a member.
_PREFIX = "lock:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePoll:
    """Of at most ``bytes_max`` bytes of batches, ``records_max`` records.

    With ``is_decoded`` the bytes count as they are decompressed.

    ``reset`` (``earliest``, ``latest``) says where a new group begins. ``lock`` is None for a new one.
    """

    group: str
    topics: frozenset[str]
    records_max: int
    bytes_max: int
    wait_ms: int
    reset: str | None = None
    lock: str | None = None
    is_decoded: bool = False

    def check(self, *, wait_ms_max: int) -> None:
        """Raises ``InvalidRequest``."""
        if not self.topics:
            raise InvalidRequest("a poll names at least one topic")
        for name, number, minimum, maximum in (
            ("max_records", self.records_max, 1, RECORDS_MAX),
            ("wait_ms", self.wait_ms, 0, wait_ms_max),
        ):
            if not minimum <= number <= maximum:
                raise InvalidRequest(f"{name} is {number}; it must be from {minimum} to {maximum}")
        if self.reset not in (None, "earliest", "latest"):
            raise InvalidRequest(f"from is {short(self.reset)!r}; it must be earliest or latest")
        if self.lock is not None:
            check_lock(self.lock)


def check_lock(lock: str) -> None:
    """Raises ``InvalidRequest``."""
    if not 1 <= len(lock) <= LOCK_LENGTH_MAX:
        raise InvalidRequest(f"a lock has 1 to {LOCK_LENGTH_MAX} characters, not {len(lock)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePolled:
    """``records`` may have several parts of a partition, in order.

    The lock ends in ``expires_in_ms``.
    """

    lock: str
    expires_in_ms: int
    records: Sequence[SharedRecords]


class ShareQueue:
    """Polls and settles records of share groups for clients without a membership."""

    def __init__(self, *, broker: Broker, shares: ShareGroups) -> None:
        self._broker = broker
        self._shares = shares

    async def poll(self, request: SharePoll) -> SharePolled:
        """Take records under a lock; a repeated poll of a lock returns what the lock holds.

        Raises:
            InvalidRequest: a number or a text of the request is out of bounds.
            UnknownTopic, InvalidTopicName, InternalTopic: a topic cannot be read.
            InvalidGroupId, GroupOfOtherType, TooManyGroups: use another group id.
            ReadMemoryFull: other reads hold the room to look at the records; nothing was taken.
            StorageError, CorruptLog: there are records in no other partition; nothing was taken.
            GroupStoreFailed: nothing was taken, or it is free again when the lock ends.
        """
        broker = self._broker
        request.check(wait_ms_max=broker.settings.fetch_wait_ms_max)
        # Another broker may just have created them.
        await broker.find_topics(request.topics)
        partitions = [
            TopicPartition(name, number)
            for name in sorted(request.topics)
            for number in range(broker.topic(name).partitions)
        ]
        share = await self._shares.begun(request.group, request.topics, reset=request.reset)
        isolation = self._shares.isolation(request.group)
        lock = request.lock or str(uuid.uuid4())
        member_id = _PREFIX + lock
        held = _held(share, member_id)
        if held:
            parts: list[SharedRecords] = []
            for partition, (ranges, _) in held.items():
                if partition.topic in request.topics:
                    parts += await read_held(broker, partition, ranges, isolation)
            left_ms = min(left_ms for _, left_ms in held.values())
            return SharePolled(lock=lock, expires_in_ms=left_ms, records=parts)
        taken = await acquire_records(
            broker,
            share,
            ShareRead(
                member_id=member_id,
                partitions=share.in_turn(partitions),
                isolation=isolation,
                records_max=request.records_max,
                bytes_max=request.bytes_max,
                wait_ms=request.wait_ms,
                decoded=DecodedLimit(request.bytes_max) if request.is_decoded else None,
            ),
        )
        acquired = [part for part in taken if part.acquired]
        if not acquired:
            for part in taken:
                if part.error is not None:
                    raise part.error
        # To take records and return an error counts as a delivery: partitions that cannot be read would use up
        # those of the others.
        try:
            for part in acquired:
                await self._pass_gaps(share, member_id, part, self.reader(request.group))
        except ReadMemoryFull:
            share.release_member(member_id, is_delivered=False)
            raise
        return SharePolled(lock=lock, expires_in_ms=self._shares.lock_ms(request.group), records=acquired)

    def reader(self, group: str) -> DecodedReader:
        """Return a reader of records that a lock holds: it gives up before the lock ends."""
        return self._broker.decoded.reader(self.lock_ms(group) / 2000)

    async def _pass_gaps(
        self, share: LiveShareGroup, member_id: str, taken: SharedRecords, reader: DecodedReader
    ) -> None:
        """Finish offsets that no longer have a record within their batch.

        No client could name them.
        """
        if taken.fetched is None or not taken.fetched.holes_until:
            return
        missing = {offset for span in taken.acquired for offset in range(span.first, span.last + 1)}
        async for records in records_in_turns(taken.fetched, taken.acquired[0].first, reader):
            missing.difference_update(record.offset for record in records)
        known = share.partition(taken.partition.topic, taken.partition.partition)
        if missing and known is not None:
            await known.acknowledge(member_id, _acknowledgements(missing, AcknowledgeType.GAP))

    def topics_of(self, group: str, lock: str) -> set[str]:
        """Return the topics of the records that a lock holds.

        Raises ``GroupNotFound``, ``GroupOfOtherType``.
        """
        return {partition.topic for partition in _held(self._shares.existing(group), _PREFIX + lock)}

    async def settle(
        self,
        group: str,
        lock: str,
        kind: AcknowledgeType,
        records: Mapping[TopicPartition, Collection[int]] | None,
    ) -> int:
        """Acknowledge records of a lock, or with None all of them; all or none.

        Returns how many.

        Completes when that is durable.

        Raises:
            GroupNotFound, GroupOfOtherType, UnknownTopic, UnknownPartition: there are no such records.
            LockNotHeld, InvalidRecordState: the lock does not hold them; nothing changed.
            InvalidRequest: an offset was never delivered, or the request is too large.
            GroupStoreFailed: some may have changed; the lock holds the others.
        """
        check_lock(lock)
        if records is not None:
            _check_records(records)
        share, member_id = self._shares.existing(group), _PREFIX + lock
        if records is None:
            held = _held(share, member_id)
            if not held:
                raise LockNotHeld(group, lock)
            told = {
                partition: [
                    Acknowledgement(first=span.first, last=span.last, types=(kind,)) for span in ranges
                ]
                for partition, (ranges, _) in held.items()
            }
        else:
            told = {partition: _acknowledgements(offsets, kind) for partition, offsets in records.items()}
        for partition, acknowledgements in told.items():
            known = share.partition(*partition)
            if known is None:
                raise InvalidRecordState(group, acknowledgements[0].first, acknowledgements[-1].last)
            known.check(member_id, acknowledgements)
        # Nothing awaits in between, so what was checked still holds.
        futures = [
            self._shares.acknowledge(group, member_id, partition.topic, partition.partition, acknowledgements)
            for partition, acknowledgements in told.items()
        ]
        await asyncio.shield(asyncio.gather(*futures))
        return sum(batch.last - batch.first + 1 for batches in told.values() for batch in batches)

    def put_back(self, group: str, lock: str, *, is_delivered: bool) -> None:
        """Give back what a lock holds.

        With ``is_delivered`` false it counts as if it had not been taken.

        Raises ``GroupNotFound``, ``GroupOfOtherType``.
        """
        self._shares.existing(group).release_member(_PREFIX + lock, is_delivered=is_delivered)

    def lock_ms(self, group: str) -> int:
        """Return how long a lock lasts."""
        return self._shares.lock_ms(group)


def _check_records(records: Mapping[TopicPartition, Collection[int]]) -> None:
    """Raises ``InvalidRequest``."""
    count = sum(map(len, records.values()))
    if not 1 <= count <= RECORDS_MAX:
        raise InvalidRequest(
            f"a request names 1 to {RECORDS_MAX} records, not {count}; without records it means all"
        )
    for partition, offsets in records.items():
        if partition.partition < 0 or min(offsets) < 0:
            raise InvalidRequest(f"{partition} is named with offset {min(offsets)}; both are 0 or more")


def _held(share: LiveShareGroup, member_id: str) -> dict[TopicPartition, tuple[list[AcquiredRange], int]]:
    """Return what a member holds by partition, and when its first lock ends, in ms."""
    held: dict[TopicPartition, tuple[list[AcquiredRange], int]] = {}
    for partition, known in share.partitions.items():
        ranges, left_ms = known.held_by(member_id)
        if ranges:
            held[TopicPartition(share.topic_of(partition.topic_id), partition.partition)] = ranges, left_ms
    return held


def _acknowledgements(offsets: Iterable[int], kind: AcknowledgeType) -> list[Acknowledgement]:
    """Return one acknowledgement per run of neighbouring offsets."""
    runs: list[list[int]] = []
    for offset in sorted(set(offsets)):
        if runs and runs[-1][1] + 1 == offset:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return [Acknowledgement(first=first, last=last, types=(kind,)) for first, last in runs]
