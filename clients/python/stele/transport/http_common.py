"""Requests of operations and httpx's errors, for both HTTP transports."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Generator
from http import HTTPStatus
from typing import TypeVar

import httpx

from ..config import Endpoint
from ..credentials import TokenSource
from ..errors import ProtocolError, SteleClientError
from ..operations.base import HttpAnswer, Operation, result_of_http
from .base import lost, timed_out, unavailable
from .login import fresh_token
from .tls import is_about_own_certificate, refused

R = TypeVar("R")

# Concurrent calls, not counting long polls. More calls wait in front of httpx's pool, which scans all
# connections and all waiting requests each time a request ends.
CALLS_MAX = 32
CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=CALLS_MAX)


def login_header(endpoint: Endpoint) -> dict[str, str]:
    """Return the header for the login of every request.

    None if there is no login, or if it changes.
    """
    authorization = endpoint.credentials.authorization
    return {"Authorization": authorization} if authorization else {}


class TokenAuth(httpx.Auth):
    """Logs in with the token of a callback.

    It is called again after a token was refused.
    """

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._token = ""

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        used = self._token = self._token or fresh_token(self._source)
        response = yield _with_token(request, used)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            if self._token == used:
                self._token = fresh_token(self._source)
            yield _with_token(request, self._token)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if not self._token:
            self._token = await asyncio.to_thread(fresh_token, self._source)
        used = self._token
        response = yield _with_token(request, used)
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            if self._token == used:
                self._token = await asyncio.to_thread(fresh_token, self._source)
            yield _with_token(request, self._token)


def token_auth(endpoint: Endpoint) -> TokenAuth | None:
    return None if endpoint.credentials.token is None else TokenAuth(endpoint.credentials.token)


def _with_token(request: httpx.Request, token: str) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {token}"
    return request


def build(
    client: httpx.Client | httpx.AsyncClient, endpoint: Endpoint, operation: Operation[R]
) -> httpx.Request:
    request = operation.to_http()
    return client.build_request(
        request.method,
        endpoint.http_url + request.path,
        params=request.params or None,
        headers=request.headers,
        content=request.content or None,
    )


def timeouts(remaining_s: float, connect_remaining_s: float) -> dict[str, float]:
    """Return timeouts in the form of httpx's request extensions."""
    return {
        "connect": min(connect_remaining_s, remaining_s),
        "read": remaining_s,
        "write": remaining_s,
        "pool": remaining_s,
    }


def result(operation: Operation[R], response: httpx.Response) -> R:
    return result_of_http(
        operation,
        HttpAnswer(status=response.status_code, headers=response.headers, body=response.content),
    )


def is_not_connected(error: httpx.HTTPError) -> bool:
    """Return whether nothing was sent, so that a retry is safe."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)


def refused_by_tls(error: httpx.HTTPError) -> ssl.SSLError | None:
    """Return the cause if another attempt would fail as well; httpx wraps it twice, or more."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
            return cause if is_not_connected(error) or is_about_own_certificate(cause) else None
        cause = cause.__cause__ or cause.__context__
    return None


def translate(endpoint: Endpoint, error: httpx.HTTPError, timeout_s: float) -> SteleClientError:
    tls_error = refused_by_tls(error)
    if tls_error is not None:
        return refused(endpoint, tls_error)
    if is_not_connected(error) or isinstance(error, httpx.PoolTimeout):
        return unavailable(endpoint, error)
    if isinstance(error, httpx.TimeoutException):
        return timed_out(endpoint, timeout_s)
    if isinstance(error, httpx.NetworkError) or _is_cut_off(error):
        return lost(endpoint, error)
    return ProtocolError(f"the exchange with {endpoint.http_url} failed: {error}")


def _is_cut_off(error: httpx.HTTPError) -> bool:
    """Return whether the peer closed early; httpx uses the same type for invalid HTTP."""
    text = str(error)
    return isinstance(error, httpx.RemoteProtocolError) and ("disconnected" in text or "closed" in text)
