"""Produce: batches are appended in request order, answered when durable.

Batches are slices of what was received. The broker writes them unchanged unless the
topic's configuration asks for more. Message sets of the old formats (v0–2)
become batches first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.produce import (
    PRODUCE_API,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from stele.wire.schema import Records

from ....broker.broker import Broker
from ....broker.producing.produce import Acks, PendingProduce
from ....broker.reading.decoded_bytes import UNCOUNTED_BYTES
from ....broker.topics import INTERNAL_TOPICS
from ....errors import (
    BrokenContract,
    InternalTopic,
    InvalidAcks,
    InvalidBatch,
    InvalidRequest,
    InvalidTimestamp,
    MissingKey,
    ReadMemoryFull,
    RequestTimedOut,
    SteleError,
    UnknownPartition,
    UnsupportedCompression,
)
from ....storage.transactional_produce import TransactionalProduce
from ....work_budget import Pace, Steps, at_once, in_turns
from ...deferred_response import DeferredResponse
from ..context import Answer, Context, NoResponse, describe_error, find_topic
from ..guards import topics as topic_guards
from ..message_set import InvalidMessageSet, unpacked_size_max, up_convert
from ..served import Served
from .transaction_errors import PRODUCE, transaction_error_code
from .transactional_produce import Refusal, refusal_of, transaction_of

# After base offset, length and leader epoch, in every format.
_MAGIC_POSITION = 16
_MAGIC_V2 = 2
_FIRST_WITH_BATCHES = 3
_FIRST_WITH_ZSTD = 7
_FIRST_WITH_TOPIC_IDS = 13
# The low byte of a batch's attributes, whose lowest three bits are the codec.
_CODEC_POSITION = 22
_CODEC_MASK = 0x07
_ACKS = {acks.value: acks for acks in Acks}
# An attribute of an enumeration takes several times as long.
_NONE = ErrorCode.NONE
# Clients show the message in their logs.
_RECORD_MESSAGE_CHARACTERS_MAX = 300
# An append takes about 15 µs, and 1 µs per KiB; its part of the response about 2 µs. More than 5 ms of them go in steps.
_PIECES_OF_APPEND, _PIECES_OF_RESPONSE, _BYTES_OF_PIECE = 15, 2, 1024
_PIECES_AT_ONCE = 5000


# What became of the append to one partition of the request, by its index.
_Part = tuple[int, PendingProduce | SteleError]
# Name and id of a topic as the request has them, and its partitions.
_TopicParts = tuple[str, bytes, list[_Part]]


@dataclass(slots=True)
class _Appends:
    """What became of a request, and what its response waits for."""

    topics: list[_TopicParts]
    waiting: list[asyncio.Future[None]]
    timeout_ms: int


def produce(context: Context, request: ProduceRequest) -> Answer:
    if must_prepare(context.broker, request):
        return _prepare_and_produce(context, request)
    return _answer(context, at_once(_append_all(context, request)))


def must_prepare(broker: Broker, request: ProduceRequest) -> bool:
    """Return whether no later request may begin before this one has been appended.

    That is so if topics are created or looked for or records converted first, if the request is long, and while the
    produce queue is full; the connection is not read from while the queue is full.
    """
    is_shared, is_full = broker.cluster.is_shared, broker.is_produce_queue_full
    if _is_long(request):
        return True
    for topic in request.topic_data:
        if _is_missing(broker, topic) or (is_shared and not broker.knows(partitions=_partitions_of(topic))):
            return True
        for data in topic.partition_data:
            if _is_message_set(data.records) or (is_full and _must_wait_for_room(broker, topic, data)):
                return True
    return False


def _is_long(request: ProduceRequest) -> bool:
    """Return whether the appends would take too long for one turn of the loop."""
    pieces = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            pieces += _pieces_of(data)
            if pieces > _PIECES_AT_ONCE:
                return True
    return False


def _pieces_of(data: PartitionProduceData) -> int:
    """Return how long an append takes, in pieces as ``Pace`` counts them."""
    return _PIECES_OF_APPEND + (0 if data.records is None else len(data.records) // _BYTES_OF_PIECE)


def _must_wait_for_room(broker: Broker, topic: TopicProduceData, data: PartitionProduceData) -> bool:
    known = None if topic.name else broker.topic_by_id(topic.topic_id)
    name = topic.name if known is None else known.name
    return data.records is not None and broker.must_wait_for_room(name, data.records)


def _is_message_set(records: Records | None) -> bool:
    return records is not None and len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] < _MAGIC_V2


def _is_missing(broker: Broker, topic: TopicProduceData) -> bool:
    """Return whether a topic is created before the append."""
    name = topic.name
    return (
        bool(name)
        and not broker.has_topic(name)
        and name not in INTERNAL_TOPICS
        and broker.settings.auto_create_topics_enable
    )


def _partitions_of(topic: TopicProduceData) -> Iterable[tuple[str | bytes, int]]:
    name = topic.name or bytes(topic.topic_id)
    return ((name, partition.index) for partition in topic.partition_data)


async def _prepare_and_produce(context: Context, request: ProduceRequest) -> Answer:
    broker = context.broker
    missing = [topic.name for topic in request.topic_data if _is_missing(broker, topic)]
    if broker.cluster.is_shared:
        await broker.try_to_find_topics(
            partitions=(partition for topic in request.topic_data for partition in _partitions_of(topic))
        )
    for name in missing:
        try:
            await broker.ensure_topic(name)
        except SteleError:
            continue
    # By position in the request.
    failures = await _convert(context, request) if context.version < _FIRST_WITH_BATCHES else {}
    await broker.produce_room()
    appends = await in_turns(_append_all(context, request, failures))
    if isinstance(appends, _Appends) and _is_long(request):
        if appends.waiting:
            await asyncio.wait((_all_of(set(appends.waiting)),), timeout=appends.timeout_ms / 1000)
        return await in_turns(_response(appends.topics, appends.timeout_ms, context.version))
    answer = _answer(context, appends)
    return await cast("Coroutine[Any, Any, Any]", answer) if isinstance(answer, Coroutine) else answer


async def _convert(context: Context, request: ProduceRequest) -> dict[tuple[int, int], SteleError]:
    """Replace message sets by batches.

    Return the errors of those that are invalid, by position.
    """
    failures: dict[tuple[int, int], SteleError] = {}
    for number, topic in enumerate(request.topic_data):
        for position, data in enumerate(topic.partition_data):
            if data.records is None or not _is_message_set(data.records):
                continue
            try:
                await _convert_set(context, data)
            except InvalidMessageSet as error:
                failures[number, position] = InvalidBatch(str(error), is_damaged=error.is_corrupt)
            except ReadMemoryFull as error:
                failures[number, position] = error
    return failures


async def _convert_set(context: Context, data: PartitionProduceData) -> None:
    """Replace a message set by batches.

    Raises ``InvalidMessageSet``, ``ReadMemoryFull``.
    """
    records = data.records
    assert records is not None
    size = unpacked_size_max(records)
    reader = context.broker.decoded.reader()
    if size > UNCOUNTED_BYTES:
        await reader.hold(size, "a message set of an old client")
    try:
        # In a thread, because a compressed set may have millions of messages to decode.
        data.records = await asyncio.to_thread(up_convert, records)
    finally:
        if size > UNCOUNTED_BYTES:
            reader.release(size)


def _append_all(
    context: Context,
    request: ProduceRequest,
    failures: Mapping[tuple[int, int], SteleError] = MappingProxyType({}),
) -> Steps[_Appends | Answer]:
    """Append to each partition of the request; return the answer already if there is nothing to wait for."""
    topics: list[_TopicParts] = []
    acks: Acks | SteleError | None = _ACKS.get(request.acks)
    if acks is None:
        acks = InvalidAcks(request.acks)
    refusal = refusal_of(request)
    if refusal is not None:
        return (yield from _refused(request, refusal, is_unanswered=acks is Acks.NONE))
    transaction = None if request.transactional_id is None else transaction_of(request, context.version)
    waiting: list[asyncio.Future[None]] = []
    pace = Pace()
    for number, topic in enumerate(request.topic_data):
        name: str | SteleError
        try:
            name = _writable(context, topic)
        except SteleError as error:
            name = error
        parts: list[_Part] = []
        for position, data in enumerate(topic.partition_data):
            outcome = failures.get((number, position)) if failures else None
            if outcome is None:
                outcome = _append(context, name, data, acks, transaction)
                if isinstance(outcome, PendingProduce) and not outcome.done:
                    future = outcome.future
                    assert future is not None
                    waiting.append(future)
            parts.append((data.index, outcome))
            if pace.is_due(_pieces_of(data)):
                yield
        topics.append((topic.name, topic.topic_id, parts))
    if acks is Acks.NONE:
        return _unanswered([outcome for _, _, parts in topics for _, outcome in parts])
    timeout_ms = max(1, min(request.timeout_ms, context.broker.settings.request_timeout_ms))
    return _Appends(topics, waiting, timeout_ms)


def _answer(context: Context, appends: _Appends | Answer) -> Answer:
    if not isinstance(appends, _Appends):
        return appends
    topics, waiting, timeout_ms = appends.topics, appends.waiting, appends.timeout_ms
    if not waiting:
        return at_once(_response(topics, timeout_ms, context.version))
    return DeferredResponse(
        future=waiting[0] if len(waiting) == 1 else _all_of(set(waiting)),
        timeout_ms=timeout_ms,
        make=lambda has_ended: at_once(_response(topics, timeout_ms, context.version)),
    )


def _refused(request: ProduceRequest, refusal: Refusal, *, is_unanswered: bool) -> Steps[Answer]:
    """Answer every partition with the error of the whole request."""
    if is_unanswered:
        return NoResponse(InvalidRequest(refusal.message))
    pace = Pace()
    responses: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        partitions: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            partitions.append(
                PartitionProduceResponse(
                    index=data.index,
                    error_code=refusal.code,
                    base_offset=-1,
                    error_message=refusal.message,
                )
            )
            if pace.is_due(_PIECES_OF_RESPONSE):
                yield
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)
        )
    return ProduceResponse(responses=responses)


def _unanswered(outcomes: list[PendingProduce | SteleError]) -> Answer:
    failed = next((outcome for outcome in outcomes if isinstance(outcome, SteleError)), None)
    if failed is not None:
        return NoResponse(failed)
    queued = [outcome for outcome in outcomes if isinstance(outcome, PendingProduce) and not outcome.done]
    return _unanswered_later(queued) if queued else NoResponse()


async def _unanswered_later(queued: Iterable[PendingProduce]) -> NoResponse:
    for pending in queued:
        if pending.future is not None:
            await asyncio.wait((pending.future,))
        try:
            pending.result()
        except SteleError as error:
            return NoResponse(error)
    return NoResponse()


def _writable(context: Context, topic: TopicProduceData) -> str:
    """Return the name of the topic.

    Raises:
        InternalTopic, and whatever ``find_topic`` raises.
    """
    if context.version < _FIRST_WITH_TOPIC_IDS:
        return context.broker.topic(topic.name).name
    known = find_topic(context, None, topic.topic_id)
    if known.is_internal:
        raise InternalTopic(known.name)
    return known.name


def _append(
    context: Context,
    topic: str | SteleError,
    data: PartitionProduceData,
    acks: Acks | SteleError,
    transaction: TransactionalProduce | None,
) -> PendingProduce | SteleError:
    if isinstance(topic, SteleError):
        return topic
    if isinstance(acks, SteleError):
        return acks
    if data.index < 0:
        # To ``Broker.produce``, -1 means any partition.
        return UnknownPartition(topic, data.index, partitions=context.broker.topic(topic).partitions)
    records = cast("bytearray | memoryview | None", data.records)
    if records is None or len(records) <= _MAGIC_POSITION:
        return InvalidBatch("there is no batch")
    if _FIRST_WITH_BATCHES <= context.version < _FIRST_WITH_ZSTD and _is_zstd(records):
        return UnsupportedCompression(
            "zstd", f"version {context.version} of Produce does not allow it; version {_FIRST_WITH_ZSTD} does"
        )
    try:
        return context.broker.produce(topic, data.index, records, acks=acks, transaction=transaction)
    except SteleError as error:
        return error


def _is_zstd(records: bytearray | memoryview) -> bool:
    # Only the first batch, because these versions have one per partition.
    return len(records) > _CODEC_POSITION and records[_CODEC_POSITION] & _CODEC_MASK == Compression.ZSTD


def _all_of(futures: Iterable[asyncio.Future[None]]) -> asyncio.Future[None]:
    """Return a future that ends when all ``futures`` have; their errors stay in them."""
    together: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = 0

    def ended(_future: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if not left and not together.done():
            together.set_result(None)

    for future in futures:
        left += 1
        future.add_done_callback(ended)
    return together


def response_of_one(
    name: str,
    topic_id: bytes,
    partition: int,
    outcome: PendingProduce | SteleError,
    timeout_ms: int,
    version: int,
) -> ProduceResponse:
    """Return the response to a request for one partition."""
    return at_once(_response([(name, topic_id, [(partition, outcome)])], timeout_ms, version))


def _response(topics: list[_TopicParts], timeout_ms: int, version: int) -> Steps[ProduceResponse]:
    pace = Pace()
    responses: list[TopicProduceResponse] = []
    for name, topic_id, parts in topics:
        partitions: list[PartitionProduceResponse] = []
        for index, outcome in parts:
            partitions.append(_part_response(index, outcome, timeout_ms, version))
            if pace.is_due(_PIECES_OF_RESPONSE):
                yield
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions))
    return ProduceResponse(responses=responses)


def _part_response(
    index: int, outcome: PendingProduce | SteleError, timeout_ms: int, version: int
) -> PartitionProduceResponse:
    if isinstance(outcome, PendingProduce):
        try:
            if not outcome.done:
                raise RequestTimedOut(
                    f"the sync of {outcome.topic}-{outcome.partition}", timeout_ms=timeout_ms
                )
            base_offset, log_append_time_ms, log_start_offset = outcome.placed()
            return PartitionProduceResponse(
                index=index,
                error_code=_NONE,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
            )
        except SteleError as error:
            outcome = error
    _, message = describe_error(outcome)
    code = transaction_error_code(outcome, PRODUCE, version)
    if isinstance(outcome, InvalidBatch) and outcome.is_damaged:
        # Clients retry after this code.
        code = ErrorCode.CORRUPT_MESSAGE
    return PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=-1,
        record_errors=_record_errors(outcome, index),
        error_message=message,
    )


def _record_errors(error: SteleError, partition: int) -> list[BatchIndexAndErrorMessage]:
    """Return the records at fault (KIP-467).

    Clients report the rest of the batch as failed with them.
    """
    if not isinstance(error, BrokenContract | InvalidBatch | InvalidTimestamp | MissingKey):
        return []
    # Kafka's own words, because programs look for them.
    same = (
        f"Compacted topic cannot accept message without key in topic partition {error.topic}-{partition}"
        if isinstance(error, MissingKey)
        else None
    )
    return [
        BatchIndexAndErrorMessage(
            batch_index=record.index,
            batch_index_error_message=(same or str(record))[:_RECORD_MESSAGE_CHARACTERS_MAX],
        )
        for record in error.record_errors
    ]


ROWS = (
    Served(
        PRODUCE_API,
        produce,
        topic_guards.PRODUCE,
        changes=True,
        is_barrier=must_prepare,
        carries_records=True,
        finds_topics_itself=True,
    ),
)
