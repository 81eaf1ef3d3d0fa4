"""Fetch: batches as on disk, with a long poll that ends with an append.

A request without a session names all its partitions, and the response has all of
them. In a fetch session (KIP-227, ``fetch_sessions``) the handler looks only at
partitions that may have changed, and the response has only those that have.

The handler pauses among the partitions that it looks at. What concerns a session is
done without a pause: taking a request into it, and noting what its response says.

A consumer with a rack is sent to a broker of its rack (KIP-392), which serves it as any other would: the answer
for a partition then has the id of that broker and no records.

With READ_COMMITTED the response ends before the last stable offset, and names the aborted
transactions whose batches it contains: the client leaves these out. The isolation level is that of
each request, also in a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel
from stele.wire.record_batch import CorruptBatchError, iter_headers, plain_size_max

from ....broker.broker import Broker
from ....broker.reading.decoded_bytes import UNCOUNTED_BYTES
from ....broker.reading.fetch import Fetched, PartitionFetch, end_of, needs_more
from ....errors import ReadMemoryFull
from ....security.acl import READ_TOPIC
from ....work_budget import WorkBudget
from ...errors import error_code_of
from ..context import Context
from ..guards import topics as topic_guards
from ..message_set import MessageSetTooLarge, UnsupportedCodec, down_convert
from ..schemas.fetch import (
    FETCH_API,
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ..served import Served
from ..sessions.fetch_sessions import NO_SESSION_ID, FetchedPartition, FetchSession
from .fetch_requests import FIRST_WITH_TOPIC_IDS, forgotten, is_from_follower, isolation_of, requested
from .leader_epoch import check_leader_epoch
from .read_replicas import rack_to_read_from, read_elsewhere

_NO_OFFSET = -1
# Fetch v0 and v1 return messages of magic 0, v2 and v3 of magic 1 (KIP-31).
_FIRST_WITH_BATCHES = 4
_FIRST_WITH_MAGIC_1 = 2


def answer_bytes_max(broker: Broker, request: FetchRequest) -> int:
    """Return how many bytes of records the response may bring."""
    return max(0, min(request.max_bytes, broker.settings.fetch_bytes_max))


async def fetch(context: Context, request: FetchRequest) -> FetchResponse:
    uses_topic_ids = context.version >= FIRST_WITH_TOPIC_IDS
    if uses_topic_ids:
        await context.broker.try_to_find_topics(
            partitions=(
                (bytes(topic.topic_id), partition.partition)
                for topic in request.topics
                for partition in topic.partitions
            )
        )
    else:
        await context.broker.try_to_find_topics(partitions=_readable_partitions(context, request))
    named = requested(context, request)
    taken = context.listener.fetch_sessions.take(
        session_id=request.session_id,
        epoch=request.session_epoch,
        uses_topic_ids=uses_topic_ids,
        requested=named,
        forgotten=forgotten(request, uses_topic_ids=uses_topic_ids),
        now_ms=context.broker.monotonic_ms(),
    )
    if taken.error:
        return FetchResponse(error_code=taken.error, responses=())
    wait_ms = context.consume_wait_ms()
    if wait_ms:
        # The session has taken the request, so that its epoch goes on.
        session_id = NO_SESSION_ID if taken.session is None else taken.session.id
        return FetchResponse(throttle_time_ms=wait_ms, session_id=session_id, responses=())
    if taken.session is not None:
        return await fetch_changes(context, request, taken.session)
    answers = await _fetch_all(context, request, list(named.values()))
    session_id = NO_SESSION_ID
    if taken.may_begin:
        for answer in answers:
            answer.note()
        session_id = context.listener.fetch_sessions.begin(
            named,
            is_privileged=is_from_follower(context, request),
            uses_topic_ids=uses_topic_ids,
            now_ms=context.broker.monotonic_ms(),
        )
    return FetchResponse(session_id=session_id, responses=_responses(answers))


# ── the request ──


def _readable_partitions(context: Context, request: FetchRequest) -> Iterable[tuple[str, int]]:
    """Return the partitions that the client may read.

    Only these are looked up: otherwise the time of a refusal would tell whether the topic exists.
    """
    access = context.access
    return (
        (topic.topic, partition.partition)
        for topic in request.topics
        if access is None or access.allows(READ_TOPIC, topic.topic)
        for partition in topic.partitions
    )


# ── answers ──


@dataclass(slots=True)
class _Answer:
    """The response for one partition."""

    partition: FetchedPartition
    data: PartitionData
    # It sends the client to another broker.
    is_elsewhere: bool = False

    @property
    def records_size(self) -> int:
        return len(self.data.records or b"")

    def note(self) -> None:
        """Note in the partition that its session begins with this answer."""
        self.partition.note_answer(
            has_records=self.records_size > 0 or self.is_elsewhere,
            is_error=self.data.error_code != ErrorCode.NONE,
            high_watermark=self.data.high_watermark,
            log_start_offset=self.data.log_start_offset,
        )

    def settle(self, session: FetchSession) -> bool:
        """Note this answer in ``session``; return whether the response must have it."""
        return session.settle(
            self.partition,
            has_records=self.records_size > 0 or self.is_elsewhere,
            is_error=self.data.error_code != ErrorCode.NONE,
            high_watermark=self.data.high_watermark,
            log_start_offset=self.data.log_start_offset,
        )


def _responses(answers: Iterable[_Answer]) -> list[FetchableTopicResponse]:
    """Group answers by topic, in their order.

    A topic comes twice if partitions of another stand between its own.
    """
    responses: list[FetchableTopicResponse] = []
    partitions: list[PartitionData] = []
    topic, topic_id = "", b""
    for answer in answers:
        partition = answer.partition
        if not responses or partition.topic_id != topic_id or partition.topic != topic:
            topic, topic_id, partitions = partition.topic, partition.topic_id, []
            responses.append(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=partitions))
        partitions.append(answer.data)
    return responses


def _refused(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=_NO_OFFSET,
        aborted_transactions=None,
        records=b"",
    )


def _partition_data(fetched: Fetched) -> PartitionData:
    if fetched.error is not None:
        return _refused(fetched.partition, error_code_of(fetched.error))
    return PartitionData(
        partition_index=fetched.partition,
        error_code=ErrorCode.NONE,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=(
            None
            if fetched.aborted is None
            else [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in fetched.aborted
            ]
        ),
        records=fetched.batches,
    )


# ── reading ──


@dataclass(slots=True)
class _Look:
    """The reads of some partitions, and the answers for those that cannot be read.

    ``is_urgent``: one of these answers must be sent at once, without a long poll.
    """

    readable: list[FetchedPartition] = field(default_factory=list[FetchedPartition])
    wanted: list[PartitionFetch] = field(default_factory=list[PartitionFetch])
    refused: list[_Answer] = field(default_factory=list[_Answer])
    is_urgent: bool = False

    async def answers(self, broker: Broker, fetched: Sequence[Fetched]) -> list[_Answer]:
        """Return the answers that were read, in their order, then the others, as in Kafka.

        During the read, or the wait before it, a topic may have been made anew, or its log have become that of another
        history: records of these are not those that the client asked for.
        """
        answers: list[_Answer] = []
        budget = WorkBudget()
        for partition, read in zip(self.readable, fetched, strict=True):
            code = _check_is_same(broker, partition) if read.batches else ErrorCode.NONE
            data = _refused(partition.index, code) if code else _partition_data(read)
            answers.append(_Answer(partition, data))
            await budget.visit()
        return answers + self.refused

    def pass_over(self, fetched: Sequence[Fetched], answers: Sequence[_Answer]) -> bool:
        """Want what follows batches without a message for an old client, as markers.

        The client would ask for them again for ever, because only a message moves it on. False if there
        are none. ``answers`` are those for ``fetched``, converted, and others.
        """
        is_passed = False
        for index, (read, answer) in enumerate(zip(fetched, answers, strict=False)):
            if read.batches and not answer.records_size and not answer.data.error_code:
                wanted = self.wanted[index]
                self.wanted[index] = replace(wanted, offset=end_of(read, wanted.offset))
                is_passed = True
        return is_passed


async def _look_at(
    context: Context,
    partitions: Sequence[FetchedPartition],
    isolation: IsolationLevel,
    *,
    missing: set[FetchedPartition],
    rack: str | None,
) -> _Look:
    """Check ``partitions``.

    Those that do not exist are urgent unless they are in ``missing``. Those that exist are to be read from a
    broker of ``rack``, if it is given.
    """
    look, broker = _Look(), context.broker
    budget = WorkBudget()
    for partition in partitions:
        await budget.visit()
        code = _check_readable(context, partition)
        is_urgent = partition not in missing
        if not code:
            code = _check_epoch(broker, partition)
            is_urgent = True
        if code:
            look.refused.append(_Answer(partition, _refused(partition.index, code)))
            look.is_urgent = look.is_urgent or is_urgent
            continue
        if rack is not None and (elsewhere := read_elsewhere(context, partition, rack)) is not None:
            look.refused.append(_Answer(partition, elsewhere, is_elsewhere=True))
            look.is_urgent = True
            continue
        look.readable.append(partition)
        look.wanted.append(_wanted(partition, isolation))
    return look


def _wanted(partition: FetchedPartition, isolation: IsolationLevel) -> PartitionFetch:
    return PartitionFetch(
        topic=partition.topic,
        partition=partition.index,
        offset=partition.offset,
        max_bytes=partition.max_bytes,
        isolation=isolation,
    )


def _check_readable(context: Context, partition: FetchedPartition) -> ErrorCode:
    access = context.access
    if access is not None and partition.topic and not access.allows(READ_TOPIC, partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _check_exists(context.broker, partition)


def _check_epoch(broker: Broker, partition: FetchedPartition) -> ErrorCode:
    return check_leader_epoch(broker, partition.topic, partition.index, partition.leader_epoch)


def _check_is_same(broker: Broker, partition: FetchedPartition) -> ErrorCode:
    """Check whether what exists is what the client asked for."""
    return _check_exists(broker, partition) or _check_epoch(broker, partition)


def _check_exists(broker: Broker, partition: FetchedPartition) -> ErrorCode:
    if partition.is_by_id:
        topic = broker.topic_by_id(partition.topic_id)
        if topic is None:
            if not partition.topic:
                return ErrorCode.UNKNOWN_TOPIC_ID
            # The session knew the topic; one with its name is a new topic.
            is_other = broker.has_topic(partition.topic)
            return ErrorCode.INCONSISTENT_TOPIC_ID if is_other else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif broker.has_topic(partition.topic):
        topic = broker.readable_topic(partition.topic)
    else:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    exists = 0 <= partition.index < topic.partitions
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _fetch_all(
    context: Context, request: FetchRequest, partitions: Sequence[FetchedPartition]
) -> list[_Answer]:
    broker = context.broker
    look = await _look_at(
        context,
        partitions,
        isolation_of(request),
        missing=set(partitions),
        rack=rack_to_read_from(context, request.rack_id),
    )
    may_wait = bool(look.wanted) and not look.is_urgent
    wait_ms = min(max(0, request.max_wait_ms), broker.settings.fetch_wait_ms_max) if may_wait else 0
    return await _read_until(context, request, look, broker.monotonic_ms() + wait_ms)


async def fetch_more(
    context: Context,
    request: FetchRequest,
    *,
    partitions: list[FetchedPartition],
    deadline_ms: int,
) -> FetchResponse:
    """Go on with a fetch without a session that has waited.

    The client could read all ``partitions`` when it began, and what has happened to them since then is reported as
    it is to any fetch that waits.
    """
    isolation = isolation_of(request)
    wanted = [_wanted(partition, isolation) for partition in partitions]
    answers = await _read_until(context, request, _Look(partitions, wanted), deadline_ms)
    return FetchResponse(session_id=NO_SESSION_ID, responses=_responses(answers))


async def _read_until(
    context: Context, request: FetchRequest, look: _Look, deadline_ms: int
) -> list[_Answer]:
    """Read what ``look`` wants, and wait for more until ``deadline_ms``."""
    broker = context.broker
    left_ms = deadline_ms - broker.monotonic_ms()
    while True:
        fetched = await broker.fetch(
            look.wanted,
            max_bytes=max(0, request.max_bytes),
            min_bytes=_min_bytes(broker, request) if left_ms > 0 else 0,
            max_wait_ms=max(0, left_ms),
            with_internal=True,
        )
        answers = await look.answers(broker, fetched)
        if context.version >= _FIRST_WITH_BATCHES:
            return answers
        for answer in answers:
            await _make_message_set(context, answer)
        if not look.pass_over(fetched, answers):
            return answers
        has_answer = any(answer.records_size or answer.data.error_code for answer in answers)
        left_ms = 0 if has_answer else deadline_ms - broker.monotonic_ms()


async def fetch_changes(
    context: Context, request: FetchRequest, session: FetchSession, *, waited_since: int | None = None
) -> FetchResponse:
    """Answer with the partitions of ``session`` that changed.

    Wait for some as any fetch does. ``waited_since``: the request has waited already, since the session had this
    epoch and the client could read all that it looked at.
    """
    broker, epoch = context.broker, session.epoch if waited_since is None else waited_since
    if session.epoch == epoch:
        session.watch.isolation = isolation_of(request)
    min_bytes = _min_bytes(broker, request)
    wait_ms = min(max(0, request.max_wait_ms), broker.settings.fetch_wait_ms_max)
    deadline_ms = broker.monotonic_ms() + wait_ms
    partitions = _resolved(broker, session)
    missing = await _missing(context, partitions) if waited_since is None else set[FetchedPartition]()
    rack = rack_to_read_from(context, request.rack_id)
    while True:
        look = await _look_at(context, partitions, isolation_of(request), missing=missing, rack=rack)
        fetched = await broker.fetch(
            look.wanted,
            max_bytes=max(0, request.max_bytes),
            min_bytes=0,
            is_scan=True,
            with_internal=True,
        )
        have = sum(len(read.batches) for read in fetched)
        left_ms = deadline_ms - broker.monotonic_ms()
        if (
            left_ms <= 0
            or look.is_urgent
            or not needs_more(look.wanted, fetched, min_bytes)
            or len(missing) == len(session)
            or session.epoch != epoch
            or session.is_over
            or broker.is_closing
        ):
            break
        await session.watch.wait(min_bytes=min_bytes - have, timeout_ms=left_ms)
        partitions = _resolved(broker, session)
    answers = await look.answers(broker, fetched)
    if session.epoch != epoch:
        # The session's next request has arrived; its response replaces this one.
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id, responses=()
        )
    broker.counts.fetched_bytes += have
    return FetchResponse(
        session_id=session.id,
        # No pause from the check of the epoch to here: the session must not change in between.
        responses=_responses(answer for answer in answers if answer.settle(session)),
    )


def _resolved(broker: Broker, session: FetchSession) -> list[FetchedPartition]:
    """Return the candidates of ``session``.

    Topics that were created since then get their names.
    """
    partitions = session.candidates()
    for partition in partitions:
        if not partition.topic and (topic := broker.topic_by_id(partition.topic_id)) is not None:
            session.resolve(partition, topic.name)
    return partitions


async def _missing(context: Context, partitions: Iterable[FetchedPartition]) -> set[FetchedPartition]:
    missing: set[FetchedPartition] = set()
    budget = WorkBudget()
    for partition in partitions:
        if _check_readable(context, partition):
            missing.add(partition)
        await budget.visit()
    return missing


def _min_bytes(broker: Broker, request: FetchRequest) -> int:
    return max(0, min(request.min_bytes, answer_bytes_max(broker, request)))


async def _make_message_set(context: Context, answer: _Answer) -> None:
    """Convert the batches of an answer to message sets or an error, for old clients."""
    records = answer.data.records
    if not records:
        return
    magic = 1 if context.version >= _FIRST_WITH_MAGIC_1 else 0
    # One batch at a time is unpacked.
    size = max((plain_size_max(records, header) for header in iter_headers(records)), default=0)
    held_bytes, reader = size if size > UNCOUNTED_BYTES else 0, context.broker.decoded.reader()
    try:
        if held_bytes:
            await reader.hold(held_bytes, f"a batch of {answer.partition.topic} for an old client")
    except ReadMemoryFull as error:
        answer.data = _refused(answer.partition.index, error_code_of(error))
        return
    try:
        # In a thread, because every record is decoded and encoded again.
        answer.data.records = await asyncio.to_thread(
            down_convert, records, magic=magic, from_offset=answer.partition.offset, max_bytes=len(records)
        )
        return
    except UnsupportedCodec:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    except MessageSetTooLarge:
        code = ErrorCode.MESSAGE_TOO_LARGE
    except CorruptBatchError:
        code = ErrorCode.CORRUPT_MESSAGE
    finally:
        if held_bytes:
            reader.release(held_bytes)
    answer.data = _refused(answer.partition.index, code)


ROWS = (Served(FETCH_API, fetch, topic_guards.FETCH, reads=answer_bytes_max, finds_topics_itself=True),)
