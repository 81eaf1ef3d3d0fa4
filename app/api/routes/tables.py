"""Read compacted topics by key, and as tables, over HTTP."""

from __future__ import annotations

import base64
import binascii
from typing import Literal
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from stele.wire.error_codes import ErrorCode

from ...broker.broker import Broker
from ...broker.topics import Topic
from ...errors import InvalidRequest, TopicRecreated, UnknownPartition
from ...query.filters import Filter
from ...query.table import TableSnapshot
from ...work_budget import WorkBudget
from ..errors import HttpError
from ..openapi.operations import JSON, NDJSON, OCTETS, SSE, Content
from ..parameters import TOPIC, Choice, Header, Number
from ..record_selection import AS, DECODE, PREVIEW, form_of
from ..records.event_ids import parse_event_id
from ..records.json_types import Record
from ..records.single_record import bytes_response, record_response
from ..records.stream_slots import SlottedStream
from ..records.table_streams import table_events, table_lines
from ..records.tail_streams import Shown, events
from ..requests import INT32_MAX, negotiate
from ..routing import Routes
from ..state import api_state, broker_of

route = Routes("tables")
_PARTITION = Number("partition", "only this partition", maximum=INT32_MAX)
_ENCODING: Choice[Literal["base64"] | None] = Choice(
    "encoding", "KeyEncoding", ("base64",), "base64: the key in the path is base64", default=None
)
_ISOLATION = Choice(
    "isolation",
    "CommittedIsolation",
    ("read_committed",),
    "keys and tables have only committed records",
    default="read_committed",
)
_LAST_EVENT_ID = Header("Last-Event-ID", "server-sent events: resume the changes after this event")
_LINES = (
    Content(
        NDJSON,
        str,
        '{"partition":0,"offset":41,"timestamp":1763664000000,"key":"ada",'
        '"value":"{\\"city\\":\\"London\\"}","headers":[]}\n'
        '{"end":{"reason":"end","records":1,"positions":{"0":42}}}\n',
    ),
    Content(SSE),
)

_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
# So that a client can tell a missing key from a missing topic.
_NO_KEY = int(ErrorCode.RESOURCE_NOT_FOUND)
# Of a key in the message of an error.
_KEY_SHOWN_BYTES = 60


@route(
    "GET /v1/topics/{topic}/keys/{key:path}",
    "Get a key",
    _PARTITION,
    _ENCODING,
    _ISOLATION,
    AS,
    PREVIEW,
    DECODE,
    answers=(Content(JSON, Record), Content(OCTETS, bytes)),
    errors=(404, 406, 409, 500, 503),
)
async def get_key(request: Request) -> Response:
    """Return the newest committed record of a key of a compacted topic.

    The key is the rest of the path, percent-encoded, as any bytes; with `encoding=base64` it is base64. All partitions
    are looked at unless one is given, because producers assign keys in different ways; the newest timestamp wins.
    With `Accept: application/octet-stream` the answer is the value alone, and the headers `Partition`, `Offset` and
    `Timestamp` have the rest. A key that was deleted gets 404 with the `partition` and `offset` of its tombstone.
    """
    broker = broker_of(request)
    topic = broker.topic(TOPIC.read(request)).name
    key = _key(request)
    _ISOLATION.read(request)
    partition = _partition(request, broker, topic)
    media_type = negotiate(request, (JSON, OCTETS))
    form, reader = form_of(request, broker.topic(topic)), broker.decoded.reader()
    found = await broker.newest_record(topic, key, reader, partition=partition)
    shown_key = key[:_KEY_SHOWN_BYTES].decode(errors="backslashreplace")
    if found is None:
        raise HttpError(
            404, f"topic {topic!r} has no record of the key {shown_key!r}", topic=topic, kafka_code=_NO_KEY
        )
    record = found.record
    if record.value is None:
        await found.opened.close()
        raise HttpError(
            404,
            f"the key {shown_key!r} of topic {topic!r} was deleted by the tombstone at offset {record.offset} "
            f"of partition {found.partition}",
            topic=topic,
            kafka_code=_NO_KEY,
            partition=found.partition,
            offset=record.offset,
        )
    headers = {
        "Partition": str(found.partition),
        "Offset": str(record.offset),
        "Timestamp": str(record.timestamp),
        "Cache-Control": "no-store",
    }
    if media_type == OCTETS:
        headers["X-Content-Type-Options"] = "nosniff"
        return bytes_response(found.opened, record.value, reader, headers=headers)
    return await record_response(found.opened, found.partition, form, reader, headers=headers)


