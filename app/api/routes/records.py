"""Read and follow records over HTTP, from an offset or a time.

Answers are JSON, NDJSON, Arrow, server-sent events or the stored batches.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.notation import parse_whole

from ...broker.broker import Broker
from ...broker.reading.decoded_bytes import DecodedReader
from ...broker.reading.fetch import PartitionFetch, visible_bytes
from ...concurrency import several
from ...errors import CorruptLog, InvalidRequest, OffsetOutOfRange, ReadMemoryFull
from ...query.positions import offset_at, position_at
from ...work_budget import pause_among_partitions
from ..encoded_slash import EncodedSlashRoute
from ..errors import problem_of
from ..openapi import records as openapi
from ..records.event_ids import parse_event_id
from ..records.record_arrow import MEDIA_TYPE as _ARROW
from ..records.record_arrow import arrow_body, decoder_of
from ..records.record_form import RecordForm
from ..records.record_json import encode
from ..records.record_page import RecordPage, read_page
from ..records.stream_slots import SlottedStream
from ..records.tail_streams import Shown, events, lines
from ..requests import INT32_MAX, integer_parameter, isolation_of, negotiate, path_integer
from ..showing import filter_of, form_of
from ..state import api_state, broker_of, groups_of
from ..throttling import page_bytes_max
from .group_members import owner_check

router = APIRouter(tags=["records"], route_class=EncodedSlashRoute)

_JSON, _NDJSON = "application/json", "application/x-ndjson"
_SSE, _OCTETS = "text/event-stream", "application/octet-stream"
LIMIT_DEFAULT, LIMIT_MAX = 1000, 1_000_000


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/records", openapi_extra=openapi.READ, summary="Read records"
)
async def read(request: Request) -> Response:
    """Read the records of one partition from an offset or a time.

    A read never moves a position.

    The header `Next-Offset` says where to continue. With `wait_ms` a read that finds nothing waits for the next
    append. Records of transactions are returned once they are committed; `isolation=read_uncommitted` returns those of
    open and aborted transactions, too. With `Accept: text/event-stream` the answer never ends, and `Last-Event-ID` resumes it. With `group`,
    `member_id` and `generation` only the owner of the partition gets an answer.
    """
    state = api_state(request)
    broker = state.broker
    topic = broker.topic(request.path_params["topic"]).name
    partition = path_integer(request, "partition")
    media_type = negotiate(request, (_JSON, _NDJSON, _SSE, _OCTETS, _ARROW))
    limit = integer_parameter(request, "limit", LIMIT_DEFAULT, minimum=1, maximum=LIMIT_MAX)
    max_bytes = integer_parameter(request, "max_bytes", state.settings.fetch_bytes_max, minimum=1)
    max_bytes = page_bytes_max(request, max_bytes)
    wait_ms = integer_parameter(request, "wait_ms", 0, maximum=INT32_MAX)
    min_bytes = integer_parameter(request, "min_bytes", 1, maximum=INT32_MAX)
    form, isolation = form_of(request), isolation_of(request)
    if media_type == _SSE:
        positions = await _positions(request, broker, topic, [partition], default="latest")
        shown = _shown(request)
        body = events(broker, topic, positions, only=partition, shown=shown)
        return _stream(request, body, shown, _SSE)
    reader = broker.decoded.reader()
    claimant = owner_check(request, topic, partition)
    start = request.query_params.get("from", "earliest")
    offset = await offset_at(broker, topic, partition, start, isolation=isolation)
    page = await read_page(
        broker,
        PartitionFetch(
            topic=topic,
            partition=partition,
            offset=offset,
            max_bytes=min(max_bytes, INT32_MAX),
            isolation=isolation,
        ),
        limit=limit,
        min_bytes=min_bytes,
        wait_ms=wait_ms,
        is_whole=media_type == _OCTETS,
        reader=reader,
    )
    if claimant is not None:
        # It may have lost the partition while it waited.
        groups_of(request).of(claimant.group).coordinator.check_owner(claimant)
    headers = {
        "Next-Offset": str(page.next_offset),
        "High-Watermark": str(page.high_watermark),
        "Last-Stable-Offset": str(page.last_stable_offset),
        "Log-Start-Offset": str(page.log_start_offset),
    }
    if media_type == _OCTETS:
        batches = b"".join([await visible_bytes(piece) for piece in page.pieces])
        return Response(batches, headers=headers, media_type=_OCTETS)
    if media_type == _ARROW:
        decoder = await decoder_of(topic, partition)
        body = arrow_body(decoder, page, reader)
    elif media_type == _JSON:
        body = _json_body(page, form, reader)
    else:
        body = _ndjson_body(page, form, reader)
    return SlottedStream(body, None, reader=reader, headers=headers, media_type=media_type)


async def _json_body(page: RecordPage, form: RecordForm, reader: DecodedReader) -> AsyncGenerator[bytes]:
    yield b'{"records":['
    is_first = True
    failure: CorruptLog | ReadMemoryFull | None = None
    next_offset = page.offset
    try:
        async with aclosing(page.slices(reader)) as slices:
            async for records in slices:
                if not is_first:
                    yield b","
                is_first = False
                async for text in form.stream(page.partition, records, end=b""):
                    yield text
                next_offset = records[-1].offset + 1
    except (CorruptLog, ReadMemoryFull) as error:
        failure = error
    tail: dict[str, object] = {
        "next_offset": page.next_offset if failure is None else getattr(failure, "offset", next_offset),
        "high_watermark": page.high_watermark,
        "last_stable_offset": page.last_stable_offset,
        "log_start_offset": page.log_start_offset,
    }
    if failure is not None:
        tail["error"] = problem_of(failure)
    yield b"]," + encode(tail)[1:]


async def _ndjson_body(page: RecordPage, form: RecordForm, reader: DecodedReader) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(page.slices(reader)) as slices:
            async for records in slices:
                async for text in form.stream(page.partition, records):
                    yield text
    except (CorruptLog, ReadMemoryFull) as error:
        yield encode({"error": problem_of(error)}) + b"\n"


# ── live tails ──


@router.get("/v1/topics/{topic}/records", openapi_extra=openapi.TAIL, summary="Follow a topic")
async def tail(request: Request) -> Response:
    """Follow all partitions of a topic live, as NDJSON or server-sent events.

    `from` is `latest` (the default), `earliest` or a time. The id of an event holds the position in every partition
    (`0:41,1:7`); sent back as `Last-Event-ID` it resumes with the next record of each. With more than 64 partitions
    the id is packed and sent once per second; a resumed stream then repeats the records since the last id, and misses
    none. If the records after an id have been deleted, the answer is 410, and if the log ends before it, 416. At most
    16 tails with conditions run at once. With `max_per_s` the broker leaves out records beyond that rate, and an event
    `skipped` has their number. Records of a transaction follow when it is committed.
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
    """Return where a stream begins in each partition: after ``Last-Event-ID``, otherwise at ``from``.

    Raises:
        OffsetOutOfRange: a place that the client names is gone, as for a read from there.
    """
    last = request.headers.get("last-event-id")
    start, isolation = request.query_params.get("from", default), isolation_of(request)
    if last:
        seen = parse_event_id(last, partitions=broker.topic(topic).partitions)
        # Of a partition without an event, or added since, the client has seen no record.
        places = {partition: seen.get(partition, -1) + 1 for partition in partitions}
        await _check_places(broker, topic, places)
        return places
    offset = parse_whole(start)
    if offset is not None:
        if len(partitions) > 1:
            raise InvalidRequest(
                "from is an offset, which belongs to one partition; follow a topic from latest, earliest or a time"
            )
        places = dict.fromkeys(partitions, offset)
        await _check_places(broker, topic, places)
        return places
    offsets = await several(
        lambda partition: offset_at(broker, topic, partition, start, isolation=isolation), partitions
    )
    return dict(zip(partitions, offsets, strict=True))


