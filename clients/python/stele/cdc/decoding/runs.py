"""Runs: inserts, or updates without an old row, of one table that follow each other. No I/O.

Most changes are in runs, which go on over the ends of transactions. Their rows are read together, by one regular
expression per table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from .pgoutput import COLUMNS_MAX, UNCHANGED, Datum, Insert, Row, Update, decode

ROWS_MAX = 500
# Of a row that is collected; it bounds what a run takes.
ROW_BYTES_MAX = 16 * 1024
# Kind, relation, N, and the number of columns; within a stream, the transaction is before the relation.
_HEAD_BYTES = 8
_HEAD_BYTES_IN_STREAM = 12

# Kind and length of a value below 64 KiB, without the two low bytes. It is nowhere but where such a value begins, because
# texts have no zero byte, and longer values another one here.
_VALUE = b"t\0\0"
_NO_VALUES: dict[int, Datum] = {ord("n"): None, ord("u"): UNCHANGED}


class Run:
    """Changes with the same ``head``, and their LSNs; ``head`` is None while there are none.

    ``ends`` has the number of changes before the end of each transaction that ends in the run, and ``begins`` the
    message that begins the one after it, if that has come. ``commit`` is the message of the newest end.
    """

    __slots__ = ("begins", "commit", "ends", "head", "lsns", "payloads")

    def __init__(self) -> None:
        self.head: bytes | None = None
        self.lsns: list[int] = []
        self.payloads: list[bytes] = []
        self.ends: list[int] = []
        self.begins: list[bytes] = []
        self.commit: bytes = b""

    def begin(self, lsn: int, payload: bytes, *, in_stream: bool = False) -> bool:
        """Begin with a change; return False if it is none of a run. The run must be empty."""
        size = _HEAD_BYTES_IN_STREAM if in_stream else _HEAD_BYTES
        if payload[size - 3 : size - 2] != b"N" or payload[:1] not in (b"I", b"U"):
            return False
        self.head = payload[:size]
        self.lsns.append(lsn)
        self.payloads.append(payload)
        return True

    def goes_on(self, lsn: int, payload: bytes) -> bool:
        """Add a change if it belongs to the run."""
        head = self.head
        if head is None or payload[: len(head)] != head:
            return False
        if len(payload) > ROW_BYTES_MAX or len(self.lsns) >= ROWS_MAX:
            return False
        self.lsns.append(lsn)
        self.payloads.append(payload)
        return True

    @property
    def xid(self) -> int:
        """The transaction, or subtransaction, of changes within a stream."""
        return int.from_bytes((self.head or b"")[1:5])


def relation_of(head: bytes) -> int:
    return int.from_bytes(head[-7:-3])


def change_of(head: bytes, payload: bytes) -> Insert | Update:
    """Decode one change of a run. Raises PgOutputError."""
    change = decode(payload, in_stream=len(head) == _HEAD_BYTES_IN_STREAM)
    assert isinstance(change, Insert | Update)
    return change


def rows_of(head: bytes, payloads: Sequence[bytes]) -> tuple[Sequence[Row], bool]:
    """Return the rows of a run, and whether each has all its values, and no NULL.

    Raises:
        PgOutputError: the bytes are not a valid message.
    """
    columns = int.from_bytes(head[-2:])
    if 0 < columns <= COLUMNS_MAX:
        found = _whole_rows(head).findall(b"\0".join((*payloads, b"")))
        if len(found) == len(payloads):
            # Of a single group, findall returns no tuples.
            return ([(value,) for value in found] if columns == 1 else found), True
    return [
        _row(payload[len(head) :], columns) or change_of(head, payload).row for payload in payloads
    ], False


def _row(data: bytes, columns: int) -> list[Datum] | None:
    """Return the row of a change after its head; None if it has a value of 64 KiB, or is invalid."""
    before, *pieces = data.split(_VALUE)
    try:
        row = [_NO_VALUES[kind] for kind in before]
        for piece in pieces:
            end = (piece[0] << 8 | piece[1]) + 2
            row.append(piece[2:end])
            if len(piece) != end:
                if len(piece) < end:
                    return None
                row += [_NO_VALUES[kind] for kind in piece[end:]]
    except LookupError:
        return None
    return row if len(row) == columns else None


@lru_cache(maxsize=256)
def _whole_rows(head: bytes) -> re.Pattern[bytes]:
    """Return the expression of rows with values only, of which each is followed by a zero byte."""
    value = re.escape(_VALUE) + rb"..([^\0]*)"
    return re.compile(re.escape(head) + value * int.from_bytes(head[-2:]) + rb"\0", re.DOTALL)
