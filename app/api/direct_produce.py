"""Fast path for the commonest request over HTTP: one JSON record for one topic.

It runs before the application, because routing and the layers around a route cost several times as much as the
append. Only a plain request is answered here, and only if its record is accepted: all others, and every error, go to
the application (``routes.produce``), which gets the request unchanged. Both paths give the same response, count the same bytes and requests, charge the same to quotas (``throttling``), and store the same batch.
"""

from __future__ import annotations

import time

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from stele.wire.record_batch import HEADER_BYTES, build_rows

from ..broker.producing.produce import Acks, PendingProduce
from ..broker.quotas.limits import QuotaKey
from ..broker.quotas.machine import QuotaClient
from ..broker.quotas.timed import HeldTime
from ..errors import SteleError
from ..security.acl import WRITE_TOPIC
from ..security.authorizer import Access
from ..settings import Settings
from .errors import problem_response
from .http.traffic import HttpTraffic
from .metrics.collectors import RequestCounts
from .records.json_records import decode_produce_body, decode_record
from .records.ndjson_upload import all_refused
from .records.upload import Chunk, record_bytes_max
from .state import ApiState
from .throttling import PROTOCOL, client_of

_PREFIX, _SUFFIX = b"/v1/topics/", b"/records"
_ROUTE = "/v1/topics/{topic}/records"
_JSON = b"application/json"
# What the query may be, and what it means; anything else is for the application.
_ACKS = {
    b"": Acks.ALL,
    b"acks=all": Acks.ALL,
    b"acks=-1": Acks.ALL,
    b"acks=1": Acks.LEADER,
    b"acks=0": Acks.NONE,
}
# Headers that give a produce another meaning.
_SPECIAL = frozenset(
    {
        b"producer-id",
        b"producer-epoch",
        b"producer-sequence",
        b"if-match",
        b"expect",
        b"transfer-encoding",
        b"content-encoding",
    }
)
# A larger body is decoded with pauses.
BODY_BYTES_MAX = 64 * 1024


