"""Check the rights of a request before its route, after its body and in streams; and its query before the route."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from stele.wire.notation import parse_whole

from ..errors import AuthorizationError
from ..security.authorizer import Access
from .errors import HttpError, error_response
from .openapi.operations import OPERATIONS
from .requests import CHECK_AGAIN, INT32_MAX
from .rights import NEEDS, Need, Needs, access_of
from .state import broker_of

logger = logging.getLogger(__name__)

_READS = frozenset({"GET", "HEAD"})


class _Withdrawn(Exception):
    """The client lost the right to the response that it is being sent."""


def needs_of(methods: set[str] | None, path: str, declared: Needs = NEEDS) -> tuple[Need, ...] | None:
    """Return the needs of a route, None if they are not ``declared``."""
    named = sorted((methods or set()) - {"HEAD"})
    return declared.get((named[0], path)) if len(named) == 1 else None


def _check(access: Access, request: Request, needs: tuple[Need, ...] | None) -> None:
    if needs is None:
        raise HttpError(403, "this route declares no rights, so no client may use it")
    for need in needs:
        need.check(access, request)


class _Rights:
    """The rights of one request, which are checked again once a rule has changed.

    It is in the scope of the request, so it must not refer to the request: only the garbage collector could then
    free all that a request holds.
    """

    __slots__ = ("_access", "_epoch", "_needs")

    def __init__(self, access: Access, needs: tuple[Need, ...] | None) -> None:
        self._access = access
        self._needs = needs
        self._epoch: object = None

    def __call__(self, request: Request) -> None:
        """Raise AuthorizationError if the client has lost one of the rights."""
        access = self._access
        epoch = access.epoch
        if epoch is not self._epoch:
            _check(access, request, self._needs)
            self._epoch = epoch


async def _find_topic(request: Request) -> None:
    """Ask other brokers for the topic and the partition of the path, if unknown."""
    topic = request.path_params.get("topic")
    if topic is not None:
        # The route refuses what is no number.
        partition = parse_whole(str(request.path_params.get("partition", "")), INT32_MAX)
        partitions = () if partition is None else ((str(topic), partition),)
        await broker_of(request).find_topics((str(topic),), partitions=partitions)


class GuardedRoute(APIRoute):
    """Route whose needs are in ``declared_needs``, and whose parameters are in ``OPERATIONS``."""

    declared_needs: ClassVar[Needs] = NEEDS

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        # Not FastAPI's handler around it, which has nothing to parse for it: for its errors, it reads and tokenizes the
        # source of a route when that is first called.
        handle: Callable[[Request], Awaitable[Response]] = self.endpoint
        needs = needs_of(self.methods, self.path, self.declared_needs)
        query = OPERATIONS[self.name].query

        async def guarded(request: Request) -> Response:
            access = access_of(request)
            if access is None:
                if query is not None:
                    query.check(request)
                await _find_topic(request)
                return await handle(request)
            check = request.scope[CHECK_AGAIN] = _Rights(access, needs)
            check(request)
            if query is not None:
                query.check(request)
            await _find_topic(request)
            response = await handle(request)
            # Only a plain response is sent in one piece.
            if type(response) is not Response:
                return _Watched(response, check, request)
            if request.method in _READS:
                # It may have waited for records. What was changed stays changed, and the client gets the response.
                check(request)
            return response

        return guarded


class _Watched(Response):
    """A response that breaks off when its client loses the right to it."""

    def __init__(self, response: Response, check: _Rights, request: Request) -> None:
        super().__init__()
        self._response = response
        self._check = check
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_watched(message: Message) -> None:
            if message["type"] == "http.response.body":
                try:
                    self._check(self._request)
                except AuthorizationError as error:
                    raise _Withdrawn(str(error)) from error
            await send(message)

        try:
            await self._response(scope, receive, send_watched)
        except _Withdrawn as reason:
            # uvicorn closes the connection, because the answer has no end.
            logger.info("an answer was broken off: %s", reason)


def guarded_app(app: ASGIApp, methods: set[str] | None, path: str) -> ASGIApp:
    """Return ``app``, a route outside FastAPI, with a check of the rights it needs."""
    needs = needs_of(methods, path)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        access = access_of(request)
        if access is not None:
            try:
                _check(access, request, needs)
            except AuthorizationError as error:
                await error_response(error)(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded
