"""Fetch: batches as they are on disk, with a long poll that ends when records are appended.

A request without a session names all its partitions, and all are answered. In a
fetch session (KIP-227, ``fetch_sessions``) only partitions that may have changed are
looked at, and only those that have are in the response.

There are no transactions, so the last stable offset is the high watermark and
nothing is ever aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stele.wire.error_codes import ErrorCode
from stele.wire.record_batch import CorruptBatchError

from ....broker.broker import Broker
from ....broker.fetch import Fetched, PartitionFetch, brings_all
from ...errors import error_code_of
from ..fetch_sessions import NO_SESSION_ID, FetchedPartition, FetchSession, PartitionKey
from ..message_set import MessageSetTooLarge, UnsupportedCodec, down_convert
from ..schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from .context import Context
from .leader_epoch import check_leader_epoch

_NO_OFFSET = -1
# Fetch v0 and v1 know messages of magic 0, v2 and v3 of magic 1 (KIP-31).
_FIRST_WITH_BATCHES = 4
_FIRST_WITH_MAGIC_1 = 2
_FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_REPLICA_STATE = 15


def answer_bytes_max(broker: Broker, request: FetchRequest) -> int:
    """Return how many bytes of records the response may bring."""
    return max(0, min(request.max_bytes, broker.settings.fetch_bytes_max))


async def fetch(context: Context, request: FetchRequest) -> FetchResponse:
    asked = _asked(context, request)
    uses_topic_ids = context.version >= _FIRST_WITH_TOPIC_IDS
    taken = context.listener.fetch_sessions.take(
        session_id=request.session_id,
        epoch=request.session_epoch,
        uses_topic_ids=uses_topic_ids,
        asked=asked,
        forgotten=_forgotten(request, uses_topic_ids=uses_topic_ids),
        now_ms=context.broker.monotonic_ms(),
    )
    if taken.error:
        return FetchResponse(error_code=taken.error, responses=())
    if taken.session is not None:
        return await _fetch_changes(context, request, taken.session)
    answers = await _fetch_all(context, request, list(asked.values()))
    session_id = NO_SESSION_ID
    if taken.may_begin:
        for answer in answers:
            answer.note()
        session_id = context.listener.fetch_sessions.begin(
            asked,
            is_privileged=_is_from_follower(context, request),
            uses_topic_ids=uses_topic_ids,
            now_ms=context.broker.monotonic_ms(),
        )
    return FetchResponse(session_id=session_id, responses=_responses(answers))


# ── what is asked ──


def _asked(context: Context, request: FetchRequest) -> dict[PartitionKey, FetchedPartition]:
    """Return the partitions that a request names; of one named twice, the last counts, as in Kafka."""
    asked: dict[PartitionKey, FetchedPartition] = {}
    uses_topic_ids = context.version >= _FIRST_WITH_TOPIC_IDS
    for topic in request.topics:
        name = topic.topic
        if uses_topic_ids:
            found = context.broker.topic_by_id(topic.topic_id)
            name = "" if found is None else found.name
        named = topic.topic_id if uses_topic_ids else name
        for partition in topic.partitions:
            asked[named, partition.partition] = FetchedPartition(
                topic=name,
                topic_id=topic.topic_id,
                index=partition.partition,
                offset=partition.fetch_offset,
                max_bytes=max(0, partition.partition_max_bytes),
                leader_epoch=partition.current_leader_epoch,
                is_by_id=uses_topic_ids,
            )
    return asked


def _forgotten(request: FetchRequest, *, uses_topic_ids: bool) -> list[PartitionKey]:
    return [
        (topic.topic_id if uses_topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _is_from_follower(context: Context, request: FetchRequest) -> bool:
    if context.version >= _FIRST_WITH_REPLICA_STATE:
        return request.replica_state is not None and request.replica_state.replica_id >= 0
    return request.replica_id >= 0


# ── answers ──


@dataclass(slots=True)
class _Answer:
    """The response for one partition."""

    partition: FetchedPartition
    data: PartitionData

    @property
    def records_size(self) -> int:
        return len(self.data.records or b"")

    def note(self) -> None:
        """Note in the partition that its session begins with this answer."""
        self.partition.note_answer(
            has_records=self.records_size > 0,
            is_error=self.data.error_code != ErrorCode.NONE,
            high_watermark=self.data.high_watermark,
            log_start_offset=self.data.log_start_offset,
        )

    def settle(self, session: FetchSession) -> bool:
        """Note in ``session`` what is answered; returns True if it must be sent."""
        return session.settle(
            self.partition,
            has_records=self.records_size > 0,
            is_error=self.data.error_code != ErrorCode.NONE,
            high_watermark=self.data.high_watermark,
            log_start_offset=self.data.log_start_offset,
        )


def _responses(answers: Iterable[_Answer]) -> list[FetchableTopicResponse]:
    """Group answers by topic, in their order: a topic with another between its partitions comes twice."""
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


def _found(one: Fetched) -> PartitionData:
    if one.error is not None:
        return _refused(one.partition, error_code_of(one.error))
    return PartitionData(
        partition_index=one.partition,
        error_code=ErrorCode.NONE,
        high_watermark=one.high_watermark,
        last_stable_offset=one.high_watermark,
        log_start_offset=one.log_start_offset,
        aborted_transactions=None,
        records=one.batches,
    )


# ── reading ──


@dataclass(slots=True)
class _Look:
    """What is wanted of some partitions now, and the answers for those that cannot be read.

    ``is_urgent`` if one of these answers is not to be waited with.
    """

    readable: list[FetchedPartition] = field(default_factory=list[FetchedPartition])
    wanted: list[PartitionFetch] = field(default_factory=list[PartitionFetch])
    refused: list[_Answer] = field(default_factory=list[_Answer])
    is_urgent: bool = False

    def answers(self, fetched: Sequence[Fetched]) -> list[_Answer]:
        """Return the answers that were read, in their order, then the others, as in Kafka."""
        read = [_Answer(one, _found(data)) for one, data in zip(self.readable, fetched, strict=True)]
        return read + self.refused


def _look_at(
    broker: Broker, partitions: Sequence[FetchedPartition], *, missing: set[FetchedPartition]
) -> _Look:
    """Check what is asked of ``partitions``. Those that do not exist are urgent unless they are in ``missing``."""
    look = _Look()
    for one in partitions:
        code = _check_exists(broker, one)
        is_urgent = one not in missing
        if not code:
            code = check_leader_epoch(broker, one.topic, one.index, one.leader_epoch)
            is_urgent = True
        if code:
            look.refused.append(_Answer(one, _refused(one.index, code)))
            look.is_urgent = look.is_urgent or is_urgent
            continue
        look.readable.append(one)
        look.wanted.append(
            PartitionFetch(topic=one.topic, partition=one.index, offset=one.offset, max_bytes=one.max_bytes)
        )
    return look


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
    look = _look_at(context.broker, partitions, missing=set(partitions))
    is_waited_for = bool(look.wanted) and not look.is_urgent
    fetched = await context.broker.fetch(
        look.wanted,
        max_bytes=max(0, request.max_bytes),
        min_bytes=_min_bytes(context.broker, request) if is_waited_for else 0,
        max_wait_ms=max(0, request.max_wait_ms) if is_waited_for else 0,
        with_internal=True,
    )
    answers = look.answers(fetched)
    if context.version < _FIRST_WITH_BATCHES:
        for answer in answers:
            await _make_message_set(context, answer)
    return answers


async def _fetch_changes(context: Context, request: FetchRequest, session: FetchSession) -> FetchResponse:
    """Answer with the partitions of ``session`` that changed; waits for some as any fetch does."""
    broker, epoch = context.broker, session.epoch
    min_bytes = _min_bytes(broker, request)
    wait_ms = min(max(0, request.max_wait_ms), broker.settings.fetch_wait_ms_max)
    deadline_ms = broker.monotonic_ms() + wait_ms
    partitions = _resolved(broker, session)
    missing = {one for one in partitions if _check_exists(broker, one)}
    while True:
        look = _look_at(broker, partitions, missing=missing)
        fetched = await broker.fetch(
            look.wanted,
            max_bytes=max(0, request.max_bytes),
            min_bytes=0,
            is_scan=True,
            with_internal=True,
        )
        have = sum(len(one.batches) for one in fetched)
        left_ms = deadline_ms - broker.monotonic_ms()
        if (
            have >= min_bytes
            or left_ms <= 0
            or look.is_urgent
            or any(
                one.error or not brings_all(one, wanted.offset)
                for one, wanted in zip(fetched, look.wanted, strict=True)
            )
            or len(missing) == len(session)
            or session.epoch != epoch
            or session.is_over
            or broker.is_closing
        ):
            break
        await session.watch.wait(min_bytes=min_bytes - have, timeout_ms=left_ms)
        partitions = _resolved(broker, session)
    if session.epoch != epoch:
        # The next request of the session has arrived, and will answer what this one would have.
        return FetchResponse(
            error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id, responses=()
        )
    broker.counts.fetched_bytes += have
    return FetchResponse(
        session_id=session.id,
        responses=_responses(answer for answer in look.answers(fetched) if answer.settle(session)),
    )


def _resolved(broker: Broker, session: FetchSession) -> list[FetchedPartition]:
    """Return the candidates of ``session``, with the names of topics created since they were named by id."""
    partitions = session.candidates()
    for one in partitions:
        if not one.topic and (topic := broker.topic_by_id(one.topic_id)) is not None:
            session.resolve(one, topic.name)
    return partitions


def _min_bytes(broker: Broker, request: FetchRequest) -> int:
    return max(0, min(request.min_bytes, answer_bytes_max(broker, request)))


async def _make_message_set(context: Context, answer: _Answer) -> None:
    """Convert the batches of an answer to the message sets that old clients read, or make it an error."""
    records = answer.data.records
    if not records:
        return
    magic = 1 if context.version >= _FIRST_WITH_MAGIC_1 else 0
    try:
        # In a thread: records are decoded and encoded again.
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
    answer.data = _refused(answer.partition.index, code)
