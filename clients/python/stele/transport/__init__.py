"""How operations reach a broker: one interface, over TCP or HTTP, asyncio or blocking.

``open_async`` and ``open_blocking`` pick by URL. A transport opens its connection
on first use and again after it broke; it holds no state a caller depends on.

- ``base``                           the interface, pauses between attempts, errors
- ``tcp_async``, ``tcp_blocking``    the binary protocol
- ``http_common``                    an operation's HTTP request, and httpx's errors as ours
- ``http_async``, ``http_blocking``  HTTP
"""

from __future__ import annotations

from ..config import ClientConfig, Endpoint
from .base import AsyncTransport, BlockingTransport

__all__ = ["AsyncTransport", "BlockingTransport", "open_async", "open_blocking"]


# Imported when chosen: httpx alone takes longer to import than a TCP exchange takes.
def open_async(config: ClientConfig) -> AsyncTransport:
    endpoint = Endpoint.parse(config.url)
    if endpoint.transport == "tcp":
        from .tcp_async import AsyncTcpTransport

        return AsyncTcpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
    from .http_async import AsyncHttpTransport

    return AsyncHttpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)


def open_blocking(config: ClientConfig) -> BlockingTransport:
    endpoint = Endpoint.parse(config.url)
    if endpoint.transport == "tcp":
        from .tcp_blocking import BlockingTcpTransport

        return BlockingTcpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
    from .http_blocking import BlockingHttpTransport

    return BlockingHttpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
