"""Read and follow records over HTTP, from an offset or a time.

Answers are JSON, NDJSON, Arrow, server-sent events or the stored batches.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NotRequired, TypedDict
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.notation import parse_whole

from ...broker.broker import Broker
from ...broker.reading.fetch import PartitionFetch, visible_bytes
from ...broker.topics import Topic
from ...concurrency import several
from ...errors import CorruptLog, InvalidRequest, OffsetOutOfRange, ReadMemoryFull, TopicRecreated
from ...query.positions import offset_at, position_at
from ...work_budget import WorkBudget
from ..errors import Problem, problem_of
from ..openapi.operations import JSON, NDJSON, OCTETS, SSE, Content
from ..parameters import ISOLATION, PARTITION, TOPIC, Number, OffsetOrTime, Text, isolation_of
from ..record_selection import AS, DECODE, EVENTS, FILTER, LAST_EVENT_ID, LINES, TOPIC_ID, filter_of, form_of
from ..records.arrow import MEDIA_TYPE as _ARROW
from ..records.arrow import arrow_body, decoder_of
from ..records.decoded import Slices, decoded_slices
from ..records.event_ids import parse_event_id
from ..records.form import RecordForm
from ..records.json_records import encode
from ..records.json_types import Record
from ..records.page import RecordPage, read_page
from ..records.stream_slots import SlottedStream, sized_or_streamed
from ..records.tail_streams import Shown, events, lines
from ..requests import INT32_MAX, negotiate
from ..routing import Routes
from ..state import api_state, broker_of, groups_of
from ..throttling import page_bytes_max
from .group_members import OWNER, owner_check

route = Routes("records")


class RecordPageJson(TypedDict):
    records: list[Record]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    error: NotRequired[Problem]


class FoundOffset(TypedDict):
    partition: int
    offset: int
    timestamp: int | None
    leader_epoch: int


LIMIT_DEFAULT, LIMIT_MAX = 1000, 1_000_000
_START = Text("from", "offset, earliest (default), latest, RFC 3339 time or time ago", OffsetOrTime)
_TAIL_START = Text("from", "latest (default), earliest, RFC 3339 time or time ago", OffsetOrTime)
_AT = Text("at", "latest (default), earliest, RFC 3339 time or time ago", OffsetOrTime)
_LIMIT = Number("limit", "maximum number of records", LIMIT_DEFAULT, minimum=1, maximum=LIMIT_MAX)
_MAX_BYTES = Number(
    "max_bytes",
    "maximum bytes of the records, decompressed; of batches as they are stored for application/octet-stream",
    minimum=1,
)
# The broker cuts a longer wait short, see STELE_FETCH_WAIT_MS_MAX.
_WAIT_MS = Number("wait_ms", "maximum wait for new records", maximum=INT32_MAX, shown_maximum=2000)
_MIN_BYTES = Number("min_bytes", "wait until this many bytes are available", maximum=INT32_MAX)
_MAX_PER_S = Number(
    "max_per_s",
    "server-sent events: maximum records per second, of which the newest are sent; 0 means no limit",
    0,
    maximum=INT32_MAX,
)


@route(
    "GET /v1/topics/{topic}/partitions/{partition}/records",
    "Read records",
    _START,
    _LIMIT,
    _MAX_BYTES,
    _WAIT_MS,
    _MIN_BYTES,
    ISOLATION,
    AS,
    DECODE,
    *OWNER,
    *(condition.only_for("server-sent events") for condition in FILTER if condition is not DECODE),
    _MAX_PER_S,
    LAST_EVENT_ID,
    TOPIC_ID,
    answers=(Content(JSON, RecordPageJson), LINES, EVENTS, Content(OCTETS, bytes), Content(_ARROW, bytes)),
    errors=(404, 406, 409, 410, 416, 429, 500, 503),
)
async def read(request: Request) -> Response:
    """Read the records of one partition from an offset or a time.

    A read never moves a position.

    The header `Next-Offset` says where to continue, and `Topic-Id` in which topic: sent back, it refuses to continue in
    another topic of the same name. With `wait_ms` a read that finds nothing waits for the next
    append. Records of transactions are returned once they are committed; `isolation=read_uncommitted` returns those of
    open and aborted transactions, too. With `Accept: text/event-stream` the answer never ends, and `Last-Event-ID` resumes it. With `group`,
    `member_id` and `generation` only the owner of the partition gets an answer.
    """
    state = api_state(request)
    broker = state.broker
    known = _topic(request, broker)
    topic = known.name
    partition = PARTITION.number(request)
    media_type = negotiate(request, (JSON, NDJSON, SSE, OCTETS, _ARROW))
    limit = _LIMIT.read(request)
    max_bytes = _MAX_BYTES.read(request, state.settings.fetch_bytes_max)
    max_bytes = page_bytes_max(request, max_bytes)
    wait_ms = _WAIT_MS.read(request, 0)
    min_bytes = _MIN_BYTES.read(request, 1)
    form, isolation = form_of(request, known), isolation_of(request)
    if media_type == SSE:
        positions = await _positions(request, broker, known, [partition], default="latest")
        shown = _shown(request, known)
        body = events(broker, known, positions, only=partition, shown=shown)
        return _stream(request, body, shown, SSE, known)
    reader = broker.decoded.reader()
    claimant = owner_check(request, topic, partition)
    start = _START.read(request, "earliest")
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
        is_whole=media_type == OCTETS,
        reader=reader,
        room=state.page_room,
    )
    if broker.topic(topic).topic_id != known.topic_id:
        # While it waited, or between two pieces of the page.
        raise TopicRecreated(topic, str(known.topic_id))
    if claimant is not None:
        # It may have lost the partition while it waited.
        groups_of(request).of(claimant.group).coordinator.check_owner(claimant)
    headers = {
        "Next-Offset": str(page.next_offset),
        "High-Watermark": str(page.high_watermark),
        "Last-Stable-Offset": str(page.last_stable_offset),
        "Log-Start-Offset": str(page.log_start_offset),
        "Topic-Id": str(known.topic_id),
    }
    if media_type == OCTETS:
        body = _batches_body(page)
    elif media_type == _ARROW:
        decoder = await decoder_of(topic, partition)
        body = arrow_body(decoder, page, reader)
    else:
        slices = decoded_slices(
            page,
            form,
            reader,
            bytes_max=max_bytes,
            room=state.page_room,
            # They are sent after the first records.
            ended=lambda offset: headers.update({"Next-Offset": str(offset)}),
        )
        body = (_json_body if media_type == JSON else _ndjson_body)(page, form, slices)
    return await sized_or_streamed(body, reader, headers=headers, media_type=media_type)


async def _batches_body(page: RecordPage) -> AsyncGenerator[bytes]:
    for _, piece in page.pieces:
        yield bytes(await visible_bytes(piece))


async def _json_body(page: RecordPage, form: RecordForm, slices: Slices) -> AsyncGenerator[bytes]:
    yield b'{"records":['
    is_first = True
    failure: CorruptLog | ReadMemoryFull | None = None
    next_offset = page.offset
    try:
        async with aclosing(slices):
            async for records, decoded in slices:
                if not is_first:
                    yield b","
                is_first = False
                async for text in form.stream(page.partition, records, end=b"", decoded=decoded):
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


async def _ndjson_body(page: RecordPage, form: RecordForm, slices: Slices) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(slices):
            async for records, decoded in slices:
                async for text in form.stream(page.partition, records, decoded=decoded):
                    yield text
    except (CorruptLog, ReadMemoryFull) as error:
        yield encode({"error": problem_of(error)}) + b"\n"


# ── live tails ──


@route(
    "GET /v1/topics/{topic}/records",
    "Follow a topic",
    _TAIL_START,
    ISOLATION,
    AS,
    *FILTER,
    _MAX_PER_S,
    LAST_EVENT_ID,
    TOPIC_ID,
    answers=(LINES, EVENTS),
    errors=(404, 406, 410, 416, 429),
)
async def tail(request: Request) -> Response:
    """Follow all partitions of a topic live, as NDJSON or server-sent events.

    `from` is `latest` (the default), `earliest` or a time. The id of an event holds the position in every partition
    (`0:41,1:7@b4f0c1de`); sent back as `Last-Event-ID` it resumes with the next record of each. With more than 64 partitions
    the id is packed and sent once per second; a resumed stream then repeats the records since the last id, and misses
    none. If the records after an id have been deleted, the answer is 410, and if the log ends before it, 416. At most
    16 tails with conditions run at once. With `max_per_s` the broker leaves out records beyond that rate, and an event
    `skipped` has their number. Records of a transaction follow when it is committed.
    """
    broker = broker_of(request)
    topic = _topic(request, broker)
    media_type = negotiate(request, (NDJSON, SSE))
    partitions = list(range(topic.partitions))
    positions = await _positions(request, broker, topic, partitions, default="latest")
    shown = _shown(request, topic)
    if media_type == SSE:
        body = events(broker, topic, positions, only=None, shown=shown)
        return _stream(request, body, shown, SSE, topic)
    body = lines(broker, topic, positions, shown=shown)
    return _stream(request, body, shown, NDJSON, topic)


def _topic(request: Request, broker: Broker) -> Topic:
    """Return the topic in the path.

    Raises:
        UnknownTopic, TopicRecreated: see there.
        InvalidRequest: the id that the client means is not one.
    """
    topic = broker.topic(TOPIC.read(request))
    meant = TOPIC_ID.given(request)
    if meant is None:
        return topic
    try:
        is_other = UUID(meant) != topic.topic_id
    except ValueError:
        raise InvalidRequest(f"Topic-Id is {meant[:60]!r}; send the topic_id of a topic, unchanged") from None
    if is_other:
        raise TopicRecreated(topic.name, meant[:60])
    return topic


async def _positions(
    request: Request, broker: Broker, known: Topic, partitions: list[int], *, default: str
) -> dict[int, int]:
    """Return where a stream begins in each partition: after ``Last-Event-ID``, otherwise at ``from``.

    Raises:
        OffsetOutOfRange: a place that the client names is gone, as for a read from there.
        TopicRecreated: it is in an earlier topic of this name.
    """
    topic = known.name
    last = LAST_EVENT_ID.given(request)
    start, isolation = _START.read(request, default), isolation_of(request)
    if last:
        seen = parse_event_id(last, known)
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
    budget = WorkBudget()
    for partition, offset in places.items():
        state = broker.log_state(topic, partition)
        if not state.log_start_offset <= offset <= state.high_watermark:
            raise OffsetOutOfRange(
                topic=topic,
                partition=partition,
                offset=offset,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.high_watermark,
            )
        await budget.visit()


def _shown(request: Request, topic: Topic) -> Shown:
    state = api_state(request)
    per_s_max = _MAX_PER_S.read(request)
    return Shown(
        filter_of(request, topic),
        form_of(request, topic),
        per_s_max,
        state.tail_reads,
        state.broker.decoded.reader(),
        isolation_of(request),
    )


def _stream(
    request: Request, body: AsyncGenerator[bytes], shown: Shown, media_type: str, topic: Topic
) -> Response:
    slots = None if shown.wanted.is_empty else api_state(request).filtered_tail_slots
    return SlottedStream(
        body,
        slots,
        reader=shown.reader,
        media_type=media_type,
        headers={"Cache-Control": "no-store", "Topic-Id": str(topic.topic_id)},
    )


@route(
    "GET /v1/topics/{topic}/partitions/{partition}/offsets",
    "Find an offset",
    _AT,
    ISOLATION,
    errors=(404, 500),
)
async def find_offset(request: Request) -> FoundOffset:
    """Return the offset of `earliest`, `latest`, or of a time.

    For a time, it is that of the first record at or after it, or -1 if there is none.

    `latest` is the last stable offset, and with `isolation=read_uncommitted` the high watermark.
    """
    broker = broker_of(request)
    topic = TOPIC.read(request)
    partition = PARTITION.number(request)
    text = _AT.read(request, "latest")
    at = position_at(text, broker.now_ms())
    if at is None:
        raise InvalidRequest(
            f"at is {text[:60]!r}; give earliest, latest, a time like 2026-11-20T10:00Z or a time ago like -1h"
        )
    offset, timestamp_ms, leader_epoch = await broker.list_offset(
        topic, partition, at, isolation=isolation_of(request)
    )
    has_time = at not in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) and offset >= 0
    return {
        "partition": partition,
        "offset": offset,
        "leader_epoch": leader_epoch,
        "timestamp": timestamp_ms if has_time else None,
    }
