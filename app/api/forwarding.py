"""Forward requests about groups and mirrors to the broker with their lease, and accept forwarded ones.

``ForwardGroups`` runs after the login; the coordinator gets the principal and the address of the client, signed.
``AcceptForwarded`` replaces the login for requests with a signature. A forwarded request is not forwarded
again. Frames of the binary protocol arrive as the body of a POST to ``FRAME_PATH``, those of the Kafka protocol
as that of a POST to ``KAFKA_FRAME_PATH``, followed by the broker and the number of the client's connection. A DELETE
of the same path says that the connection has ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..broker.forwarding import SIGNATURE_REFUSED_STATUS, ForwardedRequest, Forwarder, headers_of
from ..broker.mirrors import LEASE as MIRRORS_LEASE
from ..clock import Clock
from ..cluster.group_shards import lease_of_group
from ..cluster.membership import Member
from ..errors import NotCoordinator, StorageUnavailable
from ..security.forwarding import HEADER, ForwardedClient, SignedRequest, sign, verify
from ..security.policy import ListenerSecurity
from ..security.principal import ANONYMOUS
from .authentication import peer_of
from .errors import error_response, http_problem, problem_response
from .http.exchange import BODY, Exchange

FRAME_PATH = "/internal/binary-frame"
KAFKA_FRAME_PATH = "/internal/kafka-frame"
BODY_BYTES_MAX = 1 << 20
# As ``app.tcp.kafka.connection`` has it for a request without records, and its header.
KAFKA_BODY_BYTES_MAX = (4 << 20) + (1 << 16)
_GROUPS_PATH = "/v1/groups"
_MIRRORS_PATH = "/v1/mirrors"
# Parameters of a list of groups that each broker applies to its own.
_LIST_FILTERS = frozenset(("search", "prefix", "after"))
_LIST_PAGE = 10_000
# They concern this connection, or the login at this broker.
NOT_SENT = frozenset(
    (
        b"host",
        b"connection",
        b"content-length",
        b"transfer-encoding",
        b"authorization",
        b"cookie",
        b"origin",
        b"sec-fetch-site",
        b"x-forwarded-host",
        b"expect",
        HEADER,
    )
)
NOT_RETURNED = frozenset(
    (b"connection", b"content-length", b"transfer-encoding", b"keep-alive", b"date", b"x-request-id")
)

# Serves a frame of the binary protocol; the arguments are its type and body.
ServeFrame = Callable[[int, bytes, ForwardedClient], Awaitable[bytes]]


class KafkaFrames(Protocol):
    """Serves frames of the Kafka protocol that other brokers forward.

    ``broker`` is the incarnation of the broker that the client is connected to, ``connection`` the number there.
    """

    def serve(
        self, frame: bytes, client: ForwardedClient, *, broker: str, connection: int
    ) -> Awaitable[bytes]: ...

    def end(self, *, broker: str, connection: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Forwarding:
    """The parts with which a broker forwards requests and accepts forwarded ones."""

    forwarder: Forwarder
    key: bytes
    clock: Clock
    # This broker's own.
    incarnation: str
    serve_frame: ServeFrame
    kafka_frames: KafkaFrames


class ForwardGroups:
    """ASGI middleware that forwards requests for groups and mirrors."""

    def __init__(self, app: ASGIApp, forwarding: Forwarding) -> None:
        self._app = app
        self._forwarding = forwarding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lease = _lease_of(scope)
        member = None if lease is None else self._forwarding.forwarder.holder(lease)
        if lease is None or member is None or "stele.forwarded" in scope:
            scope["stele.forwarding"] = self._forwarding
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            await _too_large()(scope, receive, send)
            return
        client = ForwardedClient(scope["stele.principal"], peer_of(scope).host)
        request = _request(self._forwarding, client, scope, body)
        passing = asyncio.create_task(self._pass(lease, member, request, send))
        # If the client closes its connection, that to the coordinator ends, too.
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if passing.done() or not _is_gone(scope):
                # A client that has ended its stream gets the response, as from the coordinator itself.
                await passing
        except NotCoordinator as error:
            if lease == MIRRORS_LEASE:
                reason = "the broker that runs them does not answer, and another one is about to"
                await error_response(StorageUnavailable("the request about mirrors", reason))(
                    scope, receive, send
                )
            else:
                await error_response(error)(scope, receive, send)
        finally:
            await _end(passing, leaving)

    async def _pass(self, lease: str, member: Member, request: ForwardedRequest, send: Send) -> None:
        response = await self._forwarding.forwarder.ask(member, lease, request)
        headers = headers_of(response.headers, NOT_RETURNED)
        headers.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})


class AcceptForwarded:
    """ASGI middleware that serves forwarded requests, and passes others to ``login``."""

    def __init__(
        self, app: ASGIApp, login: ASGIApp, security: ListenerSecurity, forwarding: Forwarding
    ) -> None:
        self._app = app
        self._login = login
        self._security = security
        self._forwarding = forwarding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        values = [value for name, value in scope.get("headers", ()) if name == HEADER]
        if not values:
            await self._login(scope, receive, send)
            return
        forwarded = None
        if len(values) == 1:
            now_ms = self._forwarding.clock.now_ms()
            method, target = scope["method"], target_of(scope)
            forwarded = verify(self._forwarding.key, values[0], method=method, target=target, now_ms=now_ms)
        if forwarded is None:
            # Before the body is read: this client has not logged in.
            await _not_signed()(scope, receive, send)
            return
        path: str = scope["path"]
        is_kafka = path.startswith(f"{KAFKA_FRAME_PATH}/")
        body = await _read(receive, KAFKA_BODY_BYTES_MAX if is_kafka else BODY_BYTES_MAX)
        if body is None:
            await _too_large()(scope, receive, send)
            return
        if not forwarded.has(body):
            await _not_signed()(scope, receive, send)
            return
        client = forwarded.client
        if is_kafka:
            broker, number = path.removeprefix(f"{KAFKA_FRAME_PATH}/").split("/")
            frames, connection = self._forwarding.kafka_frames, int(number)
            if scope["method"] == "DELETE":
                frames.end(broker=broker, connection=connection)
                await Response(status_code=204)(scope, receive, send)
                return
            work = frames.serve(body, client, broker=broker, connection=connection)
            await self._serve(work, scope, receive, send)
            return
        frame_type = path.removeprefix(f"{FRAME_PATH}/")
        if frame_type != path:
            await self._serve(
                self._forwarding.serve_frame(int(frame_type), body, client), scope, receive, send
            )
            return
        scope["stele.forwarded"] = True
        # The client, not the broker that received its request. Its port is not known here.
        scope["client"] = (client.host, 0)
        scope["stele.principal"] = client.principal
        scope["stele.access"] = self._security.access(client.principal, client.host)
        await self._app(scope, _receive_again(body, receive), send)

    async def _serve(self, work: Awaitable[bytes], scope: Scope, receive: Receive, send: Send) -> None:
        serving = asyncio.ensure_future(work)
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await Response(serving.result(), media_type="application/octet-stream")(scope, receive, send)
        finally:
            await _end(serving, leaving)


class FrameForwarding:
    """Forwards frames of the binary protocol; implements ``GroupForwarding``."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding

    def target(self, group: str) -> Member | None:
        return self._forwarding.forwarder.target(group)

    async def send(
        self, group: str, member: Member, frame_type: int, body: bytes, client: ForwardedClient
    ) -> bytes:
        forwarding = self._forwarding
        target = f"{FRAME_PATH}/{frame_type}"
        signed = SignedRequest(method="POST", target=target, body=body)
        signature = sign(forwarding.key, client, signed, forwarding.clock.now_ms())
        request = ForwardedRequest(method="POST", target=target, headers=[(HEADER, signature)], body=body)
        response = await forwarding.forwarder.send(group, member, request)
        if response.status != 200:
            raise NotCoordinator(member.broker_id)
        return response.body


