"""Serve topics over HTTP: list, create, describe, alter, purge, delete, flush."""

from __future__ import annotations

import contextlib
from typing import Annotated, NotRequired, TypedDict

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.isolation_level import IsolationLevel

from ...broker.broker import Broker
from ...broker.topics import Topic
from ...concurrency import DELETIONS_MAX, several
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
from ...storage.topic_config import FIXED_SUBJECT, explicit_configs
from ...storage.topic_partition import TopicPartition
from ...transactions.interface import TransactionService
from ...work_budget import pause, visited
from ..json_bodies import JsonBody, json_answer
from ..parameters import (
    AFTER,
    PAGE,
    PARTITION,
    PREFIX,
    SEARCH_NAMES,
    TOPIC,
    Choice,
    Flag,
    Number,
    OffsetOrTime,
    Text,
)
from ..records.json_types import Durability, InPartition
from ..requests import ConfigChanges, Configs, config_texts
from ..rights import is_seen, require
from ..routing import Routes
from ..schemas import Shown
from ..state import broker_of, transactions_of

route = Routes("topics")
_TopicId = Annotated[str, Shown(format="uuid")]


class HeldBackBy(TypedDict):
    transactional_id: str | None
    producer_id: int
    since: int


class PartitionState(TypedDict):
    partition: int
    log_start_offset: int
    last_stable_offset: int
    held_back_by: HeldBackBy | None
    high_watermark: int
    synced_offset: int
    leader_epoch: int
    size_bytes: int
    segments: int
    dirty_ratio: float | None
    cleaner: str | None


class TopicJson(TypedDict):
    name: str
    topic_id: _TopicId
    partition_count: int
    configs: Configs
    effective_configs: Configs
    partitions: list[PartitionState]


class ListedTopic(TypedDict):
    name: str
    topic_id: _TopicId
    partition_count: int
    records: NotRequired[int]
    size_bytes: NotRequired[int]
    storage: NotRequired[str]
    retention_ms: NotRequired[int]


class TopicList(TypedDict):
    topics: list[ListedTopic]
    next_after: str | None
    total: int


class PurgedPartition(TypedDict):
    partition: int
    log_start_offset: int
    deleted: int


class PurgedTopic(TypedDict):
    topic: str
    partitions: list[PurgedPartition]


class PurgedRecords(InPartition):
    log_start_offset: int
    deleted: int


class FlushedTopic(TypedDict):
    topic: str
    durability: Durability


class Flushed(TypedDict):
    durability: Durability


class TopicBody(Struct, forbid_unknown_fields=True):
    """The body that creates or changes a topic; null resets a config of an existing topic to its default."""

    partitions: Annotated[int | None, Shown(type=["integer", "null"], minimum=1, maximum=100)] = None
    configs: ConfigChanges = {}


_BODY = JsonBody(TopicBody, '{"partitions": 3, "configs": {"retention.ms": 86400000}}', is_required=False)
_LIMIT = Number("limit", "topics per page; at most 1000 with sizes", 1000, minimum=1, maximum=10_000)
_SIZES = Flag("sizes", "include records, size, storage and retention of each topic")
_ORDER = Choice(
    "order", "TopicOrder", ("name", "records", "size"), "records, size: largest first", default="name"
)
_INTERNAL = Flag("internal", "include topics whose names begin with __", default=True)
_SUBJECT = Text("subject", "only topics whose name strategies give keys or values this subject")
_BEFORE = Text("before", "offset, latest, RFC 3339 time or time ago", OffsetOrTime, is_required=True)

# Programs name topics for their own use in this way.
_INTERNAL_PREFIX = "__"
# Sizes are added up per request, which takes about 10 µs per partition.
_SIZES_PAGE_MAX = 1000


async def _described(request: Request, topic: Topic) -> TopicJson:
    broker, transactions = broker_of(request), transactions_of(request).coordinator
    with_configs = is_seen(request, DESCRIBE_CONFIGS_TOPIC)(topic.name)
    partitions: list[PartitionState] = []
    async for partition in visited(range(topic.partitions)):
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
) -> HeldBackBy | None:
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


async def _sizes(broker: Broker, topic: Topic) -> tuple[int, int]:
    """Return the records and the bytes of a topic."""
    records = size_bytes = 0
    async for partition in visited(range(topic.partitions)):
        state = broker.log_state(topic.name, partition)
        records += state.high_watermark - state.log_start_offset
        size_bytes += state.size_bytes
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


