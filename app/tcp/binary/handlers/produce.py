"""Batches in, and what makes them durable or idempotent."""

from __future__ import annotations

from uuid import UUID

from stele.wire import messages as m
from stele.wire.record_batch import NO_TIMESTAMP

from ....broker.producing.produce import Acks
from ....errors import RequestTimedOut, UnexpectedEnd
from ....storage.transactional_produce import TransactionalProduce
from ...deferred_response import DeferredResponse
from ...errors import error_code_of
from ...response_queue import Buffers
from .context import Answer, BinaryListener


def produce_batch(listener: BinaryListener, request: m.ProduceBatchRequest) -> Answer:
    """Append the batches now and answer when they are as durable as ``acks`` asks.

    The topic exists: the connection has created it if necessary.
    """
    acks = Acks.parse(request.acks)
    transaction: TransactionalProduce | None = None
    expected_end: int | None = None
    answer = m.ProduceBatchResponse
    if isinstance(request, m.TransactionalProduceRequest):
        transaction = TransactionalProduce(transactional_id=request.transactional_id, adds_partitions=True)
        answer = m.TransactionalProduceResponse
    elif isinstance(request, m.ConditionalProduceRequest):
        expected_end, answer = request.expected_end, m.ConditionalProduceResponse
    try:
        pending = listener.broker.produce(
            request.topic,
            request.partition,
            bytearray(request.batches),
            acks=acks,
            transaction=transaction,
            expected_end=expected_end,
        )
    except UnexpectedEnd as error:
        return _unexpected_end(error)

    def receipt(has_ended: bool) -> bytes:
        if not has_ended:
            raise RequestTimedOut(
                f"the sync of {pending.topic}-{pending.partition}", timeout_ms=_timeout_ms(listener, request)
            )
        try:
            produced = pending.result()
        except UnexpectedEnd as error:
            return _unexpected_end(error)
        is_promised = acks is not Acks.NONE
        return answer(
            partition=produced.partition,
            base_offset=produced.base_offset if is_promised else m.UNKNOWN_OFFSET,
            last_offset=produced.last_offset if is_promised else m.UNKNOWN_OFFSET,
            log_append_time_ms=produced.log_append_time_ms,
            log_start_offset=produced.log_start_offset,
            durability=produced.durability,
        ).encode()

    if pending.future is None or pending.done:
        return receipt(True)
    return DeferredResponse(future=pending.future, timeout_ms=_timeout_ms(listener, request), make=receipt)


def _unexpected_end(error: UnexpectedEnd) -> bytes:
    return m.ConditionalProduceResponse(
        partition=error.partition,
        base_offset=m.UNKNOWN_OFFSET,
        last_offset=m.UNKNOWN_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        log_start_offset=m.UNKNOWN_OFFSET,
        durability=m.Durability.NONE,
        code=error_code_of(error),
        message=str(error),
        log_end_offset=error.log_end_offset,
    ).encode()


def _timeout_ms(listener: BinaryListener, request: m.ProduceBatchRequest) -> int:
    return max(1, min(request.timeout_ms, listener.broker.settings.request_timeout_ms))


async def mirror_append(listener: BinaryListener, request: m.MirrorAppendRequest) -> Buffers:
    state = await listener.broker.copies.append(
        request.topic,
        UUID(bytes=bytes(request.topic_id)),
        request.partition,
        expected_end=request.expected_end,
        log_start_offset=request.log_start_offset,
        batches=bytearray(request.batches),
    )
    return m.MirrorAppendResponse(
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
        leader_epoch=state.leader_epoch,
    ).encode()


async def flush_topic(listener: BinaryListener, request: m.FlushTopicRequest) -> Buffers:
    await listener.broker.flush(request.topic)
    return m.FlushTopicResponse().encode()


async def init_producer_id(listener: BinaryListener, request: m.InitProducerIdRequest) -> Buffers:
    producer_id, producer_epoch = await listener.broker.init_producer_id()
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch).encode()


async def named_producer(listener: BinaryListener, request: m.NamedProducerRequest) -> Buffers:
    producer = await listener.broker.begin_producer_version(request.name, request.version)
    return m.NamedProducerResponse(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, is_resumed=producer.is_resumed
    ).encode()


async def producer_state(listener: BinaryListener, request: m.ProducerStateRequest) -> Buffers:
    view = await listener.broker.producer(request.topic, request.partition, request.producer_id)
    return m.ProducerStateResponse(
        producer_epoch=-1 if view is None else view.epoch,
        last_sequence=-1 if view is None else view.last_sequence,
        last_offset=-1 if view is None else view.last_offset,
    ).encode()