def _key(request: Request) -> bytes:
    """Return the key in the path, from its bytes as they were sent: they need not be UTF-8."""
    raw: bytes = request.scope["raw_path"]
    # /v1/topics/TOPIC/keys/KEY
    key = unquote_to_bytes(raw.split(b"?", 1)[0].split(b"/", 5)[5])
    if _ENCODING.read(request) is None:
        return key
    try:
        return base64.b64decode(key.replace(b"-", b"+").replace(b"_", b"/"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"the key is not valid base64: {error}") from error


def _partition(request: Request, broker: Broker, topic: str) -> int | None:
    if not _PARTITION.is_given(request):
        return None
    partition = _PARTITION.read(request)
    partitions = broker.topic(topic).partitions
    if partition >= partitions:
        raise UnknownPartition(topic, partition, partitions=partitions)
    return partition


@route(
    "GET /v1/topics/{topic}/table",
    "Read a table",
    _PARTITION,
    _ISOLATION,
    AS,
    PREVIEW,
    DECODE,
    _LAST_EVENT_ID,
    answers=_LINES,
    errors=(404, 406, 409, 429, 503),
)
async def read_table(request: Request) -> Response:
    """Return the newest committed record per key of a compacted topic.

    Deleted keys are left out.

    NDJSON has a record per line, and a last line `{"end":…}` with the `positions` from which the changes follow. While
    the next records take a while, lines `{"progress":…}` come. The newest part of a long partition comes first. With
    `Accept: text/event-stream` the changes follow in the same answer, after the event `end-of-snapshot`. Its id and
    those after it resume the changes as `Last-Event-ID`; an answer that is cut before it starts again with
    `start-of-snapshot`. Records after the first `positions` may be among those of the table: apply all in order, where
    a later record replaces an earlier one of its key, and a null value deletes it.
    """
    state = api_state(request)
    broker = state.broker
    topic = broker.topic(TOPIC.read(request))
    _ISOLATION.read(request)
    only = _partition(request, broker, topic.name)
    partitions = list(range(topic.partitions)) if only is None else [only]
    media_type = negotiate(request, (NDJSON, SSE))
    reader = broker.decoded.reader()
    shown = Shown(Filter(), form_of(request, topic), 0, state.tail_reads, reader)
    if media_type == SSE:
        positions = await _resumed(request, broker, topic, partitions)
        if positions is not None:
            body = events(broker, topic, positions, only=only, shown=shown)
            return SlottedStream(body, None, reader=reader, media_type=SSE, headers=_STREAM_HEADERS)
    snapshot = TableSnapshot(broker, topic.name, partitions, reader=reader)
    if media_type == NDJSON:
        body = table_lines(broker, snapshot, shown)
        return SlottedStream(
            body, state.table_slots, reader=reader, media_type=NDJSON, headers=_STREAM_HEADERS
        )
    body = table_events(broker, topic, snapshot, only=only, shown=shown, on_end=lambda: stream.give_back())
    stream = SlottedStream(body, state.table_slots, reader=reader, media_type=SSE, headers=_STREAM_HEADERS)
    return stream


async def _resumed(
    request: Request, broker: Broker, topic: Topic, partitions: list[int]
) -> dict[int, int] | None:
    """Return where the changes go on after ``Last-Event-ID``; None if the table must be read first."""
    last = _LAST_EVENT_ID.given(request)
    if not last:
        return None
    try:
        seen = parse_event_id(last, topic)
    except TopicRecreated:
        return None
    positions: dict[int, int] = {}
    budget = WorkBudget()
    for partition in partitions:
        # A partition without an event was empty, or has been added since.
        positions[partition] = seen.get(partition, -1) + 1
        state = broker.log_state(topic.name, partition)
        if not state.log_start_offset <= positions[partition] <= state.high_watermark:
            # Changes were deleted, or the log has lost its end.
            return None
        await budget.visit()
    return positions
