"""Forward share requests to coordinators, and serve forwarded ones (ADR-0057).

A client sends ShareFetch and ShareAcknowledge to the leaders of the partitions, and the states of the records are
at the coordinator of the group. The broker that the client is connected to applies its quotas, the coordinator
its access rules. Share sessions are at the coordinator, which is told when the connection of a client ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stele.wire import schema
from stele.wire.kafka.headers import read_client_id, read_head, request_head
from stele.wire.kafka.share_groups import (
    SHARE_ACKNOWLEDGE_API,
    SHARE_FETCH_API,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from stele.wire.schema import ELEMENTS_PER_READ, MalformedMessage

from ...cluster.membership import Member
from ...errors import NotCoordinator
from ...security.forwarding import ForwardedClient
from ...work_budget import in_turns, pause
from .apis import GUARDED, SERVED
from .context import Context, KafkaListener, awaited
from .failures import failure_of
from .frame_forwarding import FrameForwarding
from .handlers.groups.share_fetch import refusal_of, wait_ms_of
from .sessions.share_sessions import ClientConnection

FORWARDED = frozenset((SHARE_FETCH_API.key, SHARE_ACKNOWLEDGE_API.key))
# In a response, next to the bytes of records: the ranges of a million records, 18 bytes each, and the partitions.
_REST_BYTES_MAX = 32 * 1024 * 1024

_Request = ShareFetchRequest | ShareAcknowledgeRequest
_Response = ShareFetchResponse | ShareAcknowledgeResponse

# Nothing else refers to a task that runs after its connection has ended.
_endings: set[asyncio.Task[None]] = set()


class ForwardedShares:
    """Forwards the share requests of one connection.

    One after the other, as a broker of Kafka would handle them: their sessions count the requests.
    """

    __slots__ = ("_coordinators", "_forwarding", "_lock", "_number")

    def __init__(self, forwarding: FrameForwarding, number: int) -> None:
        self._forwarding = forwarding
        self._number = number
        self._lock = asyncio.Lock()
        # Those that may have a session of this connection, by incarnation.
        self._coordinators: dict[str, Member] = {}

    async def handle(self, member: Member, context: Context, request: _Request) -> _Response:
        """Return the response of ``member``, which coordinates the group."""
        async with self._lock:
            # The coordinator applies no quotas: it does not know what the client does at other brokers.
            throttle_ms = 0
            if isinstance(request, ShareFetchRequest):
                throttle_ms = context.consume_wait_ms()
                if throttle_ms:
                    request = replace(request, max_records=0)
            self._coordinators[str(member.incarnation)] = member
            try:
                response = await self._send(member, context, request)
            except NotCoordinator as error:
                current = self._forwarding.target(request.group_id or "")
                if current is not None and current.incarnation == member.incarnation:
                    # The client asks again at once.
                    await self._forwarding.moved(wait_ms_of(context, request))
                return refusal_of(request, error)
            if throttle_ms:
                response.throttle_time_ms = throttle_ms
            return response

    async def _send(self, member: Member, context: Context, request: _Request) -> _Response:
        """Raises ``NotCoordinator``."""
        api = SHARE_FETCH_API if isinstance(request, ShareFetchRequest) else SHARE_ACKNOWLEDGE_API
        flexible = api.is_flexible(context.version)
        head = request_head(api.key, context.version, context.client_id, flexible=flexible)
        frame = await _written(api.request, context.version, flexible, request, head)
        settings = context.broker.settings
        data = await self._forwarding.send(
            request.group_id or "",
            member,
            frame,
            ForwardedClient(context.principal, context.client_host),
            connection=self._number,
            # A read brings at least one batch, however large that is.
            bytes_max=settings.fetch_bytes_max + settings.frame_bytes_max + _REST_BYTES_MAX,
        )
        try:
            response, _ = await in_turns(schema.read_in_steps(api.response, context.version, flexible, data))
        except MalformedMessage as error:
            raise NotCoordinator(member.broker_id) from error
        return response

    def close(self) -> None:
        """Let the coordinators give back what was acquired over this connection."""
        task = asyncio.get_running_loop().create_task(self._close())
        _endings.add(task)
        task.add_done_callback(_endings.discard)

    async def _close(self) -> None:
        # An acknowledgement on its way takes effect first.
        async with self._lock:
            await asyncio.gather(
                *(self._forwarding.end(member, self._number) for member in self._coordinators.values())
            )


class ForwardedFrames:
    """Serves the frames that other brokers forward."""

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener

    async def serve(self, frame: bytes, client: ForwardedClient, *, broker: str, connection: int) -> bytes:
        """Return the response to a frame, without its header.

        ``broker`` has the connection.

        Raises ``MalformedMessage``.
        """
        view = memoryview(frame)
        head = read_head(view)
        if head.api_key not in FORWARDED or not SERVED[head.api_key].api.serves(head.version):
            raise MalformedMessage(f"API {head.api_key} version {head.version} is not forwarded")
        served = SERVED[head.api_key]
        client_id, position = read_client_id(view, flexible=served.api.is_flexible(head.version))
        request = await in_turns(served.api.read_request_in_steps(head.version, view, position))
        listener = self._listener
        context = Context(
            listener=listener,
            version=head.version,
            client_id=client_id,
            client_host=client.host,
            peer=client.host,
            principal=client.principal,
            access=listener.security.access(client.principal, client.host),
            connection=ClientConnection(broker, connection),
            is_long=len(frame) > ELEMENTS_PER_READ,
        )
        if context.access is not None:
            served = GUARDED[head.api_key]
        try:
            response = await awaited(served.handle(context, request))
        except Exception as error:  # noqa: BLE001 - the edge of a task, for a client of another broker
            counts = listener.broker.counts
            response = await in_turns(
                failure_of(served.api, head.version, request, error, peer=client.host, counts=counts)
            )
        api = served.api
        return await _written(
            api.response, head.version, api.is_flexible(head.version), response, bytearray()
        )

    def end(self, *, broker: str, connection: int) -> None:
        """End the sessions of a connection to another broker."""
        self._listener.give_back(self._listener.share_sessions.lost(ClientConnection(broker, connection)))


async def _written(kind: type[Any], version: int, flexible: bool, message: Any, head: bytearray) -> bytes:
    """Return a message after ``head``."""
    parts: list[bytes | bytearray] = []
    for _ in schema.writer_in_steps(kind, version, flexible)(message, head, parts):
        await pause()
    return b"".join(parts)


def end_sessions_of_dead(listener: KafkaListener, live: Sequence[Member]) -> None:
    """End the sessions of clients of brokers that are not ``live``."""
    listener.give_back(listener.share_sessions.keep_brokers({str(one.incarnation) for one in live}))
