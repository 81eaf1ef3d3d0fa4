"""Clients and producers shared per process, event loop and URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from .async_client import AsyncClient
from .config import url_from_environment
from .errors import SteleClientError
from .producing.async_producer import AsyncProducer

V = TypeVar("V")

_Key = tuple[asyncio.AbstractEventLoop, str]
_clients: dict[_Key, AsyncClient] = {}
_producers: dict[tuple[_Key, object], AsyncProducer[Any]] = {}


def shared_client(url: str | None = None) -> AsyncClient:
    """Return the shared client for ``url``, or the environment's; it connects on first use."""
    key = _key(url)
    client = _clients.get(key)
    if client is None:
        _forget_closed_loops()
        client = _clients[key] = AsyncClient(key[1])
    return client


def _key(url: str | None) -> _Key:
    return asyncio.get_running_loop(), url_from_environment() if url is None else url


def _forget_closed_loops() -> None:
    for key in [key for key in _clients if key[0].is_closed()]:
        del _clients[key]
    for key in [key for key in _producers if key[0][0].is_closed()]:
        del _producers[key]


def shared_producer(
    owner: object, make: Callable[[AsyncClient], AsyncProducer[V]], url: str | None = None
) -> AsyncProducer[V]:
    """Return ``owner``'s shared producer, created with ``make`` if needed.

    It uses the shared client.

    ``close_shared`` flushes it before it closes the client.
    """
    key = _key(url), owner
    producer = _producers.get(key)
    if producer is None:
        producer = _producers[key] = make(shared_client(url))
    return producer


async def close_shared() -> None:
    """Flush the shared producers and close the shared clients of this event loop.

    Raises:
        ProduceError: sent records could not be stored.
    """
    loop = asyncio.get_running_loop()
    own_keys = [key for key in _clients if key[0] is loop]
    failure: SteleClientError | None = None
    for producer_key in [key for key in _producers if key[0] in own_keys]:
        try:
            await _producers.pop(producer_key).close()
        except SteleClientError as error:
            failure = failure or error
    for key in own_keys:
        await _clients.pop(key).close()
    if failure is not None:
        raise failure
