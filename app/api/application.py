"""Build the HTTP listener: a FastAPI application over an open broker.

Routes take the bare request and return a response. FastAPI does the routing and
the documentation; it does not parse or encode records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..broker.broker import Broker
from ..broker.counts import Counts
from ..broker.listeners import ListenerView
from ..clock import SystemClock
from ..errors import SteleError
from ..groups.services import GroupServices
from ..logs import request_id
from ..monitor.sampler import Sampler
from ..registry.values import SchemaValues
from ..security.policy import ListenerSecurity
from ..settings import Settings
from ..sql.statements import SqlStatements
from ..transactions.services import Transactions
from ..work_budget import Steps, at_once, in_turns
from . import openapi
from .console import pages as console
from .console.login import login_routes
from .errors import HttpError, error_response, http_problem, problem_response
from .guarded_route import GuardedRoute, guarded_app
from .http.body_codings import DecodeBodies
from .http.traffic import HttpTraffic
from .metrics.collectors import HttpMetrics, RequestCounts, observe_broker
from .openapi import document
from .openapi.operations import JSON, Content
from .records.json_records import encode
from .routes import acls as acl_routes
from .routes import cdc as cdc_routes
from .routes import (
    group_configs,
    group_members,
    leases,
    overview,
    produce,
    quotas,
    records,
    search,
    share_queue,
    status,
    storage,
    tables,
    topics,
    transactions_admin,
    users,
)
from .routes import groups as group_routes
from .routes import iceberg as iceberg_routes
from .routes import mirrors as mirrors_routes
from .routes import (
    replica as replica_routes,
)
from .routes import sql as sql_routes
from .routes import (
    transactions as transaction_routes,
)
from .sessions import Sessions, cookie_name
from .state import ApiState, CdcView, IcebergView, MirrorsView, ReplicaView
from .throttling import Throttle

logger = logging.getLogger(__name__)


# Of all routes; the server answers HEAD where there is a GET.
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


class _ProtectedPage:
    """ASGI application that adds the security headers of the documentation pages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_DOCUMENTATION_HEADERS]
            await send(message)

        await self._app(scope, receive, send_protected)


