"""Decode JSON bodies into typed structs, and encode JSON answers."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ..errors import InvalidRequest
from .errors import HttpError
from .records.record_json import encode
from .requests import content_type, read_body
from .state import api_state

_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"

_T = TypeVar("_T", bound=Struct)


async def json_body(request: Request, kind: type[_T], example: str) -> _T:
    """Read the body as a ``kind``.

    Raises:
        InvalidRequest: the body is not a ``kind``; the message shows ``example``.
        HttpError: 413 if the body is too large, 415 if it is not JSON.
    """
    _, body = await raw_json_body(request, kind, example)
    return body


async def raw_json_body(request: Request, kind: type[_T], example: str) -> tuple[bytes, _T]:
    """Read the body as ``json_body`` does; return its bytes, too."""
    raw = await read_body(request, api_state(request).settings.request_body_bytes_max)
    media_type = content_type(request, _JSON)
    if media_type not in (_JSON, _FORM):
        raise HttpError(415, f"media type {media_type[:100]!r} is not supported; send {_JSON}")
    try:
        return raw, msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is not valid, expected one like {example}: {error}") from error


def json_answer(document: object, status: int = 200) -> Response:
    """Encode ``document`` as a JSON response."""
    return Response(encode(document), status, media_type=_JSON)


def client_host(request: Request) -> str:
    """Return the address of the client, empty if the server does not know it."""
    return request.client.host if request.client is not None else ""
