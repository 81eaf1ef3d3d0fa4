"""Find the records of a large JSON body, and cut out a large value of a record, in several turns of the event loop.

A decoder takes a whole text in one turn, 2 ms per MiB. But it also says where a value ends: at the first of the
*trailing characters* after it. So it is given a few bytes at a time, and remains what decides what is JSON. Only
arrays, objects and strings that are larger than that are entered without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import DecodeError, Raw, Struct

from ...errors import InvalidRequest
from ...work_budget import TURN_BYTES, Pace, Steps, in_turns
from ..errors import HttpError
from .json_records import compacted
from .large_strings import QUOTE, pieces_decoded, shifted

# The most that a decoder takes at once; the limit of a body without its records, and of a record without its value.
VALUE_BYTES_MAX = 2 * 1024 * 1024
# Of the end of a string that is searched at once.
_PIECE_BYTES = 256 * 1024
# Of elements that are found at once.
_GROUP_BYTES = 32 * 1024
# Of an escape, or of the end of a number, which a cut makes invalid.
_TOKEN_BYTES = 12
# Bytes that are passed over or compacted in a microsecond.
_BYTES_PER_PIECE = 128
# Of arrays and objects that are larger than a decoder takes at once: each costs a search in vain.
_DEPTH_MAX = 32

_T = TypeVar("_T", bound=Struct)
_Text = Raw | memoryview

_skip = msgspec.json.Decoder(Raw).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_name = msgspec.json.Decoder(str).decode
_BLANKS = re.compile(rb"[ \t\n\r]*")
_TRAILING = "JSON is malformed: trailing characters (byte "
_TRUNCATED = "Input data was truncated"
_PLACE = re.compile(r".*\(byte (\d+)\)")
# How an element ends before the next one, by how it begins.
_ENDS = {b"{": b"},", b"[": b"],"}


class _Cursor:
    """A place in a JSON text, always before a token or at the end.

    Its methods raise ``DecodeError`` for what is not JSON.
    """

    def __init__(self, text: memoryview) -> None:
        self.text = text
        self.at = 0
        # What values that are passed are without blanks, in parts.
        self.compact: list[bytes] | None = None
        self._pace = Pace()
        self._pass_blanks()

    def _pass_blanks(self) -> None:
        # More of them than this are taken for something that is not JSON.
        blanks = _BLANKS.match(self.text, self.at, self.at + VALUE_BYTES_MAX)
        assert blanks is not None
        self.at = blanks.end()

    def is_before(self, token: bytes) -> bool:
        return bytes(self.text[self.at : self.at + 1]) == token

    def take(self, token: bytes) -> bool:
        """Move past ``token``; False if another one is next."""
        if not self.is_before(token):
            return False
        self.at += 1
        self._pass_blanks()
        return True

    def expect(self, token: bytes) -> None:
        if not self.take(token):
            if self.at == len(self.text):
                raise DecodeError(_TRUNCATED)
            raise DecodeError(f"JSON is malformed: expected '{token.decode()}' (byte {self.at})")

    def take_value(self) -> bool:
        """Move past a value; False if it has more than ``VALUE_BYTES_MAX`` bytes."""
        start, end = self.at, self.at + VALUE_BYTES_MAX
        try:
            _skip(self.text[start:end])
        except DecodeError as error:
            message = str(error)
            if message.startswith(_TRAILING):
                self.at = start + int(message[len(_TRAILING) : -1]) - 1
                return True
            place = _PLACE.fullmatch(message)
            # A number or an escape that is cut is not valid either.
            is_due_to_cut = (
                message == _TRUNCATED if place is None else int(place[1]) > VALUE_BYTES_MAX - _TOKEN_BYTES
            )
            if is_due_to_cut and end < len(self.text):
                return False
            raise shifted(error, start) from None
        if end < len(self.text):
            return False
        self.at = len(self.text)
        return True

    def take_string(self) -> Steps[None]:
        """Move past a string of any size. What is in it is not checked."""
        at = self.at + 1
        while True:
            piece = bytes(self.text[at : at + _PIECE_BYTES])
            # From the left: each backslash belongs to the character after it.
            plain = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__")
            end = plain.find(b'"')
            if end >= 0:
                self.at = at + end + 1
                self._pass_blanks()
                return
            if at + len(piece) >= len(self.text):
                raise DecodeError(_TRUNCATED)
            at += len(piece) - plain.endswith(b"\\")
            yield

    def members(self) -> Iterator[bytes]:
        """Yield the name of each member of an object as it is written, before its value; the caller moves past that."""
        self.expect(b"{")
        if self.take(b"}"):
            return
        while True:
            start = self.at
            if not self.take_value():
                raise _too_large()
            name = bytes(self.text[start : self.at]).rstrip()
            if not name.startswith(QUOTE):
                raise DecodeError(f"JSON is malformed: object keys must be strings (byte {start})")
            self.expect(b":")
            yield name
            if self.take(b"}"):
                return
            self.expect(b",")

    def elements(self) -> Iterator[tuple[int, list[Raw] | None]]:
        """Yield where elements of an array begin, and these; None for one that the caller moves past.

        Mostly an element ends where one seems to end. Then all up to there are found at once, in a tenth of the time.
        """
        self.expect(b"[")
        one_by_one_until = 0
        while not self.take(b"]"):
            start, group = self.at, None
            if start >= one_by_one_until:
                piece = bytes(self.text[start : start + _GROUP_BYTES])
                end = _ENDS.get(piece[:1], b",")
                size = piece.rfind(end) + len(end) - 1
                try:
                    if size >= len(end):
                        group = _decode_list(b"[%b]" % piece[:size])
                        self.at = start + size
                except DecodeError:
                    one_by_one_until = start + size
            yield start, group
            if not self.is_before(b"]"):
                self.expect(b",")
                if self.is_before(b"]"):
                    raise DecodeError(f"JSON is malformed: trailing comma in array (byte {self.at})")

    def take_any(self, depth: int = 0) -> Steps[None]:
        """Move past a value of any size; put its text without blanks into ``compact``, unless that is None."""
        start = self.at
        if self.take_value():
            yield from self.keep(start)
        elif self.is_before(QUOTE):
            yield from self.take_string()
            if self.compact is not None:
                string = bytes(self.text[start : self.at]).rstrip()
                yield from pieces_decoded(string)
                self.compact.append(string)
        elif depth == _DEPTH_MAX:
            raise _too_large()
        elif self.is_before(b"["):
            self._write(b"[")
            for first, group in self.elements():
                if group is None:
                    yield from self.take_any(depth + 1)
                else:
                    yield from self.keep(first)
                self._write(b",")
            self._write_end(b"]")
        elif self.is_before(b"{"):
            self._write(b"{")
            for name in self.members():
                name.decode()
                self._write(name + b":")
                yield from self.take_any(depth + 1)
                self._write(b",")
            self._write_end(b"}")
        else:
            raise _too_large()

    def keep(self, start: int) -> Steps[None]:
        """Write what is from ``start`` up to here: values and the commas between them."""
        if self.compact is not None:
            text = bytes(self.text[start : self.at])
            # What a decoder passes over is not checked by it.
            text.decode()
            self.compact.append(compacted(b"[%b]" % text)[1:-1])
        if self._pace.is_due(1 + (self.at - start) // _BYTES_PER_PIECE):
            yield

    def _write(self, token: bytes) -> None:
        if self.compact is not None:
            self.compact.append(token)

    def _write_end(self, token: bytes) -> None:
        if self.compact is not None:
            if self.compact[-1] == b",":
                self.compact.pop()
            self.compact.append(token)


def _too_large() -> InvalidRequest:
    return InvalidRequest(
        f"a record has more than {VALUE_BYTES_MAX} bytes beside its value, or a large value of more than {_DEPTH_MAX} "
        "levels; send less, or the value as application/octet-stream"
    )


def without_large_values(
    text: memoryview,
) -> Steps[tuple[bytes, tuple[str, memoryview | list[bytes]] | None]]:
    """Return the JSON text of a record with an empty string for a large value; and that value, if there is one.

    It is the text of the string that ``value`` or ``value_b64`` is, or parts of the text without blanks of another value.

    Raises:
        DecodeError: the text is not an object.
        UnicodeDecodeError: the value is not UTF-8.
        InvalidRequest: what remains is too large.
    """
    cursor = _Cursor(text)
    large: tuple[str, memoryview | list[bytes]] | None = None
    parts: list[bytes] = []
    end = 0
    for written in cursor.members():
        start, name = cursor.at, _decode_name(written)
        if large is not None and name == large[0]:
            # As in any JSON object, the last of several members of a name counts.
            large = None
        if not cursor.take_value():
            is_string = cursor.is_before(QUOTE)
            if name != "value" and not (name == "value_b64" and is_string):
                raise _too_large()
            if is_string:
                yield from cursor.take_string()
                large = name, text[start : cursor.at]
            else:
                cursor.compact = []
                yield from cursor.take_any()
                large, cursor.compact = (name, cursor.compact), None
            parts += (bytes(text[end:start]), b'""')
            end = cursor.at
    if cursor.at < len(text):
        raise DecodeError(f"{_TRAILING}{cursor.at})")
    parts.append(bytes(text[end : end + VALUE_BYTES_MAX + 1]))
    if sum(map(len, parts)) > VALUE_BYTES_MAX:
        raise _too_large()
    return b"".join(parts), large


async def decode_body(body: bytes, kind: type[_T], *, records_max: int) -> _T:
    """Decode ``body``, an object whose member ``records`` is a list of ``Raw``.

    If the body is large, they may be memoryviews, too.

    Raises:
        DecodeError, RecursionError, UnicodeDecodeError: it is not a ``kind``.
        HttpError: 413; it has more than ``records_max`` records, or too much beside them.
        InvalidRequest: one of the records is too large.
    """
    if len(body) <= TURN_BYTES:
        return msgspec.json.decode(body, type=kind)
    rest, records = await in_turns(without_records(body, records_max))
    decoded: Any = msgspec.json.decode(rest, type=kind)
    if records is not None:
        decoded.records = records
    return decoded


def without_records(body: bytes, records_max: int) -> Steps[tuple[bytes, list[_Text] | None]]:
    """Return a body with an empty list of records, and the texts of these; None if it has no such list."""
    text = memoryview(body)
    cursor = _Cursor(text)
    records: list[_Text] | None = None
    parts: list[bytes] = []
    end = 0
    for written in cursor.members():
        start = cursor.at
        if _decode_name(written) == "records" and cursor.is_before(b"["):
            records = []
            for first, group in cursor.elements():
                if group is None:
                    yield from cursor.take_any()
                    records.append(text[first : cursor.at])
                else:
                    yield from cursor.keep(first)
                    records += group
                if len(records) > records_max:
                    raise HttpError(
                        413,
                        f"the body has more than {records_max} records; send fewer, or stream NDJSON",
                        limit=records_max,
                    )
            parts += (body[end:start], b"[]")
            end = cursor.at
        elif not cursor.take_value():
            raise _too_much()
    if cursor.at < len(body):
        raise DecodeError(f"{_TRAILING}{cursor.at})")
    parts.append(body[end:])
    if sum(map(len, parts)) > VALUE_BYTES_MAX:
        raise _too_much()
    return b"".join(parts), records


def _too_much() -> HttpError:
    return HttpError(
        413,
        f"the body has more than {VALUE_BYTES_MAX} bytes beside its records; send less at once",
        limit=VALUE_BYTES_MAX,
    )
