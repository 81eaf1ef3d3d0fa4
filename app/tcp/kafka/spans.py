"""OpenTelemetry spans: one per Kafka request, until its response is written.

The span of a request without a response ends with the request, or with its connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stele.wire.kafka.headers import RequestHead

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


class KafkaSpans:
    """Starts and ends the spans. Implements ``RequestTracer``."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        # Per connection, by correlation id.
        self._open: dict[str, dict[int, Span]] = {}

    def request(self, peer: str, api: str, head: RequestHead, client_id: str, frame: memoryview) -> None:
        from opentelemetry.trace import SpanKind

        span = self._tracer.start_span(
            f"kafka {api}",
            kind=SpanKind.SERVER,
            attributes={
                "messaging.system": "kafka",
                "messaging.client.id": client_id,
                "network.peer.address": peer,
                "stele.kafka.version": head.version,
                "stele.request.bytes": len(frame),
            },
        )
        open_here = self._open.setdefault(peer, {})
        before = open_here.pop(head.correlation_id, None)
        if before is not None:
            # Two requests with one correlation id: only the client can tell their responses apart.
            before.end()
        open_here[head.correlation_id] = span

    def response(
        self, peer: str, api: str, head: RequestHead, size: int, parts: Sequence[bytes | bytearray]
    ) -> None:
        span = self._open.get(peer, {}).pop(head.correlation_id, None)
        if span is not None:
            span.set_attribute("stele.response.bytes", size)
            span.end()

    def unanswered(self, peer: str, api: str, head: RequestHead) -> None:
        span = self._open.get(peer, {}).pop(head.correlation_id, None)
        if span is not None:
            span.end()

    def closed(self, peer: str) -> None:
        for span in self._open.pop(peer, {}).values():
            span.end()
