"""A span for each request of the Kafka door, from the moment it is taken until its response is written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .headers import RequestHead

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

# A produce with acks=0 has no response, nor has a request whose client left: the oldest of those are ended.
_OPEN_MAX = 10_000


class KafkaSpans:
    """Implements ``RequestTracer``."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: OrderedDict[tuple[str, int], Span] = OrderedDict()

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
        before = self._open.pop((peer, head.correlation_id), None)
        if before is not None:
            before.end()
        self._open[peer, head.correlation_id] = span
        if len(self._open) > _OPEN_MAX:
            _, oldest = self._open.popitem(last=False)
            oldest.end()

    def response(
        self, peer: str, api: str, head: RequestHead, size: int, parts: Sequence[bytes | bytearray]
    ) -> None:
        span = self._open.pop((peer, head.correlation_id), None)
        if span is not None:
            span.set_attribute("stele.response.bytes", size)
            span.end()
