"""A connection of the binary protocol: requests in order, responses in the same order.

Requests take effect in the order in which they arrive. Most begin at once and may
finish later. Those that change which topics exist (and a produce that creates one)
are *barriers*: no later request begins before a barrier has ended, so a client may
pipeline CREATE_TOPIC, PRODUCE, FLUSH and find each done when the next begins. A read
begins when the produces before it are answered, and so sees their records.

ADR-0009 produces that arrive together for one topic are appended together, as one
batch with one write, and answered with one write. That is what makes the simple
protocol fast.

It is one class in one file, because the order of requests and responses is kept by all of its methods
together.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Collection, Coroutine
from dataclasses import replace
from typing import Any, cast

from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.record_batch import HEADER_BYTES, build_values
from stele.wire.schema import ELEMENTS_PER_READ

from ...broker.producing.produce import Acks, PendingProduce
from ...broker.quotas.timed import HeldTime
from ...errors import AuthorizationError, BatchTooLarge, InvalidRequest, SteleError, UnknownTopic
from ...patience import Timeout
from ...security.acl import WRITE_TOPIC
from ...security.authorizer import Access
from ...security.forwarding import ForwardedClient
from ...security.principal import Principal
from ...settings import Settings
from ...work_budget import Steps, at_once, in_one_step, in_turns
from ..begun_work import Begun, begin_now, go_on
from ..connection import Connection
from ..connection_owner import ConnectionRegistry
from ..deferred_response import DeferredResponse
from ..errors import error_code_of, failure
from ..quota_delays import QuotaDelays
from ..response_queue import Buffers, size_of
from .dispatch import answer_bytes_max, begin, is_barrier, limited, reads_records, sees_records
from .forwarding import handle
from .guards import GUARDS, check, check_produce
from .handlers.context import BinaryListener
from .login import LOGIN_FRAME_BYTES_MAX, NO_LOGINS, BinaryLogin
from .request_cutter import BinaryRequestCutter, Frame

_LENGTH = struct.Struct(">I")
_PRODUCE = m.MessageType.PRODUCE_REQUEST
_AUTHENTICATE = m.MessageType.AUTHENTICATE_REQUEST
_BATCH_REQUESTS = frozenset(
    (
        m.MessageType.PRODUCE_BATCH_REQUEST,
        m.MessageType.TRANSACTIONAL_PRODUCE_REQUEST,
        m.MessageType.CONDITIONAL_PRODUCE_REQUEST,
    )
)
# Those that may be as large as a frame.
_WITH_RECORDS = _BATCH_REQUESTS | {m.MessageType.MIRROR_APPEND_REQUEST}
# Length, attributes, timestamp and offset deltas, key and value lengths, header count: at most this.
_RECORD_OVERHEAD_BYTES = 32
# A request that carries no records: enough for thousands of names, too little to keep a decoder busy.
REQUEST_BYTES_MAX = 1024 * 1024

# What a plaintext client at a listener with TLS gets to read.
PLAINTEXT_ANSWER = m.ErrorResponse(
    response_type=m.MessageType.ERROR,
    message="this listener speaks TLS; connect with stele+tls://HOST:PORT",
).encode()


class BinaryConnection(Connection[Frame]):
    """One client of the binary listener."""

    __slots__ = (
        "_asked_for",
        "_delays",
        "_frame_bytes_max",
        "_frames",
        "_listener",
        "_login",
        "_login_timer",
        "_produces",
    )

    def __init__(
        self, *, listener: BinaryListener, settings: Settings, registry: ConnectionRegistry[Connection[Any]]
    ) -> None:
        self._frame_bytes_max = settings.frame_bytes_max
        self._frames = BinaryRequestCutter(frame_bytes_max=settings.frame_bytes_max)
        super().__init__(self._frames, limits=settings, registry=registry)
        self._listener = listener
        # The principal whose access has been looked up.
        self._asked_for: Principal | None = None
        # None until there are quotas.
        self._delays: QuotaDelays | None = None
        # None without logins.
        self._login: BinaryLogin | None = None
        self._login_timer: Timeout | None = None
        # The produces that are not answered yet; None if there was never one.
        self._produces: set[asyncio.Future[None]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        security = self._listener.security
        if security.active is None:
            return
        self._login = BinaryLogin(
            security.active,
            principal=self.principal,
            is_required=security.is_required,
            session_ms_max=security.session_ms_max,
        )
        if self._login.must_login:
            self._frames.limit(LOGIN_FRAME_BYTES_MAX)
            self._login_timer = Timeout(self._loop, security.login_timeout_ms / 1000, self._login_overdue)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._delays is not None:
            self._delays.close()
        self._forget_login_timer()

    def begin(self, request: Frame) -> None:
        if self._listener.broker.quotas.is_active:
            self._begin_under_quotas(request)
        else:
            self._begin(request)

    def _begin(self, request: Frame) -> None:
        frame_type, body = request
        if frame_type == _AUTHENTICATE:
            self._begin_login(body)
            return
        if self._login is not None and (refusal := self._login.refusal(self._now_ms)) is not None:
            self._refuse(frame_type, refusal)
            return
        if self._asked_for is not self.principal:
            self._look_up_access()
        if frame_type == _PRODUCE:
            self._begin_produce(body)
        else:
            self._begin_request(frame_type, body)

    def _look_up_access(self) -> None:
        """Look up what the client may do, if that is checked: its principal is new."""
        self._asked_for = self.principal
        security = self._listener.security
        if security.authorizer is not None:
            self._listener = replace(self._listener, access=security.access(self.principal, self.peer_host))

    def refusal(self, reason: str) -> bytes:
        return m.ErrorResponse(response_type=m.MessageType.ERROR, message=reason).encode()

    # ── login ──

    def _refuse(self, frame_type: int, reason: str) -> None:
        """Answer a client without a login in its own response format, and close."""
        response = m.ErrorResponse(
            response_type=frame_type + 1 if frame_type in m.REQUESTS else m.MessageType.ERROR,
            code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            message=reason,
        )
        self.answer(response.encode())
        self.discard_requests()
        self.close_after_answers()

    # ── quotas: a client that exceeds one is answered, and then not read from for a while ──

    def _begin_under_quotas(self, request: Frame) -> None:
        if self._delays is None:
            self._delays = QuotaDelays("binary", self._listener.broker.quotas, self)
        quotas = self._delays.quotas
        if not quotas.times_requests:
            self._begin(request)
            return
        held = HeldTime(quotas.clock_s)
        held.call(lambda: self._begin(request))
        self._delays.charge_time(self._delays.client(), held.seconds)

    def _charge_produce(self, size_bytes: int) -> None:
        delays = self._delays
        if delays is not None and delays.quotas.is_active:
            delays.charge(delays.meters().produce, size_bytes)

    async def _charged(
        self, work: Coroutine[Any, Any, Buffers], delays: QuotaDelays, *, is_read: bool
    ) -> Buffers:
        """Return the answer of ``work``, and charge its time and what it has read."""
        if delays.quotas.times_requests:
            held = HeldTime(delays.quotas.clock_s)
            answer = await held.run(work)
            delays.charge_time(delays.client(), held.seconds)
        else:
            answer = await work
        if is_read:
            delays.charge(delays.meters().consume, size_of(answer))
        return answer

    # ── logins ──

    def _begin_login(self, body: bytes) -> None:
        login = self._login
        if login is None:
            response = m.ErrorResponse(
                response_type=_AUTHENTICATE + 1, code=ErrorCode.SECURITY_DISABLED, message=NO_LOGINS
            )
            self.answer(response.encode())
            return
        try:
            if len(body) > LOGIN_FRAME_BYTES_MAX:
                raise m.MessageError(
                    f"the login has {len(body)} bytes, more than the {LOGIN_FRAME_BYTES_MAX} that it may have"
                )
            request = cast("m.AuthenticateRequest", m.decode_request(_AUTHENTICATE, body))
        except m.MessageError as error:
            if login.must_login:
                self._refuse(_AUTHENTICATE, str(error))
            else:
                self.answer(_error_of(_AUTHENTICATE, InvalidRequest(str(error))))
            return
        # A barrier: what the client may send next depends on it.
        self.pause_requests()
        self.answer_later(self._authenticate(login, request))

    async def _authenticate(self, login: BinaryLogin, request: m.AuthenticateRequest) -> Buffers:
        try:
            peer = self._listener.security.peer(self.peer_address, self.peer_host)
            answer = await login.authenticate(request, peer, self._now_ms)
            if answer.is_last:
                self.discard_requests()
                self.close_after_answers()
            elif not login.must_login:
                self.principal = login.principal
                self.credential = "" if login.login is None else login.login.credential
                self._forget_login_timer()
                self._frames.limit(self._frame_bytes_max)
            return answer.frame
        finally:
            self.resume_requests()

    def _login_overdue(self) -> None:
        if not self.is_closed:
            self.discard_requests()
            self._give_up("the client has not logged in in time")

    def _forget_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    # ── produces of ADR-0009, in runs ──

    def _begin_produce(self, body: bytes) -> None:
        """Append the value of ``body``, with those of the same topic that follow it."""
        try:
            topic, first = _decode_produce(body)
        except m.MessageError as error:
            self.answer(_error(_PRODUCE, str(error)))
            return
        access = self._listener.access
        # The run that follows is of the same topic.
        if access is not None and not access.was_allowed(WRITE_TOPIC, topic) and self._refuses(access, topic):
            return
        value_bytes_max = self._value_bytes_max(topic)
        if value_bytes_max is None:
            # It may have existed when it was written to before, so the right to create it was not needed.
            if access is not None and self._refuses(access, topic):
                return
            self._charge_produce(len(body))
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
        # Values in one batch are refused together, which is no answer to requests of one value each.
        if self._frames.has_more() and not self._listener.broker.topic(topic).config.has_contract:
            topic_bytes = body[: _LENGTH.size + _LENGTH.unpack_from(body)[0]]
            values += self._frames.take_values(
                topic_bytes, bytes_max=left, overhead_bytes=_RECORD_OVERHEAD_BYTES
            )
        self._produce(topic, values)

    def _refuses(self, access: Access, topic: str) -> bool:
        """Answer a produce that is not allowed, and return whether it is not."""
        try:
            check_produce(self._listener, access, topic)
        except AuthorizationError as error:
            self.answer(_error(_PRODUCE, str(error)))
            return True
        return False

    def _produce(self, topic: str, values: list[bytes]) -> None:
        broker = self._listener.broker
        try:
            batch = build_values(values, broker.now_ms())
            self._charge_produce(len(batch))
            if broker.must_wait_for_room(topic, batch):
                self.pause_requests()
                self.answer_later(self._produce_when_room(topic, batch, len(values)), is_change=True)
                return
            pending = broker.produce(topic, 0, batch, acks=Acks.LEADER)
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            self.answer(self._failed_produces(error, len(values)))
            return
        if pending.done:
            self.answer(m.encode_produce_responses(pending.base_offset, len(values)))
        else:
            self._note_produce(pending.future)
            self.answer_later(self._produced(pending, len(values)))

    def _note_produce(self, future: asyncio.Future[None] | None) -> None:
        """Let later reads of this connection wait for a produce on its way."""
        if future is None or future.done():
            return
        if self._produces is None:
            self._produces = set()
        self._produces.add(future)
        future.add_done_callback(self._produces.discard)

    async def _after_produces(
        self, produces: Collection[asyncio.Future[None]], read: Coroutine[Any, Any, Buffers]
    ) -> Buffers:
        """Read when the produces before it are answered; no later request begins before the read."""
        try:
            await asyncio.wait(produces)
        except asyncio.CancelledError:
            read.close()
            raise
        finally:
            self.resume_requests()
        return await read

    async def _produce_when_room(self, topic: str, batch: bytearray, count: int) -> Buffers:
        try:
            await self._listener.broker.produce_room()
            pending = self._listener.broker.produce(topic, 0, batch, acks=Acks.LEADER)
            self._note_produce(pending.future)
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            return self._failed_produces(error, count)
        finally:
            self.resume_requests()
        return await self._produced(pending, count)

    async def _produced(self, pending: PendingProduce, count: int) -> Buffers:
        """Wait for a produce, and return its responses.

        It waits if the topic syncs before it acks (``flush.messages``) or its batches go through a thread.
        """
        try:
            await pending.wait(self._listener.broker.settings.request_timeout_ms)
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            return self._failed_produces(error, count)
        return m.encode_produce_responses(pending.base_offset, count)

    def _value_bytes_max(self, topic: str) -> int | SteleError | None:
        """Return ``max.message.bytes``; None if the topic must be created first.

        Returns the error if it cannot be created.
        """
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
        if len(body) > REQUEST_BYTES_MAX and frame_type not in _WITH_RECORDS:
            too_large = InvalidRequest(
                f"a request without records of {len(body)} bytes; it may have {REQUEST_BYTES_MAX}"
            )
            self.answer(_error_of(frame_type, too_large))
            return
        try:
            if len(body) <= ELEMENTS_PER_READ or frame_type in _WITH_RECORDS:
                request = m.decode_request(frame_type, body)
            else:
                steps = m.decode_request_in_steps(frame_type, body)
                first = in_one_step(steps)
                if first is None:
                    self.pause_requests()
                    self.answer_later(self._begin_long(frame_type, body, steps))
                    return
                request = first
            access = self._listener.access
            # As ``check``, which would be a call more.
            if access is not None and (guard_check := GUARDS[type(request)].check) is not None:
                steps_of_check = guard_check(self._listener, access, request)
                if steps_of_check is not None:
                    at_once(steps_of_check)
        except m.MessageError as error:
            self.answer(_error_of(frame_type, InvalidRequest(str(error))))
            return
        except SteleError as error:
            self.answer(_error_of(frame_type, error))
            return
        self._begin_checked(frame_type, body, request)

    async def _begin_long(self, frame_type: int, body: bytes, rest: Steps[m.Request]) -> Buffers:
        """Decode the rest of a request in turns, and begin it: its response follows this empty one."""
        try:
            request = await in_turns(rest)
            await check(self._listener, request)
        except m.MessageError as error:
            return _error_of(frame_type, InvalidRequest(str(error)))
        except SteleError as error:
            return _error_of(frame_type, error)
        finally:
            # The next one begins after this one has.
            self.resume_requests()
        self._begin_checked(frame_type, body, request)
        return b""

    def _begin_checked(self, frame_type: int, body: bytes, request: m.Request) -> None:
        access = self._listener.access
        if frame_type in _BATCH_REQUESTS:
            batch_request = cast("m.ProduceBatchRequest", request)
            topic = batch_request.topic
            self._charge_produce(len(body))
            try:
                must_wait = self._value_bytes_max(topic) is None or (
                    self._listener.broker.must_wait_for_room(topic, batch_request.batches)
                )
            except Exception as error:  # noqa: BLE001 - the edge of a connection
                self.answer(self._failed(frame_type, error))
                return
            if must_wait:
                self.pause_requests()
                self.answer_later(self._create_and_handle(topic, frame_type, request), is_change=True)
                return
        delays = self._delays if self._listener.broker.quotas.is_active else None
        if delays is not None:
            request = limited(request, delays.meters().consume.at_once_max())
        try:
            if self._listener.forwarding is None:
                answer = begin(self._listener, request)
            else:
                client = ForwardedClient(self.principal, self.peer_host)
                answer = handle(self._listener, request, client)
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            self.answer(self._failed(frame_type, error))
            return
        if isinstance(answer, Coroutine) and delays is not None:
            answer = self._charged(answer, delays, is_read=reads_records(request))
        if isinstance(answer, DeferredResponse):
            self._note_produce(answer.future)
            self._answer_deferred(frame_type, answer)
            return
        if not isinstance(answer, Coroutine):
            self.answer(answer)
            return
        if self._produces and sees_records(request):
            self.pause_requests()
            answer = self._after_produces(list(self._produces), answer)
        if is_barrier(request):
            self.pause_requests()
            self.answer_later(self._finish_barrier(frame_type, answer), is_change=True)
            return
        later = self._finish(frame_type, answer)
        bytes_max = answer_bytes_max(self._listener, request)
        if bytes_max is None:
            if access is not None:
                later = self._checked(request, frame_type, later, access.epoch)
            self.answer_later(later)
            return
        rest = self.begin_read(later)
        if rest is None:
            # No rule can have changed: nothing else has run since the check.
            return
        if access is not None:
            checked = self._checked(request, frame_type, go_on(rest.work, rest.awaited), access.epoch)
            rest = Begun(checked, begin_now(checked)[0])
        self.finish_read(rest, bytes_max=bytes_max)

    def _answer_deferred(self, frame_type: int, deferred: DeferredResponse[Buffers]) -> None:
        def encode(has_ended: bool) -> Buffers:
            try:
                return deferred.make(has_ended)
            except Exception as error:  # noqa: BLE001 - the edge of a connection
                return self._failed(frame_type, error)

        self.answer_deferred(deferred, encode)

    async def _finish(self, frame_type: int, answer: Coroutine[Any, Any, Buffers]) -> Buffers:
        try:
            return await answer
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            return self._failed(frame_type, error)

    def _failed(self, frame_type: int, error: Exception) -> bytes:
        """Return the response to a request that has ended with ``error``."""
        name = f"{m.MessageType(frame_type).name} of {self.peer}"
        code, text = failure(error, name, self._listener.broker.counts)
        return m.ErrorResponse(response_type=frame_type + 1, code=code, message=text).encode()

    def _failed_produces(self, error: Exception, count: int) -> bytes:
        """Return the responses to this many produces, whose errors have no codes."""
        _, text = failure(error, f"{_PRODUCE.name} of {self.peer}", self._listener.broker.counts)
        return _error(_PRODUCE, text) * count

    async def _checked(
        self, request: m.Request, frame_type: int, answer: Awaitable[Buffers], epoch: object
    ) -> Buffers:
        """Check again when the answer is there, if rules have changed meanwhile.

        Reads and polls wait. ``epoch`` is that of the access under which the request began.
        """
        buffers = await answer
        access = self._listener.access
        if access is not None and access.epoch is not epoch:
            try:
                await check(self._listener, request)
            except AuthorizationError as error:
                return _error_of(frame_type, error)
        return buffers

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
            self._note_produce(pending.future)
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            return self._failed_produces(error, 1)
        finally:
            self.resume_requests()
        return await self._produced(pending, 1)

    async def _create_and_handle(self, topic: str, frame_type: int, request: m.Request) -> Buffers:
        try:
            await self._listener.broker.ensure_topic(topic)
            await self._listener.broker.produce_room()
            answer = begin(self._listener, request)
            if isinstance(answer, DeferredResponse):
                self._note_produce(answer.future)
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            return self._failed(frame_type, error)
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
