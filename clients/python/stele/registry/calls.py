"""One request to the registry, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from http import HTTPStatus
from typing import Any, ClassVar, TypeVar, cast

import msgspec

from ..errors import (
    AuthenticationError,
    AuthorizationError,
    IncompatibleSchemaError,
    ProtocolError,
    RegistryError,
    RequestTimedOutError,
    SteleClientError,
    ThrottledError,
    UnknownSchemaError,
)
from ..operations.base import HttpAnswer, HttpRequest, Operation

R = TypeVar("R")

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
# Without the second one, answers have no GUIDs.
_HEADERS = {
    "Accept": f"{_MEDIA_TYPE}, application/vnd.schemaregistry+json, application/json",
    "Confluent-Accept-Unknown-Properties": "true",
}


class RegistryCall(Operation[R]):
    """A request; ``parse`` reads its answer.

    ``params`` that are None are left out.
    """

    moves_on: ClassVar[frozenset[int]] = frozenset((408, 429, 500, 502, 503, 504))

    method: str
    path: str
    parse: Callable[[Any], R]
    params: Mapping[str, str | bool | None] = field(default_factory=dict[str, str | bool | None])
    body: object = None

    def to_http(self) -> HttpRequest:
        return HttpRequest(
            method=self.method,
            path=self.path,
            params={
                name: str(value).lower() if isinstance(value, bool) else value
                for name, value in self.params.items()
                if value is not None
            },
            headers=_HEADERS if self.body is None else {**_HEADERS, "Content-Type": _MEDIA_TYPE},
            content=b"" if self.body is None else msgspec.json.encode(self.body),
        )

    def from_http(self, answer: HttpAnswer) -> R:
        try:
            return self.parse(msgspec.json.decode(answer.body))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(
                f"the answer is not that of a schema registry ({error!r}); correct the URL"
            ) from error

    def error_of(self, answer: HttpAnswer) -> SteleClientError:
        document: dict[str, Any] = {}
        try:
            decoded = msgspec.json.decode(answer.body)
            if isinstance(decoded, dict):
                document = cast("dict[str, Any]", decoded)
        except msgspec.DecodeError:
            # Of something in front of the registry, such as a proxy.
            pass
        error_code = document.get("error_code")
        message = str(document.get("message") or f"the schema registry returned HTTP status {answer.status}")
        return registry_error(
            answer.status, error_code if isinstance(error_code, int) else answer.status, message
        )


def registry_error(status: int, error_code: int, message: str) -> SteleClientError:
    """Return the typed error of an answer."""
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return AuthenticationError(message)
        case HTTPStatus.FORBIDDEN:
            return AuthorizationError(message)
        case HTTPStatus.REQUEST_TIMEOUT | HTTPStatus.GATEWAY_TIMEOUT:
            return RequestTimedOutError(message)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return ThrottledError(message)
        case HTTPStatus.CONFLICT:
            return IncompatibleSchemaError(message, status=status, error_code=error_code)
        case HTTPStatus.NOT_FOUND if error_code == status:
            message = f"{message}; is this the URL of a schema registry?"
            return RegistryError(message, status=status, error_code=error_code)
        case HTTPStatus.NOT_FOUND:
            return UnknownSchemaError(message, status=status, error_code=error_code)
        case _:
            return RegistryError(message, status=status, error_code=error_code)
