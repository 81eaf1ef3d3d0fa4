"""Decode JSON strings in pieces that are cut between two characters."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ...work_budget import Steps
from .json_records import decode_string

# A piece takes up to half a millisecond.
PIECE_BYTES = 128 * 1024
_UTF8_MAX = 4
_UNICODE_ESCAPE = 6
QUOTE = b'"'
_PLACE = re.compile(r"(.*\(byte )(\d+)\)")


def shifted(error: Exception, by: int) -> msgspec.DecodeError:
    """Return the error of a part of a text that begins at byte ``by``, with its place in the text."""
    place = _PLACE.fullmatch(str(error))
    return msgspec.DecodeError(f"{place[1]}{int(place[2]) + by})" if place else str(error))


def pieces_decoded(string: bytes) -> Steps[list[bytes]]:
    """Return what a JSON string with its quotes stands for, in pieces.

    Raises:
        DecodeError: it is not valid.
    """
    pieces: list[bytes] = []
    for start, end in pieces_of_string(string, 1, len(string) - 1, PIECE_BYTES):
        try:
            pieces.append(decode_string(QUOTE + string[start:end] + QUOTE).encode())
        except msgspec.DecodeError as error:
            raise shifted(error, start - 1) from error
        yield
    return pieces


def pieces_of_string(text: bytes, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of pieces that are JSON strings if ``text[start:end]`` is.

    There are no quotes around any of them. Pieces have ``size`` bytes, up to 12 fewer if they end between two
    characters or escapes. What is not valid is cut anywhere.
    """
    while end - start > size:
        cut = _boundary(text, start, start + size)
        yield start, cut
        start = cut
    if start < end:
        yield start, end


def _boundary(text: bytes, start: int, end: int) -> int:
    """Return where the last character or escape up to ``end`` ends."""
    cut = end
    while cut > start and text[cut] & 0xC0 == 0x80 and end - cut < _UTF8_MAX:
        cut -= 1
    last = text.rfind(b"\\", max(start, cut - _UNICODE_ESCAPE + 1), cut)
    if last >= 0 and _begins_escape(text, start, last):
        length = _UNICODE_ESCAPE if text[last + 1 : last + 2] == b"u" else 2
        if last + length > cut:
            cut = last
    first = cut - _UNICODE_ESCAPE
    if first >= start and _is_high_surrogate(text[first:cut]) and _begins_escape(text, start, first):
        cut = first
    return cut if cut > start else end


def _begins_escape(text: bytes, start: int, at: int) -> bool:
    """Return whether the backslash at ``at`` is not itself escaped."""
    before = text[start : at + 1]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _is_high_surrogate(escape: bytes) -> bool:
    return escape[:2] == b"\\u" and escape[2:4].lower() in (b"d8", b"d9", b"da", b"db")
