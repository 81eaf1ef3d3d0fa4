"""One client per process, event loop and URL, for code that has nowhere to keep its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

from .async_client import AsyncClient
from .config import url_from_environment
from .errors import SteleClientError
from .producing.async_producer import AsyncProducer

V = TypeVar("V")

# The process is part of the key: a forked worker must not write to its parent's socket.
_Key = tuple[int, asyncio.AbstractEventLoop, str]
_clients: dict[_Key, AsyncClient] = {}
_producers: dict[tuple[_Key, object], AsyncProducer[Any]] = {}


def shared_client(url: str | None = None) -> AsyncClient:
    """The process's client for ``url`` (or the environment's); made now, connected on first use."""
    key = _key(url)
    client = _clients.get(key)
    if client is None:
        _forget_closed_loops()
        client = _clients[key] = AsyncClient(key[2])
    return client


def _key(url: str | None) -> _Key:
    return os.getpid(), asyncio.get_running_loop(), url_from_environment() if url is None else url


def _forget_closed_loops() -> None:
    for key in [key for key in _clients if key[1].is_closed()]:
        del _clients[key]
    for key in [key for key in _producers if key[0][1].is_closed()]:
        del _producers[key]


def shared_producer(
    owner: object, make: Callable[[AsyncClient], AsyncProducer[V]], url: str | None = None
) -> AsyncProducer[V]:
    """The producer that ``make`` made for ``owner`` over the shared client, which it is flushed before."""
    key = _key(url), owner
    producer = _producers.get(key)
    if producer is None:
        producer = _producers[key] = make(shared_client(url))
    return producer


async def close_shared() -> None:
    """Flush the shared producers and close the shared clients of this event loop.

    Raises:
        ProduceError: records that were enqueued could not be stored.
    """
    loop = asyncio.get_running_loop()
    mine = [key for key in _clients if key[:2] == (os.getpid(), loop)]
    failure: SteleClientError | None = None
    for producer_key in [key for key in _producers if key[0] in mine]:
        try:
            await _producers.pop(producer_key).close()
        except SteleClientError as error:
            failure = failure or error
    for key in mine:
        await _clients.pop(key).close()
    if failure is not None:
        raise failure
