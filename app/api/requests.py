"""Read parameters, bodies and media types of requests."""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.requests import Request
from stele.wire.isolation_level import IsolationLevel

from ..errors import InvalidRequest
from .errors import HttpError

_INTEGER = re.compile(r"-?\d{1,19}")
INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
# The key in the scope of a check of the route's rights; it raises AuthorizationError.
CHECK_AGAIN = "stele.check_again"


def integer_parameter(
    request: Request, name: str, default: int, *, minimum: int = 0, maximum: int = INT64_MAX
) -> int:
    """Return a whole number from the query. Raises ``InvalidRequest``."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not _INTEGER.fullmatch(text) or not minimum <= (number := int(text)) <= maximum:
        raise InvalidRequest(
            f"{name} is {text[:40]!r}; it must be a whole number from {minimum} to {maximum}"
        )
    return number


def boolean_parameter(request: Request, name: str) -> bool:
    """Return a ``true`` or ``false`` from the query, False if absent.

    Raises ``InvalidRequest``.
    """
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name} is {text[:40]!r}; it must be true or false")
    return text == "true"


def isolation_of(request: Request) -> IsolationLevel:
    """Return ``isolation`` from the query, READ_COMMITTED if absent.

    Raises ``InvalidRequest``.
    """
    text = request.query_params.get("isolation", "read_committed")
    if text not in ("read_committed", "read_uncommitted"):
        raise InvalidRequest(f"isolation is {text[:40]!r}; it must be read_committed or read_uncommitted")
    return IsolationLevel[text.upper()]


def path_integer(request: Request, name: str) -> int:
    """Return a whole number from the path. Raises ``HttpError`` 404 if it is not one."""
    text = str(request.path_params[name])
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > INT32_MAX:
        raise HttpError(404, f"{name} is {text[:40]!r}; it must be a whole number from 0 to {INT32_MAX}")
    return int(text)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body.

    Raises:
        HttpError: 413 as soon as it is known to exceed ``limit`` bytes.
        AuthorizationError: a right of the client has ended while the body arrived.
    """
    declared = request.headers.get("content-length")
    if declared and declared.isdigit() and int(declared) > limit:
        raise HttpError(
            413,
            f"the body has {declared} bytes, more than the limit of {limit}; send less, or stream NDJSON",
            limit=limit,
        )
    parts: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise HttpError(
                413, f"the body is larger than {limit} bytes; send less, or stream NDJSON", limit=limit
            )
        parts.append(chunk)
    check_again(request)
    return b"".join(parts)


def check_again(request: Request) -> None:
    """Check the rights of the route again, because the request has waited.

    Raises AuthorizationError if a rule has changed, and one of the rights has ended.
    """
    check: Callable[[Request], None] | None = request.scope.get(CHECK_AGAIN)
    if check is not None:
        check(request)


def content_type(request: Request, default: str) -> str:
    """Return the media type of the body in lower case, without parameters."""
    return request.headers.get("content-type", default).partition(";")[0].strip().lower() or default


def negotiate(request: Request, offered: tuple[str, ...]) -> str:
    """Return the media type of ``offered`` that ``Accept`` prefers.

    Raises ``HttpError`` 406 if none matches.
    """
    accept = request.headers.get("accept", "*/*")
    ranked: list[tuple[float, int, str]] = []
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        for rank, candidate in enumerate(offered):
            is_match = media in ("*/*", candidate) or (
                media.endswith("/*") and candidate.startswith(media[:-1])
            )
            if is_match and quality > 0:
                # A full name precedes a wildcard of the same quality.
                ranked.append((-quality, rank + (len(offered) if "*" in media else 0), candidate))
    if not ranked:
        raise HttpError(406, f"Accept is {accept[:200]!r}; accept one of: {', '.join(offered)}")
    return min(ranked)[2]


def config_texts(configs: dict[str, str | int | bool | None]) -> dict[str, str | None]:
    """Return the values of configurations as text; null stays."""
    return {
        name: value if value is None or isinstance(value, str) else str(value).lower()
        for name, value in configs.items()
    }
