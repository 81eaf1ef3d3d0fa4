"""Serve the pages and assets of the console, with security headers.

Pages contain no data: their modules fetch it from the public API. Jinja2 and the
files are loaded on the first request for a page, so that a broker without users of
the console does not pay for them.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import HttpError
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


SCREENS = (
    Screen("/", "overview", "Overview"),
    Screen("/console/topics", "topics", "Topics"),
    Screen("/console/messages", "messages", "Messages"),
    Screen("/console/produce", "produce", "Produce"),
    Screen("/console/groups", "groups", "Groups"),
    Screen("/console/storage", "storage", "Storage"),
)


@dataclass(frozen=True, slots=True)
class _Assets:
    """All static files. ``version`` is part of their URLs, so browsers may cache them forever."""

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


@lru_cache(maxsize=len(SCREENS))
def _render(name: str) -> bytes:
    screen = next(screen for screen in SCREENS if screen.name == name)
    template = _environment().get_template(f"{name}.html")
    return template.render(
        screen=screen, screens=SCREENS, static=f"/console/static/{_assets().version}", version=VERSION
    ).encode()


async def _page(request: Request) -> Response:
    path = request.url.path.rstrip("/") or "/"
    screen = next(screen for screen in SCREENS if screen.path == path)
    body = await asyncio.to_thread(_render, screen.name)
    return Response(
        body, media_type="text/html; charset=utf-8", headers={**HEADERS, "Cache-Control": "no-cache"}
    )


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


def routes() -> list[Route]:
    """Return the routes of the console, which are not part of the API."""
    pages = [Route(screen.path, _page, methods=["GET"], include_in_schema=False) for screen in SCREENS]
    return [
        *pages,
        Route("/console/static/{version}/{name}", _static, methods=["GET"], include_in_schema=False),
    ]
