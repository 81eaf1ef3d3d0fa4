"""Read bodies and media types of requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Annotated

from starlette.requests import Request
from stele.wire.notation import INT64_MAX as INT64_MAX
from stele.wire.notation import parse_whole

from .errors import HttpError
from .schemas import Shown

OCTETS = "application/octet-stream"
# A larger body is joined by a thread, which takes half a millisecond per MiB, mostly without the interpreter.
_JOINED_BYTES_MAX = 1024 * 1024
UTF_8 = frozenset({"utf-8", "utf8", "us-ascii"})
# A weight without its zero is what HttpURLConnection of Java sends.
_QUALITY = re.compile(r"0(\.\d{0,3})?|\.\d{1,3}|1(\.0{0,3})?", re.ASCII)
INT32_MAX = 2**31 - 1
# The key in the scope of a check of the route's rights; it raises AuthorizationError.
CHECK_AGAIN = "stele.check_again"


async def read_body(request: Request, limit: int) -> bytes:
    """Return the whole body.

    Raises:
        HttpError: 413 as soon as it is known to exceed ``limit`` bytes.
        AuthorizationError: a right of the client has ended while the body arrived.
    """
    declared = request.headers.get("content-length")
    if declared and (parse_whole(declared) or 0) > limit:
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
    return await join(parts)


async def join(parts: list[bytes]) -> bytes:
    """Return ``parts`` as one, without a long turn."""
    if len(parts) == 1:
        return parts[0]
    if sum(map(len, parts)) > _JOINED_BYTES_MAX:
        return await asyncio.to_thread(b"".join, parts)
    return b"".join(parts)


def check_again(request: Request) -> None:
    """Check the rights of the route again, because the request has waited.

    Raises AuthorizationError if a rule has changed, and one of the rights has ended.
    """
    check: Callable[[Request], None] | None = request.scope.get(CHECK_AGAIN)
    if check is not None:
        check(request)


def content_type(request: Request, default: str) -> str:
    """Return the media type of the body in lower case, without parameters.

    Raises ``HttpError`` 415 if it is text in a character set other than UTF-8.
    """
    media, charset = media_and_charset(request, default)
    if media != OCTETS and charset not in UTF_8:
        raise HttpError(415, f"the charset is {charset[:40]!r}; send UTF-8")
    return media


def media_and_charset(request: Request, default: str) -> tuple[str, str]:
    """Return the media type and the character set of the body in lower case; the latter is UTF-8 if it is not named."""
    media, _, parameters = request.headers.get("content-type", default).partition(";")
    charset = "utf-8"
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return media.strip().lower() or default, charset


def negotiate(request: Request, offered: tuple[str, ...]) -> str:
    """Return the media type of ``offered`` that ``Accept`` prefers.

    Raises ``HttpError`` 406 if none is acceptable.
    """
    accept = ", ".join(request.headers.getlist("accept"))
    chosen = preferred(accept, offered)
    if chosen is None:
        raise HttpError(406, f"Accept is {accept[:200]!r}; accept one of: {', '.join(offered)}")
    return chosen


def preferred(accept: str, offered: tuple[str, ...]) -> str | None:
    """Return the media type of ``offered`` that a client prefers, the first if it does not say; None if it takes none."""
    # The most specific range that matches a type decides on it, also that it is not acceptable (RFC 9110, 12.5.1).
    qualities: dict[str, float] = {}
    for part in (accept or "*/*").split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weights = [parameter[2:] for parameter in parameters if parameter.startswith("q=")]
        is_valid = not weights or _QUALITY.fullmatch(weights[0]) is not None
        quality = (float(weights[0]) if weights else 1.0) if is_valid else 0.0
        if media == "*" or media.startswith("*/"):
            media = "*/*"
        qualities[media] = max(quality, qualities.get(media, 0.0))
    ranked: list[tuple[float, int, str]] = []
    for rank, candidate in enumerate(offered):
        ranges = (candidate, f"{candidate.partition('/')[0]}/*", "*/*")
        media = next((name for name in ranges if name in qualities), None)
        if media is not None and qualities[media] > 0:
            # A full name precedes a wildcard of the same quality.
            ranked.append((-qualities[media], rank + (len(offered) if "*" in media else 0), candidate))
    return min(ranked)[2] if ranked else None


Configs = Annotated[dict[str, str], Shown(name="Configs")]
ConfigChanges = Annotated[dict[str, str | int | float | bool | None], Shown(name="ConfigChanges")]


def config_texts(configs: ConfigChanges) -> dict[str, str | None]:
    """Return the values of configurations as text; null stays."""
    return {
        name: value if value is None or isinstance(value, str) else str(value).lower()
        for name, value in configs.items()
    }
