"""Brings records back that a share group has given up.

From their dead letters into their topics (KIP-1191).

The group itself remembers which of its letters are done, as it does for all records that it shares: it has
states in its dead-letter topic, and takes the letters under a lock. So a letter is redriven by one client
only, the letters left are the lag of the group in that topic, and a crash in between repeats a record at
worst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import RecordView, Row, build_rows

from ..broker.broker import Broker
from ..broker.entity_configs import DEAD_LETTER_TOPIC
from ..broker.fetch import records_in_turns
from ..broker.produce import Acks
from ..errors import InvalidRequest, RequestError, SteleError
from ..storage.topic_partition import TopicPartition
from .dead_letters import Origin, origin_of, own_headers
from .share_queue import SharePoll, ShareQueue
from .share_reads import SharedRecords, read_batches
from .share_state import AcknowledgeType

_AT_ONCE = 500
_BYTES = 1024 * 1024
# A read returns one batch at least.
_ONE_BATCH = 1
_TIMEOUT_MS = 30_000


@dataclass(slots=True, kw_only=True)
class Redriven:
    """Count of redriven letters, of impossible ones, and whether more may follow.

    A letter cannot be redriven if its topic refuses the record, or if the letter has no copy of the record and
    the log has lost it. Letters of other groups in the same topic count as neither.
    """

    redriven: int = 0
    lost: int = 0
    is_more: bool = False


class DeadLetterRedrive:
    """Redrives the dead letters of share groups."""

    def __init__(self, *, broker: Broker, queue: ShareQueue) -> None:
        self._broker = broker
        self._queue = queue

    def topic_of(self, group: str) -> str:
        """Return the dead-letter topic of a group. Raises ``InvalidRequest``: it has none."""
        name = self._broker.configs.groups.text(group, DEAD_LETTER_TOPIC)
        if not name:
            raise InvalidRequest(f"group {group[:200]!r} has no dead-letter topic; set {DEAD_LETTER_TOPIC}")
        return name

    async def redrive(self, group: str, *, records_max: int, check_topic: Callable[[str], None]) -> Redriven:
        """Append the records of at most ``records_max`` letters where they came from.

        ``check_topic`` raises ``AuthorizationError`` if the client may not write to a topic.

        Raises:
            InvalidRequest: the group has no dead-letter topic.
            GroupOfOtherType, UnknownTopic: see there.
            AuthorizationError, StorageError, RequestTimedOut: the letters that are left can be redriven later.
        """
        done = Redriven()
        topic = self.topic_of(group)
        while (left := records_max - done.redriven - done.lost) > 0:
            polled = await self._queue.poll(
                SharePoll(
                    group=group,
                    topics=frozenset({topic}),
                    records_max=min(left, _AT_ONCE),
                    bytes_max=_BYTES,
                    wait_ms=0,
                    reset="earliest",
                )
            )
            if not polled.records:
                return done
            try:
                for part in polled.records:
                    await self._redrive(group, polled.lock, part, done, check_topic)
            except BaseException:
                await self._give_back(group, polled.lock)
                raise
        done.is_more = True
        return done

    async def _give_back(self, group: str, lock: str) -> None:
        """Release what the lock still holds: others need not wait for its end."""
        try:
            await self._queue.settle(group, lock, AcknowledgeType.RELEASE, None)
        except SteleError:
            # Nothing is held any more, or it is free when the lock ends.
            return

    async def _redrive(
        self,
        group: str,
        lock: str,
        part: SharedRecords,
        done: Redriven,
        check_topic: Callable[[str], None],
    ) -> None:
        """Redrive the letters of one read.

        Append all of their records, then finish all letters at once.
        """
        assert part.fetched is not None
        wanted = {offset for one in part.acquired for offset in range(one.first, one.last + 1)}
        rows: dict[TopicPartition, list[Row]] = {}
        async for letters in records_in_turns(part.fetched, part.acquired[0].first):
            for letter in letters:
                origin = origin_of(letter.headers) if letter.offset in wanted else None
                if origin is None or origin.group != group:
                    continue
                check_topic(origin.partition.topic)
                row = await self._row(letter, origin)
                if row is None:
                    done.lost += 1
                else:
                    rows.setdefault(origin.partition, []).append(row)
        for partition, of_partition in rows.items():
            appended = await self._append(partition, of_partition)
            done.redriven += appended
            done.lost += len(of_partition) - appended
        await self._queue.settle(group, lock, AcknowledgeType.ACCEPT, {part.partition: wanted})

    async def _row(self, letter: RecordView, origin: Origin) -> Row | None:
        """Return the record of a letter; None if it is lost."""
        now_ms = self._broker.now_ms()
        if letter.key is not None or letter.value is not None:
            return now_ms, letter.key, letter.value, own_headers(letter.headers)
        # A letter without a copy, or about a record without key and value.
        fetched = await read_batches(
            self._broker,
            origin.partition,
            origin.offset,
            _ONE_BATCH,
            IsolationLevel.READ_UNCOMMITTED,
            until_offset=origin.offset + 1,
        )
        if fetched.error is not None:
            if isinstance(fetched.error, RequestError):
                return None
            raise fetched.error
        async for records in records_in_turns(fetched, origin.offset):
            first = records[0]
            return (
                (now_ms, first.key, first.value, list(first.headers))
                if first.offset == origin.offset
                else None
            )
        return None

    async def _append(self, partition: TopicPartition, rows: Sequence[Row]) -> int:
        """Append records where they came from, and return how many were not refused."""
        broker = self._broker
        batch = build_rows(rows)
        try:
            if broker.must_wait_for_room(partition.topic, batch):
                await broker.produce_room()
            produce = broker.produce(partition.topic, partition.partition, batch, acks=Acks.ALL)
            await produce.wait(_TIMEOUT_MS)
        except RequestError:
            if len(rows) == 1:
                return 0
            # Too large together, or one of them is refused.
            middle = len(rows) // 2
            return await self._append(partition, rows[:middle]) + await self._append(partition, rows[middle:])
        return len(rows)
