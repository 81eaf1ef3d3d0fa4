"""The base class of operations, and HTTP requests and responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from http import HTTPStatus
from typing import Any, ClassVar, Generic, TypeVar, cast, dataclass_transform
from urllib.parse import quote

import msgspec

from ..errors import (
    ProtocolError,
    SteleClientError,
    UnsupportedOperationError,
    connection_error,
    error_for,
)
from ..wire.error_codes import ErrorCode, error_code
from ..wire.messages import (
    RESPONSES,
    ErrorResponse,
    MessageError,
    MessageType,
    Request,
    Response,
    decode_response,
)

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A", bound=Response)
D = TypeVar("D")

JSON = "application/json"
OCTET_STREAM = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """An HTTP request; ``path`` is quoted, ``params`` are not."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes = b""


def json_request(
    method: str,
    path: str,
    body: object,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> HttpRequest:
    """Return a request with ``body`` as JSON."""
    return HttpRequest(
        method=method,
        path=path,
        params=params or {},
        headers={"Content-Type": JSON, **(headers or {})},
        content=msgspec.json.encode(body),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An HTTP response; ``headers`` ignores the case of names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Decode the body as JSON. Raises ProtocolError if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            raise ProtocolError(
                f"the response is not JSON ({error}); is this URL the HTTP listener of a Stele broker?"
            ) from error

    def json_lines(self) -> list[Any]:
        """Decode the body as NDJSON. Raises ProtocolError if it is not NDJSON."""
        try:
            return msgspec.json.Decoder().decode_lines(self.body)
        except msgspec.DecodeError as error:
            raise ProtocolError(
                f"the response is not NDJSON ({error}); is this URL the HTTP listener of a Stele broker?"
            ) from error

    def header_int(self, name: str) -> int:
        """Return a header as a number. Raises ProtocolError if it is missing or invalid."""
        try:
            return int(self.headers[name])
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"the response has no valid header {name}") from error


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Operation(Generic[R_co]):
    """A request in both protocols, and the parsing of its response.

    Each subclass is a frozen dataclass with keyword arguments. One with the fields of a request
    of the binary protocol inherits from that, too.

    ``is_repeatable``: executing it twice has the effect of once, so a client may retry
    it when a connection breaks. ``wait_s``: how long the broker may hold back the
    response (a long poll). ``moves_on``: the HTTP statuses after which the next call asks
    another broker.
    """

    is_repeatable: ClassVar[bool] = False
    moves_on: ClassVar[frozenset[int]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)

    @property
    def wait_s(self) -> float:
        return 0.0

    @property
    def watcher(self) -> Callable[[bytes], None] | None:
        """Return what gets the parts of an HTTP response as they come, before it is parsed."""
        return None

    def fields(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {named.name: getattr(self, named.name) for named in fields(cast("Any", self))}

    def to_frame(self) -> Request:
        if isinstance(self, Request):
            return self
        raise UnsupportedOperationError(f"{type(self).__name__} works over HTTP only; use an http:// URL")

    def from_frame(self, response: Response) -> R_co:
        raise NotImplementedError

    def to_http(self) -> HttpRequest:
        raise UnsupportedOperationError(
            f"{type(self).__name__} works over the binary protocol only; use a stele:// URL"
        )

    def from_http(self, answer: HttpAnswer) -> R_co:
        """Return the result of a response with a status below 400."""
        raise NotImplementedError

    def error_of(self, answer: HttpAnswer) -> SteleClientError:
        """Return the error of a response with a status of 400 or above."""
        return problem(answer)

    def from_problem(self, error: SteleClientError) -> R_co:
        """Return an error as part of the result, or raise it (the default)."""
        raise error


class NoResult(Operation[None]):
    """An operation whose response has no fields."""

    def from_frame(self, response: Response) -> None:
        if isinstance(self, Request):
            expect(response, RESPONSES[self.TYPE + 1])

    def from_http(self, answer: HttpAnswer) -> None:
        return None


def result_of_frame(operation: Operation[R], frame_type: int, body: bytes) -> R:
    """Return the result of an operation from its response frame.

    Raises:
        ProtocolError: the frame does not parse, or is the response to another request.
        UnsupportedOperationError: the broker is older than the request.
        SteleClientError: the typed error of the broker.
    """
    try:
        response = decode_response(frame_type, body)
    except MessageError as error:
        raise ProtocolError(f"the broker's response does not parse: {error}") from error
    if isinstance(response, ErrorResponse):
        if response.response_type == MessageType.ERROR:
            if "is not a request" in response.message:
                raise UnsupportedOperationError(
                    f"the broker does not know {type(operation).__name__} ({response.message}); upgrade the broker"
                )
            raise connection_error(response.message)
        raise error_for(response.code, response.message)
    return operation.from_frame(response)


def expect(response: Response, cls: type[A]) -> A:
    if not isinstance(response, cls):
        raise ProtocolError(f"the broker sent {type(response).__name__} instead of {cls.__name__}")
    return response


def copied(cls: type[D], source: object) -> D:
    """Return a dataclass whose fields are among those of ``source``."""
    return cls(**{declared.name: getattr(source, declared.name) for declared in fields(cast("Any", cls))})


def result_of_http(operation: Operation[R], answer: HttpAnswer) -> R:
    """Return the result of an operation from its HTTP response.

    Raises:
        ProtocolError: the response is not that of a Stele broker.
        SteleClientError: the typed error of the broker.
    """
    if answer.status >= 400:
        return operation.from_problem(operation.error_of(answer))
    try:
        return operation.from_http(answer)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise ProtocolError(
            f"the response lacks a field ({error!r}); is this URL the HTTP listener of a Stele broker?"
        ) from error


# For responses of something in front of the broker, such as a proxy.
_CODES_BY_STATUS = {
    404: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    408: ErrorCode.REQUEST_TIMED_OUT,
    409: ErrorCode.TOPIC_ALREADY_EXISTS,
    410: ErrorCode.OFFSET_OUT_OF_RANGE,
    413: ErrorCode.MESSAGE_TOO_LARGE,
    422: ErrorCode.INVALID_REQUEST,
    429: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    502: ErrorCode.BROKER_NOT_AVAILABLE,
    503: ErrorCode.BROKER_NOT_AVAILABLE,
    504: ErrorCode.REQUEST_TIMED_OUT,
}


def problem(answer: HttpAnswer) -> SteleClientError:
    """Return the typed error of an RFC 9457 problem document, or of the status alone."""
    try:
        decoded = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        decoded = None
    document = cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}
    return error_from_problem(document, status=answer.status)


def error_from_problem(document: Mapping[str, Any], *, status: int) -> SteleClientError:
    kafka_code = document.get("kafka_code")
    if kafka_code == ErrorCode.INVALID_REQUEST:
        # The error of the first record stands for the whole request.
        kafka_code = _first_error(document).get("kafka_code", kafka_code)
    if isinstance(kafka_code, int) and status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        code = error_code(kafka_code)
    else:
        code = _CODES_BY_STATUS.get(status, ErrorCode.UNKNOWN_SERVER_ERROR)
    detail = document.get("detail") or document.get("title")
    message = str(detail) if detail else f"the broker returned HTTP status {status}"
    error = error_for(
        code,
        message,
        log_start_offset=_int(document, "log_start_offset"),
        log_end_offset=_int(document, "log_end_offset"),
    )
    if isinstance(retriable := document.get("retriable"), bool):
        error.retriable = retriable
    return error


def _first_error(document: Mapping[str, Any]) -> Mapping[str, Any]:
    errors = document.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return cast("dict[str, Any]", errors[0])
    return {}


def _int(document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) else -1


def segment(name: str) -> str:
    """Quote ``name`` as a single segment of a path."""
    # "." and ".." would be resolved as relative segments.
    return "%2E" * len(name) if name in (".", "..") else quote(name, safe="")


def topic_path(topic: str, *parts: str) -> str:
    """Return ``/v1/topics/{topic}/…`` with the name quoted."""
    return "/".join(("/v1/topics", segment(topic), *parts))
