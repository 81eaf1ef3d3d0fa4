"""Encode the records of a page as an Arrow IPC stream; needs the extra ``arrow``.

pyarrow, pandas, polars and DuckDB read such streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from ...broker.reading.decoded_bytes import DecodedReader
from ...broker.reading.fetch import size_of
from ..errors import HttpError
from .form import raw_pieces
from .page import RecordPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stele.wire.arrow import Decoder
    from stele.wire.record_batch import BatchHeader, RecordView

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
# Larger batches are encoded in a thread.
_THREAD_BYTES = 1024 * 1024
# Arrow columnar format, IPC streaming format: a continuation marker and a length of 0.
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


async def decoder_of(topic: str, partition: int) -> Decoder:
    """Return a decoder for all columns of a partition.

    The first request imports pyarrow, in a thread because the import takes long.

    Raises:
        HttpError: 406 if pyarrow is not installed.
    """
    try:
        return await asyncio.to_thread(_decoder, topic, partition)
    except ModuleNotFoundError as missing:
        raise HttpError(
            406,
            f"{MEDIA_TYPE} needs {missing.name}, which is not installed on the broker; "
            "run pip install 'stele-broker[arrow]' there, or accept application/x-ndjson",
        ) from missing


def _decoder(topic: str, partition: int) -> Decoder:
    from stele.wire.arrow import ARROW, Decoder, arrow_schema_of, load_conversions

    load_conversions()
    return Decoder(topic=topic, partition=partition, schema=arrow_schema_of([(name, True) for name in ARROW]))


async def arrow_body(decoder: Decoder, page: RecordPage, reader: DecodedReader) -> AsyncGenerator[bytes]:
    """Yield the stream of the records of ``page``.

    A batch that cannot be decoded ends the stream without its end marker, so that no
    reader takes it for complete.
    """
    yield bytes(decoder.schema.serialize())
    try:
        async for piece in _rows(decoder, page, reader):
            yield piece
    finally:
        # What Arrow keeps of freed memory would be kept for each size of a large value.
        decoder.release_memory()
    yield _END_OF_STREAM


def _serialized(
    decoder: Decoder, header: BatchHeader, records: Sequence[RecordView], size: int
) -> list[memoryview]:
    return [memoryview(rows.serialize()) for rows in decoder.add(header, records, size)]


async def _rows(decoder: Decoder, page: RecordPage, reader: DecodedReader) -> AsyncGenerator[bytes]:
    async with aclosing(page.parts(reader)) as parts:
        async for header, records in parts:
            size = sum(map(size_of, records))
            if size > _THREAD_BYTES:
                for made in await asyncio.to_thread(_serialized, decoder, header, records, size):
                    async for piece in raw_pieces(made):
                        yield piece
                continue
            for rows in decoder.add(header, records, size):
                async for piece in raw_pieces(memoryview(rows.serialize())):
                    yield piece
    rows = decoder.rest()
    if rows is not None:
        async for piece in raw_pieces(memoryview(rows.serialize())):
            yield piece