async def _check_places(broker: Broker, topic: str, places: dict[int, int]) -> None:
    """Check that a stream can begin at ``places``. Raises ``OffsetOutOfRange``."""
    await broker.refresh((topic, partition) for partition in places)
    for number, (partition, offset) in enumerate(places.items(), 1):
        state = broker.log_state(topic, partition)
        if not state.log_start_offset <= offset <= state.high_watermark:
            raise OffsetOutOfRange(
                topic=topic,
                partition=partition,
                offset=offset,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.high_watermark,
            )
        await pause_among_partitions(number)


def _shown(request: Request) -> Shown:
    state = api_state(request)
    per_s_max = integer_parameter(request, "max_per_s", 0, maximum=INT32_MAX)
    return Shown(
        filter_of(request),
        form_of(request),
        per_s_max,
        state.tail_reads,
        state.broker.decoded.reader(),
        isolation_of(request),
    )


def _stream(request: Request, body: AsyncGenerator[bytes], shown: Shown, media_type: str) -> Response:
    slots = None if shown.wanted.is_empty else api_state(request).filtered_tail_slots
    return SlottedStream(
        body, slots, reader=shown.reader, media_type=media_type, headers={"Cache-Control": "no-store"}
    )


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/offsets",
    openapi_extra=openapi.OFFSETS,
    summary="Find an offset",
)
async def find_offset(request: Request) -> Response:
    """Return the offset of `earliest`, `latest`, or of a time.

    For a time, it is that of the first record at or after it, or -1 if there is none.

    `latest` is the last stable offset, and with `isolation=read_uncommitted` the high watermark.
    """
    broker = broker_of(request)
    topic = request.path_params["topic"]
    partition = path_integer(request, "partition")
    text = request.query_params.get("at", "latest")
    at = position_at(text, broker.now_ms())
    if at is None:
        raise InvalidRequest(
            f"at is {text[:60]!r}; give earliest, latest, a time like 2026-11-20T10:00Z or a time ago like -1h"
        )
    offset, timestamp_ms, leader_epoch = await broker.list_offset(
        topic, partition, at, isolation=isolation_of(request)
    )
    answer: dict[str, object] = {"partition": partition, "offset": offset, "leader_epoch": leader_epoch}
    answer["timestamp"] = (
        timestamp_ms if at not in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) and offset >= 0 else None
    )
    return Response(encode(answer), media_type=_JSON)
