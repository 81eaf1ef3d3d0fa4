"""A connection of the binary protocol: requests in order, responses in the same order.

Requests take effect in the order in which they arrive. Most begin at once and may
finish later. Those that change which topics exist (and a produce that creates one)
are *barriers*: no later request begins before a barrier has ended, so a client may
pipeline CREATE_TOPIC, PRODUCE, FLUSH and find each done when the next begins.

ADR-0009 produces that arrive together for one topic are appended together, as one
batch with one write, and answered with one write. That is what makes the simple
protocol fast.
"""

from __future__ import annotations

import struct
from collections.abc import Coroutine
from typing import Any, cast

from stele.wire import messages as m
from stele.wire.record_batch import HEADER_BYTES, build_values

from ...broker.produce import Acks, PendingProduce
from ...errors import BatchTooLarge, InvalidRequest, SteleError, UnknownTopic
from ...settings import Settings
from ..connection import Connection, ConnectionRegistry
from ..deferred_response import DeferredResponse
from ..errors import error_code_of
from ..response_queue import Buffers
from .dispatch import HANDLERS, answer_bytes_max, is_barrier
from .handlers.context import BinaryListener
from .request_cutter import BinaryRequestCutter, Frame

_LENGTH = struct.Struct(">I")
_PRODUCE = m.MessageType.PRODUCE_REQUEST
# Length, attributes, timestamp and offset deltas, key and value lengths, header count: at most this.
_RECORD_OVERHEAD_BYTES = 32
# A request that carries no records: enough for thousands of names, too little to keep a decoder busy.
REQUEST_BYTES_MAX = 1024 * 1024


