"""GET search: the records of a topic that match, as they are found, with the progress of the scan."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.fetch import PartitionFetch, records_from
from ...errors import InvalidRequest, UnknownPartition
from .. import openapi
from ..errors import HttpError, http_problem, problem_of, problem_response
from ..filters import Filter
from ..record_json import RecordOut, encode
from ..requests import INT64_MAX, integer_parameter, path_integer
from ..searching import SEARCHES_MAX, Match, Order, Progress, Search, SearchTotals, Span
from ..showing import filter_of, preview_of
from ..state import api_state, broker_of
from ..whole_segments import WholeSegmentRoute
from .records import offset_at

router = APIRouter(tags=["records"], route_class=WholeSegmentRoute)

_NDJSON, _CSV = "application/x-ndjson", "text/csv"
_LIMIT_DEFAULT, _LIMIT_MAX = 50, 1_000_000
_PARTITIONS_MAX = 10_000
# A spreadsheet takes what begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SPAN = re.compile(r"(\d{1,10}):(\d{1,19})-(\d{1,19})", re.ASCII)
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "value_b64", "headers")


@router.get("/v1/topics/{topic}/search", openapi_extra=openapi.SEARCH, summary="Search records")
async def search(request: Request) -> Response:
    """Records that match all of `key`, `value`, `header` and `json`, found on the server.

    `format=events` (the default) is NDJSON: `{"record":…}` for each match, `{"progress":…}` a few times a second,
    `{"end":…}` at last, with where to go on. `format=ndjson` and `format=csv` are the records alone, to keep.
    When the client goes away the scan ends.
    """
    state = api_state(request)
    broker = state.broker
    topic = broker.topic(request.path_params["topic"])
    order = _order(request)
    shape = request.query_params.get("format", "events")
    if shape not in ("events", "ndjson", "csv"):
        raise InvalidRequest(f"format is {shape[:40]!r}; it must be events, ndjson or csv")
    limit = integer_parameter(request, "limit", _LIMIT_DEFAULT, minimum=1, maximum=_LIMIT_MAX)
    wanted, show = filter_of(request), preview_of(request)
    spans = await _spans(request, broker, topic.name, topic.partitions)
    totals = state.searches
    run = Search(broker, topic.name, spans, wanted=wanted, order=order, limit=limit)
    body = _events(run, wanted, show) if shape == "events" else _export(run, shape, show)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if shape != "events":
        headers["Content-Disposition"] = f'attachment; filename="{topic.name}.{shape}"'
    media_type = _CSV if shape == "csv" else _NDJSON
    return _SearchResponse(_counted(body, run, totals), totals, headers=headers, media_type=media_type)


class _SearchResponse(StreamingResponse):
    """Holds one of the places for searches as long as it is being sent; refuses where there is none."""

    def __init__(
        self,
        content: AsyncGenerator[bytes],
        totals: SearchTotals,
        *,
        headers: dict[str, str],
        media_type: str,
    ) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._totals = totals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        totals = self._totals
        if totals.active >= SEARCHES_MAX:
            detail = f"{SEARCHES_MAX} searches are running; stop one, or try again in a moment"
            await problem_response(http_problem(429, detail))(scope, receive, send)
            return
        totals.active += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            totals.active -= 1


def _order(request: Request) -> Order:
    order = request.query_params.get("order", "oldest")
    if order == "oldest" or order == "newest":
        return order
    raise InvalidRequest(f"order is {order[:40]!r}; it must be oldest or newest")


def _partitions(request: Request, topic: str, count: int) -> list[int]:
    text = request.query_params.get("partitions", "")
    if not text:
        return list(range(count))
    names = text.split(",")
    if len(names) > _PARTITIONS_MAX or not all(
        name.isascii() and name.isdigit() and len(name) < 11 for name in names
    ):
        raise InvalidRequest(f"partitions is {text[:60]!r}; it must be numbers with commas between them")
    found = sorted({int(name) for name in names})
    for partition in found:
        if partition >= count:
            raise UnknownPartition(topic, partition, partitions=count)
    return found


async def _spans(request: Request, broker: Broker, topic: str, count: int) -> list[Span]:
    text = request.query_params.get("spans")
    if text is None:
        found = _partitions(request, topic, count)
        return [await _span(request, broker, topic, partition) for partition in found]
    spans: list[Span] = []
    for part in filter(None, text.split(",")[:_PARTITIONS_MAX]):
        numbers = _SPAN.fullmatch(part)
        if numbers is None:
            raise InvalidRequest(f"spans is {text[:60]!r}; send back the spans of an end as they were")
        partition, start, end = map(int, numbers.groups())
        if partition >= count:
            raise UnknownPartition(topic, partition, partitions=count)
        state = broker.log_state(topic, partition)
        spans.append(Span(partition, max(start, state.log_start_offset), min(end, state.high_watermark)))
    return spans


async def _span(request: Request, broker: Broker, topic: str, partition: int) -> Span:
    query = request.query_params
    start = await offset_at(broker, topic, partition, query.get("from", "earliest"))
    end = await offset_at(broker, topic, partition, query.get("to", "latest"), name="to")
    state = broker.log_state(topic, partition)
    return Span(partition, max(start, state.log_start_offset), min(end, state.high_watermark))


async def _counted(body: AsyncGenerator[bytes], run: Search, totals: SearchTotals) -> AsyncGenerator[bytes]:
    """Counts while it goes on, and ends the scan with the response, however that ends."""
    seen_records = seen_bytes = 0
    is_finished = False
    try:
        async with aclosing(body):
            async for part in body:
                totals.scanned_records += run.progress.scanned - seen_records
                totals.scanned_bytes += run.progress.bytes - seen_bytes
                seen_records, seen_bytes = run.progress.scanned, run.progress.bytes
                if part:
                    yield part
        is_finished = True
    finally:
        totals.scanned_records += run.progress.scanned - seen_records
        totals.scanned_bytes += run.progress.bytes - seen_bytes
        totals.ended[run.ending if is_finished else "stopped"] += 1


def _progress(progress: Progress, wanted: Filter) -> dict[str, Any]:
    return {
        "offsets": progress.offsets,
        "of": progress.total,
        "scanned": progress.scanned,
        "matched": progress.matched,
        "bytes": progress.bytes,
        "too_large": wanted.too_large,
    }


async def _events(
    run: Search, wanted: Filter, show: Callable[[int, RecordView], RecordOut]
) -> AsyncGenerator[bytes]:
    yield encode({"progress": _progress(run.progress, wanted)}) + b"\n"
    async with aclosing(run.found()) as found:
        async for one in found:
            if isinstance(one, Match):
                yield encode({"record": show(one.partition, one.record)}) + b"\n"
            else:
                yield encode({"progress": _progress(one, wanted)}) + b"\n"
    end: dict[str, Any] = {
        "reason": run.ending,
        **_progress(run.progress, wanted),
        "spans": ",".join(f"{span.partition}:{span.start}-{span.end}" for span in run.left),
        "errors": [problem_of(error) for error in run.progress.damages],
    }
    yield encode({"end": end}) + b"\n"


async def _export(
    run: Search, shape: str, show: Callable[[int, RecordView], RecordOut]
) -> AsyncGenerator[bytes]:
    if shape == "csv":
        yield _csv_line(_COLUMNS)
    async with aclosing(run.found()) as found:
        async for one in found:
            if not isinstance(one, Match):
                # Nothing to say, but whoever left is noticed.
                yield b""
            elif shape == "csv":
                yield _csv_record(show(one.partition, one.record))
            else:
                yield encode(show(one.partition, one.record)) + b"\n"


def _csv_line(cells: tuple[object, ...]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()


def _csv_record(shown: RecordOut) -> bytes:
    """A line for a spreadsheet; texts that it would take for formulas get a quotation mark before them."""

    def text(value: object) -> str:
        if not isinstance(value, str):
            return ""
        return f"'{value}" if value.startswith(_FORMULA) else value

    return _csv_line(
        (
            shown.partition,
            shown.offset,
            shown.timestamp,
            text(shown.key) or text(shown.key_b64),
            text(shown.value),
            text(shown.value_b64),
            text(encode(shown.headers).decode()) if shown.headers else "",
        )
    )


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/records/{offset}",
    openapi_extra=openapi.GET_RECORD,
    summary="Get one record",
)
async def get_record(request: Request) -> Response:
    """One record by its offset; `part=value` (or `key`) is its bytes alone, as a download."""
    broker = broker_of(request)
    partition, offset = path_integer(request, "partition"), _path_offset(request)
    topic = broker.topic(request.path_params["topic"]).name
    part = request.query_params.get("part")
    if part not in (None, "value", "key"):
        raise InvalidRequest(f"part is {part[:40]!r}; it must be value or key, or left out")
    record = await _one(broker, topic, partition, offset)
    if part is None:
        shown = preview_of(request)(partition, record)
        return Response(encode(shown), media_type="application/json")
    data = record.value if part == "value" else record.key
    if data is None:
        raise HttpError(404, f"the {part} of this record is null")
    return Response(
        data,
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="{topic}-{partition}-{offset}.{part}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


def _path_offset(request: Request) -> int:
    text = str(request.path_params["offset"])
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > INT64_MAX:
        raise HttpError(404, f"offset is {text[:40]!r}; it must be a number from 0 on")
    return int(text)


async def _one(broker: Broker, topic: str, partition: int, offset: int) -> RecordView:
    asked = PartitionFetch(topic=topic, partition=partition, offset=offset, max_bytes=1)
    (fetched,) = await broker.fetch([asked], max_bytes=1)
    if fetched.error is not None:
        raise fetched.error
    for records in records_from(fetched, offset):
        if records[0].offset == offset:
            return records[0]
        break
    raise HttpError(
        404, f"there is no record at offset {offset} yet; the log ends at {fetched.high_watermark}"
    )
