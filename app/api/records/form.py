"""Encode records as JSON for every answer, in pieces if they are large.

``RecordForm`` has the options of a client's request. ``stream`` puts each record between an opening and an end, so pages,
NDJSON, server-sent events and single records differ in these only. A record that is large is never made into one
text: the pieces of it together are what ``record_out`` makes of it at once. One record is always one line.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

import pybase64
from stele.wire.record_batch import RecordView

from ...broker.reading.fetch import is_large
from ...registry.values import Decoded, DecodedPart, DecodedRecord, TopicValues, framed
from ...work_budget import pause
from .decoded_json import decoded_out
from .json_records import (
    RecordOut,
    encode,
    encode_lines,
    is_json,
    preview_of,
    preview_out,
    record_out,
    without_line_ends,
)

# Records are sent in blocks of this size: sending each alone would cost more than encoding it.
BLOCK_BYTES = 64 * 1024
# Of a value, per piece. JSON may make six bytes of one. Base64 has no padding inside of a value, so it is a multiple
# of three.
_PIECE_BYTES = 3 * 16 * 1024
# A larger value is shown as text even if it is JSON: to check that it is takes a millisecond per MiB, in one turn.
JSON_VALUE_BYTES_MAX = 8 * 1024 * 1024
_PREVIEW_HEADERS = 100


@dataclass(frozen=True, slots=True)
class RecordForm:
    """Options for the presentation of records.

    ``parse_values``: values that are JSON appear as JSON. ``preview``: at most this many bytes of the value, the
    key and each header; 0 for all. ``values`` decodes what names a schema; None shows it as it is.
    """

    parse_values: bool = False
    preview: int = 0
    values: TopicValues | None = None

    def may_decode(self, records: Sequence[RecordView]) -> bool:
        """Return whether one of the records may name a schema."""
        return self.values is not None and bool(framed(records))

    async def decoded(self, records: Sequence[RecordView]) -> Decoded:
        """Return what is decoded of records, before they are encoded."""
        return () if self.values is None else await self.values.decoded(records)

    def out(self, partition: int, record: RecordView, decoded: DecodedRecord | None = None) -> RecordOut:
        """Return a record that is not large, to be encoded."""
        if decoded is not None:
            return decoded_out(partition, record, decoded, preview=self.preview, headers_max=_PREVIEW_HEADERS)
        if self.preview:
            return preview_out(partition, record, bytes_max=self.preview, headers_max=_PREVIEW_HEADERS)
        return record_out(partition, record, parse_values=self.parse_values)

    async def stream(
        self,
        partition: int,
        records: Sequence[RecordView],
        *,
        opening: Callable[[RecordView], bytes] | None = None,
        end: bytes = b"\n",
        decoded: Decoded | None = None,
    ) -> AsyncGenerator[bytes]:
        """Yield the JSON objects of ``records`` in blocks, each followed by ``end``.

        Without an end, commas separate them.

        ``opening`` returns what stands in place of the first brace of a record. A large record is alone in
        ``records``, as ``batch_in_turns`` yields it. ``decoded`` is given if they were decoded before.
        """
        if decoded is None and self.values is not None:
            decoded = await self.values.decoded(records)
        if len(records) == 1 and is_large(records[0]):
            record = records[0]
            yield b"{" if opening is None else opening(record)
            async for piece in self._pieces(partition, record, decoded[0] if decoded else None):
                yield piece
            yield end
        else:
            yield self.block(partition, records, opening=opening, end=end, decoded=decoded or ())

    def block(
        self,
        partition: int,
        records: Sequence[RecordView],
        *,
        opening: Callable[[RecordView], bytes] | None = None,
        end: bytes = b"\n",
        decoded: Decoded = (),
    ) -> bytes:
        """Return what ``stream`` yields for records of which none is large."""
        if decoded:
            outs = [self.out(partition, record, part) for record, part in zip(records, decoded, strict=True)]
        else:
            outs = [self.out(partition, record) for record in records]
        if opening is None and end == b"\n":
            return encode_lines(outs)
        if opening is None and not end:
            return encode(outs)[1:-1]
        block = bytearray()
        for record, out in zip(records, outs, strict=True):
            block += b"{" if opening is None else opening(record)
            block += encode(out)[1:]
            block += end
        return bytes(block)

    async def _pieces(
        self, partition: int, record: RecordView, decoded: DecodedRecord | None
    ) -> AsyncGenerator[bytes]:
        """Yield the JSON object of a record without its first brace."""
        if decoded is not None:
            async for piece in self._decoded_pieces(partition, record, decoded):
                yield piece
            return
        shown = self.cut(record) if self.preview else record
        key, value = shown.key, shown.value
        yield b'"partition":%d,"offset":%d,"timestamp":%d,' % (partition, record.offset, record.timestamp)
        async for piece in _field(b"key", key):
            yield piece
        yield b","
        if value is not None and self.parse_values and not self.preview and await _is_json(value):
            yield b'"value":'
            for start in range(0, len(value), _PIECE_BYTES):
                yield bytes(without_line_ends(value[start : start + _PIECE_BYTES]))
                await pause()
        else:
            async for piece in _field(b"value", value):
                yield piece
        yield b',"headers":'
        async for piece in self.headers(shown.headers):
            yield piece
        if self.preview and value is not None:
            yield b',"value_bytes":%d' % len(record.value or b"")
        yield b"}" if shown is record else b',"is_cut":true}'

    async def _decoded_pieces(
        self, partition: int, record: RecordView, decoded: DecodedRecord
    ) -> AsyncGenerator[bytes]:
        if self.preview:
            yield encode(self.out(partition, record, decoded))[1:]
            return
        yield b'"partition":%d,"offset":%d,"timestamp":%d' % (partition, record.offset, record.timestamp)
        parts = ((b"key", record.key, decoded.key), (b"value", record.value, decoded.value))
        for name, data, part in parts:
            yield b","
            async for piece in _field(name, data) if part is None else _decoded_field(name, part):
                yield piece
        yield b',"headers":'
        async for piece in self.headers(record.headers):
            yield piece
        if decoded.value is not None:
            yield b',"schema":' + decoded.value.schema
        if decoded.key is not None:
            yield b',"keySchema":' + decoded.key.schema
        yield b"}"

    def cut(self, record: RecordView) -> RecordView:
        """Return the first ``preview`` bytes of each part, or ``record`` itself."""
        return preview_of(record, bytes_max=self.preview, headers_max=_PREVIEW_HEADERS)

    async def headers(self, headers: Sequence[tuple[str, bytes | None]]) -> AsyncGenerator[bytes]:
        """Yield the JSON array of headers."""
        yield b"["
        for number, (name, content) in enumerate(headers):
            yield b",{" if number else b"{"
            async for piece in _field(b"key", name.encode()):
                yield piece
            yield b","
            async for piece in _field(b"value", content):
                yield piece
            yield b"}"
        yield b"]"


class Separator:
    """Puts a comma before all records of an array but the first."""

    def __init__(self) -> None:
        self._text = b""

    def before(self, head: bytes, _: RecordView) -> bytes:
        """Return ``head``, which opens a record."""
        text = self._text + head
        self._text = b","
        return text


async def _field(name: bytes, data: bytes | None) -> AsyncGenerator[bytes]:
    """Yield a field: text, base64 under another name, or null."""
    if data is None:
        yield b'"%s":null' % name
    elif await is_text(data):
        yield b'"%s":"' % name
        async for text in text_pieces(data):
            yield encode(text)[1:-1]
        yield b'"'
    else:
        yield b'"%s_b64":"' % name
        async for piece in base64_pieces(data):
            yield piece
        yield b'"'


async def _decoded_field(name: bytes, part: DecodedPart) -> AsyncGenerator[bytes]:
    yield b'"%s":' % name
    async for piece in raw_pieces(part.text):
        yield piece


async def _is_json(value: bytes) -> bool:
    return len(value) <= JSON_VALUE_BYTES_MAX and await is_text(value) and is_json(value)


async def is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8, without keeping the text."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    try:
        for start in range(0, len(data), _PIECE_BYTES):
            decode(data[start : start + _PIECE_BYTES], start + _PIECE_BYTES >= len(data))
            await pause()
    except UnicodeDecodeError:
        return False
    return True


async def text_pieces(data: bytes) -> AsyncGenerator[str]:
    """Yield bytes that are UTF-8 as text."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    for start in range(0, len(data), _PIECE_BYTES):
        yield decode(data[start : start + _PIECE_BYTES])
        await pause()


async def base64_pieces(data: bytes) -> AsyncGenerator[bytes]:
    """Yield bytes as base64."""
    for start in range(0, len(data), _PIECE_BYTES):
        yield pybase64.b64encode(data[start : start + _PIECE_BYTES])
        await pause()


async def raw_pieces(data: bytes | memoryview) -> AsyncGenerator[bytes]:
    """Yield bytes as they are."""
    view = memoryview(data)
    for start in range(0, len(view), BLOCK_BYTES):
        yield bytes(view[start : start + BLOCK_BYTES])
        await pause()