class BinaryConnection(Connection[Frame]):
    """One client of the binary listener."""

    __slots__ = ("_frames", "_listener")

    def __init__(self, *, listener: BinaryListener, settings: Settings, registry: ConnectionRegistry) -> None:
        self._frames = BinaryRequestCutter(frame_bytes_max=settings.frame_bytes_max)
        super().__init__(self._frames, limits=settings, registry=registry)
        self._listener = listener

    def begin(self, request: Frame) -> None:
        frame_type, body = request
        if frame_type == _PRODUCE:
            self._begin_produce(body)
        else:
            self._begin_request(frame_type, body)

    def refusal(self, reason: str) -> bytes:
        return m.ErrorResponse(response_type=m.MessageType.ERROR, message=reason).encode()

    # ── produces of ADR-0009, in runs ──

    def _begin_produce(self, body: bytes) -> None:
        """Append the value of ``body``, with those of the same topic that follow it."""
        try:
            topic, first = _decode_produce(body)
        except m.MessageError as error:
            self.answer(_error(_PRODUCE, str(error)))
            return
        value_bytes_max = self._value_bytes_max(topic)
        if value_bytes_max is None:
            self.pause_requests()
            self.answer_later(self._create_and_produce(topic, first), is_change=True)
            return
        if isinstance(value_bytes_max, SteleError):
            self.answer(_error(_PRODUCE, str(value_bytes_max)))
            return
        left = value_bytes_max - HEADER_BYTES - _RECORD_OVERHEAD_BYTES - len(first)
        if left < 0:
            too_large = BatchTooLarge(len(first), limit=value_bytes_max, what="record")
            self.answer(_error(_PRODUCE, str(too_large)))
            return
        values = [first]
        if self._frames.has_more():
            topic_bytes = body[: _LENGTH.size + _LENGTH.unpack_from(body)[0]]
            values += self._frames.take_values(
                topic_bytes, bytes_max=left, overhead_bytes=_RECORD_OVERHEAD_BYTES
            )
        self._produce(topic, values)

    def _produce(self, topic: str, values: list[bytes]) -> None:
        broker = self._listener.broker
        batch = build_values(values, broker.now_ms())
        if broker.must_wait_for_room(topic, batch):
            self.pause_requests()
            self.answer_later(self._produce_when_room(topic, batch, len(values)), is_change=True)
            return
        try:
            pending = broker.produce(topic, 0, batch, acks=Acks.LEADER)
        except SteleError as error:
            self.answer(_error(_PRODUCE, str(error)) * len(values))
            return
        if pending.done:
            self.answer(m.encode_produce_responses(pending.base_offset, len(values)))
        else:
            self.answer_later(self._produced(pending, len(values)))

    async def _produce_when_room(self, topic: str, batch: bytearray, count: int) -> Buffers:
        try:
            await self._listener.broker.produce_room()
            pending = self._listener.broker.produce(topic, 0, batch, acks=Acks.LEADER)
        except SteleError as error:
            return _error(_PRODUCE, str(error)) * count
        finally:
            self.resume_requests()
        return await self._produced(pending, count)

    async def _produced(self, pending: PendingProduce, count: int) -> Buffers:
        """The answers of a topic that syncs before it acks (``flush.messages``), or compresses its batches."""
        try:
            await pending.wait(self._listener.broker.settings.request_timeout_ms)
        except SteleError as error:
            return _error(_PRODUCE, str(error)) * count
        return m.encode_produce_responses(pending.base_offset, count)

    def _value_bytes_max(self, topic: str) -> int | SteleError | None:
        """Return ``max.message.bytes``, None if the topic must be created first, or why it cannot be."""
        try:
            return self._listener.broker.topic(topic).config.max_message_bytes
        except UnknownTopic as error:
            return None if self._listener.broker.settings.auto_create_topics_enable else error
        except SteleError as error:
            return error

    # ── all other requests ──

    def _begin_request(self, frame_type: int, body: bytes) -> None:
        """Begin a request, and answer it if it can be answered at once."""
        if frame_type not in m.REQUESTS:
            self.answer(self.refusal(f"frame type {frame_type:#04x} is not a request"))
            return
        if len(body) > REQUEST_BYTES_MAX and frame_type != m.MessageType.PRODUCE_BATCH_REQUEST:
            too_large = InvalidRequest(
                f"a request without records of {len(body)} bytes; it may have {REQUEST_BYTES_MAX}"
            )
            self.answer(_error_of(frame_type, too_large))
            return
        try:
            request = m.decode_request(frame_type, body)
        except m.MessageError as error:
            self.answer(_error_of(frame_type, InvalidRequest(str(error))))
            return
        if frame_type == m.MessageType.PRODUCE_BATCH_REQUEST:
            batch_request = cast("m.ProduceBatchRequest", request)
            topic = batch_request.topic
            if self._value_bytes_max(topic) is None or self._listener.broker.must_wait_for_room(
                topic, batch_request.batches
            ):
                self.pause_requests()
                self.answer_later(self._create_and_handle(topic, frame_type, request), is_change=True)
                return
        try:
            answer = HANDLERS[type(request)](self._listener, request)
        except SteleError as error:
            self.answer(_error_of(frame_type, error))
            return
        if isinstance(answer, DeferredResponse):
            self._answer_deferred(frame_type, answer)
            return
        if not isinstance(answer, Coroutine):
            self.answer(answer)
            return
        if is_barrier(request):
            self.pause_requests()
            self.answer_later(self._finish_barrier(frame_type, answer), is_change=True)
        elif (bytes_max := answer_bytes_max(self._listener, request)) is not None:
            self.read_later(self._finish(frame_type, answer), bytes_max=bytes_max)
        else:
            self.answer_later(self._finish(frame_type, answer))

    def _answer_deferred(self, frame_type: int, deferred: DeferredResponse[Buffers]) -> None:
        def encode(has_ended: bool) -> Buffers:
            try:
                return deferred.make(has_ended)
            except SteleError as error:
                return _error_of(frame_type, error)

        self.answer_deferred(deferred, encode)

    async def _finish(self, frame_type: int, answer: Coroutine[Any, Any, Buffers]) -> Buffers:
        try:
            return await answer
        except SteleError as error:
            return _error_of(frame_type, error)

    # ── barriers ──

    async def _finish_barrier(self, frame_type: int, answer: Coroutine[Any, Any, Buffers]) -> Buffers:
        try:
            return await self._finish(frame_type, answer)
        finally:
            self.resume_requests()

    async def _create_and_produce(self, topic: str, data: bytes) -> Buffers:
        broker = self._listener.broker
        try:
            await broker.ensure_topic(topic)
            pending = broker.produce(topic, 0, build_values([data], broker.now_ms()), acks=Acks.LEADER)
        except SteleError as error:
            return _error(_PRODUCE, str(error))
        finally:
            self.resume_requests()
        return await self._produced(pending, 1)

    async def _create_and_handle(self, topic: str, frame_type: int, request: m.Request) -> Buffers:
        try:
            await self._listener.broker.ensure_topic(topic)
            await self._listener.broker.produce_room()
            answer = HANDLERS[type(request)](self._listener, request)
        except SteleError as error:
            return _error_of(frame_type, error)
        finally:
            self.resume_requests()
        if isinstance(answer, DeferredResponse):
            return await self._finish(frame_type, answer.wait())
        if isinstance(answer, Coroutine):
            return await self._finish(frame_type, answer)
        return answer


def _decode_produce(body: bytes) -> tuple[str, bytes]:
    request = cast("m.ProduceRequest", m.decode_request(_PRODUCE, body))
    return request.topic, request.data


def _error(frame_type: int, message: str) -> bytes:
    return m.ErrorResponse(response_type=frame_type + 1, message=message).encode()


def _error_of(frame_type: int, error: SteleError) -> bytes:
    return m.ErrorResponse(
        response_type=frame_type + 1, code=error_code_of(error), message=str(error)
    ).encode()
