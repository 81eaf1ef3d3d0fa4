"""Writes dead letters about the records that a share group has given up (KIP-1191).

A letter goes to the partition of the dead-letter topic with the number of the record's partition, modulo
their count. What prevents letters for good, such as a topic that does not allow them, is logged and counted,
and the records are archived without letters: a wrong configuration must not stop the group.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence

from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import RecordView, Row, build_rows

from ...broker.broker import Broker
from ...broker.entity_configs import COPY_TO_DEAD_LETTERS, DEAD_LETTER_TOPIC
from ...broker.producing.produce import Acks
from ...broker.reading.fetch import end_of, records_in_turns
from ...broker.topics import Topic
from ...errors import (
    BatchTooLarge,
    BrokenContract,
    CorruptLog,
    OffsetOutOfRange,
    RequestError,
    SteleError,
    TopicError,
    TopicExists,
    UnknownTopic,
)
from ...storage.topic_partition import TopicPartition
from ..base.share_state import StoredRange
from .dead_letters import Origin, letter_headers, own_headers, reason
from .reads import read_batches

logger = logging.getLogger(__name__)

# Read and written at a time.
_BYTES = 512 * 1024
_TIMEOUT_MS = 30_000
_ENABLE = "errors.deadletterqueue.group.enable"


class DeadLetterWriter:
    """Writes the dead letters of all share groups of ``broker``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # By group: why its records are archived without letters, to log it once.
        self._failures: dict[str, str] = {}

    async def write(self, group: str, partition: TopicPartition, records: Sequence[StoredRange]) -> None:
        """Write a letter about each of ``records``; return once they are durable, or can never be.

        Raises:
            SteleError: the storage is not available; write them again. Some may be written already.
        """
        name = self._broker.configs.groups.text(group, DEAD_LETTER_TOPIC)
        if name in ("", partition.topic):
            # The group has changed its mind.
            return
        try:
            await self._append(await self._topic(name), group, partition, records)
        except RequestError as error:
            self._give_up(group, name, sum(span.last - span.first + 1 for span in records), error)
        else:
            self._failures.pop(group, None)

    def _give_up(self, group: str, topic: str, count: int, error: SteleError) -> None:
        self._broker.counts.lost_dead_letters += count
        if self._failures.get(group) != str(error):
            self._failures[group] = str(error)
            logger.warning(
                "share group %r gives records up without dead letters in topic %r: %s", group, topic, error
            )

    async def _topic(self, name: str) -> Topic:
        """Return the dead-letter topic. Raises ``RequestError``: it cannot be one."""
        broker = self._broker
        prefix = broker.settings.dead_letter_topic_prefix
        if not name.startswith(prefix):
            # The setting has changed since the group was configured.
            raise TopicError(f"the names of dead-letter topics begin with {prefix!r}", topic=name)
        try:
            topic = broker.topic(name)
        except UnknownTopic:
            if not broker.settings.dead_letter_auto_create_topics_enable:
                raise
            try:
                topic = await broker.create_topic(name, configs={_ENABLE: "true"})
            except TopicExists:
                topic = broker.topic(name)
        if not topic.config.is_dead_letter_topic:
            raise TopicError(f"topic {name!r} takes no dead letters; set {_ENABLE}=true on it", topic=name)
        if topic.config.is_compacted:
            raise TopicError(
                f"topic {name!r} is compacted, which would drop letters; use one with cleanup.policy=delete",
                topic=name,
            )
        return topic

    async def _append(
        self, topic: Topic, group: str, partition: TopicPartition, records: Sequence[StoredRange]
    ) -> None:
        configs, now_ms = self._broker.configs.groups, self._broker.now_ms()
        is_copied = configs.is_on(group, COPY_TO_DEAD_LETTERS)
        limit = configs.number(group, "share.delivery.count.limit")
        rows: list[Row] = []
        size = 0
        for given_up in records:
            message = reason(given_up.delivery_count, limit=limit)
            async for offset, record in self._records(partition, given_up):
                headers = letter_headers(
                    Origin(partition=partition, offset=offset, group=group),
                    delivery_count=given_up.delivery_count,
                    message=message,
                )
                if not is_copied or record is None:
                    rows.append((now_ms, None, None, headers))
                else:
                    key, value = record.key, record.value
                    rows.append((now_ms, key, value, own_headers(record.headers) + headers))
                    size += len(key or b"") + len(value or b"")
                if size >= _BYTES:
                    await self._produce(topic, partition, rows)
                    rows, size = [], 0
        if rows:
            await self._produce(topic, partition, rows)

    async def _records(
        self, partition: TopicPartition, wanted: StoredRange
    ) -> AsyncGenerator[tuple[int, RecordView | None]]:
        """Yield the records of a range, with None for those that the log has lost since.

        Raises ``SteleError``: the partition cannot be read now, or does not exist.
        """
        offset = wanted.first
        while offset <= wanted.last:
            fetched = await read_batches(
                self._broker,
                partition,
                offset,
                _BYTES,
                IsolationLevel.READ_UNCOMMITTED,
                until_offset=wanted.last + 1,
            )
            if isinstance(fetched.error, OffsetOutOfRange):
                begin = min(max(fetched.error.log_start_offset, offset), wanted.last + 1)
                if begin == offset:
                    return
                for gone in range(offset, begin):
                    yield gone, None
                offset = begin
                continue
            if fetched.error is not None and not isinstance(fetched.error, CorruptLog):
                raise fetched.error
            if fetched.error is not None or not fetched.batches:
                for unreadable in range(offset, wanted.last + 1):
                    yield unreadable, None
                return
            async for records in records_in_turns(fetched, offset, self._broker.decoded.reader()):
                for record in records:
                    if record.offset > wanted.last:
                        return
                    yield record.offset, record
            offset = end_of(fetched, offset)

    async def _produce(self, topic: Topic, partition: TopicPartition, rows: Sequence[Row]) -> None:
        broker, number = self._broker, partition.partition % topic.partitions
        batch = build_rows(rows)
        if broker.must_wait_for_room(topic.name, batch):
            await broker.produce_room()
        try:
            await broker.produce(topic.name, number, batch, acks=Acks.ALL).wait(_TIMEOUT_MS)
        except (BatchTooLarge, BrokenContract):
            if len(rows) > 1:
                middle = len(rows) // 2
                await self._produce(topic, partition, rows[:middle])
                await self._produce(topic, partition, rows[middle:])
                return
            # A letter that is as large as its record allowed, or whose value is none for the topic of letters, leaves
            # the record where it is.
            timestamp_ms, key, value, headers = rows[0]
            is_bare = key is None and value is None
            if is_bare:
                raise
            own = len(own_headers(headers))
            await self._produce(topic, partition, [(timestamp_ms, None, None, headers[own:])])
            return
        broker.counts.dead_letters += len(rows)
