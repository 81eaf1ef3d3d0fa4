"""Serve topics over HTTP: list, create, describe, alter, purge, delete, flush."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.isolation_level import IsolationLevel

from ...broker.broker import Broker
from ...broker.topics import Topic
from ...errors import InvalidRequest, TopicDiffers, TopicExists, UnknownPartition, UnknownTopic
from ...query.positions import offset_at
from ...security.acl import (
    ALTER_CONFIGS_TOPIC,
    ALTER_TOPIC,
    DESCRIBE_CONFIGS_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
)
from ...storage.engine import LogState
from ...storage.topic_config import explicit_configs
from ...storage.topic_partition import TopicPartition
from ...transactions.service import TransactionService
from ...work_budget import pause, pause_among_partitions
from ..bodies import TopicBody
from ..encoded_slash import EncodedSlashRoute
from ..errors import HttpError
from ..openapi import topics as openapi
from ..records.record_json import encode
from ..requests import (
    INT32_MAX,
    boolean_parameter,
    config_texts,
    content_type,
    integer_parameter,
    path_integer,
    read_body,
)
from ..rights import is_seen, require
from ..state import api_state, broker_of, transactions_of

router = APIRouter(tags=["topics"], route_class=EncodedSlashRoute)

_JSON = "application/json"
_PAGE_DEFAULT, _PAGE_MAX = 1000, 10_000
_ORDERS = ("name", "records", "size")
# Programs name topics for their own use in this way.
_INTERNAL_PREFIX = "__"
# Sizes are added up per request, which takes about 10 µs per partition.
_SIZES_PAGE_MAX = 1000


_decode_body = msgspec.json.Decoder(TopicBody).decode


async def _body(request: Request) -> TopicBody:
    raw = await read_body(request, api_state(request).settings.request_body_bytes_max)
    if not raw:
        return TopicBody()
    kind = content_type(request, _JSON)
    if kind not in (_JSON, "application/x-www-form-urlencoded"):
        raise HttpError(415, f"media type {kind[:100]!r} is not supported; send {_JSON}")
    try:
        return _decode_body(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f'the body is not {{"partitions": N, "configs": {{"retention.ms": …}}}}: {error}'
        ) from error


async def _described(request: Request, topic: Topic) -> dict[str, Any]:
    broker, transactions = broker_of(request), transactions_of(request).coordinator
    with_configs = is_seen(request, DESCRIBE_CONFIGS_TOPIC)(topic.name)
    partitions: list[dict[str, Any]] = []
    for partition in range(topic.partitions):
        await pause_among_partitions(partition + 1)
        state = broker.log_state(topic.name, partition)
        compaction = broker.storage.partition_compaction(topic.name, partition)
        partitions.append(
            {
                "partition": partition,
                "log_start_offset": state.log_start_offset,
                "last_stable_offset": state.last_stable_offset,
                "held_back_by": await _held_back_by(
                    request, transactions, TopicPartition(topic.name, partition), state
                ),
                "high_watermark": state.high_watermark,
                "synced_offset": state.recovery_point,
                "leader_epoch": state.leader_epoch,
                "size_bytes": state.size_bytes,
                "segments": broker.storage.segment_count(topic.name, partition),
                "dirty_ratio": compaction and compaction.dirty_ratio,
                "cleaner": compaction and compaction.cleaner,
            }
        )
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "partition_count": topic.partitions,
        "configs": dict(topic.configs) if with_configs else {},
        "effective_configs": dict(topic.effective_configs) if with_configs else {},
        "partitions": partitions,
    }


async def _held_back_by(
    request: Request, transactions: TransactionService, name: TopicPartition, state: LogState
) -> dict[str, Any] | None:
    """Describe the transaction that the last stable offset waits for; None if none is open."""
    if state.last_stable_offset >= state.high_watermark:
        return None
    here = (await transactions.open_in([name])).get(name)
    if not here:
        return None
    oldest = here[0]
    transactional_id = oldest.transactional_id
    is_visible = transactional_id is not None and is_seen(request, DESCRIBE_TRANSACTIONAL_ID)(
        transactional_id
    )
    return {
        "transactional_id": transactional_id if is_visible else None,
        "producer_id": oldest.producer_id,
        "since": oldest.since_ms,
    }


def _answer(document: dict[str, Any], status: int = 200) -> Response:
    return Response(encode(document), status, media_type=_JSON)


async def _sizes(broker: Broker, topic: Topic) -> tuple[int, int]:
    """Return the records and the bytes of a topic."""
    records = size_bytes = 0
    for partition in range(topic.partitions):
        state = broker.log_state(topic.name, partition)
        records += state.high_watermark - state.log_start_offset
        size_bytes += state.size_bytes
        await pause_among_partitions(partition + 1)
    return records, size_bytes


async def _largest_first(broker: Broker, topics: list[Topic], *, by_records: bool) -> list[Topic]:
    """Sort topics by their records or bytes; equal ones remain in the order of names."""
    sizes: dict[str, int] = {}
    for topic in topics:
        # A pause lets other requests in, and one of them may delete the topic.
        with contextlib.suppress(UnknownTopic, UnknownPartition):
            records, size_bytes = await _sizes(broker, topic)
            sizes[topic.name] = records if by_records else size_bytes
        await pause()
    return sorted((topic for topic in topics if topic.name in sizes), key=lambda topic: -sizes[topic.name])


async def _listed(broker: Broker, topic: Topic, *, with_sizes: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "partition_count": topic.partitions,
    }
    if with_sizes:
        records, size_bytes = await _sizes(broker, topic)
        entry["records"] = records
        entry["size_bytes"] = size_bytes
        entry["storage"] = topic.config.storage
        entry["retention_ms"] = topic.config.retention_ms
    return entry


@router.get("/v1/topics", openapi_extra=openapi.LIST_TOPICS, summary="List topics")
async def list_topics(request: Request) -> Response:
    """List topics in the order of their names, one page at a time.

    `search` selects names that contain a text, `prefix` names that start with one. Pages are numbered from 1;
    alternatively, `after` continues after the last name of a page, even if topics are created or deleted meanwhile.
    `sizes=true` adds the number of records, the size, the storage and the retention of each topic. `order` lists the
    topics with the most records or the largest first instead, by pages with a number. `internal=false` leaves out topics
    whose names begin with `__`, which programs use for themselves.
    """
    broker = broker_of(request)
    with_sizes = boolean_parameter(request, "sizes")
    limit = integer_parameter(
        request, "limit", _PAGE_DEFAULT, minimum=1, maximum=_SIZES_PAGE_MAX if with_sizes else _PAGE_MAX
    )
    number = integer_parameter(request, "page", 1, minimum=1, maximum=INT32_MAX)
    prefix, after = request.query_params.get("prefix", ""), request.query_params.get("after", "")
    wanted = request.query_params.get("search", "").lower()
    with_internal = boolean_parameter(request, "internal", default=True)
    order = request.query_params.get("order", "name")
    if order not in _ORDERS:
        raise InvalidRequest(
            f"order is {order[:40]!r}; it must be {', '.join(_ORDERS[:-1])} or {_ORDERS[-1]}"
        )
    if after and order != "name":
        raise InvalidRequest(f"after continues a list by name, not by {order}; give page instead")
    is_listed = is_seen(request, DESCRIBE_TOPIC)
    await broker.try_to_find_all_topics()
    matching = [
        topic
        for topic in broker.topics()
        if is_listed(topic.name)
        and topic.name.startswith(prefix)
        and topic.name > after
        and wanted in topic.name.lower()
        and (with_internal or not (topic.is_internal or topic.name.startswith(_INTERNAL_PREFIX)))
    ]
    if order != "name":
        matching = await _largest_first(broker, matching, by_records=order == "records")
    begin = (number - 1) * limit
    page = matching[begin : begin + limit]
    listed: list[dict[str, Any]] = []
    for topic in page:
        # A pause lets other requests in, and one of them may delete the topic.
        with contextlib.suppress(UnknownTopic, UnknownPartition):
            listed.append(await _listed(broker, topic, with_sizes=with_sizes))
        if with_sizes:
            await pause()
    return _answer(
        {
            "topics": listed,
            "next_after": page[-1].name if order == "name" and len(matching) > begin + limit else None,
            "total": len(matching),
        }
    )


@router.put("/v1/topics/{topic}", openapi_extra=openapi.CREATE_TOPIC, summary="Create a topic")
async def create_topic(request: Request) -> Response:
    """Create a topic.

    Repeating the request changes nothing (200); a different configuration is refused (409).
    """
    broker = broker_of(request)
    name = request.path_params["topic"]
    body = await _body(request)
    configs = explicit_configs(config_texts(body.configs))
    try:
        topic = await broker.create_topic(name, partitions=body.partitions, configs=configs)
    except TopicExists:
        require(request, DESCRIBE_TOPIC, [name])
        topic = broker.topic(name)
        _refuse_difference(topic, body.partitions, configs)
        return _answer(await _described(request, topic))
    return _answer(await _described(request, topic), 201)


def _refuse_difference(topic: Topic, partitions: int | None, configs: dict[str, str]) -> None:
    differences = [
        f"{name} is {topic.configs.get(name, 'not set')}, requested is {configs.get(name, 'not set')}"
        for name in sorted({*topic.configs, *configs})
        if topic.configs.get(name) != configs.get(name)
    ]
    if partitions is not None and partitions != topic.partitions:
        differences.insert(0, f"it has {topic.partitions} partitions, requested are {partitions}")
    if differences:
        raise TopicDiffers(topic.name, "; ".join(differences))


@router.get("/v1/topics/{topic}", openapi_extra=openapi.GET_TOPIC, summary="Describe a topic")
async def get_topic(request: Request) -> Response:
    """Return the partitions with offsets and sizes, and all effective configurations.

    `held_back_by` is the oldest open transaction of a partition: readers of committed records get nothing from
    `last_stable_offset` on until it ends. It is null if none is open. Its `transactional_id` is null if no coordinator
    knows it, and then `since` is the time of its last batch.

    Of a compacted topic, `dirty_ratio` is the part of a partition that is new since its last pass, from 0 to 1, and
    `cleaner` what compaction does about it: `off` (it is disabled), `running`, `failed` (it will be tried again), `due`
    or `idle`. Both are null for other topics.
    """
    broker = broker_of(request)
    return _answer(await _described(request, broker.topic(request.path_params["topic"])))


@router.patch("/v1/topics/{topic}", openapi_extra=openapi.ALTER_TOPIC, summary="Alter a topic")
async def alter_topic(request: Request) -> Response:
    """Set configurations, and increase the number of partitions.

    Null resets a configuration to its default.
    """
    broker = broker_of(request)
    body = await _body(request)
    name = request.path_params["topic"]
    if body.partitions is not None:
        require(request, ALTER_TOPIC, [name])
    if body.configs or body.partitions is None:
        require(request, ALTER_CONFIGS_TOPIC, [name])
    topic = await broker.alter_topic(name, partitions=body.partitions, configs=config_texts(body.configs))
    return _answer(await _described(request, topic))


@router.delete(
    "/v1/topics/{topic}", status_code=204, openapi_extra=openapi.DELETE_TOPIC, summary="Delete a topic"
)
async def delete_topic(request: Request) -> Response:
    """Delete a topic and all its records."""
    await broker_of(request).delete_topic(request.path_params["topic"])
    return Response(status_code=204)


@router.delete(
    "/v1/topics/{topic}/records", openapi_extra=openapi.PURGE_TOPIC, summary="Delete all records of a topic"
)
async def purge_topic(request: Request) -> Response:
    """Delete all records that the topic holds now.

    The topic remains, and its offsets continue.
    """
    broker = broker_of(request)
    topic = broker.topic(request.path_params["topic"])
    await broker.refresh(topic.topic_partitions())
    before = [broker.log_state(topic.name, partition) for partition in range(topic.partitions)]
    # Concurrently, so that the deletions share one sync.
    starts = await asyncio.gather(
        *(
            broker.delete_records(topic.name, partition, state.high_watermark)
            for partition, state in enumerate(before)
        )
    )
    partitions = [
        _purged(partition, state.log_start_offset, start)
        for partition, (state, start) in enumerate(zip(before, starts, strict=True))
    ]
    return _answer({"topic": topic.name, "partitions": partitions})


@router.delete(
    "/v1/topics/{topic}/partitions/{partition}/records",
    openapi_extra=openapi.PURGE_PARTITION,
    summary="Delete the first records of a partition",
)
async def purge_partition(request: Request) -> Response:
    """Delete the records before `before`: an offset, `latest` (all of them), or a time."""
    broker = broker_of(request)
    topic, partition = broker.topic(request.path_params["topic"]).name, path_integer(request, "partition")
    text = request.query_params.get("before")
    if text is None:
        raise InvalidRequest(
            "before is missing; give an offset or a time, or before=latest to delete all records"
        )
    state = broker.log_state(topic, partition)
    offset = await offset_at(
        broker, topic, partition, text, isolation=IsolationLevel.READ_UNCOMMITTED, name="before"
    )
    start = await broker.delete_records(topic, partition, offset)
    return _answer({"topic": topic, **_purged(partition, state.log_start_offset, start)})


def _purged(partition: int, before: int, after: int) -> dict[str, int]:
    return {"partition": partition, "log_start_offset": after, "deleted": max(0, after - before)}


@router.post("/v1/topics/{topic}/flush", openapi_extra=openapi.FLUSH_TOPIC, summary="Sync a topic")
async def flush_topic(request: Request) -> Response:
    """Sync everything that has been appended to the topic so far."""
    name = request.path_params["topic"]
    await broker_of(request).flush(name)
    return _answer({"topic": name, "durability": "synced"})


@router.post("/v1/flush", openapi_extra=openapi.FLUSH, summary="Sync all topics")
async def flush(request: Request) -> Response:
    """Sync everything that has been appended so far, in every topic."""
    await broker_of(request).flush()
    return _answer({"durability": "synced"})