# FastAPI writes these pages: they have inline scripts, and the search of Redoc runs in a worker.
_DOCUMENTATION_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src blob:",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_DOCUMENTATION_HEADERS = [
    (b"content-security-policy", _DOCUMENTATION_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


def operation_id(route: APIRoute) -> str:
    """Return the name of the function, after which generated clients name the call."""
    return route.name


def create_application(
    broker: Broker,
    groups: GroupServices,
    transactions: Transactions,
    settings: Settings,
    cdc: CdcView | None = None,
    *,
    listeners: Sequence[ListenerView] = (),
    security: ListenerSecurity | None = None,
    replica: ReplicaView | None = None,
    schemas: SchemaValues | None = None,
    mirrors: MirrorsView | None = None,
    sql: SqlStatements | None = None,
    iceberg: IcebergView | None = None,
) -> FastAPI:
    """Build the application.

    ``listeners`` are those other than HTTP, for metrics and the overview.

    ``/docs`` and ``/redoc`` work without access to the internet.
    """
    app: FastAPI = FastAPIOffline(
        title="Stele",
        version=status.VERSION,
        description=openapi.DESCRIPTION,
        license_info={"name": "Apache-2.0"},
        # No type of answer is assumed: each route describes its own.
        default_response_class=Response,
        generate_unique_id_function=operation_id,
    )
    for route in app.router.routes:
        # At this point only the routes of the documentation and its schema exist.
        if isinstance(route, Route):
            route.app = _ProtectedPage(route.app)
    registry = CollectorRegistry()
    traffic = HttpTraffic()
    sampler = Sampler(broker, groups, transactions.coordinator, (traffic, *listeners))
    authorizer = None if security is None else security.authorizer
    acls = None if authorizer is None else authorizer.acls
    state = ApiState(
        broker,
        groups,
        transactions,
        settings,
        sampler,
        cdc,
        security,
        acls,
        replica,
        schemas,
        mirrors,
        sql,
        iceberg,
    )
    app.state.stele = state
    app.state.http_traffic = traffic
    app.state.guards_users = security is not None and security.guards_users
    app.state.registry = registry
    counts = app.state.request_counts = RequestCounts(registry)
    observe_broker(state, registry)
    broker.observe_deletions(state.verifications.forget)
    for part in (cdc, mirrors, iceberg):
        if part is not None:
            registry.register(part.collector)
    for router in (
        topics.route.router,
        produce.route.router,
        records.route.router,
        search.route.router,
        tables.route.router,
        storage.route.router,
        group_routes.route.router,
        group_configs.route.router,
        group_members.route.router,
        leases.route.router,
        share_queue.route.router,
        acl_routes.route.router,
        transaction_routes.route.router,
        transactions_admin.route.router,
        cdc_routes.route.router,
        mirrors_routes.route.router,
        iceberg_routes.route.router,
        replica_routes.route.router,
        sql_routes.route.router,
        quotas.route.router,
        overview.route.router,
        users.route.router,
        status.route.router,
    ):
        app.include_router(router)
    has_login = security is not None and security.active is not None
    app.router.routes.extend(console.routes(has_login=has_login, is_shared=broker.cluster.is_shared))
    sessions = app.state.sessions = Sessions(SystemClock())
    if security is not None and has_login:
        app.router.routes.extend(login_routes(security, sessions, console.login_page))
    for route in app.router.routes:
        # The others check by themselves.
        if isinstance(route, Route) and not isinstance(route, GuardedRoute):
            route.app = guarded_app(route.app, route.methods, route.path)

    def session_cookie() -> str:
        url = urlsplit(broker.http_url or f"http://127.0.0.1:{settings.http.port}")
        return cookie_name(url.scheme, url.port or 0)

    serve_openapi(app, security, session_cookie)
    serve_as_listener(app, broker, counts, traffic)
    return app


def serve_as_listener(
    app: FastAPI, broker: Broker, counts: RequestCounts, traffic: HttpTraffic, **throttled: str
) -> None:
    """Put around the routes what every listener has that speaks HTTP; ``throttled`` is for ``Throttle``."""
    app.add_middleware(DecodeBodies)
    app.add_middleware(Throttle, quotas=broker.quotas, **throttled)
    app.add_middleware(HttpMetrics, counts=counts)
    app.add_middleware(traffic.middleware)
    app.add_exception_handler(SteleError, _stele_error)
    app.add_exception_handler(HttpError, _http_error)
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_exception_handler(ClientDisconnect, _disconnected)
    app.add_exception_handler(Exception, partial(_bug, broker.counts))


def serve_openapi(
    app: FastAPI,
    security: ListenerSecurity | None,
    session_cookie: Callable[[], str | None],
    error: Content = document.PROBLEM,
) -> None:
    """Serve the OpenAPI document, which is completed when it is first read: in steps, because it is large."""
    made_by_fastapi = app.openapi
    encoded: list[bytes] = []
    completing = asyncio.Lock()

    def completed() -> Steps[dict[str, Any]]:
        return document.complete(
            made_by_fastapi(),
            session_cookie=session_cookie(),
            is_login_required=security is not None and security.is_required,
            error=error,
        )

    async def answer(_request: Request) -> Response:
        async with completing:
            if not encoded:
                encoded.append(encode(await in_turns(completed())))
        return Response(encoded[0], media_type=JSON)

    app.openapi = lambda: at_once(completed())
    (route,) = (
        route for route in app.router.routes if isinstance(route, Route) and route.path == app.openapi_url
    )
    route.app = guarded_app(_ProtectedPage(request_response(answer)), route.methods, route.path)


async def _stele_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SteleError)
    return error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return problem_response(error.problem)


async def _framework_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    details = {
        404: f"{request.url.path[:200]} does not exist; /docs lists the API",
        405: f"{request.url.path[:200]} does not support {request.method}; /docs lists the API",
    }
    detail = details.get(error.status_code, str(error.detail))
    headers = error.headers
    if error.status_code == 405:
        # The router names the methods of one route of the path only.
        headers = {"Allow": ", ".join(_methods_of(request))}
    return problem_response(http_problem(error.status_code, detail), headers=headers)


def _methods_of(request: Request) -> list[str]:
    """Return all methods of the path of ``request``."""
    routes: list[BaseRoute] = request.app.router.routes
    mounted = request.scope["root_path"]
    routes = next(
        (route.routes for route in routes if isinstance(route, Mount) and route.path == mounted), routes
    )
    allowed = [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    return sorted({*allowed, "HEAD"}) if "GET" in allowed else allowed


async def _disconnected(request: Request, error: Exception) -> Response:
    # No client reads it; without it, any client could fill the log with errors.
    return problem_response(http_problem(400, "the client disconnected before the end of the body"))


async def _bug(broker_counts: Counts, request: Request, error: Exception) -> Response:
    broker_counts.internal_errors += 1
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "the broker failed to process the request; its log has the error under this request_id"
    return problem_response(http_problem(500, detail, request_id=request_id.get()))
