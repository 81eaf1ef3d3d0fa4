"""FastAPI dependencies: a producer, a consumer or the client in a route, in one line each.

::

    app = FastAPI(lifespan=stele_lifespan)
    add_error_handler(app)
    Orders = Annotated[AsyncProducer[bytes | str], Depends(producer_for("orders"))]

    @app.post("/orders")
    async def order(body: Order, orders: Orders) -> None:
        await orders.send(body.model_dump_json(), key=body.customer)

The environment decides whether that goes over TCP or HTTP (``stele.config``).
There is one connection per process, opened on first use; while the broker is down
routes get ``BrokerUnavailableError``, and work again when it is back.
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
    """The process's client: ``client: Annotated[AsyncClient, Depends(stele_client)]``."""
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
    """A dependency that gives every route the same producer for ``topic``.

    Settings as in ``ProducerOptions``. Call it once for a topic and share the result.
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
    """A dependency that gives each request a consumer of its own, at ``start``, closed afterwards.

    Settings as in ``ConsumerOptions``.
    """

    async def consumer() -> AsyncIterator[AsyncConsumer[Any]]:
        async with AsyncConsumer(
            shared_client(url), topic, deserializer=deserializer or bytes_deserializer, **settings
        ) as opened:
            yield opened

    return consumer


@asynccontextmanager
async def stele_lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """``FastAPI(lifespan=stele_lifespan)``: flush and close what the dependencies opened.

    In a lifespan of your own, call ``stele.shared.close_shared`` at its end.
    """
    try:
        yield
    finally:
        await close_shared()


def add_error_handler(app: FastAPI) -> None:
    """Answer a route's SteleClientError with a problem document: 503 if it may pass, else 500."""
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
