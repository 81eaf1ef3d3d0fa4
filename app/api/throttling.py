"""Charge requests over HTTP to quotas.

A client that has used more than its quota gets 429 with ``Retry-After`` until its wait is
over; nothing of the request is stored or read. What flows for longer, such as an NDJSON upload
or a live tail, is slowed down instead; a page of records is smaller than usual. Bodies count, of
requests that append and of responses that carry records. The client id is the product name in
``User-Agent``.
"""

from __future__ import annotations

import re
from math import ceil

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..broker.quotas.limits import QuotaKey
from ..broker.quotas.machine import QuotaClient
from ..broker.quotas.manager import Quotas
from ..broker.quotas.timed import HeldTime
from ..errors import QuotaExceeded
from ..security.principal import ANONYMOUS
from .errors import problem_of, problem_response

PROTOCOL = "http"
_TOPIC = "/v1/topics/[^/]+"
_PARTITION = f"{_TOPIC}/partitions/[^/]+"
_RECORDS = re.compile(f"{_TOPIC}/records")
# Records for several topics in one request.
_TRANSACTIONS = re.compile("/v1/transactions(/[^/]+/records)?")
_PAGE = re.compile(f"{_PARTITION}/records")
# What carries records, by method.
_CONSUMES = {
    "GET": re.compile(
        f"{_PARTITION}/records(/[^/]+)?|{_TOPIC}/records|{_TOPIC}/search|{_TOPIC}/table|{_TOPIC}/keys/.+"
    ),
    "POST": re.compile(f"{_TOPIC}/search|/v1/sql|/v1/groups/[^/]+/(share/)?poll"),
}
_API, _QUOTAS = "/v1/", "/v1/quotas"
_STREAMED = b"application/x-ndjson"
_TAIL = b"text/event-stream"
# In the scope: how many bytes of records a page should have at most.
_PAGE_BYTES = "stele.page_bytes_max"
# The longest that a stream stands still, so that a client that disconnects meanwhile is noticed.
_PAUSE_MS_MAX = 60_000
_UNLIMITED = 2**31 - 1


def quota_of(method: str, path: str) -> QuotaKey | None:
    """Return the quota that the bodies of a request count for; ``path`` is as sent."""
    if method == "POST" and (_RECORDS.fullmatch(path) or _TRANSACTIONS.fullmatch(path)):
        return QuotaKey.PRODUCE
    consumes = _CONSUMES.get(method)
    return QuotaKey.CONSUME if consumes is not None and consumes.fullmatch(path) else None


def page_bytes_max(request: Request, wanted: int) -> int:
    """Return ``wanted``, or less if the client's quota allows less at once."""
    return min(wanted, request.scope.get(_PAGE_BYTES, wanted))


class Throttle:
    """ASGI middleware; it runs after the login.

    Requests of ``protocol`` are charged whose path begins with ``api``.
    """

    def __init__(self, app: ASGIApp, quotas: Quotas, *, protocol: str = PROTOCOL, api: str = _API) -> None:
        self._app = app
        self._quotas = quotas
        self._protocol = protocol
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._quotas.is_active or scope["type"] != "http" or not scope["path"].startswith(self._api):
            await self._app(scope, receive, send)
            return
        sent = scope.get("raw_path") or scope["path"].encode()
        key = quota_of(scope["method"], sent.decode("latin-1"))
        client = client_of(scope)
        try:
            if key is not None:
                self._quotas.check(self._protocol, key, client)
            if scope["path"] != _QUOTAS:
                # Otherwise no administrator could raise a quota that is too low.
                self._quotas.check(self._protocol, QuotaKey.REQUEST, client)
        except QuotaExceeded as error:
            wait_s = ceil(error.retry_after_ms / 1000)
            response = problem_response(problem_of(error), headers={"Retry-After": str(wait_s)})
            await response(scope, receive, send)
            return
        if key is QuotaKey.PRODUCE:
            receive = self._charged_receive(scope, receive, client)
        elif key is QuotaKey.CONSUME:
            scope[_PAGE_BYTES] = self._quotas.at_once_max(key, client) or _UNLIMITED
            send = self._charged_send(
                send, client, is_page=_PAGE.fullmatch(sent.decode("latin-1")) is not None
            )
        await self._timed(client, scope, receive, send)

    async def _timed(self, client: QuotaClient, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._quotas.times_requests:
            await self._app(scope, receive, send)
            return
        held = HeldTime(self._quotas.clock_s)
        try:
            await held.run(self._app(scope, receive, send))
        finally:
            self._quotas.charge_time(self._protocol, client, held.seconds)

    def _charged_receive(self, scope: Scope, receive: Receive, client: QuotaClient) -> Receive:
        is_streamed = any(
            name == b"content-type" and value.lower().startswith(_STREAMED)
            for name, value in scope["headers"]
        )
        delay_ms = 0

        async def charged() -> Message:
            nonlocal delay_ms
            if delay_ms and is_streamed:
                await self._quotas.pause(min(delay_ms, _PAUSE_MS_MAX))
            message = await receive()
            size = len(message.get("body", b""))
            delay_ms = self._quotas.charge(self._protocol, QuotaKey.PRODUCE, client, size) if size else 0
            return message

        return charged

    def _charged_send(self, send: Send, client: QuotaClient, *, is_page: bool) -> Send:
        is_ok = True
        is_slowed = not is_page

        async def charged(message: Message) -> None:
            nonlocal is_ok, is_slowed
            await send(message)
            if message["type"] == "http.response.start":
                is_ok = message["status"] < 400
                is_slowed = not is_page or any(
                    name == b"content-type" and value.startswith(_TAIL) for name, value in message["headers"]
                )
            size = len(message.get("body", b""))
            if size and is_ok:
                delay_ms = self._quotas.charge(self._protocol, QuotaKey.CONSUME, client, size)
                if delay_ms and is_slowed and message.get("more_body"):
                    await self._quotas.pause(min(delay_ms, _PAUSE_MS_MAX))

        return charged


def client_of(scope: Scope) -> QuotaClient:
    """Return whose quotas a request counts for."""
    user_agent = b""
    for name, value in scope["headers"]:
        if name == b"user-agent":
            user_agent = value
    product, _, _ = user_agent.partition(b"/")
    principal = scope.get("stele.principal", ANONYMOUS)
    return QuotaClient(principal.name, product.decode("latin-1")[:200].strip())
