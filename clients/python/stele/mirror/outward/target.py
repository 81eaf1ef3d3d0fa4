"""A Kafka cluster as the target of a mirror.

With equal offsets, the position of a copy is the end of its partition. All mirrors of one name write to it as the same
producer, so the sequence numbers go up with the offsets: whatever a killed mirror, or a broken connection, still has under
way, the target appends each offset once.

With translated offsets, a copy has as many records as were copied. A topic of the target keeps the translation; what it
needs is written there before the records. Each time that a partition begins, the target is made to refuse what is still
under way; then its end says how far it is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from ...errors import SteleClientError, TopicExistsError, UnexpectedEndError
from ...operations.mirrors import Copy
from ...records import TopicPartition
from ...wire import record_batch as rb
from ...wire.error_codes import ErrorCode
from ...wire.isolation_level import IsolationLevel
from ..errors import SourceError, SourceReplied
from ..positions import NO_EPOCH, NOTHING, CopyState, Diverged, LeftOut, NotCopyable, Sample
from ..source import reads
from ..source.cluster import Source
from ..source.reads import Commit, FetchFrom, Leader, SourceConfigValue
from ..target import MIRROR, NoState, Target
from . import writes
from .batches import (
    INSTEAD,
    JOINED_BYTES_MAX,
    Outgoing,
    epoch_of,
    next_sequence,
    number_batch,
    outgoing,
    samples,
)
from .groups import JoinedGroups
from .translation import Translation
from .writes import Producer

# The target deletes what its configuration says; no log start is moved there.
_ANY_START = (1 << 63) - 1
_FETCH_BYTES = 8 << 20
_PAIRS_MAX = 5000
_NOTES_PER_BATCH = 500
# By the first, records would get the times of the copying. The others are about replicas, of which the target gives as
# many as it does by itself: with too few in sync it would take no record.
_NOT_COPIED = frozenset(
    {
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
# Of errors of a produce request: no later one can succeed.
_FINAL = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.POLICY_VIOLATION,
    }
)
_UNKNOWN_PRODUCER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
# Longer than replicas may lag.
_FORGOTTEN_S = 60.0
_FENCE_ATTEMPTS = 50
_FENCE_PAUSE_S = 0.1


@dataclass(slots=True, eq=False)
class _Lane:
    """A partition of the target that may be appended to.

    ``position`` is where the copy ends, as an offset of the source, and ``end`` the same as one of the target.
    ``sequence`` is that of the next record.
    """

    leader: Leader
    producer: Producer
    position: int
    end: int
    sequence: int
    translation: Translation | None = None
    samples: Sequence[Sample] = field(default=())


class KafkaTarget(Target):
    """Writes to a cluster, as a producer and as an administrator."""

    has_batches: bool = False
    advice: str = (
        "another producer writes to the topic there, such as a mirror of another cluster, or the topic here is another one; "
        "delete it there to copy it again"
    )

    def __init__(
        self, cluster: Source, *, mirror: str, keeps_offsets: bool, source_id: Callable[[], str] = str
    ) -> None:
        """``source_id`` returns the id of the cluster that is copied; it is known once its topics are."""
        self._cluster = cluster
        self._source_id = source_id
        self._mirror = mirror
        self._keeps_offsets = keeps_offsets
        self.isolation: IsolationLevel = (
            IsolationLevel.READ_UNCOMMITTED if keeps_offsets else IsolationLevel.READ_COMMITTED
        )
        self._lanes: dict[TopicPartition, _Lane] = {}
        # By the offset at which they begin.
        self._producers: dict[int, Producer] = {}
        # Where the target has refused the sequence number that followed, and since when.
        self._refused: dict[TopicPartition, tuple[int, float]] = {}
        self._notes = TopicPartition(f"stele-mirror-{mirror}", 0)
        # By the id of the topic, so that those of one that was deleted do not count.
        self._translations: dict[tuple[TopicPartition, bytes], Translation] = {}
        # By topic: what single batches fit into must not be too small for them together.
        self._joined_max: dict[str, int] = {}
        self._joined = JoinedGroups(cluster)
        self._beginning = asyncio.Lock()
        self._noting = asyncio.Lock()

    async def close(self) -> None:
        await self._cluster.close()

    # ── topics ──

    async def describe(self, topic: str) -> Copy | None:
        found = next(iter(await reads.topics(self._cluster, [topic])), None)
        if found is None or found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if found.error:
            raise writes.failure(f"topic {topic!r} of the target", found.error)
        configs = (await reads.topic_configs(self._cluster, [topic])).get(topic, {})
        limit = configs.get("max.message.bytes")
        self._joined_max[topic] = min(JOINED_BYTES_MAX, int((limit and limit.value) or JOINED_BYTES_MAX))
        values = {
            name: one.value
            for name, one in configs.items()
            if one.value is not None and name not in _NOT_COPIED
        }
        return Copy(
            topic_id=found.topic_id,
            partitions=len(found.partitions),
            configs={**values, MIRROR: self._mirror},
        )

    def refusal(self, configs: Mapping[str, SourceConfigValue]) -> str:
        policy = configs.get("cleanup.policy")
        if self._keeps_offsets and policy is not None and "compact" in (policy.value or ""):
            return (
                "is compacted, so its offsets have holes, which Kafka would give to other records: copy it with "
                "--offsets translate instead, or leave it out of the mirror's topics"
            )
        return ""

    async def create(self, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        of_kafka = {name: value for name, value in configs.items() if not name.startswith(MIRROR)}
        await writes.create_topic(self._cluster, topic, partitions=partitions, configs=of_kafka)

    async def alter(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, str | None] | None = None
    ) -> None:
        if partitions is not None:
            await writes.create_partitions(self._cluster, topic, partitions)
        if configs:
            await writes.alter_configs(self._cluster, topic, configs)

    # ── beginning ──

    async def states(
        self, copies: Mapping[TopicPartition, bytes]
    ) -> Mapping[TopicPartition, CopyState | NoState]:
        async with self._beginning:
            for name in copies:
                self._lanes.pop(name, None)
            leaders = await self._leaders({name.topic for name in copies})
            found: dict[TopicPartition, CopyState | NoState] = {}
            if self._keeps_offsets:
                begin = self._equal_lane
            else:
                try:
                    begin = await self._begin_translated(copies, leaders, found)
                except NotCopyable as error:
                    return dict.fromkeys(copies, error)
            for name, topic_id in copies.items():
                if name in found:
                    continue
                try:
                    self._lanes[name] = lane = await begin(name, topic_id, _led(name, leaders))
                    found[name] = CopyState(start=_ANY_START, end=lane.position, epoch=NO_EPOCH)
                except (SteleClientError, SourceReplied, Diverged, NotCopyable) as error:
                    found[name] = error
            # Where it goes on, so that it is known even once the target has deleted the last records.
            await self._note(
                {
                    name: [(lane.position, lane.end)]
                    for name in copies
                    if (lane := self._lanes.get(name)) and lane.translation and not lane.translation.is_empty
                },
                copies,
            )
        return found

    def samples(self, partition: TopicPartition) -> Sequence[Sample]:
        lane = self._lanes.get(partition)
        return lane.samples if lane else ()

    def begun(self, partition: TopicPartition, copy: CopyState, position: int) -> tuple[CopyState, int]:
        if not self._keeps_offsets:
            if lane := self._lanes.get(partition):
                lane.position = position
            # It may have copied a part of a batch, whose last records were compacted.
            return replace(copy, end=position), 0
        if position > copy.end:
            raise NotCopyable(
                f"its first record here has offset {position}, and Kafka would give it {copy.end}. {INSTEAD}"
            )
        return copy, copy.end

    async def _leaders(self, topics: Iterable[str]) -> dict[TopicPartition, Leader]:
        return {
            TopicPartition(topic.name, number): leader
            for topic in await reads.topics(self._cluster, list(topics))
            for number, leader in topic.partitions.items()
        }

    async def _offset(self, name: TopicPartition, leader: Leader, at: int) -> int:
        """Return where a partition of the target begins or ends."""
        found = (await reads.offsets(self._cluster, leader.broker, {name: leader.epoch}, at))[name]
        if found.error:
            raise writes.failure(f"offsets of {name}", found.error)
        return found.offset

    async def _bounds(self, name: TopicPartition, leader: Leader) -> tuple[int, int]:
        start = await self._offset(name, leader, reads.EARLIEST)
        return start, await self._offset(name, leader, reads.LATEST)

    async def _batches(
        self, name: TopicPartition, topic_id: bytes, leader: Leader, start: int, end: int
    ) -> AsyncIterator[tuple[rb.Buffer, rb.BatchHeader]]:
        """Yield the batches of the target between two offsets; the first one may begin before."""
        while start < end:
            begin = {name: FetchFrom(topic_id, leader.epoch, start, -1)}
            answers = await reads.fetch(
                self._cluster, leader.broker, begin, wait_ms=0, bytes_max=_FETCH_BYTES
            )
            answer = answers[name]
            if answer.error_code:
                raise writes.failure(f"records of {name}", answer.error_code)
            records = answer.records or b""
            headers = [
                one for one in rb.iter_headers(records) if start < one.next_offset and one.base_offset < end
            ]
            if not headers:
                return
            for header in headers:
                yield records, header
            start = headers[-1].next_offset

    async def _equal_lane(self, name: TopicPartition, topic_id: bytes, leader: Leader) -> _Lane:
        start, end = await self._bounds(name, leader)
        last: rb.BatchHeader | None = None
        found: list[Sample] = []
        if end > start:
            async for records, header in self._batches(name, topic_id, leader, end - 1, end):
                last = header
                found = [] if header.is_control else list(samples(records, header))
            if last is None or last.is_control:
                raise Diverged(
                    f"{name} ends in the target with the end of a transaction, or with a hole, which no copy has"
                )
        epoch = epoch_of(self._source_id())
        if last is not None and last.producer_epoch == epoch and not self._is_forgotten(name, end):
            producer, sequence = Producer(last.producer_id, epoch), next_sequence(last)
        else:
            # The same one for each mirror that begins here, so that only one of them can append.
            if end not in self._producers:
                self._producers[end] = await writes.producer(self._cluster, f"{self._notes.topic}-{end}")
            producer, sequence = Producer(self._producers[end].id, epoch), 0
        return _Lane(leader, producer, position=end, end=end, sequence=sequence, samples=found)

    def _is_forgotten(self, name: TopicPartition, end: int) -> bool:
        """Return whether the target has forgotten a producer that was quiet for long, as some do.

        For a while it may also be that not all replicas have what was under way; then the end is another one later.
        """
        refused_end, since_s = self._refused.get(name, (-1, 0.0))
        return refused_end == end and time.monotonic() - since_s > _FORGOTTEN_S

    # ── translated offsets ──

    async def _begin_translated(
        self,
        copies: Mapping[TopicPartition, bytes],
        leaders: Mapping[TopicPartition, Leader],
        found: dict[TopicPartition, CopyState | NoState],
    ) -> Callable[[TopicPartition, bytes, Leader], Awaitable[_Lane]]:
        """Make the partitions refuse what is still under way; return what begins one of them.

        Those that cannot begin are added to ``found``. Nothing is written to one that has records of others.

        Raises ``NotCopyable`` if the translation is that of another cluster.
        """
        if self._notes not in self._lanes:
            if await self.describe(self._notes.topic) is None:
                configs = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
                with suppress(TopicExistsError):
                    await self.create(self._notes.topic, partitions=1, configs=configs)
            leader = _led(self._notes, await self._leaders([self._notes.topic]))
            self._lanes[self._notes] = await self._read_notes(leader, await self._fenced([self._notes]))
        sound: list[TopicPartition] = []
        for name, topic_id in copies.items():
            try:
                leader = _led(name, leaders)
                start, end = await self._bounds(name, leader)
                is_new = self._translation(name, topic_id).is_empty
                if is_new and await self._last(name, topic_id, leader, start, end) is not None:
                    raise Diverged(
                        f"{name} has records in the target that this mirror did not write, or does not know any more"
                    )
                sound.append(name)
            except (SteleClientError, SourceReplied, Diverged) as error:
                found[name] = error
        known = {name: self._translation(name, copies[name]) for name in sound}
        cut_short = {name for name, translation in known.items() if translation.is_beginning}
        await self._note({name: () for name in sound if not known[name].is_empty}, copies)
        return partial(self._translated_lane, await self._fenced(sound), cut_short)

    async def _fenced(self, names: Sequence[TopicPartition]) -> Producer:
        """Return a producer whose earlier epochs are refused by these partitions."""
        if names:
            await writes.abort_nothing(self._cluster, self._notes.topic, await self._producer(), names)
        # It is given once the partitions have the end of the transaction.
        return await self._producer()

    async def _producer(self) -> Producer:
        for attempt in range(_FENCE_ATTEMPTS):
            try:
                return await writes.producer(self._cluster, self._notes.topic)
            except SourceReplied as error:
                if error.number != ErrorCode.CONCURRENT_TRANSACTIONS or attempt == _FENCE_ATTEMPTS - 1:
                    raise
            await asyncio.sleep(_FENCE_PAUSE_S)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _read_notes(self, leader: Leader, producer: Producer) -> _Lane:
        (found,) = await reads.topics(self._cluster, [self._notes.topic])
        start, end = await self._bounds(self._notes, leader)
        # What was under way with the translations before begins again.
        self._lanes.clear()
        self._translations.clear()
        owner: str | None = None
        async for records, header in self._batches(self._notes, found.topic_id, leader, start, end):
            if header.is_control:
                continue
            for record in rb.decode_records(records, header):
                key = json.loads(record.key or b"")
                if isinstance(key, str):
                    owner = key if owner is None else owner
                    continue
                topic, topic_id, partition = key
                translation = self._translation(TopicPartition(topic, partition), UUID(topic_id).bytes)
                pairs = json.loads(record.value or b"")
                translation.is_beginning = not pairs
                for source, target in pairs:
                    translation.note(source, target)
        lane = _Lane(leader, producer, position=end, end=end, sequence=0)
        if owner is None:
            row: rb.Row = (time.time_ns() // 1_000_000, json.dumps(self._source_id()).encode(), b"", [])
            await self._send(self._notes, lane, Outgoing(rb.build_rows([row]), 1, ()))
        elif owner != self._source_id():
            raise NotCopyable(
                f"topic {self._notes.topic!r} of the target belongs to a mirror of the same name of another cluster, {owner}: "
                "give this mirror another name, or delete that topic if the other mirror is gone"
            )
        return lane

    def _translation(self, name: TopicPartition, topic_id: bytes) -> Translation:
        return self._translations.setdefault((name, topic_id), Translation())

    async def _last(
        self, name: TopicPartition, topic_id: bytes, leader: Leader, floor: int, end: int
    ) -> tuple[rb.Buffer, rb.BatchHeader] | None:
        """Return the last batch with records between two offsets.

        After it are ends of transactions alone, one for each time that the partition began.
        """
        last: tuple[rb.Buffer, rb.BatchHeader] | None = None
        begin, back = end, 1
        while last is None and floor < begin:
            begin = max(floor, end - back)
            async for records, header in self._batches(name, topic_id, leader, begin, end):
                if not header.is_control:
                    last = records, header
            back *= 4
        return last

    async def _translated_lane(
        self,
        producer: Producer,
        cut_short: AbstractSet[TopicPartition],
        name: TopicPartition,
        topic_id: bytes,
        leader: Leader,
    ) -> _Lane:
        start, end = await self._bounds(name, leader)
        translation = self._translation(name, topic_id)
        if translation.is_empty:
            return _Lane(leader, producer, position=0, end=end, sequence=0, translation=translation)
        last = await self._last(name, topic_id, leader, start, end)
        if last is None and name in cut_short and translation.begins_after(start):
            # How many ends of transactions were deleted with the records is not known.
            raise Diverged(
                f"{name} has lost its last records in the target before the mirror noted where it ends"
            )
        after = start if last is None else last[1].next_offset
        position = translation.source_of(after)
        # Pairs that were noted for records which have not come.
        translation.cut(after)
        found: list[Sample] = []
        if last is not None:
            for sample in samples(*last):
                found.append(sample._replace(offset=translation.source_of(sample.offset)))
        return _Lane(
            leader, producer, position=position, end=end, sequence=0, translation=translation, samples=found
        )

    async def _note(
        self,
        pairs: Mapping[TopicPartition, Sequence[tuple[int, int]]],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> None:
        """Store pairs of translations, before what they are about. No pair says that a partition begins."""
        noted: list[tuple[TopicPartition, Sequence[tuple[int, int]]]] = [
            (name, some[at : at + _PAIRS_MAX])
            for name, some in pairs.items()
            for at in range(0, max(1, len(some)), _PAIRS_MAX)
        ]
        async with self._noting:
            while noted:
                lane = self._lanes.get(self._notes)
                if lane is None:
                    raise SourceError("the translation of offsets is read again")
                # Those of a beginning are many, each with one pair at most; others come one by one.
                count = 1 if len(noted[0][1]) > 1 else _NOTES_PER_BATCH
                some, noted = noted[:count], noted[count:]
                now_ms = time.time_ns() // 1_000_000
                rows: list[rb.Row] = [
                    (now_ms, _key(name, topic_ids[name]), json.dumps(of_one).encode(), [])
                    for name, of_one in some
                ]
                try:
                    await self._send(self._notes, lane, Outgoing(rb.build_rows(rows), len(rows), ()))
                except BaseException:
                    # What it has now is not known.
                    self._lanes.pop(self._notes, None)
                    raise
                for name, of_one in some:
                    translation = self._translation(name, topic_ids[name])
                    translation.is_beginning = not of_one
                    for source, target in of_one:
                        translation.note(source, target)

    # ── records ──

    async def append(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        batches: bytes | bytearray | memoryview,
        *,
        expected_end: int,
        log_start: int,
        left_out: LeftOut = NOTHING,
    ) -> CopyState:
        lane = self._lanes.get(partition)
        if lane is None or lane.position != expected_end:
            raise UnexpectedEndError(f"{partition} has begun again")
        if self._keeps_offsets:
            end = await self._offset(partition, lane.leader, reads.LATEST)
            if end != expected_end:
                raise UnexpectedEndError(f"{partition} ends at {end} in the target, not at {expected_end}")
        sent, refusal = outgoing(
            batches,
            expected_end,
            left_out,
            keeps_offsets=self._keeps_offsets,
            joined_bytes_max=self._joined_max.get(partition.topic, JOINED_BYTES_MAX),
        )
        if lane.translation is not None and (pairs := new_pairs(lane.translation, sent, lane.end)):
            await self._note({partition: pairs}, {partition: topic_id})
        try:
            for one in sent:
                await self._send(partition, lane, one)
            if refusal is not None:
                raise refusal
        except BaseException:
            self._lanes.pop(partition, None)
            raise
        *_, last = rb.iter_headers(batches)
        lane.position = last.next_offset
        return CopyState(start=_ANY_START, end=lane.position, epoch=NO_EPOCH)

    async def _send(self, name: TopicPartition, lane: _Lane, one: Outgoing) -> None:
        """Append a batch at the end of a partition, and nowhere else."""
        number_batch(one.batch, lane.producer.id, lane.producer.epoch, lane.sequence)
        done = await writes.produce(self._cluster, lane.leader.broker, name, one.batch)
        if done.error in _FINAL:
            raise NotCopyable(
                str(writes.failure(f"the target refuses a batch of {name}", done.error, done.message))
            )
        if done.error:
            is_unknown = done.error in _UNKNOWN_PRODUCER
            if is_unknown and self._refused.get(name, (-1, 0.0))[0] != lane.end:
                self._refused[name] = lane.end, time.monotonic()
            what = f"a batch of {name}"
            if done.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise writes.failure(what, done.error)
            if self._keeps_offsets and done.error == ErrorCode.INVALID_PRODUCER_EPOCH:
                what = f"a mirror of another cluster has the name {self._mirror!r}, too, and writes to {name}; {what}"
            raise SourceReplied(what, done.error, done.message)
        if done.base_offset != lane.end:
            raise Diverged(f"the target put offset {lane.end} of {name} at {done.base_offset}")
        lane.end += one.records
        lane.sequence += one.records

    # ── groups ──

    async def commit(self, group: str, offsets: Sequence[tuple[TopicPartition, Commit]]) -> None:
        translated: list[tuple[TopicPartition, Commit]] = []
        for name, one in offsets:
            lane = self._lanes.get(name)
            if lane is None:
                raise SourceError(f"{name} is beginning again")
            if lane.translation is not None:
                one = one._replace(offset=lane.translation.target_of(one.offset, lane.end))
            translated.append((name, one))
        try:
            await writes.commit(self._cluster, group, translated)
        except SourceReplied as error:
            # Other groups may have another coordinator.
            raise SteleClientError(str(error)) from error

    async def consumed(self, group: str) -> Mapping[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        try:
            committed = await self._joined.committed(group)
        except SourceError as error:
            # As in ``commit``.
            raise SteleClientError(str(error)) from error
        for name, one in committed.items():
            if (lane := self._lanes.get(name)) is None:
                continue
            translation = lane.translation
            if translation is None or not translation.is_empty:
                offsets[name] = one.offset if translation is None else translation.source_of(one.offset)
        return offsets


def _key(name: TopicPartition, topic_id: bytes) -> bytes:
    return json.dumps([name.topic, str(UUID(bytes=topic_id)), name.partition]).encode()


def _led(name: TopicPartition, leaders: Mapping[TopicPartition, Leader]) -> Leader:
    leader = leaders.get(name)
    if leader is None or leader.broker < 0:
        raise SourceReplied(f"{name} in the target", ErrorCode.LEADER_NOT_AVAILABLE)
    return leader


def new_pairs(translation: Translation, sent: Sequence[Outgoing], end: int) -> list[tuple[int, int]]:
    """Return the pairs that what is sent needs at the end of a partition."""
    pairs: list[tuple[int, int]] = []
    # What the last pair adds to an offset of the source.
    shift = None if translation.is_empty else end - translation.source_of(end)
    for one in sent:
        for run in one.runs:
            if end - run.start != shift:
                pairs.append((run.start, end))
                shift = end - run.start
            end += run.records
    return pairs
