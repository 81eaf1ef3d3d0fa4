"""Serve the pages and assets of the console, with security headers.

Pages contain no data: their modules fetch it from the public API. What a client may
not use is left out of its pages; the API decides. Jinja2 and the
files are loaded on the first request for a page, so that a broker without users of
the console does not pay for them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...security.acl import (
    ALTER_CLUSTER,
    ALTER_CONFIGS_CLUSTER,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS_CLUSTER,
)
from ...security.principal import ANONYMOUS
from ..errors import HttpError
from ..rights import access_of
from ..routes.status import VERSION

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
_MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Screen:
    """A page of the console; ``name`` is that of its template and its module."""

    path: str
    name: str
    title: str
    # Only for clients that may see users, API keys, access rules or quotas.
    needs_rights: bool = False
    # Only for a broker that may have others beside it.
    is_for_clusters: bool = False


@dataclass(frozen=True, slots=True)
class Rights:
    """A client's rights on the screens of users, keys, rules and quotas, of schemas, mirrors and connectors: configs are those of the cluster."""

    sees_users: bool = True
    changes_users: bool = True
    # A client that is logged in sees and changes its own.
    sees_keys: bool = True
    sees_configs: bool = True
    changes_configs: bool = True

    @property
    def any(self) -> bool:
        return self.sees_keys or self.sees_configs


def _rights_of(request: Request) -> Rights:
    access = access_of(request)
    if access is None:
        return Rights()
    sees_users = access.sees(DESCRIBE_CLUSTER)
    return Rights(
        sees_users=sees_users,
        changes_users=access.sees(ALTER_CLUSTER),
        sees_keys=sees_users or not access.principal.is_anonymous,
        sees_configs=access.sees(DESCRIBE_CONFIGS_CLUSTER),
        changes_configs=access.sees(ALTER_CONFIGS_CLUSTER),
    )


def _user_of(request: Request) -> str:
    """Return the name of the client's user, empty if it is not logged in."""
    principal = request.scope.get("stele.principal", ANONYMOUS)
    return "" if principal.is_anonymous else principal.name


SCREENS = (
    Screen("/", "overview", "Overview"),
    Screen("/console/cluster", "cluster", "Cluster", is_for_clusters=True),
    Screen("/console/topics", "topics", "Topics"),
    Screen("/console/messages", "messages", "Messages"),
    Screen("/console/produce", "produce", "Produce"),
    Screen("/console/sql", "sql", "SQL"),
    Screen("/console/schemas", "schemas", "Schemas"),
    Screen("/console/mirrors", "mirrors", "Mirrors"),
    Screen("/console/tables", "tables", "Tables"),
    Screen("/console/cdc", "cdc", "CDC"),
    Screen("/console/groups", "groups", "Groups"),
    Screen("/console/transactions", "transactions", "Transactions"),
    Screen("/console/storage", "storage", "Storage"),
    Screen("/console/access", "access", "Access", needs_rights=True),
)


@dataclass(frozen=True, slots=True)
class _Assets:
    """All static files.

    ``version`` is part of their URLs, so browsers may cache them forever.
    """

    version: str
    files: dict[str, bytes]


@lru_cache(maxsize=1)
def _assets() -> _Assets:
    files = {
        path.name: path.read_bytes()
        for path in sorted((_HERE / "static").iterdir())
        if path.suffix in _MEDIA_TYPES
    }
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return _Assets(digest.hexdigest()[:12], files)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


@lru_cache(maxsize=16 * len(SCREENS))
def _render(
    name: str, has_login: bool, is_shared: bool, has_registry: bool, rights: Rights, user: str
) -> bytes:
    screen = next(screen for screen in SCREENS if screen.name == name)
    template = _environment().get_template(f"{name}.html")
    return template.render(
        screen=screen,
        screens=[
            entry
            for entry in SCREENS
            if (rights.any or not entry.needs_rights) and (is_shared or not entry.is_for_clusters)
        ],
        is_shared=is_shared,
        has_registry=has_registry,
        rights=rights,
        user=user,
        static=f"/console/static/{_assets().version}",
        version=VERSION,
        has_login=has_login,
    ).encode()


def login_page(*, next_path: str, failed: bool) -> Response:
    """Render the login page; it loads files, so call it in a thread."""
    body = (
        _environment()
        .get_template("login.html")
        .render(
            static=f"/console/static/{_assets().version}", version=VERSION, next_path=next_path, failed=failed
        )
    )
    return _html(body.encode(), "no-store")


def _html(body: bytes, caching: str) -> Response:
    return Response(
        body, media_type="text/html; charset=utf-8", headers={**HEADERS, "Cache-Control": caching}
    )


def _screen_page(*, has_login: bool, is_shared: bool) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        path = request.url.path.rstrip("/") or "/"
        screen = next(screen for screen in SCREENS if screen.path == path)
        # Of the others, there is one rendering for all users.
        user = _user_of(request) if screen.needs_rights else ""
        has_registry = hasattr(request.app.state, "schema_registry")
        body = await asyncio.to_thread(
            _render, screen.name, has_login, is_shared, has_registry, _rights_of(request), user
        )
        return _html(body, "no-cache")

    return page


async def _static(request: Request) -> Response:
    assets = await asyncio.to_thread(_assets)
    name = request.path_params["name"]
    data = assets.files.get(name)
    if data is None or request.path_params["version"] != assets.version:
        raise HttpError(
            404, f"{request.url.path[:200]} is not a file of this version of the console; reload the page"
        )
    return Response(
        data,
        media_type=_MEDIA_TYPES[Path(name).suffix],
        headers={**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"},
    )


def routes(*, has_login: bool = False, is_shared: bool = False) -> list[Route]:
    """Return the routes of the console, which are not part of the API.

    ``is_shared``: there may be other brokers.
    """
    page = _screen_page(has_login=has_login, is_shared=is_shared)
    pages = [
        Route(screen.path, page, methods=["GET"], include_in_schema=False)
        for screen in SCREENS
        if is_shared or not screen.is_for_clusters
    ]
    return [
        *pages,
        Route("/console/static/{version}/{name}", _static, methods=["GET"], include_in_schema=False),
    ]
