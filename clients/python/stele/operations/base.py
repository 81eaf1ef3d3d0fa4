"""The shape of an operation, and of the HTTP exchange it may become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar, Generic, TypeVar, cast
from urllib.parse import quote

import msgspec

from ..errors import (
    OffsetOutOfRangeError,
    ProtocolError,
    SteleClientError,
    UnsupportedOperationError,
    error_for,
)
from ..wire.error_codes import ErrorCode, error_code
from ..wire.messages import ErrorResponse, MessageError, Request, Response, decode_response

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A", bound=Response)

JSON = "application/json"
OCTET_STREAM = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """``path`` is already quoted; ``params`` are not."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """``headers`` looks names up without regard to case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ProtocolError: it is not.
        """
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            raise ProtocolError(
                f"the answer is not JSON ({error}); is this URL the HTTP listener of a Stele broker?"
            ) from error

    def json_lines(self) -> list[Any]:
        """The body as NDJSON. Raises ProtocolError: it is not."""
        try:
            return msgspec.json.Decoder().decode_lines(self.body)
        except msgspec.DecodeError as error:
            raise ProtocolError(
                f"the answer is not NDJSON ({error}); is this URL the HTTP listener of a Stele broker?"
            ) from error

    def header_int(self, name: str) -> int:
        """Raises ProtocolError when it is missing or no number."""
        try:
            return int(self.headers[name])
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"the answer has no usable header {name}") from error


class Operation(Generic[R_co]):
    """One call, in both languages.

    ``is_repeatable``: carrying it out twice is the same as once, so a transport
    may repeat it when a connection breaks. ``wait_s``: how long the broker may
    deliberately hold the answer back (a long poll).
    """

    __slots__ = ()
    is_repeatable: ClassVar[bool] = False

    @property
    def wait_s(self) -> float:
        return 0.0

    def to_frame(self) -> Request:
        raise UnsupportedOperationError(f"{type(self).__name__} works over HTTP only; use an http:// URL")

    def from_frame(self, response: Response) -> R_co:
        raise NotImplementedError

    def to_http(self) -> HttpRequest:
        raise UnsupportedOperationError(
            f"{type(self).__name__} works over the binary protocol only; use a stele:// URL"
        )

    def from_http(self, answer: HttpAnswer) -> R_co:
        """The result of an answer that is no error (status below 400)."""
        raise NotImplementedError

    def from_problem(self, error: SteleClientError) -> R_co:
        """The result of an error answer, where the error is part of a result; else it is raised."""
        raise error


def result_of_frame(operation: Operation[R], frame_type: int, body: bytes) -> R:
    """What the broker's answering frame means.

    Raises:
        ProtocolError: it answers something else, or does not parse.
        SteleClientError: the broker's error, typed.
    """
    try:
        response = decode_response(frame_type, body)
    except MessageError as error:
        raise ProtocolError(f"the broker's answer does not parse: {error}") from error
    if isinstance(response, ErrorResponse):
        raise error_for(response.code, response.message)
    return operation.from_frame(response)


def expect(response: Response, cls: type[A]) -> A:
    if not isinstance(response, cls):
        raise ProtocolError(f"the broker answered {type(response).__name__} where {cls.__name__} was due")
    return response


def result_of_http(operation: Operation[R], answer: HttpAnswer) -> R:
    """What the broker's HTTP answer means.

    Raises:
        ProtocolError: it is not an answer of a Stele broker.
        SteleClientError: the broker's error, typed.
    """
    if answer.status >= 400:
        return operation.from_problem(problem(answer))
    try:
        return operation.from_http(answer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(
            f"the answer lacks a field ({error!r}); is this URL the HTTP listener of a Stele broker?"
        ) from error


# For answers that come from something before the broker, such as a proxy.
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
    """The typed error in an RFC 9457 problem document, or as much as the status tells."""
    try:
        decoded = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        decoded = None
    document = cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}
    return error_from_problem(document, status=answer.status)


def error_from_problem(document: Mapping[str, Any], *, status: int) -> SteleClientError:
    kafka_code = document.get("kafka_code")
    if kafka_code == ErrorCode.INVALID_REQUEST:
        # "See errors": what is wrong with the first record is what is wrong with the request.
        kafka_code = _first_error(document).get("kafka_code", kafka_code)
    if isinstance(kafka_code, int) and status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        code = error_code(kafka_code)
    else:
        code = _CODES_BY_STATUS.get(status, ErrorCode.UNKNOWN_SERVER_ERROR)
    detail = document.get("detail") or document.get("title")
    message = str(detail) if detail else f"the broker answered with HTTP status {status}"
    error = error_for(code, message)
    if isinstance(retriable := document.get("retriable"), bool):
        error.retriable = retriable
    if isinstance(error, OffsetOutOfRangeError):
        error.log_start_offset = _int(document, "log_start_offset")
        error.high_watermark = _int(document, "log_end_offset")
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
    """``name`` as one piece of a path, whatever is in it."""
    # "." and ".." mean other places of the path, unless they are encoded.
    return "%2E" * len(name) if name in (".", "..") else quote(name, safe="")


def topic_path(topic: str, *parts: str) -> str:
    """``/v1/topics/{topic}/…`` with the topic's name quoted."""
    return "/".join(("/v1/topics", segment(topic), *parts))
