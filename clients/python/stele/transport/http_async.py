"""The HTTP transport for asyncio, on httpx."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import httpx

from ..config import Endpoint
from ..errors import ClosedError
from ..operations.base import Operation
from .base import backoff, timed_out, unavailable
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
        self._endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        # A proxy of the environment is not meant for a service and its broker.
        self._client = httpx.AsyncClient(
            base_url=endpoint.http_url,
            headers=login_header(endpoint),
            auth=token_auth(endpoint),
            limits=CONNECTIONS,
            trust_env=False,
            verify=client_context(endpoint) or False,
        )
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
            raise unavailable(self._endpoint, why) from None
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
        request = build(self._client, operation)
        pauses = backoff()
        while True:
            request.extensions["timeout"] = timeouts(
                max(deadline_s - loop.time(), 0.001), max(give_up_s - loop.time(), 0.001)
            )
            try:
                # httpx restarts its read timeout with every chunk; this one bounds the whole response.
                async with asyncio.timeout_at(deadline_s):
                    response = await self._client.send(request)
            except httpx.HTTPError as error:
                pause_s = next(pauses)
                if not is_not_connected(error) or refused_by_tls(error) is not None:
                    raise translate(self._endpoint, error, timeout_s) from error
                if loop.time() + pause_s >= give_up_s:
                    raise unavailable(self._endpoint, error) from error
                await asyncio.sleep(pause_s)
            except TimeoutError:
                raise timed_out(self._endpoint, timeout_s) from None
            except RuntimeError as error:
                if self._client.is_closed:
                    raise ClosedError("client") from error
                raise
            else:
                return result(operation, response)

    async def close(self) -> None:
        await self._client.aclose()
