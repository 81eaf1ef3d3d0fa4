"""Transports, which carry operations to a broker over TCP or HTTP.

``open_async`` and ``open_blocking`` select one by URL. A transport connects on first
use, and again after the connection broke; callers depend on no state of it.

- ``base``                           the interface, pauses between attempts, errors
- ``tls``                            contexts and errors of TLS
- ``scram``, ``login``               the login of a connection of the binary protocol, without I/O
- ``tcp_async``, ``tcp_blocking``    the binary protocol
- ``http_common``                    an operation's HTTP request; translation of httpx's errors
- ``http_async``, ``http_blocking``  HTTP
"""

from __future__ import annotations

from ..config import ClientConfig
from .base import AsyncTransport, BlockingTransport

__all__ = ["AsyncTransport", "BlockingTransport", "open_async", "open_blocking"]


# Imported when selected: importing httpx takes longer than a TCP exchange.
def open_async(config: ClientConfig) -> AsyncTransport:
    endpoint = config.endpoint
    if endpoint.transport == "tcp":
        from .tcp_async import AsyncTcpTransport

        return AsyncTcpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
    from .http_async import AsyncHttpTransport

    return AsyncHttpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)


def open_blocking(config: ClientConfig) -> BlockingTransport:
    endpoint = config.endpoint
    if endpoint.transport == "tcp":
        from .tcp_blocking import BlockingTcpTransport

        return BlockingTcpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
    from .http_blocking import BlockingHttpTransport

    return BlockingHttpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
