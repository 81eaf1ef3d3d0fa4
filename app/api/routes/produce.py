"""Append records over HTTP, as JSON, streamed NDJSON or raw bytes; allocate producer ids."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.notation import parse_signed, parse_whole

from ...broker.producing.produce import Acks
from ...broker.topics import Topic
from ...errors import InvalidRequest, InvalidTimestamp, MissingKey, UnknownPartition
from ...work_budget import RECORDS_PER_TURN, WorkBudget, pause
from ..encoded_slash import EncodedSlashRoute
from ..errors import HttpError, http_problem, problem_of, problem_response
from ..openapi import produce as openapi
from ..records.ndjson_upload import NdjsonUpload, all_refused
from ..records.record_decoding import to_record_in_turns
from ..records.record_json import NewRecord, decode_produce_body, parse_record
from ..records.upload import ProducerIdentity, Upload, errors_of, results_of, settle_all
from ..requests import (
    INT32_MAX,
    INT64_MAX,
    check_again,
    content_type,
    integer_parameter,
    path_integer,
    read_body,
)
from ..state import api_state, broker_of

router = APIRouter(tags=["records"], route_class=EncodedSlashRoute)

_JSON, _NDJSON, _OCTETS = "application/json", "application/x-ndjson", "application/octet-stream"
# The content type that curl -d sends unless one is given: the body is JSON.
_FORM = "application/x-www-form-urlencoded"
_RECORDS_PER_TURN = 128
_HEADER_PREFIX = "record-header-"


@router.post("/v1/topics/{topic}/records", openapi_extra=openapi.PRODUCE, summary="Append records")
async def produce(request: Request) -> Response:
    """Append records, and return their positions and their durability.

    Each result has the record's partition, offset and timestamp. The durability is `synced` (on disk, the
    default), `appended` (`acks=1`) or `none` (`acks=0`). An unknown topic is created, unless auto-creation is off.
    """
    state = api_state(request)
    acks = Acks.parse(request.query_params.get("acks", "all"))
    identity = _identity(request)
    partition = integer_parameter(request, "partition", -1, minimum=0, maximum=INT32_MAX)
    kind = content_type(request, _JSON)
    if kind not in (_JSON, _NDJSON, _OCTETS, _FORM):
        raise HttpError(
            415, f"media type {kind[:100]!r} is not supported; send {_JSON}, {_NDJSON} or {_OCTETS}"
        )
    topic = await state.broker.ensure_topic(request.path_params["topic"])
    upload = Upload(
        state.broker,
        topic,
        acks=acks,
        partition=_checked_partition(topic, partition, identity),
        identity=identity,
        check=partial(check_again, request),
    )
    if kind == _NDJSON:
        return NdjsonUpload(
            request,
            upload,
            line_bytes_max=state.settings.ndjson_line_bytes_max,
            timeout_ms=state.settings.request_timeout_ms,
            is_whole=identity is not None,
        )
    body = await read_body(request, state.settings.request_body_bytes_max)
    if kind == _OCTETS:
        upload.add(_octet_record(request, body))
    else:
        await _gather_json(upload, body)
    return await _finish(upload, state.settings.request_timeout_ms)


def _identity(request: Request) -> ProducerIdentity | None:
    names = ("producer-id", "producer-epoch", "producer-sequence")
    texts = [request.headers.get(name) for name in names]
    if all(text is None for text in texts):
        return None
    numbers: list[int] = []
    for name, text, maximum in zip(names, texts, (INT64_MAX, 2**15 - 1, INT32_MAX), strict=True):
        number = None if text is None else parse_whole(text, maximum)
        if number is None:
            raise InvalidRequest(
                f"{name} is {text and text[:40]!r}; an idempotent produce needs Producer-Id and Producer-Epoch from "
                "POST /v1/producers, and Producer-Sequence, a whole number counted from 0"
            )
        numbers.append(number)
    return ProducerIdentity(*numbers)


def _checked_partition(topic: Topic, partition: int, identity: ProducerIdentity | None) -> int | None:
    if partition < 0:
        if identity is not None and topic.partitions > 1:
            raise InvalidRequest("an idempotent produce goes to one partition; add ?partition=N")
        return 0 if identity is not None else None
    if partition >= topic.partitions:
        raise UnknownPartition(topic.name, partition, partitions=topic.partitions)
    return partition


def _octet_record(request: Request, body: bytes) -> NewRecord:
    key_text = request.headers.get("record-key")
    key = None if key_text is None else key_text.encode("latin-1")
    key_b64 = request.headers.get("record-key-b64")
    if key_b64 is not None:
        if key is not None:
            raise InvalidRequest("the request has both Record-Key and Record-Key-B64; give one of the two")
        try:
            key = base64.b64decode(key_b64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest(f"Record-Key-B64 is not base64: {error}") from error
    text = request.headers.get("record-timestamp")
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


async def _gather_json(upload: Upload, body: bytes) -> None:
    """Add all records of a JSON body; one invalid record refuses the whole request."""
    try:
        texts = decode_produce_body(body).records
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f'the body is not {{"records": [RECORD, …]}}: {error}') from error
    if not texts:
        raise InvalidRequest("the body has no records")
    records: list[NewRecord] = []
    errors: list[dict[str, Any]] = []
    # The body was decoded once, to find the records; now each is, for what is in it.
    turn = WorkBudget()
    await turn.spend(len(body), 0)
    for index, text in enumerate(texts):
        try:
            record = await to_record_in_turns(parse_record(text), len(text))
            if record.partition is not None:
                upload.partition_of(record)
            upload.size_of(record)
            upload.check(record, index)
            records.append(record)
        except (InvalidRequest, UnknownPartition) as error:
            errors.append({"index": index, "detail": str(error), "type": "/problems/invalid-record"})
        except (InvalidTimestamp, MissingKey) as error:
            document = problem_of(error)
            kept = ("type", "detail", "kafka_code", "retriable")
            errors.append({"index": index} | {name: document[name] for name in kept})
        await turn.spend(len(text), RECORDS_PER_TURN / _RECORDS_PER_TURN)
    if errors:
        raise HttpError(400, f"no record was stored: {errors[0]['detail']}", errors=errors[:1000])
    for start in range(0, len(records), _RECORDS_PER_TURN):
        for record in records[start : start + _RECORDS_PER_TURN]:
            upload.add(record)
        await pause()
        await upload.room()


async def _finish(upload: Upload, timeout_ms: int) -> Response:
    if upload.is_idempotent and upload.has_errors:
        return problem_response(
            http_problem(400, "no record was stored; see errors", errors=upload.unsent_errors())
        )
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
    return Response(b"".join(parts), 207 if failed else 200, media_type=_JSON)


@router.post(
    "/v1/producers", status_code=201, openapi_extra=openapi.PRODUCERS, summary="Allocate a producer id"
)
async def init_producer_id(request: Request) -> Response:
    """Allocate a producer id and epoch, for `Producer-Id` and `Producer-Epoch`.

    Sequences start at 0 per partition.

    With `name` and `version` the id belongs to that run of a job. The same version gets the same id again, so a
    repeated run finds the records that it has already stored (`is_resumed`). A greater version starts a new run and
    fences the previous one.
    """
    broker = broker_of(request)
    name = request.query_params.get("name")
    version = integer_parameter(request, "version", -1, minimum=0, maximum=INT64_MAX)
    if (name is None) != (version < 0):
        raise InvalidRequest("give name and version together, or neither of them for a new producer id")
    if name is None:
        producer_id, producer_epoch = await broker.init_producer_id()
        answer: dict[str, int | bool] = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    else:
        producer = await broker.begin_producer_version(name, version)
        answer = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "is_resumed": producer.is_resumed,
        }
    return Response(msgspec.json.encode(answer), 201, media_type=_JSON)


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/producers/{producer_id}",
    openapi_extra=openapi.PRODUCER_STATE,
    summary="Get the state of a producer",
)
async def get_producer_state(request: Request) -> Response:
    """Return the state of an idempotent producer in a partition.

    That is epoch, sequence and offset of its last record, or -1 if it has none.
    """
    producer_id = path_integer(request, "producer_id", maximum=INT64_MAX)
    partition = path_integer(request, "partition")
    view = await broker_of(request).producer(request.path_params["topic"], partition, producer_id)
    answer = {
        "producer_epoch": -1 if view is None else view.epoch,
        "last_sequence": -1 if view is None else view.last_sequence,
        "last_offset": -1 if view is None else view.last_offset,
    }
    return Response(msgspec.json.encode(answer), media_type=_JSON)
