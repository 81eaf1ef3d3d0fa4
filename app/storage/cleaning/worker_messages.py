"""The messages between the broker and its compaction process, a line of JSON each.

The broker asks, the process answers, one at a time.
"""

from __future__ import annotations

import msgspec

from .pass_state import PassCounts
from .pass_work import PassOrder
from .planning import SegmentFacts


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Map the keys of a pass; answered by ``Mapped``."""

    order: PassOrder
    bytes_per_s: float | None


class Rewrite(msgspec.Struct, frozen=True, tag=True):
    """Clean a group of segments of that pass; answered by ``Rewritten`` or ``TooLarge``."""

    group: list[SegmentFacts]


class End(msgspec.Struct, frozen=True, tag=True):
    """Give back the memory of the pass; answered by ``Ended``."""


class Mapped(msgspec.Struct, frozen=True, tag=True):
    mapped_end: int


class Rewritten(msgspec.Struct, frozen=True, tag=True):
    """``warnings`` are the lines that the broker is to log."""

    is_new: bool
    counts: PassCounts
    warnings: list[str]


class TooLarge(msgspec.Struct, frozen=True, tag=True):
    pass


class Ended(msgspec.Struct, frozen=True, tag=True):
    pass


class Corrupt(msgspec.Struct, frozen=True, tag=True):
    """The fields of ``CorruptLog``."""

    path: str
    position: int
    offset: int
    next_offset: int
    reason: str


class DiskError(msgspec.Struct, frozen=True, tag=True):
    """The fields of ``OSError``."""

    number: int
    text: str
    path: str | None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """An error that does not come from the disk."""

    traceback: str


Request = Begin | Rewrite | End
Answer = Mapped | Rewritten | TooLarge | Ended | Corrupt | DiskError | Failed

_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    """One line, with its end."""
    return _encoder.encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    return _requests.decode(line)


def decode_answer(line: bytes) -> Answer:
    """Raises ``msgspec.MsgspecError`` if it is none."""
    return _answers.decode(line)
