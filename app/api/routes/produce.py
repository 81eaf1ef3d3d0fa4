"""Append records over HTTP, as JSON, streamed NDJSON or raw bytes; allocate producer ids."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.notation import parse_signed, parse_whole

from ...broker.broker import Broker
from ...broker.producing.produce import Acks
from ...broker.topics import Topic
from ...errors import (
    InvalidRequest,
    InvalidTimestamp,
    MissingKey,
    SteleError,
    UnencodableValue,
    UnexpectedEnd,
    UnknownPartition,
)
from ...work_budget import RECORDS_PER_TURN, WorkBudget, drained, pause
from ..errors import HttpError, Problem, RecordError, problem_of, problem_response, refused_records
from ..http.body_codings import is_framed
from ..http.exchange import BODY, Exchange
from ..openapi.operations import JSON, NDJSON, OCTETS, Content
from ..parameters import PARTITION, PRODUCER_ID, TOPIC, Header, Number, Text
from ..record_encoding import ENCODE, KEY_SCHEMA, SCHEMA, encoding_of
from ..records.encoding import Parsed, RecordEncoding
from ..records.json_records import (
    RECORDS_MAX,
    NewRecord,
    ProduceBody,
    reason,
)
from ..records.json_types import Base64, Durability
from ..records.large_bodies import decode_body
from ..records.large_records import parse_in_turns
from ..records.ndjson_upload import NdjsonUpload, all_refused
from ..records.upload import (
    ERRORS_SHOWN_MAX,
    ProducerIdentity,
    Upload,
    errors_of,
    results_of,
    settle_all,
)
from ..requests import INT32_MAX, INT64_MAX, check_again, content_type, join, read_body
from ..routing import Routes
from ..schemas import Shown
from ..state import api_state, broker_of

route = Routes("records")


class ProduceResult(TypedDict, total=False):
    partition: int
    offset: int
    timestamp: int
    index: Annotated[int, Shown("with error: the number of the record in the request, from 0")]
    error: Problem


class Produced(TypedDict):
    records: list[ProduceResult]
    durability: Durability
    errors: NotRequired[list[RecordError]]


class ProducerId(TypedDict):
    producer_id: int
    producer_epoch: int
    is_resumed: NotRequired[
        Annotated[bool, Shown("named producers only: true if this version has been started before")]
    ]


class ProducerState(TypedDict):
    producer_epoch: int
    last_sequence: int
    last_offset: int


_RECORDS = (
    Content(
        JSON,
        ProduceBody,
        '{"records":[{"key":"N14228","value":{"from":"EWR","to":"IAH"}},{"key":"N24211","value":"plain text",'
        '"headers":[{"key":"source","value":"docs"}]},{"key":"N619AA","value_b64":"AP8="}]}',
    ),
    Content(NDJSON, str, '{"key":"N14228","value":{"from":"EWR"}}\n{"value":"just text"}\n'),
    Content(OCTETS, bytes, "any bytes"),
)
_PRODUCED = (
    Content(JSON, Produced),
    Content(NDJSON, str, '{"partition":0,"offset":42,"timestamp":1763664000000}\n'),
)
_ACKS = Text(
    "acks",
    "when to answer: all after the sync, 1 after the append, 0 at once",
    Annotated[str, Shown(name="Acks", enum=["all", "1", "0", "-1"], default="all")],
)
_PARTITION = Number("partition", "partition of all records", maximum=INT32_MAX)
_Whole = Annotated[int, Shown(minimum=0)]
_IDENTITY = (
    Header("Producer-Id", "idempotent produce: the id from POST /v1/producers", _Whole),
    Header("Producer-Epoch", "idempotent produce: the epoch that came with the id", _Whole),
    Header("Producer-Sequence", "idempotent produce: the sequence of the first record, from 0", _Whole),
)
_IF_MATCH = Header(
    "If-Match",
    "conditional append: the offset at which the partition must end, in quotes; or * for any topic that exists",
    Annotated[str, Shown(examples=['"42"'])],
)
_KEY = Header("Record-Key", "octet-stream: key of the record")
_KEY_B64 = Header("Record-Key-B64", "octet-stream: key of the record, in base64", Base64)
_TIMESTAMP = Header(
    "Record-Timestamp", "octet-stream: timestamp in ms since 1970-01-01 UTC, or -1 for none", int
)
_NAME = Text("name", "name of the producer; needs version", Annotated[str, Shown(minLength=1, maxLength=500)])
_VERSION = Number("version", "version of the run: the same version resumes the run, a greater one fences it")

# The content type that curl -d sends unless one is given: the body is JSON.
_FORM = "application/x-www-form-urlencoded"
_RECORDS_PER_TURN = 128
# What a record of a JSON body takes in memory until it is appended, beyond its bytes.
_RECORD_BYTES = 256
_HEADER_PREFIX = "record-header-"
_ANY_TAG = ("*",)
_TAG = re.compile(r'(?:W/)?"[!#-~\x80-\xff]*"')


@route(
    "POST /v1/topics/{topic}/records",
    "Append records",
    _ACKS,
    _PARTITION,
    *_IDENTITY,
    _IF_MATCH,
    _KEY,
    _KEY_B64,
    _TIMESTAMP,
    ENCODE,
    SCHEMA,
    KEY_SCHEMA,
    body=_RECORDS,
    answers=_PRODUCED,
    also={207: "Some records were refused; see errors"},
    errors=(404, 409, 412, 422, 503, 504, 507),
)
async def produce(request: Request) -> Response:
    """Append records, and return their positions and their durability.

    Each result has the record's partition, offset and timestamp. The durability is `synced` (on disk, the
    default), `appended` (`acks=1`) or `none` (`acks=0`). An unknown topic is created, unless auto-creation is off.

    Values and keys that are JSON are encoded and framed if the record or the request names a schema, or if the topic
    has a subject in the schema registry, whose latest schema is used then. What cannot be encoded is 422.

    With `If-Match` the records are stored if the partition ends at that offset, all of them or none. Otherwise the
    answer is 412 with the actual end.
    """
    state = api_state(request)
    acks = Acks.parse(_ACKS.read(request, "all"))
    identity = _identity(request)
    partition = _PARTITION.read(request, -1)
    tags = _tags(request)
    encoding = encoding_of(request)
    kind = content_type(request, JSON)
    if kind not in (JSON, NDJSON, OCTETS, _FORM):
        raise HttpError(415, f"media type {kind[:100]!r} is not supported; send {JSON}, {NDJSON} or {OCTETS}")
    if not is_framed(request.scope):
        # It may be one that ends with the connection, as only those of responses may: an empty record in its place.
        raise HttpError(400, "the request has no body; send Content-Length, which is 0 for an empty record")
    if tags == _ANY_TAG:
        await _check_exists(state.broker, TOPIC.read(request))
        tags = ()
    topic = await state.broker.ensure_topic(TOPIC.read(request))
    partition = _checked_partition(topic, partition, is_one=identity is not None or bool(tags))
    upload = Upload(
        state.broker,
        topic,
        acks=acks,
        partition=partition,
        identity=identity,
        expected_end=await _expected_end(state.broker, topic.name, partition, tags),
        check=partial(check_again, request),
    )
    if kind == NDJSON:
        return NdjsonUpload(
            request,
            upload,
            encoding,
            topic,
            is_plain=not await encoding.applies_to(topic),
            line_bytes_max=state.settings.ndjson_line_bytes_max,
            timeout_ms=state.settings.request_timeout_ms,
        )
    body = await read_body(request, state.settings.request_body_bytes_max)
    if kind == OCTETS:
        if SCHEMA.given(request) is not None or KEY_SCHEMA.given(request) is not None:
            raise InvalidRequest(f"{OCTETS} is stored as it is; give no schema with it, or send JSON")
        await upload.add_in_turns(_octet_record(request, body))
    else:
        await encoding.applies_to(topic)
        await _gather_json(upload, body, encoding, topic, request.scope.get(BODY))
    return await _finish(upload, state.settings.request_timeout_ms)


def _identity(request: Request) -> ProducerIdentity | None:
    texts = [header.given(request) for header in _IDENTITY]
    if all(text is None for text in texts):
        return None
    numbers: list[int] = []
    for header, text, maximum in zip(_IDENTITY, texts, (INT64_MAX, 2**15 - 1, INT32_MAX), strict=True):
        number = None if text is None else parse_whole(text, maximum)
        if number is None:
            raise InvalidRequest(
                f"{header.name} is {text and text[:40]!r}; an idempotent produce needs Producer-Id and Producer-Epoch from "
                "POST /v1/producers, and Producer-Sequence, a whole number counted from 0"
            )
        numbers.append(number)
    return ProducerIdentity(*numbers)


def _tags(request: Request) -> Sequence[str]:
    """Return the entity tags of If-Match, or ``_ANY_TAG``; none if there is no such header.

    Raises ``InvalidRequest``.
    """
    lines = request.headers.getlist("if-match")
    text = ", ".join(lines).strip()
    tags = _ANY_TAG if text == "*" else tuple(_TAG.findall(text))
    if lines and (not tags or (tags != _ANY_TAG and _TAG.sub("", text).strip(", \t"))):
        raise InvalidRequest(
            f'If-Match is {text[:40]!r}; give the end offset of the partition in quotes, as in If-Match: "42"'
        )
    return tags


async def _check_exists(broker: Broker, topic: str) -> None:
    await broker.try_to_find_topics([topic])
    if not broker.has_topic(topic):
        raise HttpError(412, f"If-Match is *, and topic {topic[:300]!r} does not exist; create it first")


async def _expected_end(broker: Broker, topic: str, partition: int | None, tags: Sequence[str]) -> int | None:
    """Return the end that a conditional append expects, by RFC 9110, 13.1.1; None if it is not conditional.

    The tag of a partition is its log end offset. A weak tag matches nothing. Of several tags, that of the end as it
    is now counts.

    Raises ``UnexpectedEnd``.
    """
    if partition is None or not tags:
        return None
    end = parse_whole(tags[0].strip('"'), INT64_MAX)
    if len(tags) == 1 and end is not None and tags[0] == f'"{end}"':
        return end
    await broker.refresh([(topic, partition)])
    end = broker.log_state(topic, partition).log_end_offset
    if f'"{end}"' in tags:
        return end
    raise UnexpectedEnd(topic=topic, partition=partition, expected=", ".join(tags)[:80], log_end_offset=end)


def _checked_partition(topic: Topic, partition: int, *, is_one: bool) -> int | None:
    if partition < 0:
        if is_one and topic.partitions > 1:
            raise InvalidRequest(
                "a produce with If-Match or Producer-Id goes to one partition; add ?partition=N"
            )
        return 0 if is_one else None
    if partition >= topic.partitions:
        raise UnknownPartition(topic.name, partition, partitions=topic.partitions)
    return partition


def _octet_record(request: Request, body: bytes) -> NewRecord:
    key_text = _KEY.given(request)
    key = None if key_text is None else key_text.encode("latin-1")
    key_b64 = _KEY_B64.given(request)
    if key_b64 is not None:
        if key is not None:
            raise InvalidRequest("the request has both Record-Key and Record-Key-B64; give one of the two")
        try:
            key = base64.b64decode(key_b64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest(f"Record-Key-B64 is not base64: {error}") from error
    text = _TIMESTAMP.given(request)
    timestamp_ms = None if text is None else parse_signed(text)
    if text is not None and timestamp_ms is None:
        raise InvalidRequest(
            f"Record-Timestamp is {text[:40]!r}; give ms since 1970-01-01 UTC, or -1 for none"
        )
    headers: list[tuple[str, bytes | None]] = [
        (name.decode("latin-1")[len(_HEADER_PREFIX) :], content)
        for name, content in request.headers.raw
        if name.startswith(_HEADER_PREFIX.encode())
    ]
    return NewRecord(
        value=body,
        key=key,
        headers=headers,
        timestamp_ms=timestamp_ms,
        partition=None,
    )


async def _gather_json(
    upload: Upload, body: bytes, encoding: RecordEncoding, topic: Topic, exchange: Exchange | None = None
) -> None:
    """Add all records of a JSON body; one invalid record refuses the whole request."""
    try:
        texts = (await decode_body(body, ProduceBody, records_max=RECORDS_MAX)).records
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f'the body is not {{"records": [RECORD, …]}}: {reason(error)}') from error
    if not texts:
        raise InvalidRequest("the body has no records")
    if exchange is not None:
        exchange.hold(_RECORD_BYTES * len(texts))
    records: list[NewRecord] = []
    errors: list[dict[str, Any]] = []
    # The body was decoded once, to find the records; now each is, for what is in it.
    turn = WorkBudget()
    await turn.spend(len(body), 0)
    first = 0
    rest = drained(texts)
    while texts and len(errors) < ERRORS_SHOWN_MAX:
        group: list[Parsed | InvalidRequest] = []
        for text in islice(rest, min(_RECORDS_PER_TURN, ERRORS_SHOWN_MAX - len(errors))):
            try:
                parsed, value = await parse_in_turns(text)
                group.append(Parsed(parsed, len(text), value))
            except InvalidRequest as error:
                group.append(error)
            await turn.spend(len(text), RECORDS_PER_TURN / _RECORDS_PER_TURN)
        for index, record in enumerate(await encoding.records(topic, group, first), first):
            try:
                if isinstance(record, SteleError):
                    raise record
                if record.partition is not None:
                    upload.partition_of(record)
                upload.size_of(record)
                upload.check(record, index)
                records.append(record)
            except (InvalidRequest, UnknownPartition) as error:
                errors.append({"index": index, "detail": str(error), "type": "/problems/invalid-record"})
            except (InvalidTimestamp, MissingKey, UnencodableValue) as error:
                document = problem_of(error)
                kept = ("type", "detail", "kafka_code", "retriable", "pointer")
                errors.append({"index": index} | {name: document[name] for name in kept if name in document})
            if len(errors) == ERRORS_SHOWN_MAX:
                break
        first += len(group)
    if errors:
        raise refused_records(f"no record was stored: {errors[0]['detail']}", errors)
    added = drained(records)
    while records:
        for record in islice(added, _RECORDS_PER_TURN):
            await upload.add_in_turns(record)
        await pause()
        await upload.room()


async def _finish(upload: Upload, timeout_ms: int) -> Response:
    if upload.is_whole and upload.error_count:
        return problem_response(upload.refusal())
    upload.append()
    chunks = upload.take_chunks()
    await settle_all(chunks, timeout_ms)
    failed = sum(chunk.error_count for chunk in chunks)
    if failed == sum(map(len, chunks)):
        return problem_response(all_refused(chunks))
    parts = [b'{"records":[']
    for chunk in chunks:
        for texts in results_of(chunk, b","):
            parts.append(texts)
            await pause()
    parts[-1] = parts[-1][:-1] + b"]"
    durability = min(receipt for chunk in chunks if (receipt := chunk.durability()) is not None)
    parts.append(b',"durability":"%s"' % durability.label.encode())
    if failed:
        parts.append(b',"errors":' + msgspec.json.encode(errors_of(chunks)))
    parts.append(b"}")
    return Response(await join(parts), 207 if failed else 200, media_type=JSON)


@route("POST /v1/producers", "Allocate a producer id", _NAME, _VERSION, errors=(503,), status=201)
async def init_producer_id(request: Request) -> ProducerId:
    """Allocate a producer id and epoch, for `Producer-Id` and `Producer-Epoch`.

    Sequences start at 0 per partition.

    With `name` and `version` the id belongs to that run of a job. The same version gets the same id again, so a
    repeated run finds the records that it has already stored (`is_resumed`). A greater version starts a new run and
    fences the previous one.
    """
    broker = broker_of(request)
    name = _NAME.given(request)
    version = _VERSION.read(request, -1)
    if (name is None) != (version < 0):
        raise InvalidRequest("give name and version together, or neither of them for a new producer id")
    if name is None:
        producer_id, producer_epoch = await broker.init_producer_id()
        return {"producer_id": producer_id, "producer_epoch": producer_epoch}
    producer = await broker.begin_producer_version(name, version)
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "is_resumed": producer.is_resumed,
    }


@route(
    "GET /v1/topics/{topic}/partitions/{partition}/producers/{producer_id}",
    "Get the state of a producer",
    errors=(400, 404),
)
async def get_producer_state(request: Request) -> ProducerState:
    """Return the state of an idempotent producer in a partition.

    That is epoch, sequence and offset of its last record, or -1 if it has none.
    """
    producer_id = PRODUCER_ID.number(request)
    partition = PARTITION.number(request)
    view = await broker_of(request).producer(TOPIC.read(request), partition, producer_id)
    return {
        "producer_epoch": -1 if view is None else view.epoch,
        "last_sequence": -1 if view is None else view.last_sequence,
        "last_offset": -1 if view is None else view.last_offset,
    }
