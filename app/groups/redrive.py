"""Redrives records that a share group has given up, from dead letters into their topics (KIP-1191).

The group itself remembers which of its letters are done, as it does for all records that it shares: it has
states in its dead-letter topic, and takes the letters under a lock. So a letter is redriven by one client
only, the letters left are the lag of the group in that topic, and a crash in between repeats a record at
worst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import Row, build_rows

from ..broker.broker import Broker
from ..broker.entity_configs import DEAD_LETTER_TOPIC
from ..broker.producing.produce import Acks
from ..broker.reading.decoded_bytes import DecodedReader
from ..broker.reading.fetch import record_at, records_in_turns
from ..errors import CorruptLog, InvalidRequest, RequestError, SteleError
from ..storage.topic_partition import TopicPartition
from .base.share_state import AcknowledgeType
from .share.dead_letters import Origin, origin_of, own_headers
from .share.reads import SharedRecords, read_batches
from .share_queue import SharePoll, ShareQueue

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


class _Rows:
    """Records to append, by partition in the order of their letters.

    None stands for a record that is still to be read, which is done when the room for the letters has been given back.
    """

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, list[tuple[Origin, Row | None]]] = {}
        self._bytes = 0
        self._is_known = True

    @property
    def is_full(self) -> bool:
        return self._is_known and self._bytes >= _BYTES

    def add(self, origin: Origin, row: Row | None) -> None:
        self._rows.setdefault(origin.partition, []).append((origin, row))
        if row is None:
            self._is_known = False
            return
        _, key, value, headers = row
        self._bytes += (
            len(key or b"") + len(value or b"") + sum(len(content or b"") for _, content in headers)
        )

    def take(self) -> dict[TopicPartition, list[tuple[Origin, Row | None]]]:
        rows, self._rows = self._rows, {}
        self._bytes, self._is_known = 0, True
        return rows


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
            except BaseException as error:
                self._give_back(group, polled.lock, is_delivered=isinstance(error, CorruptLog))
                raise
        done.is_more = True
        return done

    def _give_back(self, group: str, lock: str, *, is_delivered: bool) -> None:
        """Release what the lock still holds: others need not wait for its end.

        A letter that cannot be read is given up after some attempts. No other error takes letters from those
        who may redrive them later.
        """
        with suppress(SteleError):
            self._queue.put_back(group, lock, is_delivered=is_delivered)

    async def _redrive(
        self,
        group: str,
        lock: str,
        part: SharedRecords,
        done: Redriven,
        check_topic: Callable[[str], None],
    ) -> None:
        """Redrive the letters of one read: append all of their records, then finish all letters at once."""
        assert part.fetched is not None
        wanted = {offset for acquired in part.acquired for offset in range(acquired.first, acquired.last + 1)}
        rows = _Rows()
        reader = self._broker.decoded.reader()
        async with aclosing(records_in_turns(part.fetched, part.acquired[0].first, reader)) as slices:
            async for letters in slices:
                for letter in letters:
                    origin = origin_of(letter.headers) if letter.offset in wanted else None
                    if origin is None or origin.group != group:
                        continue
                    check_topic(origin.partition.topic)
                    if letter.key is None and letter.value is None:
                        # A letter without a copy, or about a record without key and value.
                        rows.add(origin, None)
                        continue
                    now_ms = self._broker.now_ms()
                    rows.add(origin, (now_ms, letter.key, letter.value, own_headers(letter.headers)))
                if rows.is_full:
                    await self._append_all(rows, done, reader)
        await self._append_all(rows, done, reader)
        await self._queue.settle(group, lock, AcknowledgeType.ACCEPT, {part.partition: wanted})

    async def _append_all(self, rows: _Rows, done: Redriven, reader: DecodedReader) -> None:
        for partition, entries in rows.take().items():
            of_partition: list[Row] = []
            for origin, known in entries:
                row = await self._row(origin, reader) if known is None else known
                if row is None:
                    done.lost += 1
                else:
                    of_partition.append(row)
            appended = await self._append(partition, of_partition)
            done.redriven += appended
            done.lost += len(of_partition) - appended

    async def _row(self, origin: Origin, reader: DecodedReader) -> Row | None:
        """Return the record that a letter is about; None if it is lost."""
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
        opened = await record_at(fetched, origin.offset, reader)
        if opened is None:
            return None
        await opened.close()
        record = opened.record
        return self._broker.now_ms(), record.key, record.value, list(record.headers)

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