def _has_subject(topic: Topic, subject: str) -> bool:
    config = topic.config
    strategies = {"key": config.key_subject_strategy, "value": config.value_subject_strategy}
    return any(
        strategy == FIXED_SUBJECT + subject
        or (strategy == "topic" and subject == f"{topic.name}-{part}")
        or (strategy == "topic-record" and subject.startswith(f"{topic.name}-"))
        for part, strategy in strategies.items()
    )


async def _listed(broker: Broker, topic: Topic, *, with_sizes: bool) -> ListedTopic:
    entry: ListedTopic = {
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


@route(
    "GET /v1/topics",
    "List topics",
    SEARCH_NAMES,
    PREFIX,
    _LIMIT,
    PAGE,
    AFTER,
    _SIZES,
    _ORDER,
    _INTERNAL,
    _SUBJECT,
    example='{"topics":[{"name":"flights","topic_id":"b4f0c1de-7d3c-4c53-9d0e-5a6f2f3d9b51","partition_count":3,'
    '"records":336776,"size_bytes":61873024,"storage":"disk","retention_ms":604800000}],"next_after":null,"total":1}',
)
async def list_topics(request: Request) -> TopicList:
    """List topics in the order of their names, one page at a time.

    `search` selects names that contain a text, `prefix` names that start with one. Pages are numbered from 1;
    alternatively, `after` continues after the last name of a page, even if topics are created or deleted meanwhile.
    `sizes=true` adds the number of records, the size, the storage and the retention of each topic. `order` lists the
    topics with the most records or the largest first instead, by pages with a number. `internal=false` leaves out topics
    whose names begin with `__`, which programs use for themselves. `subject` selects topics with this subject of the
    schema registry, of those whose configurations the client may see.
    """
    broker = broker_of(request)
    with_sizes = _SIZES.read(request)
    limit = _LIMIT.read(request, maximum=_SIZES_PAGE_MAX if with_sizes else None)
    number = PAGE.read(request)
    prefix, after = PREFIX.read(request), AFTER.read(request)
    wanted = SEARCH_NAMES.read(request).lower()
    with_internal, order = _INTERNAL.read(request), _ORDER.read(request)
    if after and order != "name":
        raise InvalidRequest(f"after continues a list by name, not by {order}; give page instead")
    is_listed, subject = is_seen(request, DESCRIBE_TOPIC), _SUBJECT.given(request)
    shows_configs = is_seen(request, DESCRIBE_CONFIGS_TOPIC)
    await broker.try_to_find_all_topics()
    matching = [
        topic
        async for topic in visited(broker.topics())
        if is_listed(topic.name)
        and topic.name.startswith(prefix)
        and topic.name > after
        and wanted in topic.name.lower()
        and (with_internal or not (topic.is_internal or topic.name.startswith(_INTERNAL_PREFIX)))
        and (subject is None or (shows_configs(topic.name) and _has_subject(topic, subject)))
    ]
    if order != "name":
        matching = await _largest_first(broker, matching, by_records=order == "records")
    begin = (number - 1) * limit
    page = matching[begin : begin + limit]
    listed: list[ListedTopic] = []
    async for topic in visited(page):
        # A pause lets other requests in, and one of them may delete the topic.
        with contextlib.suppress(UnknownTopic, UnknownPartition):
            listed.append(await _listed(broker, topic, with_sizes=with_sizes))
        if with_sizes:
            await pause()
    return {
        "topics": listed,
        "next_after": page[-1].name if order == "name" and len(matching) > begin + limit else None,
        "total": len(matching),
    }


@route("PUT /v1/topics/{topic}", "Create a topic", body=_BODY, also={201: "Created"}, errors=(409, 503, 507))
async def create_topic(request: Request) -> TopicJson | Response:
    """Create a topic.

    Repeating the request changes nothing (200); a different configuration is refused (409).
    """
    broker = broker_of(request)
    name = TOPIC.read(request)
    body = await _BODY.read(request)
    configs = explicit_configs(config_texts(body.configs))
    try:
        topic = await broker.create_topic(name, partitions=body.partitions, configs=configs)
    except TopicExists:
        require(request, DESCRIBE_TOPIC, [name])
        topic = broker.topic(name)
        _refuse_difference(topic, body.partitions, configs)
        return await _described(request, topic)
    return json_answer(await _described(request, topic), 201)


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


@route("GET /v1/topics/{topic}", "Describe a topic", errors=(400, 404))
async def get_topic(request: Request) -> TopicJson:
    """Return the partitions with offsets and sizes, and all effective configurations.

    `held_back_by` is the oldest open transaction of a partition: readers of committed records get nothing from
    `last_stable_offset` on until it ends. It is null if none is open. Its `transactional_id` is null if no coordinator
    knows it, and then `since` is the time of its last batch.

    Of a compacted topic, `dirty_ratio` is the part of a partition that is new since its last pass, from 0 to 1, and
    `cleaner` what compaction does about it: `off` (it is disabled), `running`, `failed` (it will be tried again), `due`
    or `idle`. Both are null for other topics.
    """
    broker = broker_of(request)
    return await _described(request, broker.topic(TOPIC.read(request)))


@route("PATCH /v1/topics/{topic}", "Alter a topic", body=_BODY, errors=(404, 503, 507))
async def alter_topic(request: Request) -> TopicJson:
    """Set configurations, and increase the number of partitions.

    Null resets a configuration to its default.
    """
    broker = broker_of(request)
    body = await _BODY.read(request)
    name = TOPIC.read(request)
    if body.partitions is not None:
        require(request, ALTER_TOPIC, [name])
    if body.configs or body.partitions is None:
        require(request, ALTER_CONFIGS_TOPIC, [name])
    topic = await broker.alter_topic(name, partitions=body.partitions, configs=config_texts(body.configs))
    return await _described(request, topic)


@route("DELETE /v1/topics/{topic}", "Delete a topic", errors=(400, 404, 503))
async def delete_topic(request: Request) -> None:
    """Delete a topic and all its records."""
    await broker_of(request).delete_topic(TOPIC.read(request))


@route(
    "DELETE /v1/topics/{topic}/records",
    "Delete all records of a topic",
    errors=(400, 404, 503, 507),
    example='{"topic":"orders","partitions":[{"partition":0,"log_start_offset":42,"deleted":42}]}',
)
async def purge_topic(request: Request) -> PurgedTopic:
    """Delete all records that the topic holds now.

    The topic remains, and its offsets continue.
    """
    broker = broker_of(request)
    topic = broker.topic(TOPIC.read(request))
    await broker.refresh(topic.topic_partitions())

    async def purge(partition: int) -> PurgedPartition:
        before = broker.log_state(topic.name, partition)
        start = await broker.delete_records(topic.name, partition, before.high_watermark)
        return _purged(partition, before.log_start_offset, start)

    partitions = await several(purge, range(topic.partitions), at_a_time=DELETIONS_MAX)
    return {"topic": topic.name, "partitions": partitions}


@route(
    "DELETE /v1/topics/{topic}/partitions/{partition}/records",
    "Delete the first records of a partition",
    _BEFORE,
    errors=(404, 410, 416, 500, 503, 507),
    example='{"topic":"orders","partition":0,"log_start_offset":42,"deleted":42}',
)
async def purge_partition(request: Request) -> PurgedRecords:
    """Delete the records before `before`: an offset, `latest` (all of them), or a time."""
    broker = broker_of(request)
    topic, partition = broker.topic(TOPIC.read(request)).name, PARTITION.number(request)
    text = _BEFORE.given(request)
    if text is None:
        raise InvalidRequest(
            "before is missing; give an offset or a time, or before=latest to delete all records"
        )
    state = broker.log_state(topic, partition)
    offset = await offset_at(
        broker, topic, partition, text, isolation=IsolationLevel.READ_UNCOMMITTED, name="before"
    )
    start = await broker.delete_records(topic, partition, offset)
    return {"topic": topic, **_purged(partition, state.log_start_offset, start)}


def _purged(partition: int, before: int, after: int) -> PurgedPartition:
    return {"partition": partition, "log_start_offset": after, "deleted": max(0, after - before)}


@route("POST /v1/topics/{topic}/flush", "Sync a topic", errors=(400, 404, 503, 507))
async def flush_topic(request: Request) -> FlushedTopic:
    """Sync everything that has been appended to the topic so far."""
    name = TOPIC.read(request)
    await broker_of(request).flush(name)
    return {"topic": name, "durability": "synced"}


@route("POST /v1/flush", "Sync all topics", errors=(503, 507))
async def flush(request: Request) -> Flushed:
    """Sync everything that has been appended so far, in every topic."""
    await broker_of(request).flush()
    return {"durability": "synced"}
