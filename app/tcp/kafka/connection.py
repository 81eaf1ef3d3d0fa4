"""A connection of the Kafka protocol: cuts the stream into requests and keeps their order.

A request begins when the one before it has begun: what decides the order (an
append, a join, a look at the log) happens then. What it waits for (a sync, the
other members, new records) is waited for in the background, while the requests
behind it begin; the responses leave in the order of the requests. Requests that
change which topics there are, or what they may hold, are *barriers*: nothing
behind one begins before it has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, cast

from ...settings import Settings
from ..connection import Buffers, ConnectionRegistry, OrderedConnection, WhenDone
from .dispatch import API_VERSIONS_KEY, SERVED, Served, unsupported_api_versions
from .handlers.context import Context, KafkaListener, NoResponse, Pending
from .headers import REQUEST_BYTES_MIN, SIZE, RequestHead, read_client_id, read_head, response_head
from .schema import MalformedMessage
from .trace import RequestTracer

logger = logging.getLogger(__name__)

# Requests begun in one turn of the loop: many small ones must not hold up everybody else.
REQUESTS_PER_TURN = 64
# A request that carries no records; the largest are the assignments of large groups.
PLAIN_REQUEST_BYTES_MAX = 4 * 1024 * 1024


class KafkaConnection(OrderedConnection):
    """One client of the Kafka listener."""

    __slots__ = (
        "_frame_bytes_max",
        "_has_held_requests",
        "_is_broken",
        "_listener",
        "_needed",
        "_partial",
        "_tracers",
    )

    def __init__(
        self,
        *,
        listener: KafkaListener,
        settings: Settings,
        registry: ConnectionRegistry,
        tracers: Sequence[RequestTracer] = (),
    ) -> None:
        super().__init__(limits=settings, registry=registry)
        self._listener = listener
        self._frame_bytes_max = settings.frame_bytes_max
        self._tracers = tracers
        self._partial = bytearray()
        self._needed = SIZE.size
        self._has_held_requests = False
        # True once nothing that follows in the stream can be understood or answered.
        self._is_broken = False

    # ── stream → requests ──

    def has_partial_frame(self) -> bool:
        return bool(self._partial) and not self._has_held_requests

    def has_held_requests(self) -> bool:
        return self._has_held_requests

    def frames_received(self, data: bytes) -> bool:
        partial = self._partial
        partial += data
        if len(partial) < self._needed:
            return False
        taken = self._take_requests(partial)
        if taken:
            # What was taken is handed on as slices of this buffer, so the rest goes into a new one.
            self._partial = bytearray(memoryview(partial)[taken:])
        return taken > 0

    def _take_requests(self, buffer: bytearray) -> int:
        """Take the whole requests of ``buffer``; returns where the first begins that was not taken."""
        position, end = 0, len(buffer)
        view = memoryview(buffer)
        self._has_held_requests = False
        self._needed = SIZE.size
        left = REQUESTS_PER_TURN
        while end - position >= SIZE.size:
            (size,) = SIZE.unpack_from(buffer, position)
            if not REQUEST_BYTES_MIN <= size <= self._frame_bytes_max:
                self._end(
                    f"a request of {size} bytes; it must have {REQUEST_BYTES_MIN} to {self._frame_bytes_max} "
                    "(frame_bytes_max); is this a Kafka client without TLS?"
                )
                return end
            if size > end - position - SIZE.size:
                self._needed = SIZE.size + size
                return position
            if not self.may_take:
                self._has_held_requests = True
                return position
            position += SIZE.size
            self._take_request(view[position : position + size])
            position += size
            if self._is_broken:
                return end
            left -= 1
            if not left and self.may_take:
                self.pause_requests()
                self._loop.call_soon(self.resume_requests)
        return position

    def _end(self, reason: str) -> None:
        """Nothing that follows can be answered; the peer sees the answers before it, then the end."""
        logger.warning("kafka: %s is closed: %s", self.peer, reason)
        self._is_broken = True
        self.close_after_answers()

    def refusal(self, reason: str) -> bytes:
        # The protocol has no message for it.
        logger.info("kafka: %s is closed: %s", self.peer, reason)
        return b""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for tracer in self._tracers:
            tracer.closed(self.peer)

    # ── one request ──

    def _take_request(self, frame: memoryview) -> None:
        head = read_head(frame)
        served = SERVED.get(head.api_key)
        if served is None or not served.api.serves(head.version):
            self._refuse_version(head, served)
            return
        flexible = served.api.is_flexible(head.version)
        try:
            if len(frame) > PLAIN_REQUEST_BYTES_MAX and not served.carries_records:
                raise MalformedMessage(
                    f"{len(frame)} bytes; without records it may have {PLAIN_REQUEST_BYTES_MAX}"
                )
            client_id, position = read_client_id(frame, flexible=flexible)
            request = served.api.read_request(head.version, frame, position)
        except MalformedMessage as error:
            self._end(f"{served.api.name} v{head.version} cannot be read: {error}")
            return
        if client_id:
            self.client_id = client_id
        if served.api.key == API_VERSIONS_KEY:
            self.client_name = request.client_software_name
            self.client_version = request.client_software_version
        for tracer in self._tracers:
            tracer.request(self.peer, served.api.name, head, client_id, frame)
        context = Context(
            listener=self._listener,
            version=head.version,
            client_id=client_id,
            client_host=self.peer_host,
        )
        answer = served.handle(context, request)
        if isinstance(answer, Pending):
            self._answer_when(head, served, answer)
        elif isinstance(answer, NoResponse):
            self._answer_nothing(head, served, answer)
        elif not isinstance(answer, Coroutine):
            self._answer_message(head, served, answer)
        else:
            self._answer_later(head, served, request, cast("Coroutine[Any, Any, Any]", answer))

    def _answer_later(
        self, head: RequestHead, served: Served, request: Any, answer: Coroutine[Any, Any, Any]
    ) -> None:
        broker = self._listener.broker
        if served.is_barrier is not None and served.is_barrier(broker, request):
            self.pause_requests()
            self.answer_later(self._finish_barrier(head, served, answer), is_change=True)
        elif served.reads is not None:
            bytes_max = served.reads(broker, request)
            self.read_later(self._finish(head, served, answer), bytes_max=bytes_max)
        else:
            self.answer_later(self._finish(head, served, answer), is_change=served.changes)

    def _refuse_version(self, head: RequestHead, served: Served | None) -> None:
        if served is not None and served.api.key == API_VERSIONS_KEY:
            # KIP-511: in the one version that every client reads, with the versions that are served.
            self._answer_message(head, served, unsupported_api_versions(), version=0)
            return
        name = "an unknown API" if served is None else served.api.name
        self._end(
            f"{name} (key {head.api_key}) version {head.version} is not served; ask with ApiVersions first"
        )

    async def _finish(self, head: RequestHead, served: Served, answer: Coroutine[Any, Any, Any]) -> Buffers:
        response = await answer
        if isinstance(response, Pending):
            done, _ = await asyncio.wait((response.future,), timeout=response.timeout_ms / 1000)
            response = response.make(bool(done))
        if isinstance(response, NoResponse):
            self._answer_nothing(head, served, response, has_place=True)
            return b""
        if served.is_long is not None and served.is_long(response):
            parts = await asyncio.to_thread(_written, head, served, response, head.version)
            return self._traced(head, served, parts)
        return self._encode(head, served, response)

    async def _finish_barrier(
        self, head: RequestHead, served: Served, answer: Coroutine[Any, Any, Any]
    ) -> Buffers:
        try:
            return await self._finish(head, served, answer)
        finally:
            self.resume_requests()

    def _answer_when(self, head: RequestHead, served: Served, pending: Pending) -> None:
        def settle(has_ended: bool) -> Buffers:
            return self._encode(head, served, pending.make(has_ended))

        self.answer_when(WhenDone(pending.future, pending.timeout_ms / 1000, settle))

    def _answer_nothing(
        self, head: RequestHead, served: Served, answer: NoResponse, *, has_place: bool = False
    ) -> None:
        """Kafka's way to tell a producer that wants no answers of an error: the end of the connection."""
        for tracer in self._tracers:
            tracer.unanswered(self.peer, served.api.name, head)
        if not has_place:
            self.answer(b"")
        if answer.failure is not None:
            self._end(f"a produce with acks=0 failed: {answer.failure}")

    def _answer_message(
        self, head: RequestHead, served: Served, response: Any, *, version: int | None = None
    ) -> None:
        self.answer(self._encode(head, served, response, version=version))

    def _encode(
        self, head: RequestHead, served: Served, response: Any, *, version: int | None = None
    ) -> Buffers:
        parts = _written(head, served, response, head.version if version is None else version)
        return self._traced(head, served, parts)

    def _traced(self, head: RequestHead, served: Served, parts: list[bytes | bytearray]) -> Buffers:
        if self._tracers:
            size = sum(map(len, parts))
            for tracer in self._tracers:
                tracer.response(self.peer, served.api.name, head, size, parts)
        return parts


def _written(head: RequestHead, served: Served, response: Any, version: int) -> list[bytes | bytearray]:
    """The whole frame of a response, in parts."""
    api = served.api
    flexible = api.is_flexible(version) and api.key != API_VERSIONS_KEY
    out = response_head(head.correlation_id, flexible=flexible)
    parts: list[bytes | bytearray] = []
    served.write(version, response, out, parts)
    SIZE.pack_into(parts[0], 0, sum(map(len, parts)) - SIZE.size)  # type: ignore[arg-type]
    return parts
