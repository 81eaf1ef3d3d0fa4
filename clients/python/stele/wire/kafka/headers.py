"""Headers of the requests and responses of the Kafka protocol.

::

    request   size:4  api key:2  api version:2  correlation id:4  client id (length:2, UTF-8; -1 null)
              header v2 (flexible versions): tagged fields
    response  size:4  correlation id:4
              header v1 (flexible versions): tagged fields

``size`` counts what follows it. The client id stays classic in header v2, and
the header of an ApiVersions response is v0 in every version (KIP-482, KIP-511):
a client that asks in a version the broker does not know must still read it.
Header v0 of requests has no client id; its only user, ControlledShutdown v0, is
not served.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..schema import MalformedMessage, skip_tagged_fields

SIZE = struct.Struct(">i")
# An api key, a version and a correlation id.
REQUEST_BYTES_MIN = 8
_FIXED = struct.Struct(">hhi")
_CLIENT_ID = struct.Struct(">h")


class RequestHead(NamedTuple):
    """The part of a request header that is the same in all versions."""

    api_key: int
    version: int
    correlation_id: int


def read_head(frame: memoryview) -> RequestHead:
    """Read the fixed part of the header of a ``frame``.

    The frame has at least ``REQUEST_BYTES_MIN`` bytes.
    """
    return RequestHead(*_FIXED.unpack_from(frame))


def read_client_id(frame: memoryview, *, flexible: bool) -> tuple[str, int]:
    """Return the client id ("" for null) and the position of the body.

    Raises:
        MalformedMessage: the header ends too early, or the client id is not UTF-8.
    """
    try:
        (length,) = _CLIENT_ID.unpack_from(frame, REQUEST_BYTES_MIN)
        end = REQUEST_BYTES_MIN + 2 + max(0, length)
        if length < -1 or end > len(frame):
            raise MalformedMessage(f"client id of {length} bytes in a request of {len(frame)}")
        client_id = str(frame[REQUEST_BYTES_MIN + 2 : end], "utf-8")
        return client_id, skip_tagged_fields(frame, end) if flexible else end
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"request header: {error}") from error


def request_head(api_key: int, version: int, client_id: str, *, flexible: bool) -> bytearray:
    """Return the header of a request with correlation id 0, without the size."""
    name = client_id.encode()
    return bytearray(
        _FIXED.pack(api_key, version, 0) + _CLIENT_ID.pack(len(name)) + name + (b"\0" if flexible else b"")
    )


def response_head(correlation_id: int, *, flexible: bool) -> bytearray:
    """Return the size, still zero, and the header of a response.

    The caller appends the body.
    """
    head = bytearray(9 if flexible else 8)
    SIZE.pack_into(head, 4, correlation_id)
    return head


def set_size(parts: list[bytes | bytearray]) -> None:
    """Set the size of a frame, which is in its first part."""
    SIZE.pack_into(parts[0], 0, sum(map(len, parts)) - SIZE.size)  # type: ignore[arg-type]
