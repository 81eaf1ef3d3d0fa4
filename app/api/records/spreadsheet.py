"""Encode records as CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator

from msgspec import Raw
from stele.wire.record_batch import RecordView

from ...registry.values import DecodedRecord
from .decoded_json import with_texts
from .form import RecordForm, base64_pieces, is_text, text_pieces
from .json_records import RecordOut, encode

# A spreadsheet reads a cell that begins with one of these as a formula, full-width forms included.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_LINE_ENDS = ("\t", "\r", "\n")
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "value_b64", "headers")


def csv_head() -> bytes:
    """Return the row of the names of the columns."""
    return _rows([_COLUMNS])


async def csv_pieces(
    partition: int, record: RecordView, form: RecordForm, decoded: DecodedRecord | None
) -> AsyncGenerator[bytes]:
    """Yield the row of a large record as ``csv_lines`` encodes others."""
    if decoded is not None:
        record = with_texts(record, decoded)
    if form.preview:
        record = form.cut(record)
    yield b"%d,%d,%d," % (partition, record.offset, record.timestamp)
    is_binary = record.key is not None and not await is_text(record.key)
    async for piece in _pieces_of_cell(record.key, is_text_cell=not is_binary):
        yield piece
    is_binary = record.value is not None and not await is_text(record.value)
    for is_text_cell in (True, False):
        yield b","
        async for piece in _pieces_of_cell(
            None if is_text_cell is is_binary else record.value, is_text_cell=is_text_cell
        ):
            yield piece
    yield b","
    # The cell of the headers is JSON, whose quotes are doubled like all others.
    yield b'"'
    if record.headers:
        async for piece in form.headers(record.headers):
            yield piece.replace(b'"', b'""')
    yield b'"\r\n'


async def _pieces_of_cell(data: bytes | None, *, is_text_cell: bool) -> AsyncGenerator[bytes]:
    yield b'"'
    if data is not None and is_text_cell:
        is_first = True
        async for text in text_pieces(data):
            shown = _cell(text) if is_first else text
            is_first = False
            yield shown.replace('"', '""').encode()
    elif data is not None:
        async for piece in base64_pieces(data):
            yield piece
    yield b'"'


def csv_lines(shown: list[RecordOut]) -> bytes:
    """Encode rows for a spreadsheet.

    Text that it would read as a formula begins with a quotation mark.
    """
    return _rows(
        [
            (
                record.partition,
                record.offset,
                record.timestamp,
                _cell(record.key) or _cell(record.key_b64),
                _cell(record.value),
                _cell(record.value_b64),
                _cell(encode(record.headers).decode()) if record.headers else "",
            )
            for record in shown
        ]
    )


def _cell(value: object) -> str:
    if isinstance(value, Raw):
        # What was decoded, as JSON.
        value = bytes(value).decode()
    if not isinstance(value, str):
        return ""
    return f"'{value}" if value.startswith(_LINE_ENDS) or value.lstrip().startswith(_FORMULA) else value


def _rows(rows: list[tuple[object, ...]]) -> bytes:
    # All texts are quoted, because some spreadsheets also split a row at semicolons.
    lines = io.StringIO()
    csv.writer(lines, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)
    return lines.getvalue().encode()
