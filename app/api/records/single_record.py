"""Answer with one record: as a whole, or in pieces while room for it is held."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.responses import Response

from ...broker.reading.decoded_bytes import DecodedReader
from ...broker.reading.fetch import OpenRecord
from .form import RecordForm, raw_pieces
from .stream_slots import SlottedStream

_JSON, _OCTETS = "application/json", "application/octet-stream"


async def record_response(
    opened: OpenRecord,
    partition: int,
    form: RecordForm,
    reader: DecodedReader,
    *,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return a record as JSON, and close it when it was sent."""
    if not opened.is_large:
        content = b"".join([piece async for piece in form.stream(partition, [opened.record], end=b"")])
        return Response(content, headers=headers, media_type=_JSON)
    body = _closing(form.stream(partition, [opened.record], end=b""), opened)
    return SlottedStream(body, None, reader=reader, headers=headers, media_type=_JSON)


def bytes_response(
    opened: OpenRecord, data: bytes, reader: DecodedReader, *, headers: dict[str, str]
) -> Response:
    """Return bytes of a record as they are, and close it when they were sent."""
    if not opened.is_large:
        return Response(data, headers=headers, media_type=_OCTETS)
    headers = {**headers, "Content-Length": str(len(data))}
    body = _closing(raw_pieces(data), opened)
    return SlottedStream(body, None, reader=reader, headers=headers, media_type=_OCTETS)


async def _closing(content: AsyncGenerator[bytes], opened: OpenRecord) -> AsyncGenerator[bytes]:
    try:
        async for piece in content:
            yield piece
    finally:
        await opened.close()
