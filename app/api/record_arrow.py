"""Encode the records of a page as an Arrow IPC stream; needs the extra ``arrow``.

pyarrow, pandas, polars and DuckDB read such streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from ..broker.fetch import Fetched, visible_bytes
from ..work_budget import pause
from .errors import HttpError

if TYPE_CHECKING:
    from stele.wire.arrow import Decoder

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
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
    from stele.wire.arrow import ARROW, Decoder, arrow_schema_of

    return Decoder(topic=topic, partition=partition, schema=arrow_schema_of([(name, True) for name in ARROW]))


async def arrow_body(
    decoder: Decoder, pieces: Sequence[Fetched], *, start: int, end: int
) -> AsyncGenerator[bytes]:
    """Yield the stream of the records at offsets ``[start, end)``.

    A batch that cannot be decoded ends the stream without its end marker, so that no
    reader takes it for complete.
    """
    yield bytes(decoder.schema.serialize())
    for piece in pieces:
        for rows in decoder.decode(await visible_bytes(piece), start, end):
            yield bytes(rows.serialize())
            await pause()
    yield _END_OF_STREAM
