"""Complete what FastAPI makes of the routes: operations, components, and how clients log in."""

from __future__ import annotations

from typing import Any

from ...work_budget import Steps
from ..authentication import OPEN_PATHS
from ..errors import ANY_ERROR, MEDIA_TYPE, STATUSES, Problem
from ..schemas import Components, Schema
from .operations import OPERATIONS, Content

PROBLEM = Content(MEDIA_TYPE, Problem)


def security_schemes(session_cookie: str | None) -> dict[str, Any]:
    """Return the kinds of logins; a broker takes those that it is configured for."""
    schemes = {
        "basic": {"type": "http", "scheme": "basic", "description": "a user and password"},
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "an API key, or a token (JWT) of the issuer that the broker trusts",
        },
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": session_cookie,
            "description": "the session of a user of the console; requests that change something must come from its pages",
        },
        "certificate": {
            "type": "mutualTLS",
            "description": "a client certificate of a CA that the broker trusts",
        },
    }
    if session_cookie is None:
        del schemes["session"]
    return schemes


def complete(
    document: dict[str, Any],
    *,
    session_cookie: str | None,
    is_login_required: bool,
    error: Content = PROBLEM,
) -> Steps[dict[str, Any]]:
    """Return the ``document`` of FastAPI with operations, components and logins; errors are answered as ``error``."""
    components = Components()
    problem = error.document(components)
    paths: dict[str, dict[str, Any]] = {}
    for path, item in document["paths"].items():
        yield
        paths[path] = {
            method: {**operation, **_described(path, operation, components)}
            for method, operation in item.items()
        }
    schemes = security_schemes(session_cookie)
    names = {**dict(STATUSES.values()), ANY_ERROR: "Any other error"}
    # An empty requirement stands for a request without a login.
    anonymous: list[dict[str, list[str]]] = [] if is_login_required else [{}]
    return {
        **document,
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.schemas.items())),
            "responses": {name: {"description": names[name], "content": problem} for name in sorted(names)},
            "securitySchemes": schemes,
        },
        "security": anonymous + [{name: []} for name in schemes],
    }


def _described(path: str, operation: Schema, components: Components) -> Schema:
    described = OPERATIONS[operation["operationId"]].document(components)
    return {**described, "security": []} if path in OPEN_PATHS else described
