"""Complete what FastAPI makes of the routes: components, and how clients log in."""

from __future__ import annotations

from typing import Any

from .components import RESPONSES, SCHEMAS


def security_schemes(session_cookie: str) -> dict[str, Any]:
    """Return the kinds of logins; a broker takes those that it is configured for."""
    return {
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


def complete(document: dict[str, Any], *, session_cookie: str, is_login_required: bool) -> dict[str, Any]:
    """Return the ``document`` of FastAPI with components and logins."""
    schemes = security_schemes(session_cookie)
    components = {
        "schemas": {name: SCHEMAS[name] for name in sorted(SCHEMAS)},
        "responses": {name: RESPONSES[name] for name in sorted(RESPONSES)},
        "securitySchemes": schemes,
    }
    # An empty requirement stands for a request without a login.
    anonymous: list[dict[str, list[str]]] = [] if is_login_required else [{}]
    security = anonymous + [{name: []} for name in schemes]
    return {**document, "components": components, "security": security}
