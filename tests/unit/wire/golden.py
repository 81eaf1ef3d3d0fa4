"""The golden file of the binary protocol: its layout, how it is written and how it is read.

``tests/golden/binary-protocol.txt`` has three kinds of lines, tabs between the columns:

    frame    ConsumeRequest(batch_size=10, offset=41, topic='orders')   0000001b01…
    request  03   ffffffff         topic length is negative: -1
    response 04   02               status 2 does not exist

A ``frame`` is a message of ``messages_cases.py`` and the bytes that it is; a
``request`` or ``response`` is a frame type, a body that is not one of that type,
and the text of the ``MessageError``.

``python -m tests.unit.wire.golden`` prints the file from the code as it stands.
Compare before you commit what it prints: a line that changes is a break of the
protocol, or of what its users see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stele.wire import messages as m

from .messages_cases import REQUESTS, RESPONSES

PATH = Path(__file__).parents[2] / "golden" / "binary-protocol.txt"
MESSAGES: list[m.Request | m.Response | m.ErrorResponse] = [*REQUESTS, *RESPONSES]
# Large enough to reach every field, small enough to be read.
_BODY_BYTES_MAX = 200
_LIES = [
    bytes.fromhex(lie) for lie in ("ffffffff", "fffffffe", "80000000", "7fffffff", "00000100", "ff", "04")
]


class Malformed(NamedTuple):
    """A body that is not a message, and what the decoder says of it."""

    kind: str
    frame_type: int
    body: bytes
    error: str


def described(value: Any) -> str:
    """A value as text that depends on field names only: not on their order, nor on list or tuple."""
    if is_dataclass(value):
        found = sorted((field.name, getattr(value, field.name)) for field in fields(value))
        return f"{type(value).__name__}({', '.join(f'{name}={described(one)}' for name, one in found)})"
    if isinstance(value, list | tuple):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return f"[{', '.join(map(described, items))}]"
    if isinstance(value, bytearray):
        return ascii(bytes(value))
    return ascii(int(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def decode(kind: str, frame_type: int, body: bytes) -> m.Request | m.Response | m.ErrorResponse:
    return m.decode_request(frame_type, body) if kind == "request" else m.decode_response(frame_type, body)


def error_of(kind: str, frame_type: int, body: bytes) -> str | None:
    """The text of the error with which a body is refused; None if it is a message."""
    try:
        decode(kind, frame_type, body)
    except m.MessageError as error:
        return str(error)
    return None


def _variants(body: bytes) -> Iterator[bytes]:
    """Bodies near a valid one: cut anywhere, with a byte too many, with a lie anywhere."""
    yield from (body[:size] for size in range(len(body)))
    yield body + b"\0"
    for lie in _LIES:
        for position in range(len(body)):
            yield body[:position] + lie + body[position + len(lie) :]


def _malformed() -> Iterator[Malformed]:
    """One body for each text that a message's decoder can say, numbers aside."""
    seen: set[tuple[int, str]] = set()
    for message in MESSAGES:
        frame = message.encode()
        kind = "request" if isinstance(message, m.Request) else "response"
        if len(frame) > _BODY_BYTES_MAX:
            continue
        for body in _variants(frame[5:]):
            error = error_of(kind, frame[4], body)
            shape = re.sub(r"-?\d+", "N", error or "")
            if error is not None and (frame[4], shape) not in seen:
                seen.add((frame[4], shape))
                yield Malformed(kind, frame[4], body, error)


def lines() -> Iterator[str]:
    """The golden file as the present code would write it."""
    for message in MESSAGES:
        yield f"frame\t{described(message)}\t{message.encode().hex()}"
    for kind, frame_type, body, error in _malformed():
        yield f"{kind}\t{frame_type:02x}\t{body.hex()}\t{error}"


def _rows() -> list[list[str]]:
    text = PATH.read_text(encoding="ascii")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]


def golden_frames() -> dict[str, bytes]:
    """The bytes of every message, by its description."""
    return {row[1]: bytes.fromhex(row[2]) for row in _rows() if row[0] == "frame"}


def golden_errors() -> list[Malformed]:
    """Every body that must be refused, with its text."""
    return [
        Malformed(row[0], int(row[1], 16), bytes.fromhex(row[2]), row[3])
        for row in _rows()
        if row[0] != "frame"
    ]


if __name__ == "__main__":
    print("\n".join(lines()))
