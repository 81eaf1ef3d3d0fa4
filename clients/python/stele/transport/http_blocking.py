"""The HTTP transport for threads, on httpx."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

import httpx

from .. import forks
from ..config import Endpoint
from ..errors import ClosedError, SteleClientError
from ..operations.base import Operation
from .base import Endpoints, backoff, unavailable
from .http_common import (
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


class BlockingHttpTransport:
    """A ``BlockingTransport`` over HTTP."""

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
        forks.in_child(self._renew_in_child)

    def _open(self) -> httpx.Client:
        # A proxy of the environment is not meant for a service and its broker.
        return httpx.Client(
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

    def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        if self._client.is_closed:
            raise ClosedError("client")
        timeout_s += operation.wait_s
        deadline_s = time.monotonic() + timeout_s
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
                response = self._client.send(request)
            except httpx.HTTPError as error:
                if not is_not_connected(error) or refused_by_tls(error) is not None:
                    # The next call asks another broker: this one may be paused, or cut off from what it needs.
                    self._endpoints.move_on(endpoint)
                    raise translate(endpoint, error, timeout_s) from error
                pause_s = next(pauses) if self._endpoints.move_on(endpoint) else 0.0
                if time.monotonic() + pause_s >= give_up_s:
                    raise unavailable(endpoint, error) from error
                time.sleep(pause_s)
            except RuntimeError as error:
                if self._client.is_closed:
                    raise ClosedError("client") from error
                raise
            else:
                if self._client.is_closed:
                    # httpx does not close a connection that was being opened meanwhile.
                    response.extensions["network_stream"].close()
                return result(operation, response)

    def call_all(self, operations: Sequence[Operation[R]], *, timeout_s: float) -> list[R | SteleClientError]:
        outcomes: list[R | SteleClientError] = []
        deadline_s = time.monotonic() + timeout_s
        for operation in operations:
            try:
                remaining_s = max(deadline_s - time.monotonic(), 0.001)
                outcomes.append(self.call(operation, timeout_s=remaining_s))
            except SteleClientError as error:
                outcomes.append(error)
        return outcomes

    def close(self) -> None:
        self._client.close()
