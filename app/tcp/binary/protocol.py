"""A connection of the binary protocol: cuts the stream into frames and keeps their order.

Requests take effect in the order they came. Most begin at once and may finish
later; those that change what topics there are (and a produce that makes one)
are *barriers*: nothing behind one begins before it has ended, so a client may
pipeline CREATE_TOPIC, PRODUCE, FLUSH and find each done when the next begins.

ADR-0009 produces that arrive together for one topic are appended together, as
one batch with one write, and answered with one write: that is where the speed
of the simple protocol comes from.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from functools import partial
from typing import cast

from stele.wire import messages as m
from stele.wire.record_batch import HEADER_BYTES, build_values

from ...broker.produce import Acks, PendingProduce
from ...errors import BatchTooLarge, InvalidRequest, RequestTimedOut, SteleError, UnknownTopic
from ...settings import Settings
from ..connection import Buffers, ConnectionRegistry, OrderedConnection, WhenDone
from ..errors import error_code_of
from .handlers import HANDLERS, Listener, PendingAnswer, answer_bytes_max

_LENGTH = struct.Struct(">I")
_LENGTH_TYPE = struct.Struct(">IB")
_FRAME_MIN = 5
_PRODUCE = m.MessageType.PRODUCE_REQUEST
# Length, attributes, timestamp and offset deltas, key and value lengths, header count: at most this.
_RECORD_OVERHEAD_BYTES = 32

_BARRIERS = frozenset(
    {
        m.MessageType.CREATE_TOPIC_REQUEST,
        m.MessageType.DELETE_TOPIC_REQUEST,
        m.MessageType.ALTER_TOPIC_REQUEST,
    }
)


# A request that carries no records: enough for thousands of names, too little to keep a decoder busy.
REQUEST_BYTES_MAX = 1024 * 1024


class BinaryConnection(OrderedConnection):
    """One client of the binary listener."""

    __slots__ = ("_frame_bytes_max", "_has_held_requests", "_listener", "_needed", "_partial")

    def __init__(self, *, listener: Listener, settings: Settings, registry: ConnectionRegistry) -> None:
        super().__init__(limits=settings, registry=registry)
        self._listener = listener
        self._frame_bytes_max = settings.frame_bytes_max
        self._partial = bytearray()
        # Bytes ``_partial`` needs before it is worth looking at again.
        self._needed = 0
        self._has_held_requests = False

    # ── stream → frames ──

    def has_partial_frame(self) -> bool:
        return bool(self._partial) and not self._has_held_requests

    def has_held_requests(self) -> bool:
        return self._has_held_requests

    def frames_received(self, data: bytes) -> bool:
        partial = self._partial
        if partial:
            partial += data
            if len(partial) < self._needed:
                return False
            if not self.may_take:
                self._has_held_requests = True
                return False
            data = bytes(partial)
            partial.clear()
        rest = self._take_frames(data)
        if rest < len(data):
            partial += memoryview(data)[rest:]
        return rest > 0

    def _take_frames(self, buffer: bytes) -> int:
        """Take the whole frames of ``buffer``; returns where the first begins that was not taken."""
        position, end = 0, len(buffer)
        self._has_held_requests = False
        while end - position >= _FRAME_MIN:
            if not self.may_take:
                self._has_held_requests = True
                self._needed = 0
                return position
            length, frame_type = _LENGTH_TYPE.unpack_from(buffer, position)
            if not _FRAME_MIN <= length <= self._frame_bytes_max:
                self._refuse_frame(length)
                return end
            if length > end - position:
                self._needed = length
                return position
            if frame_type == _PRODUCE:
                position = self._take_produces(buffer, position, end)
            else:
                body = buffer[position + _FRAME_MIN : position + length]
                self._take_request(frame_type, body)
                position += length
        if 4 <= end - position < _FRAME_MIN:
            (length,) = _LENGTH.unpack_from(buffer, position)
            if not _FRAME_MIN <= length <= self._frame_bytes_max:
                self._refuse_frame(length)
                return end
        self._needed = _FRAME_MIN
        return position

    def _refuse_frame(self, length: int) -> None:
        """Nothing behind such a length can be trusted."""
        self.answer(
            self.refusal(
                f"frame length is {length}; it counts the whole frame and must be between {_FRAME_MIN} "
                f"and {self._frame_bytes_max} bytes; the connection is closed"
            )
        )
        self.close_after_answers()

    def refusal(self, reason: str) -> bytes:
        return m.ErrorResponse(response_type=m.MessageType.ERROR, message=reason).encode()

    # ── produce in runs ──

    def _take_produces(self, buffer: bytes, position: int, end: int) -> int:
        """Append the run of PRODUCE frames for one topic that begins at ``position``; returns its end."""
        start = position + _FRAME_MIN
        length, _ = _LENGTH_TYPE.unpack_from(buffer, position)
        try:
            topic, first = _decode_produce(buffer[start : position + length])
        except m.MessageError as error:
            self.answer(_error(_PRODUCE, str(error)))
            return position + length
        found = self._find_topic(topic)
        if found is None:
            self.pause_requests()
            self.answer_later(self._create_and_produce(topic, first), is_change=True)
            return position + length
        if isinstance(found, SteleError):
            self.answer(_error(_PRODUCE, str(found)))
            return position + length
        room = found - HEADER_BYTES - _RECORD_OVERHEAD_BYTES - len(first)
        if room < 0:
            too_large = BatchTooLarge(len(first), limit=found, what="record")
            self.answer(_error(_PRODUCE, str(too_large)))
            return position + length
        values = [first]
        position += length
        # The same topic again is recognised by its bytes; whatever differs ends the run.
        topic_end = start + 4 + _LENGTH.unpack_from(buffer, start)[0]
        topic_bytes = buffer[start:topic_end]
        fixed = _FRAME_MIN + len(topic_bytes) + 4
        while end - position >= fixed:
            length, frame_type = _LENGTH_TYPE.unpack_from(buffer, position)
            data_start = position + fixed
            if (
                frame_type != _PRODUCE
                or length > end - position
                or not buffer.startswith(topic_bytes, position + _FRAME_MIN)
                or _LENGTH.unpack_from(buffer, data_start - 4)[0] != length - fixed
                or length > self._frame_bytes_max
            ):
                break
            room -= length - fixed + _RECORD_OVERHEAD_BYTES
            if room < 0:
                break
            values.append(buffer[data_start : position + length])
            position += length
        self._produce(topic, values)
        return position

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

    def _find_topic(self, topic: str) -> int | SteleError | None:
        """Its ``max.message.bytes``; None if it must be created first; the error if it cannot be."""
        try:
            return self._listener.broker.topic(topic).config.max_message_bytes
        except UnknownTopic as error:
            return None if self._listener.broker.settings.auto_create_topics_enable else error
        except SteleError as error:
            return error

    # ── all other requests ──

    def _take_request(self, frame_type: int, body: bytes) -> None:
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
            if self._find_topic(topic) is None or self._listener.broker.must_wait_for_room(
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
        if isinstance(answer, PendingAnswer):
            settle = partial(_settled, frame_type, answer)
            self.answer_when(WhenDone(answer.future, answer.timeout_ms / 1000, settle))
            return
        if not isinstance(answer, Coroutine):
            self.answer(answer)
            return
        if frame_type in _BARRIERS or (
            frame_type == m.MessageType.METADATA_REQUEST and cast("m.MetadataRequest", request).auto_create
        ):
            self.pause_requests()
            self.answer_later(self._finish_barrier(frame_type, answer), is_change=True)
        elif (bytes_max := answer_bytes_max(self._listener, request)) is not None:
            self.read_later(self._finish(frame_type, answer), bytes_max=bytes_max)
        else:
            self.answer_later(self._finish(frame_type, answer))

    async def _finish(self, frame_type: int, answer: Coroutine[object, object, Buffers]) -> Buffers:
        try:
            return await answer
        except SteleError as error:
            return _error_of(frame_type, error)

    # ── barriers ──

    async def _finish_barrier(self, frame_type: int, answer: Coroutine[object, object, Buffers]) -> Buffers:
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
        if isinstance(answer, PendingAnswer):
            done, _ = await asyncio.wait((answer.future,), timeout=answer.timeout_ms / 1000)
            return _settled(frame_type, answer, bool(done))
        if isinstance(answer, Coroutine):
            return await self._finish(frame_type, answer)
        return answer


def _settled(frame_type: int, answer: PendingAnswer, has_ended: bool) -> Buffers:
    if not has_ended:
        return _error_of(frame_type, RequestTimedOut(answer.what, timeout_ms=answer.timeout_ms))
    try:
        return answer.encode()
    except SteleError as error:
        return _error_of(frame_type, error)


def _decode_produce(body: bytes) -> tuple[str, bytes]:
    request = cast("m.ProduceRequest", m.decode_request(_PRODUCE, body))
    return request.topic, request.data


def _error(frame_type: int, message: str) -> bytes:
    return m.ErrorResponse(response_type=frame_type + 1, message=message).encode()


def _error_of(frame_type: int, error: SteleError) -> bytes:
    return m.ErrorResponse(
        response_type=frame_type + 1, code=error_code_of(error), message=str(error)
    ).encode()
