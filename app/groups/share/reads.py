"""Records for a member of a share group: read, then locked, with a wait for the first (KIP-932).

Batches are passed on as the log has them, and only their headers are looked at. What a member gets are
the batches from the first to the last that has a record which it acquired; the ranges of offsets that
it acquired say which records are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import BatchHeader

from ...broker.broker import Broker
from ...broker.reading.fetch import Fetched, PartitionFetch, batches_from, end_of
from ...broker.reading.record_counts import DecodedLimit
from ...errors import CorruptLog, OffsetOutOfRange, SteleError
from ...storage.engine import OFFSET_MAX
from ...storage.topic_partition import TopicPartition
from ...work_budget import WorkBudget
from ..base.share_state import AcquiredRange, OffsetRange
from .durable_partition import DurableSharePartition
from .live_group import LiveShareGroup

# One partition is read so far at a time: a request for few records must not read all that the member could hold.
_READ_BYTES = 1024 * 1024
# More than any wait is for.
_ANY_BYTES = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRead:
    """At most ``records_max`` records are acquired.

    ``decoded`` limits them by what they unpack to, too.

    With ``is_strict`` false, up to the end of a batch more. ``is_over`` returns whether the reader has gone; nothing is
    acquired then, because each time counts as a delivery.
    """

    member_id: str
    partitions: Sequence[TopicPartition]
    isolation: IsolationLevel
    records_max: int
    bytes_max: int
    wait_ms: int
    is_strict: bool = True
    decoded: DecodedLimit | None = None
    is_over: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRecords:
    """The records that a member acquired in a partition, or ``error``.

    ``fetched`` has the batches of ``acquired``.
    """

    partition: TopicPartition
    acquired: Sequence[AcquiredRange] = ()
    fetched: Fetched | None = None
    error: SteleError | None = None


async def read_held(
    broker: Broker, partition: TopicPartition, held: Sequence[AcquiredRange], isolation: IsolationLevel
) -> list[SharedRecords]:
    """Return records that a member has acquired before. Raises ``SteleError``."""
    offset, last = held[0].first, held[-1].last
    parts: list[SharedRecords] = []
    while offset <= last:
        fetched = await read_batches(broker, partition, offset, _READ_BYTES, isolation, until_offset=last + 1)
        if fetched.error is not None:
            raise fetched.error
        if not fetched.batches:
            break
        parts.append(
            SharedRecords(
                partition=partition, acquired=[span for span in held if span.last >= offset], fetched=fetched
            )
        )
        offset = end_of(fetched, offset)
    return parts


async def read_batches(
    broker: Broker,
    partition: TopicPartition,
    offset: int,
    bytes_max: int,
    isolation: IsolationLevel,
    *,
    until_offset: int = OFFSET_MAX,
) -> Fetched:
    """Return batches from ``offset`` to ``until_offset``, without a wait.

    What went wrong is in ``error``.
    """
    (fetched,) = await broker.fetch(
        [
            PartitionFetch(
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                max_bytes=bytes_max,
                isolation=isolation,
                until_offset=until_offset,
            )
        ],
        max_bytes=bytes_max,
        min_bytes=0,
        is_scan=True,
    )
    return fetched


async def acquire_records(broker: Broker, share: LiveShareGroup, read: ShareRead) -> list[SharedRecords]:
    """Acquire records for a member, in the order of ``read.partitions``.

    Returns as soon as there is a record or an error, or empty after ``read.wait_ms``. An append ends the wait,
    and so do records that another member gave back.
    """
    watch = broker.watch()
    watch.isolation = read.isolation
    deadline_ms = broker.monotonic_ms() + max(0, read.wait_ms)
    wanted = set(read.partitions)

    def freed(partition: TopicPartition) -> None:
        if partition in wanted:
            watch.appended(partition, _ANY_BYTES)

    share.watch(freed)
    try:
        for partition in read.partitions:
            watch.add(partition)
        while True:
            watch.take()
            taken = await _acquire_once(broker, share, read)
            left_ms = deadline_ms - broker.monotonic_ms()
            if taken or left_ms <= 0 or broker.is_closing or not read.partitions or read.is_over():
                return taken
            await watch.wait(min_bytes=1, timeout_ms=left_ms)
    finally:
        share.unwatch(freed)
        watch.close()


async def _acquire_once(broker: Broker, share: LiveShareGroup, read: ShareRead) -> list[SharedRecords]:
    await broker.refresh([(partition.topic, partition.partition) for partition in read.partitions])
    taken: list[SharedRecords] = []
    left = read
    budget = WorkBudget()
    for partition in read.partitions:
        await budget.visit()
        try:
            records = await _acquire_in(broker, share, left, partition)
        except SteleError as error:
            records = SharedRecords(partition=partition, error=error)
        if records is None:
            continue
        taken.append(records)
        count = sum(acquired.last - acquired.first + 1 for acquired in records.acquired)
        size = 0 if records.fetched is None else len(records.fetched.batches)
        broker.counts.fetched_bytes += size
        left = replace(left, records_max=left.records_max - count, bytes_max=left.bytes_max - size)
        if left.records_max <= 0 or left.bytes_max <= 0:
            break
    return taken


async def _acquire_in(
    broker: Broker, share: LiveShareGroup, read: ShareRead, partition: TopicPartition
) -> SharedRecords | None:
    """Acquire records of one partition; None if there are none to acquire now."""
    topic, number = partition.topic, partition.partition
    known = share.partition(topic, number)
    if known is None:
        # The members of the group learn of it once it has a state.
        return None
    while True:
        log = broker.log_state(topic, number)
        if known.records.start_offset > log.log_end_offset:
            # The log is another one than it was, as after a restart of a topic in memory.
            await known.reset(log.log_start_offset)
        offset = known.fetch_offset(log.log_start_offset)
        end = (
            log.high_watermark
            if read.isolation is IsolationLevel.READ_UNCOMMITTED
            else log.last_stable_offset
        )
        if offset is None or offset >= end:
            return None
        fetched = await read_batches(
            broker, partition, offset, min(read.bytes_max, _READ_BYTES), read.isolation
        )
        if isinstance(fetched.error, OffsetOutOfRange):
            # The start of the log has moved.
            continue
        if fetched.error is not None:
            raise fetched.error
        headers, read_to = await _readable(fetched, offset)
        records_max = read.records_max
        # Records that are not acquired do not count.
        decoded = None if read.decoded is None else read.decoded.trial()
        if decoded is not None and any(header.record_count for header in headers):
            records_max = min(records_max, await _fitting(decoded, fetched, headers))
            if not records_max:
                return None
        share.check_served()
        if read.is_over():
            return None
        acquired = known.acquire(
            read.member_id,
            read_from=offset,
            read_to=read_to,
            batches=[
                OffsetRange(max(offset, header.base_offset), header.last_offset)
                for header in headers
                if header.record_count
            ],
            records_max=records_max,
            is_strict=read.is_strict,
        )
        if acquired:
            if read.decoded is not None and decoded is not None:
                read.decoded.settle(decoded)
            return SharedRecords(
                partition=partition, acquired=acquired, fetched=_between(fetched, headers, acquired)
            )
        if not headers or not _has_moved(known, offset):
            return None


async def _readable(fetched: Fetched, offset: int) -> tuple[list[BatchHeader], int]:
    """Return the batches before the first corrupt one, and the offset after them.

    Raises ``CorruptLog`` if the first batch is corrupt.
    """
    headers: list[BatchHeader] = []
    turn = WorkBudget()
    try:
        for header in batches_from(fetched, offset):
            headers.append(header)
            await turn.visit()
    except CorruptLog:
        if not headers:
            raise
        return headers, headers[-1].next_offset
    return headers, end_of(fetched, offset)


async def _fitting(decoded: DecodedLimit, fetched: Fetched, headers: Sequence[BatchHeader]) -> int:
    """Return how many offsets of the batches fit, those of holes included."""
    count = 0
    for header in headers:
        fits, offsets = await decoded.fitting(fetched, header), header.last_offset_delta + 1
        if fits < header.record_count:
            return count + max(min(fits, 1), offsets * fits // header.record_count)
        count += offsets
    return count


def _has_moved(known: DurableSharePartition, offset: int) -> bool:
    """Return whether another offset is next: what was read had no records."""
    return known.fetch_offset(0) not in (None, offset)


def _between(fetched: Fetched, headers: Sequence[BatchHeader], acquired: Sequence[AcquiredRange]) -> Fetched:
    """Return the batches from the first to the last acquired record; not copied if these are all."""
    first, last = acquired[0].first, acquired[-1].last
    wanted = [header for header in headers if header.last_offset >= first and header.base_offset <= last]
    begin, end = wanted[0].position, wanted[-1].position + wanted[-1].size
    if begin == 0 and end == len(fetched.batches):
        return fetched
    return replace(fetched, batches=bytes(memoryview(fetched.batches)[begin:end]))
