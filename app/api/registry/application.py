"""Build the listener of the schema registry: a FastAPI application over the registry."""

from __future__ import annotations

from urllib.parse import unquote

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from ...registry.errors import RegistryError
from ...registry.service import SchemaRegistry
from ...security.policy import ListenerSecurity
from ..application import operation_id, serve_as_listener, serve_openapi
from ..errors import http_problem, problem_response
from ..http.traffic import HttpTraffic
from ..metrics.collectors import RequestCounts
from ..openapi.operations import Content
from ..routes.status import VERSION
from ..state import ApiState
from .errors import MEDIA_TYPES, RegistryErrorJson
from .routes import compatibility, configs, contexts, schemas, subjects

# Where the HTTP listener serves the routes.
PREFIX = "/v1/registry"
_MODULES = (subjects, schemas, compatibility, configs, contexts)
_DESCRIPTION = """\
The schema registry of the broker, with the API of Confluent's Schema Registry.

Every error is an object with `error_code`, the HTTP status or a number that begins with it, and `message`. A query
parameter or a member of a body that is not known is ignored.
"""


async def _registry_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RegistryError)
    return problem_response(http_problem(error.status, str(error), error_code=error.error_code))


class _OnePath:
    """ASGI middleware that takes a path with a slash too many for the one without it.

    A client puts one in front if its URL of the registry ends with a slash.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent: bytes = scope.get("raw_path", b"/")
        if sent != b"/" and (sent.startswith(b"//") or sent.endswith(b"/")):
            scope["raw_path"] = b"/" + sent.strip(b"/")
            scope["path"] = unquote(scope["raw_path"].decode("latin-1"))
        await self._app(scope, receive, send)


def create_registry_application(
    registry: SchemaRegistry,
    state: ApiState,
    counts: RequestCounts,
    traffic: HttpTraffic,
    security: ListenerSecurity | None = None,
) -> FastAPI:
    """Build the application over the broker of ``state``; requests are counted in ``counts`` and ``traffic``."""
    app = FastAPI(
        title="Stele schema registry",
        version=VERSION,
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0"},
        default_response_class=Response,
        generate_unique_id_function=operation_id,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.stele = state
    app.state.http_traffic = traffic
    app.state.schema_registry = registry
    for module in _MODULES:
        app.include_router(module.route.router)
    serve_openapi(app, security, lambda: None, Content(MEDIA_TYPES[0], RegistryErrorJson))
    app.add_exception_handler(RegistryError, _registry_error)
    app.add_middleware(_OnePath)
    serve_as_listener(app, state.broker, counts, traffic, protocol=traffic.name, api="/")
    return app


def mount_registry(app: FastAPI, registry: SchemaRegistry) -> None:
    """Serve the same routes below ``PREFIX`` of the HTTP listener, for pages of its origin; errors are problem documents."""
    app.state.schema_registry = registry
    app.router.routes.append(
        Mount(PREFIX, routes=[route for module in _MODULES for route in module.route.router.routes])
    )
    app.add_exception_handler(RegistryError, _registry_error)
