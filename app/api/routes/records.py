"""Read and follow records over HTTP, from an offset or a time.

Answers are JSON, NDJSON, Arrow, server-sent events or the stored batches.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from stele.wire import record_batch as rb
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.fetch import Fetched, PartitionFetch, records_from, records_in_turns
from ...errors import CorruptLog, InvalidRequest
from ...query.positions import offset_at, parse_time
from ...work_budget import pause, pause_among_partitions
from ..encoded_slash import EncodedSlashRoute
from ..errors import problem_of
from ..event_ids import parse_event_id
from ..openapi import records as openapi
from ..record_arrow import MEDIA_TYPE as _ARROW
from ..record_arrow import arrow_body, decoder_of
from ..record_json import encode, encode_record_lines, encode_records
from ..requests import INT32_MAX, integer_parameter, negotiate, path_integer
from ..showing import filter_of, preview_of
from ..state import api_state, broker_of, groups_of
from ..stream_slots import SlottedStream
from ..tail_streams import Shown, events, lines
from .group_members import owner_check

router = APIRouter(tags=["records"], route_class=EncodedSlashRoute)

_JSON, _NDJSON = "application/json", "application/x-ndjson"
_SSE, _OCTETS = "text/event-stream", "application/octet-stream"
LIMIT_DEFAULT, LIMIT_MAX = 1000, 1_000_000
# Bytes of one read of a page: copying and checking them takes about 50 µs.
_PIECE_BYTES = 128 * 1024


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/records", openapi_extra=openapi.READ, summary="Read records"
)
async def read(request: Request) -> Response:
    """Read the records of one partition from an offset or a time. A read never moves a position.

    The header `Next-Offset` says where to continue. With `wait_ms` a read that finds nothing waits for the next
    append. With `Accept: text/event-stream` the answer never ends, and `Last-Event-ID` resumes it. With `group`,
    `member_id` and `generation` only the owner of the partition gets an answer.
    """
    state = api_state(request)
    broker = state.broker
    topic = broker.topic(request.path_params["topic"]).name
    partition = path_integer(request, "partition")
    media_type = negotiate(request, (_JSON, _NDJSON, _SSE, _OCTETS, _ARROW))
    limit = integer_parameter(request, "limit", LIMIT_DEFAULT, minimum=1, maximum=LIMIT_MAX)
    max_bytes = integer_parameter(request, "max_bytes", state.settings.fetch_bytes_max, minimum=1)
    wait_ms = integer_parameter(request, "wait_ms", 0, maximum=INT32_MAX)
    min_bytes = integer_parameter(request, "min_bytes", 1, maximum=INT32_MAX)
    parse_values = _parse_values(request)
    if media_type == _SSE:
        positions = await _positions(request, broker, topic, [partition], default="latest")
        shown = _shown(request)
        body = events(broker, topic, positions, only=partition, shown=shown)
        return _stream(request, body, shown, _SSE)
    claimant = owner_check(request, topic, partition)
    offset = await offset_at(broker, topic, partition, request.query_params.get("from", "earliest"))
    page = await _read_page(
        broker,
        PartitionFetch(topic=topic, partition=partition, offset=offset, max_bytes=min(max_bytes, INT32_MAX)),
        limit=limit,
        min_bytes=min_bytes,
        wait_ms=wait_ms,
        is_whole=media_type == _OCTETS,
    )
    if claimant is not None:
        # It may have lost the partition while it waited.
        groups_of(request).coordinator.check_owner(claimant)
    headers = {
        "Next-Offset": str(page.next_offset),
        "High-Watermark": str(page.high_watermark),
        "Log-Start-Offset": str(page.log_start_offset),
    }
    if media_type == _OCTETS:
        batches = b"".join(piece.batches for piece in page.pieces)
        return Response(batches, headers=headers, media_type=_OCTETS)
    if media_type == _ARROW:
        decoder = await decoder_of(topic, partition)
        rows = arrow_body(decoder, page.pieces, start=offset, end=page.next_offset)
        return StreamingResponse(rows, headers=headers, media_type=_ARROW)
    body = _json_body(page, parse_values) if media_type == _JSON else _ndjson_body(page, parse_values)
    return StreamingResponse(body, headers=headers, media_type=media_type)


def _parse_values(request: Request) -> bool:
    shape = request.query_params.get("as")
    if shape not in (None, "json"):
        raise InvalidRequest(f"as is {shape[:40]!r}; give json, or leave it out")
    return shape == "json"


@dataclass(slots=True)
class _Page:
    """The answer of one read: batches that pass their CRC, and the offsets ``[offset, next_offset)``."""

    partition: int
    offset: int
    next_offset: int
    high_watermark: int
    log_start_offset: int
    pieces: list[Fetched]
    first_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.first_offset = self.offset


async def _read_page(
    broker: Broker, request: PartitionFetch, *, limit: int, min_bytes: int, wait_ms: int, is_whole: bool
) -> _Page:
    """Read a page in pieces, so that no large read holds the loop.

    The page has at most ``limit`` records and the bytes of ``request``. Only the
    first piece waits. The page ends before a corrupt batch.

    Raises:
        CorruptLog: the first batch is corrupt.
        SteleError: the fetch of the first piece failed.
    """
    page = _Page(request.partition, request.offset, request.offset, -1, -1, [])
    left = min(request.max_bytes, broker.settings.fetch_bytes_max)
    while True:
        piece = replace(request, offset=page.next_offset, max_bytes=min(left, _PIECE_BYTES))
        is_first = not page.pieces
        (fetched,) = await broker.fetch(
            [piece],
            max_bytes=left,
            min_bytes=min_bytes if is_first else 1,
            max_wait_ms=wait_ms if is_first else 0,
        )
        if fetched.error is not None and is_first:
            raise fetched.error
        if is_first:
            page.high_watermark, page.log_start_offset = fetched.high_watermark, fetched.log_start_offset
        good = None if fetched.error is not None else _good_part(fetched, page, limit, left)
        if good is None:
            break
        page.pieces.append(good)
        left -= len(good.batches)
        if (
            left <= 0
            or len(good.batches) < len(fetched.batches)
            or page.next_offset - page.first_offset >= limit
        ):
            break
        await pause()
    if not is_whole:
        page.next_offset = min(page.next_offset, page.first_offset + limit)
    return page


def _good_part(fetched: Fetched, page: _Page, limit: int, max_bytes: int) -> Fetched | None:
    """Return the batches of ``fetched`` before the first corrupt one, and advance ``page.next_offset``.

    Only the first batch of a page may be larger than ``max_bytes``. None if no
    batch fits or is valid.

    Raises:
        CorruptLog: the first batch of the page is corrupt.
    """
    position, batches = 0, fetched.batches
    while position < len(batches) and page.next_offset - page.first_offset < limit:
        try:
            header = rb.check_batch(batches, position)
        except rb.CorruptBatchError:
            if not position and not page.pieces:
                # Raises the error that has the corrupt range and the offset after it.
                next(records_from(fetched, page.offset))
            break
        if position + header.size > max_bytes and (position or page.pieces):
            break
        if not position and not page.pieces:
            # Where the log was compacted, the first record may be far after the offset of the request.
            page.first_offset = max(page.offset, header.base_offset)
        position += header.size
        page.next_offset = header.next_offset
    if not position:
        return None
    return fetched if position == len(batches) else replace(fetched, batches=batches[:position])


async def _slices(page: _Page) -> AsyncGenerator[list[RecordView]]:
    """Yield the records of the page, as many as one turn of the loop encodes."""
    offset = page.offset
    for piece in page.pieces:
        async with aclosing(records_in_turns(piece, offset)) as slices:
            async for records in slices:
                offset = records[-1].offset + 1
                if offset > page.next_offset:
                    yield [record for record in records if record.offset < page.next_offset]
                    return
                yield records


async def _json_body(page: _Page, parse_values: bool) -> AsyncGenerator[bytes]:
    yield b'{"records":['
    is_first = True
    failure: CorruptLog | None = None
    try:
        async with aclosing(_slices(page)) as slices:
            async for records in slices:
                text = encode_records(page.partition, records, parse_values=parse_values)
                if text:
                    yield text if is_first else b"," + text
                    is_first = False
    except CorruptLog as error:
        failure = error
    tail: dict[str, object] = {
        "next_offset": page.next_offset if failure is None else failure.offset,
        "high_watermark": page.high_watermark,
        "log_start_offset": page.log_start_offset,
    }
    if failure is not None:
        tail["error"] = problem_of(failure)
    yield b"]," + encode(tail)[1:]


async def _ndjson_body(page: _Page, parse_values: bool) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(_slices(page)) as slices:
            async for records in slices:
                yield encode_record_lines(page.partition, records, parse_values=parse_values)
    except CorruptLog as error:
        yield encode({"error": problem_of(error)}) + b"\n"


# ── live tails ──


@router.get("/v1/topics/{topic}/records", openapi_extra=openapi.TAIL, summary="Follow a topic")
async def tail(request: Request) -> Response:
    """Follow all partitions of a topic live, as NDJSON or server-sent events.

    `from` is `latest` (the default), `earliest` or a time. The id of an event holds the position in every partition
    (`0:41,1:7`); sent back as `Last-Event-ID` it resumes with the next record of each. With more than 64 partitions
    the id is packed and sent once per second; a resumed stream then repeats the records since the last id, and misses
    none. At most 16 tails with conditions run at once. With `max_per_s` the broker leaves out records beyond that
    rate, and an event `skipped` has their number.
    """
    broker = broker_of(request)
    topic = broker.topic(request.path_params["topic"])
    media_type = negotiate(request, (_NDJSON, _SSE))
    partitions = list(range(topic.partitions))
    positions = await _positions(request, broker, topic.name, partitions, default="latest")
    shown = _shown(request)
    if media_type == _SSE:
        body = events(broker, topic.name, positions, only=None, shown=shown)
        return _stream(request, body, shown, _SSE)
    body = lines(broker, topic.name, positions, shown=shown)
    return _stream(request, body, shown, _NDJSON)


async def _positions(
    request: Request, broker: Broker, topic: str, partitions: list[int], *, default: str
) -> dict[int, int]:
    """Return where a stream begins in each partition: after ``Last-Event-ID``, otherwise at ``from``."""
    last = request.headers.get("last-event-id")
    start = request.query_params.get("from", default)
    positions: dict[int, int] = {}
    if last:
        seen = parse_event_id(last, partitions=broker.topic(topic).partitions)
        positions = {partition: offset + 1 for partition, offset in seen.items()}
        # A partition without an event, or added since: the client has seen none of its records.
        start = "earliest"
    if start.isdigit() and len(partitions) > 1:
        raise InvalidRequest(
            "from is an offset, which belongs to one partition; follow a topic from latest, earliest or a time"
        )
    for number, partition in enumerate(partitions, 1):
        if partition not in positions:
            positions[partition] = await offset_at(broker, topic, partition, start)
        await pause_among_partitions(number)
    return {partition: positions[partition] for partition in partitions}


def _shown(request: Request) -> Shown:
    show = preview_of(request, parse_values=_parse_values(request))
    return Shown(filter_of(request), show, integer_parameter(request, "max_per_s", 0, maximum=INT32_MAX))


def _stream(request: Request, body: AsyncGenerator[bytes], shown: Shown, media_type: str) -> Response:
    slots = None if shown.wanted.is_empty else api_state(request).filtered_tail_slots
    return SlottedStream(body, slots, media_type=media_type, headers={"Cache-Control": "no-store"})


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/offsets",
    openapi_extra=openapi.OFFSETS,
    summary="Find an offset",
)
async def offsets(request: Request) -> Response:
    """Return the offset of `earliest`, `latest`, or the first record at or after a time; -1 if there is none."""
    broker = broker_of(request)
    topic = request.path_params["topic"]
    partition = path_integer(request, "partition")
    text = request.query_params.get("at", "latest")
    at = parse_time(text, broker.now_ms())
    if at is None:
        raise InvalidRequest(
            f"at is {text[:60]!r}; give earliest, latest, a time like 2026-11-20T10:00Z or a time ago like -1h"
        )
    offset, timestamp_ms, leader_epoch = await broker.list_offset(topic, partition, at)
    answer: dict[str, object] = {"partition": partition, "offset": offset, "leader_epoch": leader_epoch}
    answer["timestamp"] = (
        timestamp_ms if at not in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) and offset >= 0 else None
    )
    return Response(encode(answer), media_type=_JSON)
