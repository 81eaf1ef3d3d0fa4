"""Charge a request of the Kafka protocol to quotas (KIP-13, KIP-124, KIP-219).

The response is sent at once and says how long its client has to wait. The connection is not
read from for as long, so that clients that ignore this are slowed as well.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, cast

from stele.wire.kafka.fetch import FETCH_API, FetchRequest, FetchResponse
from stele.wire.kafka.produce import PRODUCE_API
from stele.wire.kafka.share_groups import SHARE_FETCH_API, ShareFetchRequest, ShareFetchResponse

from ...broker.quotas.timed import HeldTime
from ..deferred_response import DeferredResponse
from ..quota_delays import QuotaDelays
from .context import Answer, Context, NoResponse
from .served import Served

_FETCHES = frozenset((FETCH_API.key, SHARE_FETCH_API.key))


class ThrottledRequest:
    """One request on its way through its handler."""

    def __init__(self, delays: QuotaDelays, client_id: str) -> None:
        self._delays = delays
        self._meters = delays.meters(client_id)
        self._delay_ms = 0
        self._held = HeldTime(delays.quotas.clock_s) if delays.quotas.times_requests else None

    def handle(self, served: Served, context: Context, request: Any, frame_bytes: int) -> Answer:
        """Call the handler; ``frame_bytes`` is the size of the request."""
        if served.api.key in _FETCHES:
            request = self._limited(request)
        held = self._held
        answer: Answer
        if held is None:
            answer = served.handle(context, request)
        else:
            answer = held.call(lambda: served.handle(context, request))
        if served.api.key == PRODUCE_API.key:
            # Now, because the next request may begin before this one is answered.
            self._delay_ms = self._delays.charge(self._meters.produce, frame_bytes)
        return self._wrapped(answer)

    def _limited(self, request: FetchRequest | ShareFetchRequest) -> FetchRequest | ShareFetchRequest:
        at_once_max = self._meters.consume.at_once_max()
        if at_once_max is None or request.max_bytes <= at_once_max:
            return request
        return replace(request, max_bytes=at_once_max)

    def _wrapped(self, answer: Answer) -> Answer:
        if isinstance(answer, DeferredResponse):
            deferred = cast("DeferredResponse[Any]", answer)
            make = deferred.make

            def finished(has_ended: bool) -> Any:
                return self._finished(make(has_ended))

            return replace(deferred, make=finished)
        if isinstance(answer, Coroutine):
            return self._awaited(cast("Coroutine[Any, Any, Any]", answer))
        return self._finished(answer)

    async def _awaited(self, work: Coroutine[Any, Any, Any]) -> Any:
        answer = await (work if self._held is None else self._held.run(work))
        return self._wrapped(answer)

    def _finished(self, response: Any) -> Any:
        """Charge what is known at the end, and tell the client how long it has to wait."""
        delay_ms = self._delay_ms
        if isinstance(response, FetchResponse | ShareFetchResponse):
            # A fetch that comes too early is answered without records, and waits.
            delay_ms = self._delays.delay(response.throttle_time_ms)
            size = _records_bytes(response)
            if size:
                delay_ms = self._delays.charge(self._meters.consume, size)
        if self._held is not None:
            delay_ms = max(
                delay_ms, self._delays.charge_time(self._meters.produce.client, self._held.seconds)
            )
        if delay_ms and not isinstance(response, NoResponse) and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = delay_ms
        return response


def _records_bytes(response: FetchResponse | ShareFetchResponse) -> int:
    # What is encoded already has none.
    return sum(
        len(getattr(partition, "records", None) or b"")
        for topic in response.responses
        for partition in topic.partitions
    )
