"""Records of a page as an Arrow IPC stream, for pyarrow, pandas, polars and DuckDB; needs the extra ``arrow``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from ..broker.fetch import Fetched
from ..work_budget import pause
from .errors import HttpError

if TYPE_CHECKING:
    from stele.wire.arrow import Decoder

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
# Arrow columnar format, IPC streaming: a continuation mark and a length of 0.
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


async def decoder_of(topic: str, partition: int) -> Decoder:
    """Makes all columns. pyarrow is loaded at the first request, beside the loop: it takes a while, and memory.

    Raises ``HttpError`` 406 if it is not installed.
    """
    try:
        return await asyncio.to_thread(_decoder, topic, partition)
    except ModuleNotFoundError as missing:
        raise HttpError(
            406,
            f"{MEDIA_TYPE} needs {missing.name}, which the broker does not have: "
            "pip install 'stele-broker[arrow]', or ask for application/x-ndjson",
        ) from missing


def _decoder(topic: str, partition: int) -> Decoder:
    from stele.wire.arrow import ARROW, Decoder, arrow_schema_of

    return Decoder(topic=topic, partition=partition, schema=arrow_schema_of([(name, True) for name in ARROW]))


async def arrow_body(
    decoder: Decoder, pieces: Sequence[Fetched], *, start: int, end: int
) -> AsyncGenerator[bytes]:
    """The stream of the records from offset ``start`` on and before ``end``.

    Batches that do not decode, CRC or no, break it off before its end mark, so that no reader takes it for whole.
    """
    yield bytes(decoder.schema.serialize())
    for piece in pieces:
        for rows in decoder.decode(piece.batches, start, end):
            yield bytes(rows.serialize())
            await pause()
    yield _END_OF_STREAM
