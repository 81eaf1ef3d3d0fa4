"""FastAPI dependencies for producers, consumers and clients.

::

    app = FastAPI(lifespan=stele_lifespan)
    add_error_handler(app)
    Orders = Annotated[AsyncProducer[bytes | str], Depends(producer_for("orders"))]

    @app.post("/orders")
    async def order(body: Order, orders: Orders) -> None:
        await orders.send_and_wait(body.model_dump_json(), key=body.customer)

The environment selects TCP or HTTP (``stele.config``). Each process has one
connection, opened on first use. While the broker is down, routes get
``BrokerUnavailableError``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack, cast, overload

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from .async_client import AsyncClient
from .consuming.async_consumer import AsyncConsumer
from .consuming.core import ConsumerSettings
from .errors import SteleClientError
from .producing.async_producer import AsyncProducer
from .producing.options import ProducerSettings
from .serializers import Deserializer, Serializer, bytes_deserializer, bytes_serializer
from .shared import close_shared, shared_client, shared_producer

V = TypeVar("V")

RETRY_AFTER_S = 1


async def stele_client() -> AsyncClient:
    """The shared client: ``client: Annotated[AsyncClient, Depends(stele_client)]``."""
    return shared_client()


@overload
def producer_for(
    topic: str, *, serializer: None = None, url: str | None = None, **settings: Unpack[ProducerSettings]
) -> Callable[[], Awaitable[AsyncProducer[bytes | str]]]: ...
@overload
def producer_for(
    topic: str, *, serializer: Serializer[V], url: str | None = None, **settings: Unpack[ProducerSettings]
) -> Callable[[], Awaitable[AsyncProducer[V]]]: ...
def producer_for(
    topic: str,
    *,
    serializer: Serializer[Any] | None = None,
    url: str | None = None,
    **settings: Unpack[ProducerSettings],
) -> Callable[[], Awaitable[AsyncProducer[Any]]]:
    """Return a dependency that gives every route the same producer for ``topic``.

    See ``ProducerOptions`` for the settings. Call it once per topic and share the
    result.
    """
    owner = object()

    async def producer() -> AsyncProducer[Any]:
        return shared_producer(
            owner,
            lambda client: AsyncProducer(
                client, topic, serializer=serializer or cast("Serializer[Any]", bytes_serializer), **settings
            ),
            url,
        )

    return producer


@overload
def consumer_for(
    topic: str, *, deserializer: None = None, url: str | None = None, **settings: Unpack[ConsumerSettings]
) -> Callable[[], AsyncIterator[AsyncConsumer[bytes]]]: ...
@overload
def consumer_for(
    topic: str,
    *,
    deserializer: Deserializer[V],
    url: str | None = None,
    **settings: Unpack[ConsumerSettings],
) -> Callable[[], AsyncIterator[AsyncConsumer[V]]]: ...
def consumer_for(
    topic: str,
    *,
    deserializer: Deserializer[Any] | None = None,
    url: str | None = None,
    **settings: Unpack[ConsumerSettings],
) -> Callable[[], AsyncIterator[AsyncConsumer[Any]]]:
    """Return a dependency that opens a consumer per request and closes it afterwards.

    See ``ConsumerOptions`` for the settings.
    """

    async def consumer() -> AsyncIterator[AsyncConsumer[Any]]:
        async with AsyncConsumer(
            shared_client(url), topic, deserializer=deserializer or bytes_deserializer, **settings
        ) as opened:
            yield opened

    return consumer


@asynccontextmanager
async def stele_lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Flush and close what the dependencies opened.

    Use it as ``FastAPI(lifespan=stele_lifespan)``.

    In your own lifespan, call ``stele.shared.close_shared`` at the end.
    """
    try:
        yield
    finally:
        await close_shared()


def add_error_handler(app: FastAPI) -> None:
    """Answer SteleClientErrors with a problem document: 503 if retriable, otherwise 500."""
    app.add_exception_handler(SteleClientError, _problem)


async def _problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SteleClientError)
    return JSONResponse(
        {
            "type": "about:blank",
            "title": "The log is not available" if error.retriable else "The log refused the request",
            "status": 503 if error.retriable else 500,
            "detail": str(error),
            "retriable": error.retriable,
        },
        status_code=503 if error.retriable else 500,
        headers={"Retry-After": str(RETRY_AFTER_S)} if error.retriable else None,
        media_type="application/problem+json",
    )
