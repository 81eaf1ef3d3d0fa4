"""Declare routes: each says beside its handler what it reads and answers, and the OpenAPI document is made from that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from .encoded_slash import EncodedSlashRoute
from .guarded_route import GuardedRoute
from .json_bodies import json_answer
from .openapi.operations import OPERATIONS, Body, Content, Operation
from .parameters import Parameter

_Handler = TypeVar("_Handler", bound=Callable[[Request], Awaitable[Any]])
NO_STORE = {"Cache-Control": "no-store"}


class Routes:
    """The routes of a module, which FastAPI serves from ``router``; all of them may have ``errors``.

    ``is_strict``: a query parameter that is not declared is refused.
    """

    def __init__(
        self,
        tag: str,
        route_class: type[GuardedRoute] = EncodedSlashRoute,
        *,
        errors: Sequence[int] = (),
        is_strict: bool = True,
    ) -> None:
        self.router = APIRouter(tags=[tag], route_class=route_class)
        self._errors = errors
        self._is_strict = is_strict

    def __call__(
        self,
        target: str,
        summary: str,
        *parameters: Parameter,
        status: int = 200,
        body: Body | Sequence[Content] = (),
        answers: Sequence[Content] = (),
        example: str = "",
        also: Mapping[int, str] | None = None,
        errors: Sequence[int] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Callable[[_Handler], _Handler]:
        """Declare a route, with a ``target`` such as ``GET /v1/topics``.

        The name of its function is the operation id, and its docstring the description. The function returns a typed
        dict, which is sent as JSON with ``status`` and ``headers``, or None (204), or a response of its own. The type is
        described as the answer, with ``example``; ``answers`` describes responses that have no type, and ``also`` has the
        descriptions of other successes.

        ``parameters`` are those in the query and the headers; those in the path need no declaration, and any other one
        in the query is refused (``Query``). ``errors`` are the statuses of ``STATUSES`` that are worth a mention; those
        for queries and bodies that are not valid are added.
        """

        method, path = target.split(" ")

        def add(handler: _Handler) -> _Handler:
            name, returned = handler.__name__, handler.__annotations__["return"]
            code = 204 if returned.endswith("None") else status
            assert name not in OPERATIONS, f"two routes are named {name}"
            OPERATIONS[name] = Operation(
                method,
                path,
                handler,
                parameters,
                code,
                body,
                answers,
                example,
                also or {},
                (*self._errors, *errors),
                self._is_strict,
            )
            # A route that answers by itself may be on the hot path: nothing is put around it.
            endpoint = handler if returned == "Response" else _answering(handler, code, headers)
            self.router.add_api_route(
                path, endpoint, methods=[method], status_code=code, summary=summary, response_model=None
            )
            return handler

        return add


def _answering(
    handler: Callable[[Request], Awaitable[Any]], status: int, headers: Mapping[str, str] | None
) -> Callable[[Request], Awaitable[Response]]:
    @wraps(handler)
    async def answering(request: Request) -> Response:
        answer = await handler(request)
        if isinstance(answer, Response):
            return answer
        return Response(status_code=status) if answer is None else json_answer(answer, status, headers)

    return answering
