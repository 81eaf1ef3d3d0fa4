"""The HTTP transport for asyncio, on httpx."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import httpx

from .. import forks
from ..config import Endpoint
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
    token_auth,
    translate,
)
from .tls import client_context

R = TypeVar("R")


class AsyncHttpTransport:
    """An ``AsyncTransport`` over HTTP."""

    fetches_many = False
    keeps_order = False
    broker_partitions_by_key = True

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float) -> None:
        self._endpoints = Endpoints(endpoint)
        self._connect_timeout_s = connect_timeout_s
        self._headers = login_header(endpoint)
        self._auth = token_auth(endpoint)
        self._tls = client_context(endpoint)
        self._client = self._open()
        self._slots = asyncio.Semaphore(CALLS_MAX)
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
        if not self._client.is_closed:
            self._client = self._open()
        self._slots = asyncio.Semaphore(CALLS_MAX)

    async def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        if operation.wait_s > 0:
            return await self._call(operation, timeout_s + operation.wait_s)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._slots.acquire()
        except TimeoutError:
            why = f"{CALLS_MAX} calls were under way for {timeout_s:g} s"
            raise unavailable(self._endpoints.current, why) from None
        try:
            return await self._call(operation, max(deadline_s - loop.time(), 0.001))
        finally:
            self._slots.release()

    async def _call(self, operation: Operation[R], timeout_s: float) -> R:
        if self._client.is_closed:
            raise ClosedError("client")
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        give_up_s = min(deadline_s, loop.time() + self._connect_timeout_s)
        pauses = backoff()
        while True:
            endpoint = self._endpoints.current
            request = build(self._client, endpoint, operation)
            request.extensions["timeout"] = timeouts(
                max(deadline_s - loop.time(), 0.001), self._endpoints.attempt_s(give_up_s - loop.time())
            )
            try:
                # httpx restarts its read timeout with every chunk; this one bounds the whole response.
                async with asyncio.timeout_at(deadline_s):
                    response = await self._client.send(request)
            except httpx.HTTPError as error:
                if not is_not_connected(error) or refused_by_tls(error) is not None:
                    # The next call asks another broker: this one may be paused, or cut off from what it needs.
                    self._endpoints.move_on(endpoint)
                    raise translate(endpoint, error, timeout_s) from error
                pause_s = next(pauses) if self._endpoints.move_on(endpoint) else 0.0
                if loop.time() + pause_s >= give_up_s:
                    raise unavailable(endpoint, error) from error
                await asyncio.sleep(pause_s)
            except TimeoutError:
                self._endpoints.move_on(endpoint)
                raise timed_out(endpoint, timeout_s) from None
            except RuntimeError as error:
                if self._client.is_closed:
                    raise ClosedError("client") from error
                raise
            else:
                return result(operation, response)

    async def call_all(
        self, operations: Sequence[Operation[R]], *, timeout_s: float
    ) -> list[R | SteleClientError]:
        outcomes: list[R | SteleClientError] = []
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        for operation in operations:
            try:
                remaining_s = max(deadline_s - loop.time(), 0.001)
                outcomes.append(await self.call(operation, timeout_s=remaining_s))
            except SteleClientError as error:
                outcomes.append(error)
        return outcomes

    async def close(self) -> None:
        await self._client.aclose()