class KafkaFrameForwarding:
    """Forwards frames of the Kafka protocol; implements its ``FrameForwarding``."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding

    def target(self, group: str) -> Member | None:
        return self._forwarding.forwarder.target(group)

    async def moved(self, timeout_ms: int) -> None:
        await self._forwarding.forwarder.moved(timeout_ms)

    async def send(
        self,
        group: str,
        member: Member,
        frame: bytes,
        client: ForwardedClient,
        *,
        connection: int,
        bytes_max: int,
    ) -> bytes:
        request = self._request("POST", connection, frame, client, bytes_max)
        response = await self._forwarding.forwarder.send(group, member, request)
        if response.status != 200:
            raise NotCoordinator(member.broker_id)
        return response.body

    async def end(self, member: Member, connection: int) -> None:
        request = self._request("DELETE", connection, b"", ForwardedClient(ANONYMOUS, ""), BODY_BYTES_MAX)
        with suppress(NotCoordinator):
            await self._forwarding.forwarder.tell(member, request)

    def _request(
        self, method: str, connection: int, body: bytes, client: ForwardedClient, bytes_max: int
    ) -> ForwardedRequest:
        forwarding = self._forwarding
        target = f"{KAFKA_FRAME_PATH}/{forwarding.incarnation}/{connection}"
        signed = SignedRequest(method=method, target=target, body=body)
        signature = sign(forwarding.key, client, signed, forwarding.clock.now_ms())
        return ForwardedRequest(
            method=method,
            target=target,
            headers=[(HEADER, signature)],
            body=body,
            response_bytes_max=bytes_max,
        )


def _request(forwarding: Forwarding, client: ForwardedClient, scope: Scope, body: bytes) -> ForwardedRequest:
    signed = SignedRequest(method=scope["method"], target=target_of(scope), body=body)
    signature = sign(forwarding.key, client, signed, forwarding.clock.now_ms())
    return ForwardedRequest(
        method=signed.method,
        target=signed.target,
        headers=[*headers_of(scope["headers"], NOT_SENT), (HEADER, signature)],
        body=body,
    )


def target_of(scope: Scope) -> str:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    # Some servers include the query in the raw path.
    path = path.partition(b"?")[0]
    return (path + b"?" + query if query else path).decode("latin-1")


def _lease_of(scope: Scope) -> str | None:
    """Return the lease on what the path names, None if any broker may answer."""
    if scope["type"] != "http":
        return None
    # As it was sent: a slash in the name of a group is encoded.
    path = target_of(scope).partition("?")[0]
    if path == _MIRRORS_PATH or path.startswith(f"{_MIRRORS_PATH}/"):
        return MIRRORS_LEASE
    if not path.startswith(f"{_GROUPS_PATH}/"):
        return None
    group = unquote(path.removeprefix(f"{_GROUPS_PATH}/").partition("/")[0])
    return lease_of_group(group) if group else None


@dataclass(frozen=True, slots=True)
class GroupsElsewhere:
    """The first groups that other brokers list, and how many they have.

    ``missing``: how many shards none listed.
    """

    groups: Sequence[dict[str, Any]] = ()
    total: int = 0
    missing: int = 0


async def groups_elsewhere(request: Request, count: int) -> GroupsElsewhere:
    """Return the first ``count`` groups of each other broker.

    There are none if another broker asks, or there is no other.
    """
    forwarding: Forwarding | None = request.scope.get("stele.forwarding")
    if forwarding is None or "stele.forwarded" in request.scope:
        return GroupsElsewhere()
    forwarder = forwarding.forwarder
    client = ForwardedClient(request.scope["stele.principal"], peer_of(request.scope).host)
    filters = {name: value for name, value in request.query_params.items() if name in _LIST_FILTERS}

    async def listed(member: Member, lease: str) -> tuple[list[dict[str, Any]], int] | None:
        groups: list[dict[str, Any]] = []
        total, after = 0, filters.get("after", "")
        while True:
            limit = min(_LIST_PAGE, count - len(groups))
            query = urlencode({**filters, "after": after, "limit": limit})
            signed = SignedRequest(method="GET", target=f"{_GROUPS_PATH}?{query}", body=b"")
            signature = sign(forwarding.key, client, signed, forwarding.clock.now_ms())
            forwarded = ForwardedRequest(
                method="GET", target=signed.target, headers=[(HEADER, signature)], body=b""
            )
            try:
                response = await forwarder.ask(member, lease, forwarded)
            except NotCoordinator:
                return None
            if response.status != 200:
                return None
            page = json.loads(response.body)
            # Of the first page: the later ones count what comes after it.
            total = total if groups else page["total"]
            groups += page["groups"]
            after = page["next_after"]
            if after is None or len(groups) >= count:
                return groups, total

    lists = await asyncio.gather(*(listed(*there) for there in forwarder.shards_elsewhere()))
    answered = [answer for answer in lists if answer is not None]
    return GroupsElsewhere(
        groups=[group for groups, _ in answered for group in groups],
        total=sum(total for _, total in answered),
        missing=forwarder.shards_without_broker() + len(lists) - len(answered),
    )


async def _read(receive: Receive, bytes_max: int = BODY_BYTES_MAX) -> bytes | None:
    """Return the body of a request, None if it is too long."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > bytes_max:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _not_signed() -> Response:
    detail = "the signature of the forwarded request is not valid; compare the clocks of the brokers"
    problem = http_problem(SIGNATURE_REFUSED_STATUS, detail)
    return problem_response(problem, headers={"WWW-Authenticate": "Stele-Forwarded"})


def _too_large() -> Response:
    return problem_response(
        http_problem(
            413, f"the body of a request for groups may have {BODY_BYTES_MAX} bytes; send less at once"
        )
    )


def _receive_again(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that begins with a body that was read."""
    is_sent = False

    async def receive_again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _is_gone(scope: Scope) -> bool:
    """Return whether a client that sends nothing more gets no response either."""
    exchange: Exchange | None = scope.get(BODY)
    return exchange is None or exchange.is_abandoned


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
