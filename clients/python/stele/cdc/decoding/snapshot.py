"""Parser for the text format of COPY. No I/O."""

from __future__ import annotations

import re

from .pgoutput import Datum, Row

_ESCAPES = {
    b"\\\\": b"\\",
    b"\\b": b"\b",
    b"\\f": b"\f",
    b"\\n": b"\n",
    b"\\r": b"\r",
    b"\\t": b"\t",
    b"\\v": b"\v",
}
_ESCAPE = re.compile(rb"\\.", re.DOTALL)


def parse_line(line: bytes) -> Row:
    """Parse a line with its line end (PostgreSQL, "COPY", File Formats)."""
    return [_datum(part) for part in line.removesuffix(b"\n").split(b"\t")]


def _datum(part: bytes) -> Datum:
    if part == b"\\N":
        return None
    if b"\\" not in part:
        return part
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[0], match[0][1:]), part)