class DirectProduce:
    """ASGI application around ``app``; it runs after the login."""

    def __init__(
        self, app: ASGIApp, state: ApiState, traffic: HttpTraffic, counts: RequestCounts, settings: Settings
    ) -> None:
        self._app = app
        self._broker = state.broker
        self._schemas = state.schemas
        self._quotas = state.broker.quotas
        self._traffic = traffic
        self._counts = counts
        self._note = counts.noting("POST", _ROUTE, 200)
        self._timeout_ms = settings.request_timeout_ms
        self._body_bytes_max = min(BODY_BYTES_MAX, settings.request_body_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        topic = None if scope["type"] != "http" or scope["method"] != "POST" else self._topic_of(scope)
        acks = None if topic is None else _ACKS.get(scope["query_string"])
        if topic is None or acks is None or not self._is_plain(scope, topic):
            await self._app(scope, receive, send)
            return
        if not self._quotas.is_active:
            await self._produce(scope, receive, send, topic, acks, None)
            return
        client = client_of(scope)
        if self._must_wait(client):
            await self._app(scope, receive, send)
        elif not self._quotas.times_requests:
            await self._produce(scope, receive, send, topic, acks, client)
        else:
            held = HeldTime(self._quotas.clock_s)
            if await held.run(self._produce(scope, receive, send, topic, acks, client)):
                self._quotas.charge_time(PROTOCOL, client, held.seconds)

    def _must_wait(self, client: QuotaClient) -> bool:
        return any(self._quotas.wait_ms(key, client) for key in (QuotaKey.PRODUCE, QuotaKey.REQUEST))

    async def _produce(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        topic: str,
        acks: Acks,
        client: QuotaClient | None,
    ) -> bool:
        """Produce and answer, or leave the request to the application.

        Return whether it was answered here. ``client``: whose quotas it counts for; None without quotas.
        """
        begin_s = time.perf_counter()
        message = await receive()
        body: bytes = message.get("body", b"")
        appended = None
        # The body may have come long after the head.
        is_whole = message["type"] == "http.request" and not message.get("more_body")
        if is_whole and self._may_write(scope, topic):
            appended = self._append(topic, body, acks)
        if appended is None:
            await self._app(scope, _after(message, receive), send)
            return False
        if client is not None:
            self._quotas.charge(PROTOCOL, QuotaKey.PRODUCE, client, len(body))
        pending, timestamp_ms = appended
        try:
            produced = pending.result() if pending.done else await pending.wait(self._timeout_ms)
        except SteleError as error:
            response = problem_response(all_refused([_refused(pending, timestamp_ms, error)]))
            await response(scope, receive, send)
            self._traffic.note(scope, len(body), len(response.body))
            self._counts.note("POST", _ROUTE, response.status_code, time.perf_counter() - begin_s)
            return True
        if produced.log_append_time_ms >= 0:
            timestamp_ms = produced.log_append_time_ms
        content = b'{"records":[{"partition":%d,"offset":%d,"timestamp":%d}],"durability":"%s"}' % (
            produced.partition,
            produced.base_offset,
            timestamp_ms,
            produced.durability.label.encode(),
        )
        head = [(b"content-length", b"%d" % len(content)), (b"content-type", _JSON)]
        self._traffic.note(scope, len(body), len(content))
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": content})
        self._note(time.perf_counter() - begin_s)
        return True

    def _topic_of(self, scope: Scope) -> str | None:
        """Return the topic of a path that is the route's and needs no decoding, else None."""
        path: bytes = scope.get("raw_path") or b""
        if not path.startswith(_PREFIX) or not path.endswith(_SUFFIX):
            return None
        name = path[len(_PREFIX) : -len(_SUFFIX)]
        return None if b"/" in name or b"%" in name else name.decode("latin-1")

    def _is_plain(self, scope: Scope, topic: str) -> bool:
        """Return whether only quotas and the body decide.

        Any right was used before.
        """
        if not self._may_write(scope, topic):
            return False
        for name, value in scope["headers"]:
            if name == b"content-type":
                if value != _JSON:
                    return False
            elif name == b"content-length":
                if not value.isdigit() or int(value) > self._body_bytes_max:
                    return False
            elif name in _SPECIAL:
                return False
        return True

    def _may_write(self, scope: Scope, topic: str) -> bool:
        access: Access | None = scope.get("stele.access")
        return access is None or access.was_allowed(WRITE_TOPIC, topic)

    def _append(self, name: str, body: bytes, acks: Acks) -> tuple[PendingProduce, int] | None:
        """Append the one record of ``body``; None if the application must look at the request.

        Nothing has been stored then.
        """
        broker = self._broker
        if broker.is_produce_queue_full:
            return None
        try:
            topic = broker.topic(name)
            (text,) = decode_produce_body(body).records
            record = decode_record(text)
            if record.partition is not None or record.timestamp_ms is not None:
                return None
            if record.key is None and topic.config.is_compacted:
                return None
            if self._schemas is not None and self._schemas.must_encode(topic):
                return None
            if record_bytes_max(record) + HEADER_BYTES > topic.config.max_message_bytes:
                return None
            now_ms = broker.now_ms()
            batch = build_rows([(now_ms, record.key, record.value, record.headers)])
            partition = broker.choose_partition(topic, record.key)
            return broker.produce(name, partition, batch, acks=acks), now_ms
        except (SteleError, msgspec.DecodeError, ValueError, RecursionError):
            # The application says what is wrong; more or fewer records than one are a ``ValueError``, too.
            return None


def _refused(pending: PendingProduce, timestamp_ms: int, error: SteleError) -> Chunk:
    """Return the chunk of a record that was not acknowledged because of ``error``.

    It was appended.
    """
    chunk = Chunk(0)
    chunk.partitions.append(pending.partition)
    chunk.timestamps.append(timestamp_ms)
    chunk.refused[pending.partition] = error
    return chunk


def _after(message: Message, receive: Receive) -> Receive:
    """Return a ``receive`` that begins with ``message``, which was taken already."""
    taken: list[Message] = [message]

    async def again() -> Message:
        return taken.pop() if taken else await receive()

    return again
