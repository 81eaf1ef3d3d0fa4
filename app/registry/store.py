"""The topic ``_schemas`` as the store: read to its end into a state, and appended to if it still ends there.

Any client that may write to the topic may do so beside us, and other brokers of a cluster do: an append takes place only
at the offset up to which the state was folded, so it is always about what the topic says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import aclosing, contextmanager

from stele.wire.record_batch import RecordView, build_rows

from ..broker.broker import Broker
from ..broker.producing.produce import Acks
from ..broker.reading.fetch import PartitionFetch, end_of, read_bound, records_in_turns
from ..broker.topics import SCHEMAS, Topic
from ..errors import (
    BatchTooLarge,
    BrokerClosing,
    OffsetOutOfRange,
    RequestTimedOut,
    SteleError,
    TopicExists,
    UnexpectedEnd,
)
from ..work_budget import pause
from .errors import SchemaTooLarge, StoreFailed, StoreTimedOut
from .state import State
from .topic_format import CANONICAL, Record, Unreadable, read_key, read_value

logger = logging.getLogger(__name__)

TOPIC = SCHEMAS
_PARTITION = (TOPIC, 0)
_CLEANUP_POLICY = "compact"

_READ_BYTES = 1024 * 1024
# A record takes some 50 µs to fold.
_RECORDS_PER_TURN = 16
# JSON of more bytes is parsed in a thread.
_THREAD_BYTES = 32 * 1024
_TIMEOUT_MS = 30_000
# Appended at once: less than any topic allows, unless a single record is larger. Only nulls can be so many.
_BATCH_BYTES = 256 * 1024
# How long one wait for records is that others have appended, and that readers do not see yet.
_WAIT_MS = 1000


class SchemasTopic:
    """The topic of one broker's registry, and the state that it adds up to."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.state = State()
        # What ``state`` is the state of: the topic, and the history of its log.
        self._source: object = None
        self._folding = asyncio.Lock()
        self._ignored = 0

    async def refresh(self) -> State:
        """Return the state with everything that any broker has answered before the call.

        Raises ``StoreFailed``, ``BrokerClosing``.
        """
        broker = self._broker
        with _store_errors():
            await broker.find_topics((TOPIC,))
            topic = broker.topic_by_name(TOPIC)
            if topic is None:
                self._begin(None)
                return self.state
            _check(topic)
            await broker.refresh([_PARTITION])
            if self._is_behind(topic):
                async with self._folding:
                    await self._fold(topic)
        return self.state

    def _is_behind(self, topic: Topic) -> bool:
        end = self._broker.log_state(*_PARTITION).last_stable_offset
        return self._source != self._source_of(topic) or self.state.position != end

    def _source_of(self, topic: Topic) -> object:
        return topic.topic_id, self._broker.oldest_leader_epoch(*_PARTITION)

    def _begin(self, source: object, position: int = 0) -> None:
        """Forget the state, unless it is of this source and before this position."""
        if source != self._source or self.state.position > position:
            self.state = State()
            self._ignored = 0
        self._source = source

    async def _fold(self, topic: Topic) -> None:
        end = self._broker.log_state(*_PARTITION).last_stable_offset
        # A shorter log is another one, as after a restart of a topic in memory.
        self._begin(self._source_of(topic), end)
        while self.state.position < end:
            await self._fold_part()

    async def _fold_part(self) -> None:
        state = self.state
        (fetched,) = await self._broker.fetch(
            [PartitionFetch(topic=TOPIC, partition=0, offset=state.position, max_bytes=_READ_BYTES)],
            max_bytes=_READ_BYTES,
            min_bytes=0,
            is_scan=True,
        )
        if isinstance(fetched.error, OffsetOutOfRange):
            # The records before the start of the log were deleted, and what they said with them.
            self.state = State()
            self.state.position = fetched.error.log_start_offset
            return
        if fetched.error is not None:
            raise fetched.error
        reader = self._broker.decoded.reader()
        async with aclosing(records_in_turns(fetched, state.position, reader)) as slices:
            async for records in slices:
                for index, record in enumerate(records):
                    await self._apply(state, record)
                    state.position = record.offset + 1
                    if index % _RECORDS_PER_TURN == 0:
                        await pause()
        following = end_of(fetched, state.position)
        # Nothing is left but a hole of compaction, if there are no batches.
        state.position = following if fetched.batches else read_bound(fetched)

    async def _apply(self, state: State, record: RecordView) -> None:
        raw_key, data = record.key or b"", record.value
        is_canonical = CANONICAL in record.headers
        try:
            key = read_key(raw_key)
            if data is not None and len(data) > _THREAD_BYTES:
                value = await asyncio.to_thread(read_value, key, data, is_canonical=is_canonical)
            else:
                value = read_value(key, data, is_canonical=is_canonical)
            state.apply(key, value, raw_key=raw_key, timestamp_ms=record.timestamp, offset=record.offset)
        except Unreadable as error:
            if not self._ignored:
                logger.warning(
                    "topic %s has a record that the registry ignores, at offset %d: %s",
                    TOPIC,
                    record.offset,
                    error,
                )
            self._ignored += 1

    async def append(self, records: Sequence[Record]) -> bool:
        """Append records if the topic ends where the state does, and wait until they are synced.

        Return False if it does not: refresh and decide again. Call it in the turn of the decision.

        Raises:
            StoreFailed, SchemaTooLarge, BrokerClosing: nothing was appended, or of many nulls the first ones.
            StoreTimedOut: something may have been.
        """
        broker, position = self._broker, self.state.position
        with _store_errors():
            if broker.topic_by_name(TOPIC) is None:
                await self._create()
                return False
            for part in _parts(records):
                now_ms = broker.now_ms()
                batch = build_rows(
                    [
                        (now_ms, record.key, record.value, [CANONICAL] if record.is_canonical else [])
                        for record in part
                    ]
                )
                if broker.must_wait_for_room(TOPIC, batch):
                    await broker.produce_room()
                try:
                    pending = broker.produce(*_PARTITION, batch, acks=Acks.ALL, expected_end=position)
                    produced = await pending.wait(_TIMEOUT_MS)
                except UnexpectedEnd:
                    await broker.wait_for_append({_PARTITION: position}, _WAIT_MS)
                    return False
                position = produced.last_offset + 1
        return True

    async def _create(self) -> None:
        try:
            await self._broker.create_topic(TOPIC, partitions=1, configs={"cleanup.policy": _CLEANUP_POLICY})
        except TopicExists:
            # Another broker was first.
            await self._broker.find_topics((TOPIC,))


