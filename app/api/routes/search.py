"""Search: the records of a topic that match, as they are found, with the progress of the scan."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.fetch import PartitionFetch, records_in_turns
from ...errors import InvalidRequest, UnknownPartition
from ...query.filters import Filter
from ...query.positions import offset_at
from ...query.searching import Ending, OffsetRange, Order, Progress, Search, SearchTotals
from ...work_budget import pause_among_partitions
from ..bodies import RangesBody
from ..encoded_slash import EncodedSlashRoute
from ..errors import HttpError, problem_of
from ..openapi import search as openapi
from ..record_json import RecordOut, encode, encode_lines
from ..requests import INT64_MAX, content_type, integer_parameter, path_integer, read_body
from ..showing import filter_of, preview_of
from ..state import api_state, broker_of
from ..stream_slots import BrokenOff, SlottedStream

router = APIRouter(tags=["records"], route_class=EncodedSlashRoute)

_JSON, _NDJSON, _CSV = "application/json", "application/x-ndjson", "text/csv"
_LIMIT_DEFAULT, _LIMIT_MAX = 50, 1_000_000
_PARTITIONS_MAX = 10_000
# A spreadsheet takes what begins with one of these for a formula, also if they are full-width.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_LINE_ENDS = ("\t", "\r", "\n")
# Sent together: each of its own would cost more than finding the record.
_BLOCK_BYTES = 64 * 1024
_ERRORS_SHOWN = 3
_SPAN = re.compile(r"(\d{1,10}):(\d{1,19})-(\d{1,19})", re.ASCII)
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "value_b64", "headers")


_decode_ranges = msgspec.json.Decoder(RangesBody).decode


@router.get("/v1/topics/{topic}/search", openapi_extra=openapi.SEARCH, summary="Search records")
async def search(request: Request) -> Response:
    """Records that match all of `key`, `value`, `header` and `json`, found on the server.

    `format=events` (the default) is NDJSON: `{"record":…}` for each match, `{"progress":…}` a few times a second,
    `{"end":…}` at last, with where to go on. `format=ndjson` and `format=csv` are the records alone, to keep: all
    of them, unless a `limit` is given. When something could not be read, or the broker stops, such an answer is
    broken off. When the client goes away the scan ends.
    """
    return await _search(request, request.query_params.get("ranges"))


@router.post(
    "/v1/topics/{topic}/search", openapi_extra=openapi.SEARCH_ON, summary="Go on with a search of records"
)
async def search_on(request: Request) -> Response:
    """As GET, behind another search: those of many partitions have more `ranges` than an address may be long."""
    kind = content_type(request, _JSON)
    if kind != _JSON:
        raise HttpError(415, f"{kind[:100]!r} is not taken; send {_JSON}")
    raw = await read_body(request, api_state(request).settings.request_body_bytes_max)
    try:
        ranges = _decode_ranges(raw).ranges
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f'the body is not {{"ranges": "0:42-100"}}: {error}') from error
    return await _search(request, ranges)


async def _search(request: Request, given_ranges: str | None) -> Response:
    state = api_state(request)
    broker = state.broker
    topic = broker.topic(request.path_params["topic"])
    order = _order(request)
    shape = request.query_params.get("format", "events")
    if shape not in ("events", "ndjson", "csv"):
        raise InvalidRequest(f"format is {shape[:40]!r}; it must be events, ndjson or csv")
    limit = integer_parameter(
        request,
        "limit",
        _LIMIT_DEFAULT if shape == "events" else INT64_MAX,
        minimum=1,
        maximum=_LIMIT_MAX if shape == "events" else INT64_MAX,
    )
    wanted, show = filter_of(request), preview_of(request)
    if given_ranges is None:
        ranges = await _ranges(request, broker, topic.name, topic.partitions)
    else:
        ranges = await _ranges_again(given_ranges, broker, topic.name, topic.partitions)
    totals = state.searches
    run = Search(broker, topic.name, ranges, wanted=wanted, order=order, limit=limit)
    body = _events(run, wanted, show) if shape == "events" else _export(run, shape, show)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if shape != "events":
        headers["Content-Disposition"] = f'attachment; filename="{topic.name}.{shape}"'
    media_type = _CSV if shape == "csv" else _NDJSON
    return SlottedStream(
        _counted(body, run, totals), state.search_slots, headers=headers, media_type=media_type
    )


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


async def _ranges(request: Request, broker: Broker, topic: str, count: int) -> list[OffsetRange]:
    ranges: list[OffsetRange] = []
    for partition in _partitions(request, topic, count):
        ranges.append(await _range(request, broker, topic, partition))
        await pause_among_partitions(len(ranges))
    return ranges


async def _ranges_again(text: str, broker: Broker, topic: str, count: int) -> list[OffsetRange]:
    parts = [part for part in text.split(",") if part]
    if len(parts) > count:
        raise InvalidRequest(f"ranges has {len(parts)} parts; {topic!r} has {count} partitions")
    ranges: list[OffsetRange] = []
    for part in parts:
        numbers = _SPAN.fullmatch(part)
        if numbers is None:
            raise InvalidRequest(f"ranges is {text[:60]!r}; send back the ranges of an end as they were")
        partition, start, end = map(int, numbers.groups())
        if partition >= count:
            raise UnknownPartition(topic, partition, partitions=count)
        state = broker.log_state(topic, partition)
        ranges.append(
            OffsetRange(partition, max(start, state.log_start_offset), min(end, state.high_watermark))
        )
        await pause_among_partitions(len(ranges))
    return ranges


async def _range(request: Request, broker: Broker, topic: str, partition: int) -> OffsetRange:
    query = request.query_params
    start = await offset_at(broker, topic, partition, query.get("from", "earliest"))
    end = await offset_at(broker, topic, partition, query.get("to", "latest"), name="to")
    state = broker.log_state(topic, partition)
    return OffsetRange(partition, max(start, state.log_start_offset), min(end, state.high_watermark))


async def _counted(body: AsyncGenerator[bytes], run: Search, totals: SearchTotals) -> AsyncGenerator[bytes]:
    """Counts while it goes on, and ends the scan with the response, however that ends."""
    seen_records = seen_bytes = 0
    ending: Ending = "failed"
    try:
        async with aclosing(body):
            async for part in body:
                totals.scanned_records += run.progress.scanned - seen_records
                totals.scanned_bytes += run.progress.bytes - seen_bytes
                seen_records, seen_bytes = run.progress.scanned, run.progress.bytes
                if part:
                    yield part
        ending = run.ending
    except (GeneratorExit, asyncio.CancelledError):
        ending = "stopped"
        raise
    except BrokenOff:
        ending = "stopped" if run.ending == "stopped" else "failed"
        raise
    finally:
        totals.scanned_records += run.progress.scanned - seen_records
        totals.scanned_bytes += run.progress.bytes - seen_bytes
        totals.ended[ending] += 1


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
        block = bytearray()
        async for some in found:
            if isinstance(some, Progress):
                block += encode({"progress": _progress(some, wanted)}) + b"\n"
            else:
                for one in some:
                    block += encode({"record": show(one.partition, one.record)}) + b"\n"
            if isinstance(some, Progress) or len(block) >= _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
        if block:
            yield bytes(block)
    end: dict[str, Any] = {
        "reason": run.ending,
        **_progress(run.progress, wanted),
        "ranges": ",".join(
            f"{offset_range.partition}:{offset_range.start}-{offset_range.end}" for offset_range in run.left
        ),
        "errors": [problem_of(error) for error in run.progress.corrupt_ranges],
    }
    yield encode({"end": end}) + b"\n"


async def _export(
    run: Search, shape: str, show: Callable[[int, RecordView], RecordOut]
) -> AsyncGenerator[bytes]:
    """The records, in blocks. Raises ``BrokenOff`` at their end if they are not all that was asked for."""
    lines = _csv_lines if shape == "csv" else encode_lines
    block = bytearray(_csv_rows([_COLUMNS]) if shape == "csv" else b"")
    async with aclosing(run.found()) as found:
        async for some in found:
            if isinstance(some, Progress):
                # There may be nothing to say, but whoever left is noticed.
                yield bytes(block)
                block.clear()
                continue
            block += lines([show(one.partition, one.record) for one in some])
            if len(block) >= _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
    if block:
        yield bytes(block)
    if run.progress.corrupt_ranges:
        raise BrokenOff("; ".join(map(str, run.progress.corrupt_ranges[:_ERRORS_SHOWN])))
    if run.ending == "stopped":
        raise BrokenOff("the broker is closing")


def _csv_lines(shown: list[RecordOut]) -> bytes:
    """Rows for a spreadsheet; texts that it would take for formulas get a quotation mark before them."""
    return _csv_rows(
        [
            (
                one.partition,
                one.offset,
                one.timestamp,
                _cell(one.key) or _cell(one.key_b64),
                _cell(one.value),
                _cell(one.value_b64),
                _cell(encode(one.headers).decode()) if one.headers else "",
            )
            for one in shown
        ]
    )


def _cell(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return f"'{value}" if value.startswith(_LINE_ENDS) or value.lstrip().startswith(_FORMULA) else value


def _csv_rows(rows: list[tuple[object, ...]]) -> bytes:
    # Texts are quoted, all of them: who takes semicolons for separators too does not find one in a text.
    lines = io.StringIO()
    csv.writer(lines, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)
    return lines.getvalue().encode()


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
    (fetched,) = await broker.fetch([asked], max_bytes=1, is_scan=True)
    if fetched.error is not None:
        raise fetched.error
    async with aclosing(records_in_turns(fetched, offset)) as slices:
        async for records in slices:
            if records[0].offset == offset:
                return records[0]
            break
    raise HttpError(
        404, f"there is no record at offset {offset} yet; the log ends at {fetched.high_watermark}"
    )
