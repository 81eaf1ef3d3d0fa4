"""Read many partitions without a session, most of which have nothing new (``idle_answers``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Self, cast

from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel
from stele.wire.kafka.fetch import (
    FETCH_API,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from stele.wire.schema import EncodedRows, PartlyEncoded, writer

from ....broker.broker import Broker
from ....broker.reading.fetch import Fetched
from ....errors import SteleError
from ....security.acl import READ_TOPIC
from ....storage.topic_partition import TopicPartition
from ....work_budget import PARTITIONS_PER_TURN, SMALL_VISIT, Steps, WorkBudget, pause, visited
from ..context import Context
from ..sessions.fetch_sessions import FINAL_EPOCH, NO_SESSION_ID, FetchedPartition
from ..sessions.idle_answers import IdleAnswers
from .looks import Answer, Look, look_at, may_read, partition_data, refused
from .old_clients import FIRST_WITH_BATCHES
from .read_replicas import rack_to_read_from
from .reading import WholeReading
from .requests import FIRST_WITH_TOPIC_IDS, isolation_of
from .requests import PARTITIONS_MAX as QUICK_MAX

_MISSING = b""
# Fewer are looked at as quickly one by one, and all are looked up without a pause.
PARTITIONS_MIN, PARTITIONS_MAX = QUICK_MAX + 1, 10_000


def idle_reading(context: Context, request: FetchRequest) -> IdleReading | None:
    """Return what reads a request of many partitions without a session; None for others.

    With shared storage other brokers append and elect leaders, so answers are not kept there.
    """
    answers = context.idle_answers
    if (
        request.session_epoch != FINAL_EPOCH
        or request.session_id != NO_SESSION_ID
        or answers is None
        or answers.is_in_use
        or context.version < FIRST_WITH_BATCHES
        or context.broker.cluster.is_shared
    ):
        return None
    count = 0
    for topic in request.topics:
        if not isinstance(topic.partitions, EncodedRows):
            return None
        count += len(topic.partitions)
    if not PARTITIONS_MIN <= count <= PARTITIONS_MAX or request.forgotten_topics_data:
        return None
    return IdleReading(context, request, answers)


@dataclass(slots=True)
class _Block:
    """Partitions of one topic that stand together in a request, and the answers for them.

    ``topic`` is its name when the request began, empty if nothing had its id. An answer is a message if it is not kept;
    these have the numbers ``messages``.
    """

    topic: str
    topic_id: bytes
    partitions: EncodedRows[FetchPartition]
    answers: list[bytes | PartitionData] = field(default_factory=list[bytes | PartitionData])
    messages: list[int] = field(default_factory=list[int])

    @property
    def key(self) -> str | bytes:
        return self.topic or self.topic_id

    def partition(self, number: int, *, is_by_id: bool) -> FetchedPartition:
        asked = self.partitions[number]
        return FetchedPartition(
            topic=self.topic,
            topic_id=self.topic_id,
            index=asked.partition,
            offset=asked.fetch_offset,
            max_bytes=max(0, asked.partition_max_bytes),
            leader_epoch=asked.current_leader_epoch,
            is_by_id=is_by_id,
        )


class IdleReading:
    """Reads the partitions whose answers are not kept, and keeps those of idle ones.

    It goes on as a ``WholeReading`` where that does not suffice: if a partition is named twice or refused, if there is no
    room for the answers, and to wait for more while there are records already.
    """

    __slots__ = (
        "_blocks",
        "_context",
        "_is_by_id",
        "_is_first",
        "_isolation",
        "_kept",
        "_named",
        "_read",
        "_request",
        "_unkept",
        "_whole",
    )

    def __init__(self, context: Context, request: FetchRequest, answers: IdleAnswers) -> None:
        self._context = context
        self._request = request
        self._kept = answers
        self._isolation = isolation_of(request)
        self._is_by_id = context.version >= FIRST_WITH_TOPIC_IDS
        self._is_first = True
        self._whole: WholeReading | None = None
        self._blocks = [self._block(topic) for topic in request.topics if topic.partitions]
        # The entries that name partitions of a topic.
        self._named: dict[str | bytes, set[bytes]] = {}
        self._read: dict[FetchedPartition, tuple[_Block, int]] = {}
        # How many of the partitions that were read have no kept answer.
        self._unkept = 0

    def _block(self, topic: FetchTopic) -> _Block:
        name = topic.topic
        if self._is_by_id:
            known = self._context.broker.topic_by_id(topic.topic_id)
            name = "" if known is None else known.name
        return _Block(name, topic.topic_id, cast("EncodedRows[FetchPartition]", topic.partitions))

    def __enter__(self) -> Self:
        self._kept.is_in_use = True
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.is_in_use = False

    # ── looks ──

    async def look(self) -> Look:
        if self._whole is not None:
            return await self._whole.look()
        self._kept.begin(self._context.version, self._isolation)
        self._kept.forget_changed()
        self._read.clear()
        is_first, self._is_first = self._is_first, False
        if is_first and self._has_repeated_entry():
            return await self._look_at_all()
        if not await self._look_up(checks=is_first) or not self._kept.has_room(len(self._read)):
            return await self._look_at_all(checks=is_first)
        if not is_first:
            return self._unchecked(self._read)
        if not self._read:
            return Look()
        look = await look_at(
            self._context,
            list(self._read),
            self._isolation,
            missing=None,
            rack=rack_to_read_from(self._context, self._request.rack_id),
        )
        return await self._look_at_all() if look.refused else look

    def _has_repeated_entry(self) -> bool:
        named, count = self._named, 0
        for block in self._blocks:
            named.setdefault(block.key, set()).update(block.partitions.rows)
            count += len(block.partitions)
        return count != sum(map(len, named.values()))

    async def _look_up(self, *, checks: bool) -> bool:
        """Look up the answers, and note the partitions without one in ``_read``; False if one is named twice."""
        access = self._context.access
        seen: set[tuple[str | bytes, int]] = set()
        budget = WorkBudget()
        for block in self._blocks:
            kept = self._kept.of(block.topic)
            rows = block.partitions.rows
            block.answers = list(map(kept.by_entry.get, rows, repeat(_MISSING)))
            block.messages.clear()
            if checks and access is not None and block.topic and not may_read(access, block.topic):
                block.answers = [_MISSING] * len(rows)
            if _MISSING not in block.answers:
                continue
            named = self._named[block.key]
            for number, answer in enumerate(block.answers):
                if not answer:
                    partition = block.partition(number, is_by_id=self._is_by_id)
                    key = block.key, partition.index
                    if key in seen or kept.entries.get(partition.index) in named:
                        return False
                    seen.add(key)
                    self._read[partition] = block, number
                    await budget.visit()
        return True

    def _unchecked(self, partitions: Iterable[FetchedPartition]) -> Look:
        """Return the look after a wait: what has happened meanwhile is told by the read."""
        look = Look(is_stale=True)
        for partition in partitions:
            look.want(partition, self._isolation)
        return look

    async def _look_at_all(self, *, checks: bool = True) -> Look:
        """Go on without answers that are kept."""
        partitions: dict[tuple[str | bytes, int], FetchedPartition] = {}
        budget = WorkBudget()
        for block in self._blocks:
            async for number in visited(range(len(block.partitions)), SMALL_VISIT, budget):
                # Of one that is named twice the last counts, as in ``requested``.
                partition = block.partition(number, is_by_id=self._is_by_id)
                partitions[block.key, partition.index] = partition
        look = None if checks else self._unchecked(partitions.values())
        self._whole = WholeReading(self._context, self._request, list(partitions.values()), look=look)
        return await self._whole.look()

    # ── reads ──

    async def note(self, look: Look, reads: Sequence[Fetched]) -> None:
        if self._whole is not None:
            return
        self._unkept = 0
        is_committed = self._isolation is IsolationLevel.READ_COMMITTED
        for number, (partition, read) in enumerate(zip(look.readable, reads, strict=True), 1):
            if number % PARTITIONS_PER_TURN == 0:
                await pause()
                look.is_current = False
            end = read.last_stable_offset if is_committed else read.high_watermark
            if (
                read.batches
                or read.error is not None
                or partition.offset != end
                or not self._kept.has_room()
                or not (look.is_current or _is_unchanged(self._context.broker, read))
            ):
                self._unkept += 1
                continue
            block, place = self._read[partition]
            answer = self._encoded(partition_data(read))
            block.answers[place] = answer
            self._kept.keep(TopicPartition(read.topic, read.partition), block.partitions.rows[place], answer)

    def _encoded(self, data: PartitionData) -> bytes:
        out, version = bytearray(), self._context.version
        writer(PartitionData, version, FETCH_API.is_flexible(version))(data, out)
        return bytes(out)

    def is_over(self, look: Look) -> bool:
        if self._whole is not None:
            return self._whole.is_over(look)
        # Nothing ends the wait of a connection that is closed.
        return self._kept.is_closed

    async def wait(self, look: Look, reads: Sequence[Fetched], *, min_bytes: int, timeout_ms: int) -> None:
        if self._whole is not None:
            await self._whole.wait(look, reads, min_bytes=min_bytes, timeout_ms=timeout_ms)
        elif self._unkept:
            await self._look_at_all(checks=False)
        else:
            await self._kept.watch.wait(min_bytes=min_bytes, timeout_ms=timeout_ms)

    # ── the response ──

    def responses(self, look: Look, answers: Sequence[Answer]) -> Steps[list[FetchableTopicResponse]]:
        if self._whole is not None:
            return (yield from self._whole.responses(look, answers))
        for answer in answers:
            block, number = self._read[answer.partition]
            if not block.answers[number] or answer.data.error_code:
                block.answers[number] = answer.data
                block.messages.append(number)
        access = self._context.access if look.is_stale else None
        responses: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        parts: list[bytes | PartitionData] = []
        count = 0
        for block in self._blocks:
            if block.key != last:
                # Blocks of one topic that stand side by side are one in the response.
                last, parts, count = block.key, [], 0
                responses.append(
                    FetchableTopicResponse(topic=block.topic, topic_id=block.topic_id, partitions=())
                )
            count += len(block.answers)
            if access is not None and block.topic and not access.sees(READ_TOPIC, block.topic):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                parts += [refused(asked.partition, code) for asked in block.partitions]
            else:
                parts += _runs(block)
            responses[-1].partitions = cast("list[PartitionData]", PartlyEncoded(count, parts))
        return responses


def _runs(block: _Block) -> list[bytes | PartitionData]:
    """Return the answers, those that are kept joined."""
    runs: list[bytes | PartitionData] = []
    begin = 0
    for number in block.messages:
        runs += (b"".join(cast("list[bytes]", block.answers[begin:number])), block.answers[number])
        begin = number + 1
    runs.append(b"".join(cast("list[bytes]", block.answers[begin:])))
    return runs


def _is_unchanged(broker: Broker, read: Fetched) -> bool:
    """Return whether the log is as it was when it was read."""
    try:
        state = broker.log_state(read.topic, read.partition)
    except SteleError:
        return False
    return (state.high_watermark, state.last_stable_offset, state.log_start_offset) == (
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
    )
