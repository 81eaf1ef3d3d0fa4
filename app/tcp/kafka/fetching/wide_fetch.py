"""The fast path of a Fetch of many partitions, most of them idle (ADR-0061).

It has no session. The answers of idle partitions are kept (``idle_answers``), so they cost a request a look-up each.
The others are read as by the generic path (``handlers.fetch``), whose bytes the response has. Whatever is anything else
is left to it: reads that must wait for a disk or contain aborted transactions, and every error.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat

from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel
from stele.wire.schema import writer
from stele.wire.schema.varints import varint

from ....broker.broker import Broker
from ....broker.reading.fetch import Fetched, PartitionFetch
from ....security.acl import READ_TOPIC
from ....security.authorizer import Access
from ....work_budget import PARTITIONS_PER_TURN, pause
from ..direct_charge import DirectCharge
from ..handlers.fetch_requests import FIRST_WITH_LOG_START, FIRST_WITH_SESSIONS
from ..handlers.leader_epoch import check_leader_epoch
from ..headers import SIZE, response_head
from ..idle_answers import IdleAnswers
from ..schemas.fetch import FETCH_API, PartitionData
from ..sessions.fetch_sessions import FetchedPartition
from .wide_requests import ENTRIES, Block, WideRequest

# Records of a partition are copied into what is sent with those of others up to this size.
_COPIED_BYTES_MAX = 2048
_THROTTLE = struct.Struct(">i")
# No error, no session.
_NO_SESSION_BYTES = b"\0" * 6
_MISSING = b""
# What is before the records, the records, and what follows them.
Parts = tuple[bytes, bytes | bytearray, bytes]


class AnswerFormat:
    """How the answer for a partition looks.

    That depends on the version of Fetch and on the isolation level.
    """

    def __init__(self, version: int, isolation: IsolationLevel) -> None:
        self._is_flexible = FETCH_API.is_flexible(version)
        self._has_log_start = version >= FIRST_WITH_LOG_START
        self._head = struct.Struct(">ihqqq" if self._has_log_start else ">ihqq")
        out = bytearray()
        data = PartitionData(
            partition_index=0,
            error_code=ErrorCode.NONE,
            high_watermark=0,
            aborted_transactions=() if isolation is IsolationLevel.READ_COMMITTED else None,
            records=b"",
        )
        writer(PartitionData, version, self._is_flexible)(data, out)
        # Between the offsets and the size of the records, and after the records.
        before_size = len(out) - (2 if self._is_flexible else SIZE.size)
        self._before_records = bytes(out[self._head.size : before_size])
        self._after_records = b"\0" if self._is_flexible else b""
        self._without_records = bytes(out[self._head.size :])

    def idle(self, read: Fetched) -> bytes:
        """Return the answer for a partition without records."""
        return self._pack(read) + self._without_records

    def records(self, read: Fetched) -> Parts:
        """Return the answer for a partition with records."""
        count = len(read.batches)
        size = varint(count + 1) if self._is_flexible else SIZE.pack(count)
        return self._pack(read) + self._before_records + size, read.batches, self._after_records

    def _pack(self, read: Fetched) -> bytes:
        offsets = read.high_watermark, read.last_stable_offset
        if self._has_log_start:
            return self._head.pack(read.partition, ErrorCode.NONE, *offsets, read.log_start_offset)
        return self._head.pack(read.partition, ErrorCode.NONE, *offsets)


@cache
def _format_of(version: int, isolation: IsolationLevel) -> AnswerFormat:
    return AnswerFormat(version, isolation)


@dataclass(slots=True)
class WideFetch:
    """A request, from its first look at the partitions to its response.

    It may return ``bytes_max`` bytes of records, and waits for ``bytes_min`` until ``deadline_ms``.
    """

    broker: Broker
    answers: IdleAnswers
    request: WideRequest
    bytes_max: int
    bytes_min: int
    deadline_ms: int
    has_waited: bool = False
    # The answers of the last look, and the bytes of their records.
    _parts: list[bytes | bytearray] = field(default_factory=list[bytes | bytearray])
    _records_bytes: int = 0
    # Whether a partition has records for which the limits leave no room.
    _is_limited: bool = False
    # The topics as they were named when it began.
    _names: dict[str | bytes, str] = field(default_factory=dict[str | bytes, str])
    _left_in_turn: int = 0
    # The partitions that the last look has read, by topic.
    _already_read: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    @property
    def left_ms(self) -> int:
        """How long it may wait."""
        return 0 if self.broker.is_closing else self.deadline_ms - self.broker.monotonic_ms()

    async def run(self, access_now: Callable[[], Access | None]) -> bool:
        """Look at the partitions until there is something to answer, or the time is over.

        False if the request must take the generic path. It waits with a ``Wakeup``, and pauses where many partitions
        have something new.
        """
        self.answers.is_in_use = True
        try:
            while await self._look(access_now()):
                left_ms = self.left_ms
                if self._records_bytes >= self.bytes_min or self._is_limited or left_ms <= 0:
                    return True
                if self._records_bytes:
                    # Partitions that have records are not watched.
                    return False
                self.has_waited = True
                await self.answers.watch.wait(min_bytes=self.bytes_min, timeout_ms=left_ms)
                if self.answers.is_closed:
                    # So is the connection, and nothing ends a further wait.
                    return True
            return False
        finally:
            self.answers.is_in_use = False

    def response(self, correlation_id: int, charge: DirectCharge | None) -> list[bytes | bytearray]:
        """Return the whole frame of the response, after ``run``."""
        size, request = self._records_bytes, self.request
        self.broker.counts.fetched_bytes += size
        head = response_head(correlation_id, flexible=request.is_flexible)
        head += _THROTTLE.pack(0 if charge is None else charge.fetched(size))
        if request.version >= FIRST_WITH_SESSIONS:
            head += _NO_SESSION_BYTES
        head += request.topics_head
        parts = [head, *self._parts]
        if request.is_flexible:
            parts.append(b"\0")
        SIZE.pack_into(head, 0, sum(map(len, parts)) - SIZE.size)
        return parts

    def partitions(self) -> list[FetchedPartition]:
        """Return the partitions as the generic path knows them, after ``run`` has waited."""
        entries = ENTRIES[self.request.version]
        partitions: list[FetchedPartition] = []
        for block in self.request.blocks:
            name = self._names[block.key]
            for entry in block.entries:
                asked = entries.read(entry)
                # It has been read before it waited.
                assert asked is not None
                partitions.append(
                    FetchedPartition(
                        topic=name,
                        topic_id=block.topic_id,
                        index=asked.partition,
                        offset=asked.offset,
                        max_bytes=max(0, asked.bytes_max),
                        leader_epoch=asked.leader_epoch,
                        is_by_id=self.request.is_by_id,
                    )
                )
        return partitions

    def _name(self, block: Block) -> str | None:
        if not self.request.is_by_id:
            return block.topic
        topic = self.broker.topic_by_id(block.topic_id)
        return None if topic is None else topic.name

    async def _look(self, access: Access | None) -> bool:
        """Answer each partition; False if the generic path must do it."""
        self.answers.begin(self.request.version, self.request.isolation)
        self.answers.forget_changed()
        self._parts, self._records_bytes, self._is_limited = [], 0, False
        self._already_read.clear()
        self._left_in_turn = PARTITIONS_PER_TURN
        for block in self.request.blocks:
            name = self._name(block)
            if name is None or (access is not None and not access.was_allowed(READ_TOPIC, name)):
                return False
            # It has this name for the generic path, too, if it is deleted while the request waits.
            self._names.setdefault(block.key, name)
            kept = self.answers.of(name).by_entry
            answered = list(map(kept.get, block.entries, repeat(_MISSING)))
            if not await self._answer(block, name, answered):
                return False
        return True

    async def _answer(self, block: Block, name: str, answered: list[bytes]) -> bool:
        """Add the answers of a block to the response.

        The partitions whose answer is missing are read. False if the generic path must do it.
        """
        missing: list[int] = []
        if _MISSING in answered:
            missing = [number for number, answer in enumerate(answered) if not answer]
        large: dict[int, Parts] = {}
        while missing:
            if not self._left_in_turn:
                await pause()
                self._left_in_turn = PARTITIONS_PER_TURN
            numbers, missing = missing[: self._left_in_turn], missing[self._left_in_turn :]
            self._left_in_turn -= len(numbers)
            if self.answers.is_closed or not self.answers.has_room(len(numbers)):
                return False
            if not self._read(block, name, numbers, answered, large):
                return False
        begin, run = 0, bytearray(block.head)
        for number, (before, batches, after) in large.items():
            run += b"".join(answered[begin:number])
            run += before
            self._parts += (run, batches)
            begin, run = number + 1, bytearray(after)
        run += b"".join(answered[begin:])
        if self.request.is_flexible:
            run += b"\0"
        self._parts.append(run)
        return True

    def _read(
        self, block: Block, name: str, numbers: list[int], answered: list[bytes], large: dict[int, Parts]
    ) -> bool:
        """Read the partitions with these ``numbers`` in a block.

        False if the generic path must do it. Their answers go to ``answered``, and those with many records to ``large``.
        """
        broker, answers, isolation = self.broker, self.answers, self.request.isolation
        entries = ENTRIES[self.request.version]
        kept, named = answers.of(name).entries, self.request.named[block.key]
        wanted: list[PartitionFetch] = []
        for number in numbers:
            asked = entries.read(block.entries[number])
            if asked is None or asked.partition in self._already_read[name]:
                return False
            partition = asked.partition
            if kept.get(partition) in named or check_leader_epoch(
                broker, name, partition, asked.leader_epoch
            ):
                # Of a partition that is named twice, the last counts.
                return False
            self._already_read[name].add(partition)
            wanted.append(
                PartitionFetch(
                    topic=name,
                    partition=partition,
                    offset=asked.offset,
                    max_bytes=max(0, asked.bytes_max),
                    isolation=isolation,
                )
            )
        reads = broker.fetch_now(
            wanted,
            max_bytes=max(0, self.bytes_max - self._records_bytes),
            at_least_one=not self._records_bytes,
        )
        if reads is None:
            return False
        answer_format = _format_of(self.request.version, isolation)
        is_committed = isolation is IsolationLevel.READ_COMMITTED
        for number, request, read in zip(numbers, wanted, reads, strict=True):
            size = len(read.batches)
            if read.aborted:
                return False
            if not size:
                answered[number] = answer = answer_format.idle(read)
                if request.offset == (read.last_stable_offset if is_committed else read.high_watermark):
                    answers.keep(request.topic_partition, block.entries[number], answer)
                else:
                    # The limits leave room for none of its records.
                    self._is_limited = True
                continue
            self._records_bytes += size
            parts = answer_format.records(read)
            if size > _COPIED_BYTES_MAX:
                large[number] = parts
            else:
                answered[number] = b"".join(parts)
        return True
