"""Search the records of a topic over HTTP, and get single records."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Any, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from stele.wire import record_batch as rb
from stele.wire.isolation_level import IsolationLevel
from stele.wire.notation import parse_whole
from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.reading.decoded_bytes import DecodedReader
from ...broker.reading.fetch import Fetched, OpenRecord, PartitionFetch, is_large, read_bound, record_at
from ...broker.reading.visible_batches import hidden_by
from ...concurrency import several
from ...errors import InvalidRequest, UnknownPartition
from ...query.filters import Filter
from ...query.positions import offset_at
from ...query.searching import Ending, Match, OffsetRange, Order, Progress, Search, SearchTotals
from ...work_budget import WorkBudget
from ..errors import HttpError, problem_of
from ..json_bodies import LIST_BYTES_MAX, JsonBody
from ..openapi.operations import CSV, JSON, NDJSON, OCTETS, Content
from ..parameters import ISOLATION, OFFSET, PARTITION, TOPIC, Choice, Number, OffsetOrTime, Text, isolation_of
from ..record_selection import DECODE, FILTER, PREVIEW, filter_of, form_of
from ..records.form import RecordForm
from ..records.json_records import RecordOut, encode, encode_lines
from ..records.json_types import Record
from ..records.single_record import bytes_response, record_response
from ..records.spreadsheet import csv_head, csv_lines, csv_pieces
from ..records.stream_slots import AnswerAborted, SlottedStream
from ..requests import INT32_MAX, INT64_MAX
from ..routing import Routes
from ..schemas import Shown
from ..state import api_state, broker_of

route = Routes("records")


class RangesBody(Struct, forbid_unknown_fields=True):
    """``{"ranges": "0:42-100"}``: the ``ranges`` of the end of a search, unchanged."""

    ranges: str


_REST = JsonBody(RangesBody, '{"ranges": "0:42-100,1:0-7"}', may_be_form=False, bytes_max=LIST_BYTES_MAX)
_ORDER: Choice[Order] = Choice(
    "order", "SearchOrder", ("oldest", "newest"), "which records come first", default="oldest"
)
_LIMIT = Number(
    "limit",
    "maximum number of matches; with format=events at most 1000000 (default 50), otherwise no limit by default",
    minimum=1,
)
_FORMAT = Choice(
    "format", "SearchFormat", ("events", "ndjson", "csv"), "format of the answer, see above", default="events"
)
_FORM = (*FILTER, ISOLATION, _ORDER, _LIMIT, _FORMAT)
_START = Text("from", "start of the search; default earliest", OffsetOrTime)
_END = Text("to", "end of the search, exclusive; default latest", OffsetOrTime)
_PARTITIONS = Text("partitions", "only these partitions", Annotated[str, Shown(examples=["0,2"])])
_RANGES = Text(
    "ranges",
    "ranges of the end of an earlier search: continue after it",
    Annotated[str, Shown(examples=["0:42-100"])],
)
_PART: Choice[Literal["value", "key"] | None] = Choice(
    "part", "RecordPart", ("value", "key"), "download only these bytes", default=None
)
_FOUND = (
    Content(
        NDJSON,
        str,
        '{"progress":{"offsets":0,"of":336776,"scanned":0,"matched":0,"bytes":0,"too_large":0}}\n'
        '{"record":{"partition":0,"offset":41,"timestamp":1763664000000,"key":"N14228",'
        '"value":"{\\"carrier\\":\\"UA\\"}","headers":[]}}\n'
        '{"end":{"reason":"limit","offsets":42,"of":336776,"scanned":42,"matched":1,"bytes":8192,'
        '"too_large":0,"ranges":"0:42-336776","errors":[]}}\n',
    ),
    Content(CSV),
)

_LIMIT_DEFAULT, _LIMIT_MAX = 50, 1_000_000
_PARTITIONS_MAX = 10_000
# Matches are sent in blocks: sending each alone would cost more than finding it.
_BLOCK_BYTES = 64 * 1024
_ERRORS_SHOWN = 3
_RANGE = re.compile(r"(\d{1,10}):(\d{1,19})-(\d{1,19})", re.ASCII)


@route(
    "GET /v1/topics/{topic}/search",
    "Search records",
    *_FORM,
    _START,
    _END,
    _PARTITIONS,
    _RANGES,
    answers=_FOUND,
    errors=(404, 429, 500),
)
async def search(request: Request) -> Response:
    """Return the records that match all of `key`, `value`, `header` and `json`.

    The broker does the search.

    `format=events` (the default) is NDJSON: `{"record":…}` per match, `{"progress":…}` a few times per second, and
    finally `{"end":…}` with the `ranges` at which another search continues. `format=ndjson` and `format=csv` return
    only the records, and all of them unless `limit` is given; if some data cannot be read, or the broker stops, the
    broker aborts such an answer. The scan ends when the client disconnects.
    """
    return await _search(request, _RANGES.given(request))


@route(
    "POST /v1/topics/{topic}/search",
    "Continue a search of records",
    *_FORM,
    body=_REST,
    answers=_FOUND,
    errors=(404, 429, 500),
)
async def continue_search(request: Request) -> Response:
    """Continue an earlier search, like GET with `ranges`.

    With many partitions they are too long for a URL.
    """
    body = await _REST.read(request)
    return await _search(request, body.ranges)


async def _search(request: Request, given_ranges: str | None) -> Response:
    state = api_state(request)
    broker = state.broker
    topic = broker.topic(TOPIC.read(request))
    order, shape = _ORDER.read(request), _FORMAT.read(request)
    is_bounded = shape == "events"
    limit = _LIMIT.read(
        request, _LIMIT_DEFAULT if is_bounded else INT64_MAX, maximum=_LIMIT_MAX if is_bounded else None
    )
    wanted, form = filter_of(request, topic), form_of(request, topic, may_parse=False)
    reader = broker.decoded.reader()
    if given_ranges is None:
        ranges = await _ranges(request, broker, topic.name, topic.partitions)
    else:
        ranges = await _ranges_again(request, given_ranges, broker, topic.name, topic.partitions)
    totals = state.searches
    run = Search(
        broker,
        topic.name,
        ranges,
        wanted=wanted,
        order=order,
        limit=limit,
        reader=reader,
        isolation=isolation_of(request),
    )
    body = _events(run, wanted, form) if shape == "events" else _export(run, shape, form)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if shape != "events":
        headers["Content-Disposition"] = f'attachment; filename="{topic.name}.{shape}"'
    media_type = CSV if shape == "csv" else NDJSON
    return SlottedStream(
        _counted(body, run, totals),
        state.search_slots,
        reader=reader,
        headers=headers,
        media_type=media_type,
    )


def _partitions(request: Request, topic: str, count: int) -> list[int]:
    text = _PARTITIONS.read(request)
    if not text:
        return list(range(count))
    names = text.split(",")
    numbers = [parse_whole(name, INT32_MAX) for name in names[:_PARTITIONS_MAX]]
    if len(names) > _PARTITIONS_MAX or None in numbers:
        raise InvalidRequest(
            f"partitions is {text[:60]!r}; give partition numbers separated by commas, like 0,2"
        )
    partitions = sorted({number for number in numbers if number is not None})
    for partition in partitions:
        if partition >= count:
            raise UnknownPartition(topic, partition, partitions=count)
    return partitions


async def _ranges(request: Request, broker: Broker, topic: str, count: int) -> list[OffsetRange]:
    partitions = list(_partitions(request, topic, count))
    return await several(lambda partition: _range(request, broker, topic, partition), partitions)


async def _ranges_again(
    request: Request, text: str, broker: Broker, topic: str, count: int
) -> list[OffsetRange]:
    isolation = isolation_of(request)
    parts = [part for part in text.split(",") if part]
    if len(parts) > count:
        raise InvalidRequest(f"ranges has {len(parts)} parts, but {topic!r} has {count} partitions")
    ranges: list[OffsetRange] = []
    budget = WorkBudget()
    for part in parts:
        numbers = _RANGE.fullmatch(part)
        if numbers is None:
            raise InvalidRequest(
                f"ranges is {text[:60]!r}; send the ranges of the end of a search, unchanged"
            )
        partition, start, end = map(int, numbers.groups())
        if partition >= count:
            raise UnknownPartition(topic, partition, partitions=count)
        ranges.append(_existing(broker, topic, partition, start, end, isolation))
        await budget.visit()
    return ranges


async def _range(request: Request, broker: Broker, topic: str, partition: int) -> OffsetRange:
    isolation = isolation_of(request)
    start_text, end_text = _START.read(request, "earliest"), _END.read(request, "latest")
    start = await offset_at(broker, topic, partition, start_text, isolation=isolation)
    end = await offset_at(broker, topic, partition, end_text, isolation=isolation, name="to")
    return _existing(broker, topic, partition, start, end, isolation)


def _existing(
    broker: Broker, topic: str, partition: int, start: int, end: int, isolation: IsolationLevel
) -> OffsetRange:
    """Return the part of ``[start, end)`` that can be read."""
    state = broker.log_state(topic, partition)
    is_committed = isolation is IsolationLevel.READ_COMMITTED
    bound = state.last_stable_offset if is_committed else state.high_watermark
    return OffsetRange(partition, max(start, state.log_start_offset), min(end, bound))


async def _counted(body: AsyncGenerator[bytes], run: Search, totals: SearchTotals) -> AsyncGenerator[bytes]:
    """Add the progress of ``run`` to ``totals``.

    The scan is closed when the response ends.
    """
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
    except AnswerAborted:
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


async def _events(run: Search, wanted: Filter, form: RecordForm) -> AsyncGenerator[bytes]:
    yield encode({"progress": _progress(run.progress, wanted)}) + b"\n"
    async with aclosing(run.found()) as steps:
        block = bytearray()
        async for step in steps:
            if isinstance(step, Progress):
                block += encode({"progress": _progress(step, wanted)}) + b"\n"
            else:
                async for piece in _of_matches(step, form, _event_lines, opening=_event_opening, end=b"}\n"):
                    block += piece
                    if len(block) >= _BLOCK_BYTES:
                        yield bytes(block)
                        block.clear()
            if isinstance(step, Progress) or len(block) >= _BLOCK_BYTES:
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
        "errors": [problem_of(error) for error in run.progress.errors],
    }
    yield encode({"end": end}) + b"\n"


def _event_opening(_: RecordView) -> bytes:
    return b'{"record":{'


def _event_lines(shown: list[RecordOut]) -> bytes:
    return encode_lines([{"record": record} for record in shown])


async def _of_matches(
    matches: list[Match],
    form: RecordForm,
    lines: Callable[[list[RecordOut]], bytes],
    *,
    opening: Callable[[RecordView], bytes] | None = None,
    end: bytes = b"\n",
) -> AsyncGenerator[bytes]:
    """Yield matches by ``lines``, or a large one in pieces; nothing if there are none."""
    if not matches:
        return
    decoded = await form.decoded([match.record for match in matches])
    if len(matches) > 1 or not is_large(matches[0].record):
        parts = decoded or itertools.repeat(None)
        yield lines(
            [
                form.out(match.partition, match.record, part)
                for match, part in zip(matches, parts, strict=False)
            ]
        )
        return
    partition, record = matches[0].partition, matches[0].record
    pieces = (
        csv_pieces(partition, record, form, decoded[0] if decoded else None)
        if lines is csv_lines
        else form.stream(partition, [record], opening=opening, end=end, decoded=decoded)
    )
    async for piece in pieces:
        yield piece


async def _export(run: Search, shape: str, form: RecordForm) -> AsyncGenerator[bytes]:
    """Yield the records in blocks.

    Raises ``AnswerAborted`` at the end if the export is incomplete.
    """
    lines = csv_lines if shape == "csv" else encode_lines
    block = bytearray(csv_head() if shape == "csv" else b"")
    async with aclosing(run.found()) as steps:
        async for step in steps:
            if isinstance(step, Progress):
                # Even an empty block detects a client that has disconnected.
                yield bytes(block)
                block.clear()
                continue
            async for piece in _of_matches(step, form, lines):
                block += piece
                if len(block) >= _BLOCK_BYTES:
                    yield bytes(block)
                    block.clear()
    if block:
        yield bytes(block)
    if run.progress.errors:
        raise AnswerAborted("; ".join(map(str, run.progress.errors[:_ERRORS_SHOWN])))
    if run.ending == "stopped":
        raise AnswerAborted("the broker is closing")


@route(
    "GET /v1/topics/{topic}/partitions/{partition}/records/{offset}",
    "Get one record",
    ISOLATION,
    _PART,
    PREVIEW,
    DECODE,
    answers=(Content(JSON, Record), Content(OCTETS, bytes)),
    errors=(404, 410, 416, 500),
)
async def get_record(request: Request) -> Response:
    """Return the record at an offset.

    `part=value` or `part=key` downloads only those bytes.
    """
    broker = broker_of(request)
    reader = broker.decoded.reader()
    partition, offset = PARTITION.number(request), OFFSET.number(request)
    known = broker.topic(TOPIC.read(request))
    topic = known.name
    part = _PART.read(request)
    form = form_of(request, known, may_parse=False)
    opened = await _record_at(broker, topic, partition, offset, isolation_of(request), reader)
    if part is None:
        return await record_response(opened, partition, form, reader)
    data = opened.record.value if part == "value" else opened.record.key
    if data is None:
        await opened.close()
        raise HttpError(404, f"the {part} of this record is null, so it has no bytes to download")
    headers = {
        "Content-Disposition": f'attachment; filename="{topic}-{partition}-{offset}.{part}"',
        "X-Content-Type-Options": "nosniff",
    }
    return bytes_response(opened, data, reader, headers=headers)


async def _record_at(
    broker: Broker,
    topic: str,
    partition: int,
    offset: int,
    isolation: IsolationLevel,
    reader: DecodedReader,
) -> OpenRecord:
    fetch = PartitionFetch(
        topic=topic,
        partition=partition,
        offset=offset,
        max_bytes=1,
        isolation=isolation,
        until_offset=offset + 1,
    )
    (fetched,) = await broker.fetch([fetch], max_bytes=1, is_scan=True)
    if fetched.error is not None:
        raise fetched.error
    opened = await record_at(fetched, offset, reader)
    if opened is not None:
        return opened
    if offset < read_bound(fetched):
        if _is_hidden(fetched, offset):
            raise HttpError(
                404,
                f"no committed record is at offset {offset}: it belongs to an aborted transaction, or is the "
                "marker of a transaction; isolation=read_uncommitted returns records of aborted transactions",
            )
        raise HttpError(404, f"no record is left at offset {offset}: compaction removed it")
    if offset < fetched.high_watermark:
        raise HttpError(
            404,
            f"the record at offset {offset} follows an open transaction, which began at offset "
            f"{fetched.last_stable_offset}; read it with isolation=read_uncommitted, or wait",
        )
    raise HttpError(404, f"no record exists at offset {offset} yet; the log ends at {fetched.high_watermark}")


def _is_hidden(fetched: Fetched, offset: int) -> bool:
    is_hidden = hidden_by(fetched)
    return any(
        is_hidden(header)
        for header in rb.iter_headers(fetched.batches)
        if header.base_offset <= offset <= header.last_offset
    )
