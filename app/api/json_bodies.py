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
from .records.json_records import RECORDS_MAX, encode, reason
from .records.large_bodies import decode_body
from .requests import content_type, read_body
from .schemas import Components, Schema
from .state import api_state

FORM = "application/x-www-form-urlencoded"
# Of a body without records, which is decoded in one turn of the loop. Small objects take most of its time: the names and
# values of a map, or a list of names, ten times as long as a list of objects.
_BYTES_MAX = 256 * 1024
LIST_BYTES_MAX = 2 * 1024 * 1024

_T = TypeVar("_T", bound=Struct)


class JsonBody(Generic[_T]):
    """The JSON body of a route, decoded as ``kind``; ``example`` can be sent as it stands.

    If it is not required, an empty body is a ``kind`` of defaults. It may have ``bytes_max``; only one that
    ``has_records`` may be as large as ``request_body_bytes_max``.
    """

    def __init__(
        self,
        kind: type[_T],
        example: str,
        *,
        is_required: bool = True,
        may_be_form: bool = True,
        has_records: bool = False,
        bytes_max: int = _BYTES_MAX,
    ) -> None:
        self._kind = kind
        self._example = example
        self._is_required = is_required
        self._has_records = has_records
        self._bytes_max = bytes_max
        # curl sends JSON as a form unless it is told otherwise.
        self._media_types = (JSON, FORM) if may_be_form else (JSON,)

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
        settings = api_state(request).settings
        limit = settings.request_body_bytes_max
        raw = await read_body(request, limit if self._has_records else min(limit, self._bytes_max))
        if not raw and not self._is_required:
            return raw, self._kind()
        media_type = content_type(request, JSON)
        if media_type not in self._media_types:
            raise HttpError(415, f"media type {media_type[:100]!r} is not supported; send {JSON}")
        try:
            if self._has_records:
                records_max = max(RECORDS_MAX, settings.transaction_request_records_max)
                return raw, await decode_body(raw, self._kind, records_max=records_max)
            return raw, msgspec.json.decode(raw, type=self._kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f"the body is not valid, expected one like {self._example}: {reason(error)}"
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
