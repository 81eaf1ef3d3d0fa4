"""A connection of the Kafka protocol: requests in order, responses in the same order.

A request begins when the one before it has begun. Beginning decides the order: it
appends, joins or looks at the log. The request then waits in the background for a
sync, the other members or new records, while later requests begin. Requests that
change topics are *barriers*: no later request begins before a barrier has ended. So
are requests that list or describe partitions and groups, because they pause on the
way and must not see the effects of later requests of the same client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, cast

from stele.wire.schema import MalformedMessage

from ...settings import Settings
from ..connection import Connection, ConnectionRegistry
from ..deferred_response import DeferredResponse
from ..response_queue import Buffers
from .dispatch import API_VERSIONS_KEY, SERVED, Served, unsupported_api_versions
from .handlers.context import Context, KafkaListener, NoResponse
from .headers import SIZE, RequestHead, read_client_id, read_head, response_head
from .request_cutter import KafkaRequestCutter
from .trace import RequestTracer

logger = logging.getLogger(__name__)

# A request that carries no records; the largest are the assignments of large groups.
PLAIN_REQUEST_BYTES_MAX = 4 * 1024 * 1024


class KafkaConnection(Connection[memoryview]):
    """One client of the Kafka listener."""

    __slots__ = ("_listener", "_tracers")

    def __init__(
        self,
        *,
        listener: KafkaListener,
        settings: Settings,
        registry: ConnectionRegistry,
        tracers: Sequence[RequestTracer] = (),
    ) -> None:
        cutter = KafkaRequestCutter(frame_bytes_max=settings.frame_bytes_max)
        super().__init__(cutter, limits=settings, registry=registry)
        self._listener = listener
        self._tracers = tracers

    def unreadable(self, reason: str) -> None:
        """End the connection after the responses to earlier requests: no later one can be answered."""
        logger.warning("kafka: %s is closed: %s", self.peer, reason)
        self.discard_requests()
        self.close_after_answers()

    def refusal(self, reason: str) -> bytes:
        # The protocol has no message for a refused connection.
        logger.info("kafka: %s is closed: %s", self.peer, reason)
        return b""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for tracer in self._tracers:
            tracer.closed(self.peer)

    # ── one request ──

    def begin(self, request: memoryview) -> None:
        frame, head = request, read_head(request)
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
            message = served.api.read_request(head.version, frame, position)
        except MalformedMessage as error:
            self.unreadable(f"{served.api.name} v{head.version} cannot be read: {error}")
            return
        if client_id:
            self.client_id = client_id
        if served.api.key == API_VERSIONS_KEY:
            self.client_name = message.client_software_name
            self.client_version = message.client_software_version
        for tracer in self._tracers:
            tracer.request(self.peer, served.api.name, head, client_id, frame)
        context = Context(
            listener=self._listener,
            version=head.version,
            client_id=client_id,
            client_host=self.peer_host,
        )
        answer = served.handle(context, message)
        if isinstance(answer, DeferredResponse):
            self._answer_deferred(head, served, cast("DeferredResponse[Any]", answer))
        elif isinstance(answer, NoResponse):
            self._answer_nothing(head, served, answer)
        elif not isinstance(answer, Coroutine):
            self._answer_message(head, served, answer)
        else:
            self._answer_later(head, served, message, cast("Coroutine[Any, Any, Any]", answer))

    def _answer_later(
        self, head: RequestHead, served: Served, request: Any, answer: Coroutine[Any, Any, Any]
    ) -> None:
        broker = self._listener.broker
        if served.is_barrier is not None and served.is_barrier(broker, request):
            self.pause_requests()
            self.answer_later(self._finish_barrier(head, served, answer), is_change=True)
        elif served.walks:
            self.pause_requests()
            self.answer_later(self._finish_barrier(head, served, answer), is_change=served.changes)
        elif served.reads is not None:
            bytes_max = served.reads(broker, request)
            self.read_later(self._finish(head, served, answer), bytes_max=bytes_max)
        else:
            self.answer_later(self._finish(head, served, answer), is_change=served.changes)

    def _refuse_version(self, head: RequestHead, served: Served | None) -> None:
        if served is not None and served.api.key == API_VERSIONS_KEY:
            # KIP-511: the response lists the served versions in v0, which every client can read.
            self._answer_message(head, served, unsupported_api_versions(), version=0)
            return
        name = "an unknown API" if served is None else served.api.name
        self.unreadable(
            f"{name} (key {head.api_key}) version {head.version} is not served; send ApiVersions first"
        )

    async def _finish(self, head: RequestHead, served: Served, answer: Coroutine[Any, Any, Any]) -> Buffers:
        response = await answer
        if isinstance(response, DeferredResponse):
            response = await cast("DeferredResponse[Any]", response).wait()
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

    def _answer_deferred(self, head: RequestHead, served: Served, deferred: DeferredResponse[Any]) -> None:
        def encode(has_ended: bool) -> Buffers:
            return self._encode(head, served, deferred.make(has_ended))

        self.answer_deferred(deferred, encode)

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
        parts = _written(head, served, response, head.version if version is None else version)
        return self._traced(head, served, parts)

    def _traced(self, head: RequestHead, served: Served, parts: list[bytes | bytearray]) -> Buffers:
        if self._tracers:
            size = sum(map(len, parts))
            for tracer in self._tracers:
                tracer.response(self.peer, served.api.name, head, size, parts)
        return parts


def _written(head: RequestHead, served: Served, response: Any, version: int) -> list[bytes | bytearray]:
    """Encode the whole frame of a response, in parts."""
    api = served.api
    flexible = api.is_flexible(version) and api.key != API_VERSIONS_KEY
    out = response_head(head.correlation_id, flexible=flexible)
    parts: list[bytes | bytearray] = []
    served.write(version, response, out, parts)
    SIZE.pack_into(parts[0], 0, sum(map(len, parts)) - SIZE.size)  # type: ignore[arg-type]
    return parts
