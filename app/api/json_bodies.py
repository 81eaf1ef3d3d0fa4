"""Decode JSON bodies into typed structs, and encode JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ..errors import InvalidRequest
from .errors import HttpError
from .openapi.operations import JSON, Content
from .records.json_records import encode
from .requests import content_type, read_body
from .schemas import Components, Schema
from .state import api_state

_FORM = "application/x-www-form-urlencoded"

_T = TypeVar("_T", bound=Struct)


class JsonBody(Generic[_T]):
    """The JSON body of a route, decoded as ``kind``; ``example`` can be sent as it stands.

    If it is not required, an empty body is a ``kind`` of defaults.
    """

    def __init__(
        self, kind: type[_T], example: str, *, is_required: bool = True, may_be_form: bool = True
    ) -> None:
        self._kind = kind
        self._example = example
        self._is_required = is_required
        # curl sends JSON as a form unless it is told otherwise.
        self._media_types = (JSON, _FORM) if may_be_form else (JSON,)

    async def read(self, request: Request) -> _T:
        """Read the body.

        Raises:
            InvalidRequest: the body is not a ``kind``; the message shows the example.
            HttpError: 413 if the body is too large, 415 if it is not JSON.
        """
        _, body = await self.read_raw(request)
        return body

    async def read_raw(self, request: Request) -> tuple[bytes, _T]:
        """Read the body as ``read`` does; return its bytes, too."""
        raw = await read_body(request, api_state(request).settings.request_body_bytes_max)
        if not raw and not self._is_required:
            return raw, self._kind()
        media_type = content_type(request, JSON)
        if media_type not in self._media_types:
            raise HttpError(415, f"media type {media_type[:100]!r} is not supported; send {JSON}")
        try:
            return raw, msgspec.json.decode(raw, type=self._kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f"the body is not valid, expected one like {self._example}: {error}"
            ) from error

    def document(self, components: Components) -> Schema:
        described: Schema = {"content": Content(JSON, self._kind, self._example).document(components)}
        return {**described, "required": True} if self._is_required else described


def json_answer(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Encode ``document`` as a JSON response."""
    return Response(encode(document), status, headers, JSON)


def client_host(request: Request) -> str:
    """Return the address of the client, empty if the server does not know it."""
    return request.client.host if request.client is not None else ""
