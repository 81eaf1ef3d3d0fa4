"""GET records: from an offset or a time; JSON, NDJSON, Arrow, server-sent events, or batches as they are. Nothing moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from stele.wire import record_batch as rb
from stele.wire.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.fetch import Fetched, PartitionFetch, records_from
from ...errors import CorruptLog, InvalidRequest, SteleError, TopicError
from .. import openapi
from ..errors import problem_of
from ..filters import Filter
from ..record_arrow import MEDIA_TYPE as _ARROW
from ..record_arrow import arrow_body, decoder_of
from ..record_json import RecordOut, encode, encode_record_lines, encode_records
from ..requests import INT32_MAX, integer_parameter, negotiate, parse_time, path_integer
from ..showing import filter_of, preview_of
from ..state import api_state, broker_of, groups_of
from ..upload import pause
from ..whole_segments import WholeSegmentRoute
from .groups import owner_check

router = APIRouter(tags=["records"], route_class=WholeSegmentRoute)

_JSON, _NDJSON = "application/json", "application/x-ndjson"
_SSE, _OCTETS = "text/event-stream", "application/octet-stream"
LIMIT_DEFAULT, LIMIT_MAX = 1000, 1_000_000
# One read of a page: copying and checking it is some 50 µs of work.
_PIECE_BYTES = 128 * 1024
# A comment this often keeps proxies from closing a silent stream, and finds out who is gone.
HEARTBEAT_MS = 15_000
_TAIL_BYTES = 256 * 1024
# A tail that is to show so many records a second shows a quarter of them in a quarter of one.
_PACE_S = 0.25


async def offset_at(broker: Broker, topic: str, partition: int, text: str, *, name: str = "from") -> int:
    """The offset that ``from`` means: a number, ``earliest``, ``latest``, RFC 3339 or ``-1h``. A time behind
    the last record is the log end. Raises ``InvalidRequest``."""
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    at = parse_time(text, broker.now_ms())
    if at is None:
        raise InvalidRequest(
            f"{name} is {text[:60]!r}; it must be an offset, earliest, latest, a time like 2026-11-20T10:00Z, "
            "or a time ago like -1h (ms, s, m, h, d)"
        )
    offset, _, _ = await broker.list_offset(topic, partition, at)
    if offset < 0:
        offset, _, _ = await broker.list_offset(topic, partition, LATEST_TIMESTAMP)
    return offset


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/records", openapi_extra=openapi.READ, summary="Read records"
)
async def read(request: Request) -> Response:
    """Read records of one partition from an offset or a time on. A read never moves a position.

    With `group`, `member_id` and `generation` only the owner of the partition is answered.
    `Next-Offset` is where to go on. With `wait_ms` an empty answer waits for the next append. With
    `Accept: text/event-stream` the answer goes on for ever, and `Last-Event-ID` resumes it.
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
        shown = _shown(request, parse_values=parse_values)
        return _events(broker, topic, positions, shown=shown, all_partitions=False)
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
        raise InvalidRequest(f"as is {shape[:40]!r}; it must be json, or left out")
    return shape == "json"


@dataclass(slots=True)
class _Page:
    """What one read answers: whole batches that pass their CRC, and the offsets ``[offset, next_offset)`` of them."""

    partition: int
    offset: int
    next_offset: int
    high_watermark: int
    log_start_offset: int
    pieces: list[Fetched]


