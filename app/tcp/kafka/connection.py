"""A connection of the Kafka protocol.

Requests in order, responses in the same order.

A request begins when the one before it has begun. Beginning decides the order: it
appends, joins or looks at the log. The request then waits in the background for a
sync, the other members or new records, while later requests begin. Requests that
change topics are *barriers*: no later request begins before a barrier has ended. So
are requests that list or describe partitions and groups, because they pause on the
way and must not see the effects of later requests of the same client.

It is one class in one file, because the order of requests and responses is kept by all of its methods
together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, cast

from stele.wire.kafka.fetch import FETCH_API as FETCH
from stele.wire.kafka.headers import SIZE, RequestHead, read_client_id, read_head
from stele.wire.kafka.produce import PRODUCE_API as PRODUCE
from stele.wire.schema import ELEMENTS_PER_READ, MalformedMessage

from ...broker.producing.produce import PendingProduce
from ...errors import SteleError, UnknownPartition
from ...patience import Timeout
from ...security.acl import WRITE_TOPIC
from ...security.authorizer import Access
from ...security.principal import Principal
from ...settings import Settings
from ...work_budget import Steps, at_once, in_one_step, in_turns, pause
from ..connection import Connection
from ..connection_owner import ConnectionRegistry
from ..deferred_response import DeferredResponse
from ..quota_delays import QuotaDelays
from ..response_queue import Buffers
from .apis import API_VERSIONS_KEY, GUARDED, SERVED, unsupported_api_versions
from .context import Context, KafkaListener, NoResponse, awaited
from .direct_charge import DirectCharge
from .direct_produce import Route, Routes
from .failures import failure_of
from .fetching.request_memo import RequestMemo
from .handlers import produce
from .request_cutter import KafkaRequestCutter
from .sasl_session import LOGIN_REQUEST_BYTES_MAX, SASL_AUTHENTICATE, SASL_HANDSHAKE, SaslSession
from .served import Served, always
from .sessions.idle_answers import IdleAnswers
from .sessions.share_sessions import ClientConnection
from .share_forwarding import FORWARDED, ForwardedShares
from .throttling import ThrottledRequest
from .trace import RequestTracer

logger = logging.getLogger(__name__)

# A request that carries no records; the largest are the assignments of large groups.
PLAIN_REQUEST_BYTES_MAX = 4 * 1024 * 1024

_PARTITIONS_AT_ONCE = 500

PRODUCE_KEY = PRODUCE.key
FETCH_KEY = FETCH.key

_numbers = count(1)


class KafkaConnection(Connection[memoryview]):
    """One client of the Kafka listener."""

    __slots__ = (
        "_access",
        "_asked_for",
        "_charge",
        "_delays",
        "_fetches",
        "_frame_bytes_max",
        "_frames",
        "_idle_answers",
        "_last_context",
        "_listener",
        "_login_timer",
        "_own",
        "_routes",
        "_sasl",
        "_shares",
        "_tracers",
    )

    def __init__(
        self,
        *,
        listener: KafkaListener,
        settings: Settings,
        registry: ConnectionRegistry[Connection[Any]],
        tracers: Sequence[RequestTracer] = (),
    ) -> None:
        self._frame_bytes_max = settings.frame_bytes_max
        self._frames = KafkaRequestCutter(frame_bytes_max=settings.frame_bytes_max)
        super().__init__(self._frames, limits=settings, registry=registry)
        self._listener = listener
        self._own = ClientConnection(number=next(_numbers))
        # None until it sends a request of a share group that another broker coordinates.
        self._shares: ForwardedShares | None = None
        self._tracers = tracers
        # None until there are quotas.
        self._delays: QuotaDelays | None = None
        self._charge: DirectCharge | None = None
        # None where nobody can log in.
        self._sasl: SaslSession | None = None
        self._login_timer: Timeout | None = None
        self._access: Access | None = None
        # Of the last request.
        self._last_context: Context | None = None
        # None until it produces.
        self._routes: Routes | None = None
        # None until it fetches.
        self._fetches: RequestMemo | None = None
        self._idle_answers: IdleAnswers | None = None
        # The principal whose access this is.
        self._asked_for: Principal | None = None

    def unreadable(self, reason: str) -> None:
        """End the connection after the responses to earlier requests.

        No later one can be answered.
        """
        logger.warning("kafka: %s is closed: %s", self.peer, reason)
        self.discard_requests()
        self.close_after_answers()

    def refusal(self, reason: str) -> bytes:
        # The protocol has no message for a refused connection.
        logger.info("kafka: %s is closed: %s", self.peer, reason)
        return b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        security = self._listener.security
        authenticator = security.active
        if authenticator is None:
            return
        self._sasl = SaslSession(
            authenticator,
            principal=self.principal,
            is_required=security.is_required,
            session_ms_max=security.session_ms_max,
        )
        if self._sasl.must_login:
            self._frames.limit(LOGIN_REQUEST_BYTES_MAX)
            self._login_timer = Timeout(self._loop, security.login_timeout_ms / 1000, self._login_overdue)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget_login_timer()
        self._listener.give_back(self._listener.share_sessions.lost(self._own))
        if self._shares is not None:
            self._shares.close()
        if self._delays is not None:
            self._delays.close()
        if self._idle_answers is not None:
            self._idle_answers.close()
        for tracer in self._tracers:
            tracer.closed(self.peer)

    # ── login ──

    def _login_overdue(self) -> None:
        if not self.is_closed:
            self.unreadable("it has not logged in in time")

    def _forget_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def _handshake(self, head: RequestHead, served: Served, sasl: SaslSession, mechanism: str) -> None:
        response, is_last = sasl.handshake(mechanism, head.version, self._now_ms())
        self._answer_message(head, served, response)
        if is_last:
            self.unreadable(f"SASL mechanism {mechanism[:40]!r} was refused")
        elif sasl.is_raw:
            self._frames.limit(LOGIN_REQUEST_BYTES_MAX, frame_bytes_min=0)

    async def _authenticate(
        self, head: RequestHead | None, served: Served, sasl: SaslSession, token: bytes
    ) -> Buffers:
        """Take one token; ``head`` is None for a bare one."""
        try:
            peer = self._listener.security.peer(self.peer_address, self.peer_host)
            answer = await sasl.authenticate(token, peer, self._now_ms())
            self.principal = sasl.principal
            self.credential = "" if sasl.login is None else sasl.login.credential
            if answer.is_last:
                self.discard_requests()
                self.close_after_answers()
            elif not sasl.must_login:
                self._forget_login_timer()
                self._frames.limit(self._frame_bytes_max)
            if head is not None:
                return self._encode(head, served, answer.response)
            return b"" if answer.raw is None else SIZE.pack(len(answer.raw)) + answer.raw
        finally:
            self.resume_requests()

    def _begin_login(self, head: RequestHead | None, served: Served, sasl: SaslSession, token: bytes) -> None:
        # A barrier: what the client may send next depends on it.
        self.pause_requests()
        self.answer_later(self._authenticate(head, served, sasl, token))

    # ── one request ──

    def begin(self, request: memoryview) -> None:
        sasl = self._sasl
        if sasl is not None and sasl.is_raw:
            self._begin_login(None, SERVED[SASL_AUTHENTICATE], sasl, bytes(request))
            return
        frame, head = request, read_head(request)
        if sasl is not None and (refusal := sasl.refusal(head.api_key, self._now_ms())) is not None:
            # Nothing of it is parsed.
            self.unreadable(refusal)
            return
        try:
            if head.api_key == PRODUCE_KEY and self._produce_directly(frame, head):
                return
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            response = at_once(self._failure_of_frame(head, frame, error))
            if isinstance(response, NoResponse):
                self._answer_nothing(head, SERVED[head.api_key], response)
            else:
                self._answer_message(head, SERVED[head.api_key], response)
            return
        served = SERVED.get(head.api_key)
        if served is None or not served.api.serves(head.version):
            self._refuse_version(head, served)
            return
        try:
            if len(frame) > PLAIN_REQUEST_BYTES_MAX and not served.carries_records:
                raise MalformedMessage(
                    f"{len(frame)} bytes; without records it may have {PLAIN_REQUEST_BYTES_MAX}"
                )
            decoded = self._decoded(head, served, frame)
        except MalformedMessage as error:
            self._cannot_read(head, served, error)
            return
        if isinstance(decoded, tuple):
            self._begin_decoded(head, served, frame, *decoded)
        else:
            self.pause_requests()
            self.answer_later(self._begin_long(head, served, frame, decoded), is_change=served.changes)

    def _cannot_read(self, head: RequestHead, served: Served, error: MalformedMessage) -> None:
        self.unreadable(f"{served.api.name} v{head.version} cannot be read: {error}")

    async def _begin_long(
        self, head: RequestHead, served: Served, frame: memoryview, rest: Steps[tuple[str, Any]]
    ) -> Buffers:
        """Decode the rest of a request in turns, and begin it: its response follows this empty one."""
        try:
            client_id, message = await in_turns(rest)
        except MalformedMessage as error:
            self._cannot_read(head, served, error)
            return b""
        finally:
            # The next one begins after this one has.
            self.resume_requests()
        self._begin_decoded(head, served, frame, client_id, message, is_long=True)
        return b""

    def _begin_decoded(
        self,
        head: RequestHead,
        served: Served,
        frame: memoryview,
        client_id: str,
        message: Any,
        *,
        is_long: bool = False,
    ) -> None:
        sasl = self._sasl
        if client_id:
            self.client_id = client_id
        if served.api.key == API_VERSIONS_KEY:
            self.client_name = message.client_software_name
            self.client_version = message.client_software_version
        for tracer in self._tracers:
            tracer.request(self.peer, served.api.name, head, client_id, frame)
        if sasl is not None and head.api_key == SASL_HANDSHAKE:
            self._handshake(head, served, sasl, message.mechanism)
            return
        if sasl is not None and head.api_key == SASL_AUTHENTICATE:
            self._begin_login(head, served, sasl, bytes(message.auth_bytes))
            return
        context = self._context(head, client_id)
        if is_long:
            context = replace(context, is_long=True)
        forwarded = self._forwarded(served, message) if head.api_key in FORWARDED else None
        if forwarded is not None:
            # The coordinator checks the rights.
            served = forwarded
        elif context.access is not None:
            served = GUARDED[head.api_key]
        try:
            if self._listener.broker.quotas.is_active:
                throttled = ThrottledRequest(self._quota_delays(), client_id)
                answer = throttled.handle(served, context, message, len(frame))
            else:
                answer = served.handle(context, message)
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            failure = self._failure(head, served, message, error)
            answer = in_turns(failure) if is_long else at_once(failure)
        if is_long:
            # So may be its response. The handler may pause, too, as those of APIs that walk; a read waits for long.
            is_barrier = None if served.is_barrier is None else always
            served = replace(served, lists=True, walks=served.reads is None, is_barrier=is_barrier)
            if not isinstance(answer, Coroutine):
                answer = awaited(answer)
        if isinstance(answer, served.api.response):
            self.answer(self._encode(head, served, answer))
        elif isinstance(answer, DeferredResponse):
            self._answer_deferred(head, served, message, cast("DeferredResponse[Any]", answer))
        elif isinstance(answer, NoResponse):
            self._answer_nothing(head, served, answer)
        else:
            self._answer_later(head, served, message, cast("Coroutine[Any, Any, Any]", answer))

    def _decoded(
        self, head: RequestHead, served: Served, frame: memoryview
    ) -> tuple[str, Any] | Steps[tuple[str, Any]]:
        """Return the client id and the request of a frame; or what decodes the rest of it, if it has many elements.

        Raises ``MalformedMessage``.
        """
        if head.api_key == FETCH_KEY:
            if self._fetches is None:
                self._fetches = RequestMemo()
                # Not a method of the connection: the cycle would wait for a collection of garbage.
                new_watch = partial(self._listener.broker.watch, notes_hidden=True)
                self._idle_answers = IdleAnswers(self._listener.idle_answers, new_watch)
                # It has none.
                self._last_context = None
            known = self._fetches.read(frame)
            if known is not None:
                return known
        if len(frame) <= ELEMENTS_PER_READ:
            return _read(head, served, frame)
        steps = _read_in_steps(head, served, frame)
        return in_one_step(steps) or steps

    def _context(self, head: RequestHead, client_id: str) -> Context:
        """Return the context of a request: mostly that of the one before it, which had the same."""
        access = self._access if self._asked_for is self.principal else self._access_now()
        known = self._last_context
        if (
            known is not None
            and known.version == head.version
            and known.client_id == client_id
            and known.principal is self.principal
            and known.access is access
        ):
            return known
        self._last_context = context = Context(
            listener=self._listener,
            version=head.version,
            client_id=client_id,
            client_host=self.peer_host,
            peer=self.peer,
            principal=self.principal,
            is_encrypted=bool(self.tls_version),
            access=access,
            connection=self._own,
            idle_answers=self._idle_answers,
        )
        return context

    def _produce_directly(self, frame: memoryview, head: RequestHead) -> bool:
        """Handle a Produce on the fast path (``direct_produce``).

        False if it must take the generic one.
        """
        broker = self._listener.broker
        if self._tracers or broker.is_produce_queue_full:
            return False
        if self._routes is None:
            self._routes = Routes()
        matched = self._routes.match(frame, broker.settings.request_timeout_ms)
        if matched is None:
            return False
        route, partition, records = matched
        name = route.topic
        if route.is_by_id:
            topic = broker.topic_by_id(route.topic_id)
            if topic is None or topic.is_internal:
                return False
            name = topic.name
        elif not broker.has_topic(name):
            return False
        access = self._access if self._asked_for is self.principal else self._access_now()
        if access is not None and route.granted is not access.epoch:
            if not access.was_allowed(WRITE_TOPIC, name):
                return False
            route.granted = access.epoch
        if route.client_id:
            self.client_id = route.client_id
        charge = self._charge_of(route.client_id)
        outcome: PendingProduce | SteleError
        try:
            outcome = broker.produce(name, partition, records, acks=route.acks)
        except UnknownPartition as error:
            if broker.cluster.is_shared:
                # Another broker may have added it: the generic path looks.
                return False
            outcome = error
        except SteleError as error:
            outcome = error
        delay_ms = 0 if charge is None else charge.produced(len(frame))
        if isinstance(outcome, SteleError) or outcome.done:
            self.answer(self._produced(head, route, partition, outcome, delay_ms))
            return True
        future = outcome.future
        assert future is not None
        self.answer_when(
            future,
            route.timeout_ms,
            lambda _has_ended: self._produced(head, route, partition, outcome, delay_ms),
        )
        return True

    def _produced(
        self,
        head: RequestHead,
        route: Route,
        partition: int,
        outcome: PendingProduce | SteleError,
        delay_ms: int,
    ) -> Buffers:
        """Encode the response to a produce that is done or refused, or whose time is up."""
        if isinstance(outcome, PendingProduce) and outcome.done:
            try:
                return route.response(head.correlation_id, partition, outcome.placed(), delay_ms)
            except SteleError:
                # The generic path describes it.
                pass
        response = produce.response_of_one(
            route.topic, route.topic_id, partition, outcome, route.timeout_ms, route.version
        )
        response.throttle_time_ms = delay_ms
        return self._encode(head, SERVED[PRODUCE_KEY], response)

    def _forwarded(self, served: Served, request: Any) -> Served | None:
        """Return what forwards a request of a share group.

        None if no other broker has the group.
        """
        forwarding = self._listener.forwarding
        member = None if forwarding is None else forwarding.target(request.group_id or "")
        if forwarding is None or member is None:
            return None
        if self._shares is None:
            self._shares = ForwardedShares(forwarding, self._own.number)
        return replace(served, handle=partial(self._shares.handle, member))

    def _access_now(self) -> Access | None:
        """Return what the client may do, by its last login; None if that is not checked."""
        if self._asked_for is not self.principal:
            self._asked_for = self.principal
            self._access = self._listener.security.access(self.principal, self.peer_host)
        return self._access

    def _quota_delays(self) -> QuotaDelays:
        if self._delays is None:
            self._delays = QuotaDelays("kafka", self._listener.broker.quotas, self)
        return self._delays

    def _charge_of(self, client_id: str) -> DirectCharge | None:
        """Return what charges a request of the fast path.

        It begins now. None without quotas.
        """
        quotas = self._listener.broker.quotas
        if not quotas.is_active:
            return None
        charge = self._charge
        if charge is None or charge.client_id != client_id or charge.principal is not self.principal:
            charge = self._charge = DirectCharge(self._quota_delays(), client_id, self.principal)
        if quotas.times_requests:
            charge.begin()
        return charge

    def _answer_later(
        self, head: RequestHead, served: Served, request: Any, answer: Coroutine[Any, Any, Any]
    ) -> None:
        broker = self._listener.broker
        bytes_max = None
        try:
            is_barrier = served.is_barrier is not None and served.is_barrier(broker, request)
            if served.reads is not None:
                bytes_max = served.reads(broker, request)
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            answer.close()
            self._answer_message(head, served, at_once(self._failure(head, served, request, error)))
            return
        if is_barrier:
            self.pause_requests()
            self.answer_later(self._finish_barrier(head, served, request, answer), is_change=True)
        elif served.walks:
            self.pause_requests()
            self.answer_later(self._finish_barrier(head, served, request, answer), is_change=served.changes)
        elif bytes_max is not None:
            self.read_later(self._finish(head, served, request, answer), bytes_max=bytes_max)
        else:
            self.answer_later(self._finish(head, served, request, answer), is_change=served.changes)

    def _refuse_version(self, head: RequestHead, served: Served | None) -> None:
        if served is not None and served.api.key == API_VERSIONS_KEY:
            # KIP-511: the response lists the served versions in v0, which every client can read.
            self._answer_message(head, served, unsupported_api_versions(), version=0)
            return
        name = "an unknown API" if served is None else served.api.name
        self.unreadable(
            f"{name} (key {head.api_key}) version {head.version} is not served; send ApiVersions first"
        )

    async def _finish(
        self, head: RequestHead, served: Served, request: Any, answer: Coroutine[Any, Any, Any]
    ) -> Buffers:
        try:
            response = await answer
            if isinstance(response, DeferredResponse):
                response = await cast("DeferredResponse[Any]", response).wait()
        except Exception as error:  # noqa: BLE001 - the edge of a connection
            response = await in_turns(self._failure(head, served, request, error))
        if isinstance(response, NoResponse):
            self._answer_nothing(head, served, response, has_place=True)
            return b""
        if served.walks or served.lists or (served.reads is not None and _has_many_partitions(response)):
            parts = await _written_in_steps(head, served, response)
            self._trace(head, served, parts)
            return parts
        return self._encode(head, served, response)

    async def _finish_barrier(
        self, head: RequestHead, served: Served, request: Any, answer: Coroutine[Any, Any, Any]
    ) -> Buffers:
        try:
            return await self._finish(head, served, request, answer)
        finally:
            self.resume_requests()

    def _answer_deferred(
        self, head: RequestHead, served: Served, request: Any, deferred: DeferredResponse[Any]
    ) -> None:
        def encode(has_ended: bool) -> Buffers:
            try:
                response = deferred.make(has_ended)
            except Exception as error:  # noqa: BLE001 - the edge of a connection
                response = at_once(self._failure(head, served, request, error))
            return self._encode(head, served, response)

        self.answer_deferred(deferred, encode)

    def _failure(self, head: RequestHead, served: Served, request: Any, error: Exception) -> Steps[Any]:
        """Return the response to a request whose handler has raised ``error``.

        A handler answers the errors that it expects. For all others a client gets an answer in the form of its
        request, and keeps its connection.
        """
        counts = self._listener.broker.counts
        return failure_of(served.api, head.version, request, error, peer=self.peer, counts=counts)

    def _failure_of_frame(self, head: RequestHead, frame: memoryview, error: Exception) -> Steps[Any]:
        """Return the response to a request of the fast path that has raised ``error``."""
        served = SERVED[head.api_key]
        return self._failure(head, served, _read(head, served, frame)[1], error)

    def _answer_nothing(
        self, head: RequestHead, served: Served, answer: NoResponse, *, has_place: bool = False
    ) -> None:
        """Send nothing; after a failure close the connection, as Kafka does for acks=0."""
        for tracer in self._tracers:
            tracer.unanswered(self.peer, served.api.name, head)
        if not has_place:
            self.answer(b"")
        if answer.failure is not None:
            self.unreadable(f"a produce with acks=0 failed: {answer.failure}")

    def _answer_message(
        self, head: RequestHead, served: Served, response: Any, *, version: int | None = None
    ) -> None:
        self.answer(self._encode(head, served, response, version=version))

    def _encode(
        self, head: RequestHead, served: Served, response: Any, *, version: int | None = None
    ) -> Buffers:
        """Return the whole frame of a response, in parts."""
        parts = served.encode(head.version if version is None else version, response, head.correlation_id)
        if self._tracers:
            self._trace(head, served, parts)
        return parts

    def _trace(self, head: RequestHead, served: Served, parts: list[bytes | bytearray]) -> None:
        size = sum(map(len, parts))
        for tracer in self._tracers:
            tracer.response(self.peer, served.api.name, head, size, parts)


def _read(head: RequestHead, served: Served, frame: memoryview) -> tuple[str, Any]:
    """Return the client id and the request of a frame that is known to be readable."""
    client_id, position = read_client_id(frame, flexible=served.api.is_flexible(head.version))
    return client_id, served.api.read_request(head.version, frame, position)


def _read_in_steps(head: RequestHead, served: Served, frame: memoryview) -> Steps[tuple[str, Any]]:
    """``_read`` in steps that are short enough for a turn of the loop."""
    client_id, position = read_client_id(frame, flexible=served.api.is_flexible(head.version))
    return client_id, (yield from served.api.read_request_in_steps(head.version, frame, position))


def _has_many_partitions(response: Any) -> bool:
    """Return whether the response to a read has more partitions than are encoded in one turn of the loop.

    In a session, a short request may be about any number of them.
    """
    return sum([len(topic.partitions) for topic in response.responses]) > _PARTITIONS_AT_ONCE


async def _written_in_steps(head: RequestHead, served: Served, response: Any) -> list[bytes | bytearray]:
    """Encode the whole frame of a response, in parts and with pauses."""
    parts: list[bytes | bytearray] = []
    for _ in served.encode_in_steps(head.version, response, head.correlation_id, parts):
        await pause()
    return parts