def _check(topic: Topic) -> None:
    """Refuse a topic in which schemas would be lost, as if a client that produced to it has created it."""
    if topic.partitions != 1:
        raise StoreFailed(
            f"topic '{TOPIC}' has {topic.partitions} partitions, and the order of its records is needed: "
            "delete it, so that the registry creates it"
        )
    if topic.config.cleanup_policy != _CLEANUP_POLICY:
        raise StoreFailed(
            f"topic '{TOPIC}' has cleanup.policy={topic.config.cleanup_policy}, which deletes schemas: "
            f"set it to {_CLEANUP_POLICY}"
        )


@contextmanager
def _store_errors() -> Generator[None]:
    try:
        yield
    except BrokerClosing:
        raise
    except RequestTimedOut as error:
        raise StoreTimedOut(error) from error
    except BatchTooLarge as error:
        raise SchemaTooLarge(error.size, error.limit) from error
    except SteleError as error:
        raise StoreFailed(error) from error


def _parts(records: Sequence[Record]) -> Iterator[list[Record]]:
    part: list[Record] = []
    size = 0
    for record in records:
        size += len(record.key) + len(record.value or b"")
        if part and size > _BATCH_BYTES:
            yield part
            part, size = [], len(record.key) + len(record.value or b"")
        part.append(record)
    yield part