async def _read_page(
    broker: Broker, request: PartitionFetch, *, limit: int, min_bytes: int, wait_ms: int, is_whole: bool
) -> _Page:
    """Read in pieces, so that no large read holds the loop, up to ``limit`` records or the bytes of ``request``.

    Only the first piece waits. The page ends before a damaged batch; if that is
    the first one, its error is raised.
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
        good = None if fetched.error is not None else _good_part(fetched, page, limit)
        if good is None:
            break
        page.pieces.append(good)
        left -= len(good.batches)
        if left <= 0 or len(good.batches) < len(fetched.batches) or page.next_offset - page.offset >= limit:
            break
        await pause()
    if not is_whole:
        page.next_offset = min(page.next_offset, page.offset + limit)
    return page


def _good_part(fetched: Fetched, page: _Page, limit: int) -> Fetched | None:
    """The batches of ``fetched`` up to the limit of ``page`` or the first damaged one; moves its next offset.

    None if there are none. Raises ``CorruptLog`` if the damage is the first thing on the page.
    """
    position, batches = 0, fetched.batches
    while position < len(batches) and page.next_offset - page.offset < limit:
        try:
            header = rb.check_batch(batches, position)
        except rb.CorruptBatchError:
            if not position and not page.pieces:
                # Says where, and where to go on.
                next(records_from(fetched, page.offset))
            break
        position += header.size
        page.next_offset = header.next_offset
    if not position:
        return None
    return fetched if position == len(batches) else replace(fetched, batches=batches[:position])


def _slices(page: _Page) -> Iterator[list[RecordView]]:
    """The records of the page, as many as are encoded in one turn."""
    offset = page.offset
    for piece in page.pieces:
        for records in records_from(piece, offset):
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
        for records in _slices(page):
            text = encode_records(page.partition, records, parse_values=parse_values)
            if text:
                yield text if is_first else b"," + text
                is_first = False
            await pause()
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
        for records in _slices(page):
            yield encode_record_lines(page.partition, records, parse_values=parse_values)
            await pause()
    except CorruptLog as error:
        yield encode({"error": problem_of(error)}) + b"\n"


# ── streams without an end ──


@router.get("/v1/topics/{topic}/records", openapi_extra=openapi.TAIL, summary="Follow a topic")
async def tail(request: Request) -> Response:
    """Follow all partitions of a topic, live, as NDJSON or server-sent events.

    `from` may be `latest` (the default), `earliest` or a time. The id of an event holds the position in every
    partition (`0:41,1:7`): sent back as `Last-Event-ID` it resumes with the next record of each. With
    `max_per_s` a reader that only looks is not sent more: what came in between is left out, and an event `skipped`
    says how much.
    """
    broker = broker_of(request)
    topic = broker.topic(request.path_params["topic"])
    media_type = negotiate(request, (_NDJSON, _SSE))
    partitions = list(range(topic.partitions))
    positions = await _positions(request, broker, topic.name, partitions, default="latest")
    shown = _shown(request, parse_values=_parse_values(request))
    if media_type == _SSE:
        return _events(broker, topic.name, positions, shown=shown, all_partitions=True)

    async def lines() -> AsyncGenerator[bytes]:
        async for partition, records in _follow(broker, topic.name, positions, all_partitions=True):
            if isinstance(records, SteleError):
                yield encode({"error": problem_of(records)}) + b"\n"
            else:
                lines = [encode(shown.show(partition, one)) for one in records if shown.wanted.matches(one)]
                if lines:
                    yield b"\n".join(lines) + b"\n"

    return StreamingResponse(lines(), media_type=_NDJSON)


async def _positions(
    request: Request, broker: Broker, topic: str, partitions: list[int], *, default: str
) -> dict[int, int]:
    """Where a stream begins in each partition: behind ``Last-Event-ID``, else at ``from``."""
    last = request.headers.get("last-event-id")
    start = request.query_params.get("from", default)
    positions: dict[int, int] = {}
    if last:
        for part in last.split(","):
            name, _, offset = part.partition(":")
            if not (name.isdigit() and offset.isdigit() and len(name) < 11 and len(offset) < 20):
                raise InvalidRequest(
                    f"Last-Event-ID is {last[:100]!r}; send back an id of this stream as it was"
                )
            positions[int(name)] = int(offset) + 1
        # A partition that had no event yet, or was added since: nothing of it was seen.
        start = "earliest"
    if start.isdigit() and len(partitions) > 1:
        raise InvalidRequest(
            "an offset belongs to one partition; follow all of them from latest, earliest or a time"
        )
    for partition in partitions:
        if partition not in positions:
            positions[partition] = await offset_at(broker, topic, partition, start)
    return {partition: positions[partition] for partition in partitions}


async def _follow(
    broker: Broker, topic: str, positions: dict[int, int], *, all_partitions: bool
) -> AsyncGenerator[tuple[int, list[RecordView] | SteleError]]:
    """Records as they come, ``positions`` moving with them; an empty list now and then while nothing comes.

    Whoever takes them may move ``positions`` ahead: what lies in between is left out.
    """
    while not broker.is_closing:
        requests = [
            PartitionFetch(topic=topic, partition=partition, offset=offset, max_bytes=_TAIL_BYTES)
            for partition, offset in positions.items()
        ]
        began = dict(positions)
        came = False
        for fetched in await broker.fetch(requests, max_bytes=_TAIL_BYTES, max_wait_ms=HEARTBEAT_MS):
            partition = fetched.partition
            error = fetched.error
            if positions[partition] != began[partition]:
                came = True
                continue
            if error is None and fetched.batches:
                came = True
                try:
                    for records in records_from(fetched, positions[partition]):
                        following = positions[partition] = records[-1].offset + 1
                        yield partition, records
                        if positions[partition] != following:
                            break
                        await pause()
                except CorruptLog as damage:
                    error = damage
            if error is not None:
                yield partition, error
                if not isinstance(error, CorruptLog):
                    return
                # Reported; what is behind the damage still comes.
                positions[partition] = error.next_offset
                came = True
        if not came:
            yield -1, []
        if all_partitions:
            for partition in range(len(positions), broker.topic(topic).partitions):
                positions[partition] = await offset_at(broker, topic, partition, "earliest")


@dataclass(frozen=True, slots=True)
class _Shown:
    """Which records of a tail are sent, and how."""

    wanted: Filter
    show: Callable[[int, RecordView], RecordOut]
    # Records a second at most; 0: all of them.
    per_s_max: int


def _shown(request: Request, *, parse_values: bool) -> _Shown:
    show = preview_of(request, parse_values=parse_values)
    return _Shown(filter_of(request), show, integer_parameter(request, "max_per_s", 0, maximum=INT32_MAX))


class _Pace:
    """Lets so many records a second through; of the others it takes the newest, and counts what it leaves out."""

    def __init__(self, broker: Broker, topic: str, per_s_max: int) -> None:
        self._broker = broker
        self._topic = topic
        self._budget = max(1, round(per_s_max * _PACE_S))
        self._shown = 0
        self._until_s = 0.0

    async def spend(self, shown: int, positions: dict[int, int]) -> int:
        """Records that were left out; ``positions`` are behind them."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until_s:
            self._shown, self._until_s = 0, loop.time() + _PACE_S
        self._shown += shown
        if self._shown < self._budget:
            return 0
        await asyncio.sleep(self._until_s - loop.time())
        left_out = 0
        share = max(1, self._budget // len(positions))
        for partition, offset in positions.items():
            try:
                ahead = self._broker.log_state(self._topic, partition).high_watermark - share
            except TopicError:
                # Deleted: the next read says so.
                return left_out
            if ahead > offset:
                positions[partition] = ahead
                left_out += ahead - offset
        return left_out


def _events(
    broker: Broker, topic: str, positions: dict[int, int], *, shown: _Shown, all_partitions: bool
) -> Response:
    async def events() -> AsyncGenerator[bytes]:
        # The position of each partition as an id shows it: the last record that was sent.
        seen = {partition: offset - 1 for partition, offset in positions.items() if offset}
        pace = _Pace(broker, topic, shown.per_s_max) if shown.per_s_max else None
        yield b": stele\n\n"
        async for partition, records in _follow(broker, topic, positions, all_partitions=all_partitions):
            if isinstance(records, SteleError):
                yield b"event: error\ndata: " + json.dumps(problem_of(records)).encode() + b"\n\n"
            elif records:
                events: list[bytes] = []
                for record in records:
                    seen[partition] = record.offset
                    if shown.wanted.matches(record):
                        events.append(_event(shown.show(partition, record), seen))
                if events:
                    yield b"".join(events)
                if pace is not None and (left_out := await pace.spend(len(events), positions)):
                    seen.update({partition: offset - 1 for partition, offset in positions.items() if offset})
                    yield b'event: skipped\ndata: {"records":%d}\n\n' % left_out
            else:
                yield b": nothing new\n\n"

    return StreamingResponse(events(), media_type=_SSE, headers={"Cache-Control": "no-store"})


def _event(shown: RecordOut, seen: Mapping[int, int]) -> bytes:
    data = encode(shown)
    # A value shown as JSON may hold line ends, which would end the field.
    return b"id: %s\ndata: %s\n\n" % (_event_id(seen), data.replace(b"\n", b"\ndata: "))


def _event_id(seen: Mapping[int, int]) -> bytes:
    return ",".join(f"{partition}:{offset}" for partition, offset in seen.items()).encode()


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/offsets",
    openapi_extra=openapi.OFFSETS,
    summary="Find an offset",
)
async def offsets(request: Request) -> Response:
    """The offset of `earliest`, `latest`, or the first record at or after a time; -1 if there is none."""
    broker = broker_of(request)
    topic = request.path_params["topic"]
    partition = path_integer(request, "partition")
    text = request.query_params.get("at", "latest")
    at = parse_time(text, broker.now_ms())
    if at is None:
        raise InvalidRequest(
            f"at is {text[:60]!r}; it must be earliest, latest, a time like 2026-11-20T10:00Z or -1h"
        )
    offset, timestamp_ms, leader_epoch = await broker.list_offset(topic, partition, at)
    answer: dict[str, object] = {"partition": partition, "offset": offset, "leader_epoch": leader_epoch}
    answer["timestamp"] = (
        timestamp_ms if at not in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) and offset >= 0 else None
    )
    return Response(encode(answer), media_type=_JSON)
