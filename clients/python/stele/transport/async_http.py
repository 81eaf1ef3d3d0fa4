"""The HTTP transport for asyncio, on httpx."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

import httpx

from .. import forks
from ..async_concurrency import AsyncSlots, in_thread, sleep, time_limit
from ..config import Endpoint
from ..credentials import TokenSource
from ..errors import ClosedError, SteleClientError
from ..operations.base import Operation
from .base import Endpoints, backoff, timed_out, unavailable
from .http_common import (
    CALLS_MAX,
    CONNECTIONS,
    build,
    is_not_connected,
    login_header,
    refused_by_tls,
    result,
    timeouts,
    translate,
    with_token,
)
from .login import fresh_token
from .tls import client_context

R = TypeVar("R")


class AsyncTokenAuth(httpx.Auth):
    """Logs in with the token of a callback.

    It is called again after a token was refused.
    """

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._token = ""

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if not self._token:
            self._token = await in_thread(fresh_token, self._source)
        used = self._token
        response = yield with_token(request, used)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            if self._token == used:
                self._token = await in_thread(fresh_token, self._source)
            yield with_token(request, self._token)


class AsyncHttpTransport:
    """An ``AsyncTransport`` over HTTP."""

    fetches_many = False
    keeps_order = False
    broker_partitions_by_key = True

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float) -> None:
        self._endpoints = Endpoints(endpoint)
        self._connect_timeout_s = connect_timeout_s
        self._headers = login_header(endpoint)
        source = endpoint.credentials.token
        self._auth = None if source is None else AsyncTokenAuth(source)
        self._tls = client_context(endpoint)
        self._client = self._open()
        self._slots = AsyncSlots(CALLS_MAX)
        forks.in_child(self._renew_in_child)

    def _open(self) -> httpx.AsyncClient:
        # A proxy of the environment is not meant for a service and its broker.
        return httpx.AsyncClient(
            headers=self._headers,
            auth=self._auth,
            limits=CONNECTIONS,
            trust_env=False,
            verify=self._tls or False,
        )

    def _renew_in_child(self) -> None:
        # Without closing the old one: its pool has locks, which threads of the parent may have held.
        if not self._client.is_closed:
            self._client = self._open()

    async def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        timeout_s += operation.wait_s
        deadline_s = time.monotonic() + timeout_s
        if operation.wait_s > 0:
            return await self._call(operation, deadline_s, timeout_s)
        try:
            async with time_limit(deadline_s):
                await self._slots.take()
        except TimeoutError:
            why = f"{CALLS_MAX} calls were under way for {timeout_s:g} s"
            raise unavailable(self._endpoints.current, why) from None
        try:
            return await self._call(operation, deadline_s, timeout_s)
        finally:
            self._slots.give_back()

    async def _call(self, operation: Operation[R], deadline_s: float, timeout_s: float) -> R:
        if self._client.is_closed:
            raise ClosedError("client")
        give_up_s = min(deadline_s, time.monotonic() + self._connect_timeout_s)
        pauses = backoff()
        while True:
            endpoint = self._endpoints.current
            request = build(self._client, endpoint, operation)
            request.extensions["timeout"] = timeouts(
                max(deadline_s - time.monotonic(), 0.001),
                self._endpoints.attempt_s(give_up_s - time.monotonic()),
            )
            try:
                # httpx restarts its read timeout with every chunk; this one bounds the whole response.
                async with time_limit(deadline_s):
                    response = await self._send(request, operation.watcher)
            except httpx.HTTPError as error:
                if not is_not_connected(error) or refused_by_tls(error) is not None:
                    # The next call asks another broker: this one may be paused, or cut off from what it needs.
                    self._endpoints.move_on(endpoint)
                    raise translate(endpoint, error, timeout_s) from error
                pause_s = next(pauses) if self._endpoints.move_on(endpoint) else 0.0
                if time.monotonic() + pause_s >= give_up_s:
                    raise unavailable(endpoint, error) from error
                await sleep(pause_s)
            except TimeoutError:
                self._endpoints.move_on(endpoint)
                raise timed_out(endpoint, timeout_s) from None
            except RuntimeError as error:
                if self._client.is_closed:
                    raise ClosedError("client") from error
                raise
            else:
                if self._client.is_closed:
                    # httpx does not close a connection that was being opened meanwhile.
                    await response.extensions["network_stream"].aclose()
                if response.status_code in operation.moves_on:
                    self._endpoints.move_on(endpoint)
                return result(operation, response)

    async def _send(self, request: httpx.Request, watch: Callable[[bytes], None] | None) -> httpx.Response:
        response = await self._client.send(request, stream=watch is not None)
        if watch is None:
            return response
        parts: list[bytes] = []
        try:
            async for part in response.aiter_raw():
                parts.append(part)
                watch(part)
        finally:
            await response.aclose()
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            content=b"".join(parts),
            extensions=response.extensions,
        )

    async def call_all(
        self, operations: Sequence[Operation[R]], *, timeout_s: float
    ) -> list[R | SteleClientError]:
        outcomes: list[R | SteleClientError] = []
        deadline_s = time.monotonic() + timeout_s
        for operation in operations:
            try:
                remaining_s = max(deadline_s - time.monotonic(), 0.001)
                outcomes.append(await self.call(operation, timeout_s=remaining_s))
            except SteleClientError as error:
                outcomes.append(error)
        return outcomes

    async def close(self) -> None:
        await self._client.aclose()
