"""Requests of operations and httpx's errors, for both HTTP transports."""

from __future__ import annotations

import ssl
from typing import TypeVar

import httpx

from ..config import Endpoint
from ..errors import ProtocolError, SteleClientError
from ..operations.base import HttpAnswer, Operation, result_of_http
from .base import lost, timed_out, unavailable
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


def with_token(request: httpx.Request, token: str) -> httpx.Request:
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
