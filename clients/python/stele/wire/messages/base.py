"""The base of all messages: framing, registration by type, and errors.

A request of type ``t`` (odd) is answered by type ``t + 1``. A response starts
with a status byte: 1 ok, 0 error. An ADR-0009 error is ``[length:4][text]``; an
ADR-0010 error starts with its number: ``[code:2 signed][length:4][text]``. Type 00
answers a frame that is not a request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Annotated, Any, ClassVar, TypeVar, cast, dataclass_transform

from ..error_codes import ErrorCode, error_code
from ..schema import Label, frozen_message
from .codec import MessageError, body_reader, body_reader_in_steps, frame_writer, frame_writer_in_steps
from .frame_types import LAST_ADR_0009_TYPE, MessageType

# An unknown number is read as UNKNOWN_SERVER_ERROR.
Code = Annotated[ErrorCode, "int16", error_code]
# Record batches, verbatim; a separate part of a frame, which is not copied before it is sent.
Batches = Annotated[bytes, "records"]


@frozen_message
class Message:
    """A message, whose annotations are its fields in wire order.

    The codecs are compiled from the declaration at first use.
    """

    TYPE: ClassVar[MessageType]
    # Bytes between the type of the frame and the fields.
    _PREFIX: ClassVar[tuple[int, ...]] = ()

    def encode(self) -> bytes:
        """Return the whole frame.

        Raises:
            struct.error: a number does not fit its field.
        """
        return _WRITERS[type(self)](self)

    def encode_parts(self) -> list[bytes | bytearray]:
        """Return the whole frame in parts, without copying record batches."""
        return _PART_WRITERS[type(self)](self)

    def encode_in_steps(self) -> Generator[None, None, list[bytes]]:
        """``encode_parts`` in steps that are short enough for a turn of the loop, for many elements."""
        return frame_writer_in_steps(type(self), self.TYPE, *self._PREFIX)(self)

    @classmethod
    def make_reader(cls) -> Callable[[bytes, int], Message]:
        """Return ``read(body, position)``, which decodes all fields from ``position`` on."""
        return body_reader(cls)


@frozen_message
class Request(Message):
    """A request of a client."""


@frozen_message
class Response(Message):
    """A successful response: the status byte 1, then the fields."""

    _PREFIX: ClassVar[tuple[int, ...]] = (1,)


class _Writers(dict[type[Message], Callable[[Message], Any]]):
    """The functions of ``encode`` or ``encode_parts``, compiled at first use."""

    def __init__(self, *, is_joined: bool) -> None:
        super().__init__()
        self._is_joined = is_joined

    def __missing__(self, cls: type[Message]) -> Callable[[Message], Any]:
        writer = frame_writer(cls, cls.TYPE, *cls._PREFIX, is_joined=self._is_joined)
        self[cls] = writer
        return writer


class _Readers(dict[int, Callable[[bytes, int], Message]]):
    """``decode_request`` and ``decode_response``, compiled at first use."""

    def __missing__(self, frame_type: int) -> Callable[[bytes, int], Message]:
        cls = REQUESTS[frame_type] if frame_type in REQUESTS else RESPONSES[frame_type]
        reader = self[frame_type] = cls.make_reader()
        return reader


REQUESTS: dict[int, type[Request]] = {}
RESPONSES: dict[int, type[Response]] = {}
_WRITERS = _Writers(is_joined=True)
_PART_WRITERS = _Writers(is_joined=False)
_READERS = _Readers()

_M = TypeVar("_M", bound=Request | Response)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def message(frame_type: MessageType) -> Callable[[type[_M]], type[_M]]:
    """Declare the message of a frame type and register it."""

    def declare(cls: type[_M]) -> type[_M]:
        declared = frozen_message(cls)
        declared.TYPE = frame_type
        assert frame_type not in {**REQUESTS, **RESPONSES}, f"{frame_type.name} has a message"
        assert issubclass(declared, Request) == (frame_type % 2 == 1), "requests have odd types"
        if issubclass(declared, Request):
            REQUESTS[frame_type] = declared
        else:
            RESPONSES[frame_type] = cast("type[Response]", declared)
        return declared

    return declare


# ── errors ──


@frozen_message
class _TextError:
    message: Annotated[str, Label("error")]


@frozen_message
class _NumberedError:
    code: Code
    message: Annotated[str, Label("error")]


def _error_layout(frame_type: int) -> type[_TextError | _NumberedError]:
    return _TextError if frame_type <= LAST_ADR_0009_TYPE else _NumberedError


@frozen_message
class ErrorResponse(Message):
    """An error response of any type.

    ADR-0009 types and type 00 have no number; they decode to ``UNKNOWN_SERVER_ERROR``
    and the text.
    """

    response_type: int
    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    message: str

    def encode(self) -> bytes:
        return frame_writer(_error_layout(self.response_type), self.response_type, 0)(self)

    def encode_parts(self) -> list[bytes | bytearray]:
        return [self.encode()]


# ── decoding ──


def decode_request(frame_type: int, body: bytes) -> Request:
    """Decode the request in a frame whose type is in ``REQUESTS``.

    Raises:
        MessageError: the body does not have the layout of its type.
        KeyError: the type is not that of a request.
    """
    if frame_type not in REQUESTS:
        raise KeyError(frame_type)
    return cast("Request", _READERS[frame_type](body, 0))


def decode_request_in_steps(frame_type: int, body: bytes) -> Generator[None, None, Request]:
    """``decode_request`` in steps that are short enough for a turn of the loop.

    Raises:
        MessageError: as there, or the request has more than ``REQUEST_ELEMENTS_MAX`` elements.
    """
    return body_reader_in_steps(REQUESTS[frame_type])(body, 0)


def decode_response(frame_type: int, body: bytes) -> Response | ErrorResponse:
    """Decode the response in a frame, which may be an error.

    Raises:
        MessageError: the type is unknown, or the body does not have its layout.
    """
    if frame_type not in RESPONSES and frame_type != MessageType.ERROR:
        raise MessageError(f"frame type {frame_type:#04x} is not a response")
    if not body:
        raise MessageError("status needs 1 bytes and 0 are left in the frame")
    status = body[0]
    if status == 1 and frame_type != MessageType.ERROR:
        return cast("Response", _READERS[frame_type](body, 1))
    if status != 0:
        raise MessageError(f"status {status - 256 if status > 127 else status} does not exist")
    error = body_reader(_error_layout(frame_type))(body, 1)
    code = error.code if isinstance(error, _NumberedError) else ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorResponse(response_type=frame_type, code=code, message=error.message)
