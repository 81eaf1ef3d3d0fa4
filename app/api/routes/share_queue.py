"""Serve share groups as queues over HTTP: poll, acknowledge, release, reject, renew (ADR-0045)."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated, TypedDict

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.record_batch import RecordView

from ...broker.reading.decoded_bytes import DecodedReader
from ...broker.reading.fetch import Fetched, records_in_turns
from ...errors import AuthorizationError, CorruptLog, ReadMemoryFull, TopicAuthorizationFailed
from ...groups.base.share_state import AcknowledgeType, AcquiredRange
from ...groups.redrive import DeadLetterRedrive
from ...groups.share.reads import SharedRecords
from ...groups.share_queue import SharePoll, SharePolled
from ...security.acl import READ_TOPIC, WRITE_TOPIC
from ...storage.topic_partition import TopicPartition
from ..group_json import Offset, PollStart, Topics
from ..json_bodies import LIST_BYTES_MAX, JsonBody
from ..openapi.operations import JSON, Content
from ..parameters import GROUP
from ..record_selection import DECODE, decoding_of
from ..records.decoded import AnswerDecoding
from ..records.form import RecordForm, Separator
from ..records.json_records import encode
from ..records.json_types import SharedRecord
from ..records.stream_slots import sized_or_streamed
from ..rights import access_of, require
from ..routing import Routes
from ..schemas import Shown
from ..state import broker_of, group_of
from ..throttling import page_bytes_max

logger = logging.getLogger(__name__)

route = Routes("groups", errors=(404, 409, 503))
_LockName = Annotated[str, Shown(minLength=1, maxLength=200)]


class SharePolledJson(TypedDict):
    records: list[SharedRecord]
    lock: str | None
    expires_at: int | None
    expires_in_ms: int | None


class ShareSettled(TypedDict):
    records: int


class ShareRenewed(TypedDict):
    records: int
    expires_at: int
    expires_in_ms: int


class Redriven(TypedDict):
    topic: str
    redriven: int
    lost: int
    is_more: bool


class SharePollBody(Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """A poll of a share group: what to read and how much of it."""

    topics: Topics
    max_records: Annotated[int, Shown(minimum=1, maximum=10_000)] = 100
    max_bytes: Annotated[int, Shown(minimum=1)] = 1024 * 1024
    wait_ms: Annotated[int, Shown(minimum=0, maximum=2000)] = 0
    start: Annotated[
        str | None,
        Shown("where a new group begins; null: by its share.auto.offset.reset", kind=PollStart | None),
    ] = None
    lock: (
        Annotated[
            _LockName,
            Shown("chosen by the client: a repeated poll gets the records that the lock holds"),
        ]
        | None
    ) = None


class SharedRecordBody(Struct, forbid_unknown_fields=True):
    """A record that a lock holds."""

    topic: str
    partition: Annotated[int, Shown(minimum=0)]
    offset: Offset


class ShareLockBody(Struct, forbid_unknown_fields=True):
    """A lock, and which of its records are meant; null: all of them."""

    lock: _LockName
    records: Annotated[list[SharedRecordBody], Shown(minItems=1, maxItems=10_000)] | None = None


class RedriveBody(Struct, forbid_unknown_fields=True):
    """The maximum number of dead letters to redrive."""

    max_records: Annotated[int, Shown(minimum=1, maximum=10_000)] = 1000


_POLL = JsonBody(
    SharePollBody, '{"topics": ["orders"], "max_records": 10, "wait_ms": 1000, "from": "earliest"}'
)
_LOCK = JsonBody(
    ShareLockBody,
    '{"lock": "3f0c…", "records": [{"topic": "orders", "partition": 0, "offset": 42}]}',
    bytes_max=LIST_BYTES_MAX,
)
_REDRIVE = JsonBody(RedriveBody, '{"max_records": 1000}')


@route(
    "POST /v1/groups/{group}/share/poll",
    "Take records of a share group",
    DECODE,
    body=_POLL,
    answers=[Content(JSON, SharePolledJson)],
    errors=(500,),
)
async def share_poll(request: Request) -> Response:
    """Take records under a lock: no other client gets them until the lock ends.

    Acknowledge, release or reject them one by one or all at once; any client that knows the lock may. `deliveries`
    counts how often a record was delivered, this time included; after `share.delivery.count.limit` deliveries it is
    given up. The group needs no members, and shares its records with those that use the Kafka protocol.
    """
    body, decoding = await _POLL.read(request), decoding_of(request)
    group = GROUP.read(request)
    require(request, READ_TOPIC, body.topics)
    queue = group_of(request).queue
    polled = await queue.poll(
        SharePoll(
            group=group,
            topics=frozenset(body.topics),
            records_max=body.max_records,
            bytes_max=page_bytes_max(request, body.max_bytes),
            is_decoded=True,
            wait_ms=body.wait_ms,
            reset=body.start,
            lock=body.lock,
        )
    )
    reader = queue.reader(group)
    try:
        # Again, because a poll may wait.
        require(request, READ_TOPIC, body.topics)
        return await sized_or_streamed(
            _polled(group, polled, broker_of(request).now_ms(), reader, decoding), reader, media_type=JSON
        )
    except (AuthorizationError, ReadMemoryFull):
        if body.lock is None:
            # Nobody knows the lock.
            queue.put_back(group, polled.lock, is_delivered=False)
        raise


async def _polled(
    group: str, polled: SharePolled, now_ms: int, reader: DecodedReader, decoding: AnswerDecoding
) -> AsyncGenerator[bytes]:
    form, separator = RecordForm(), Separator()
    has_records = False
    failure: CorruptLog | None = None
    yield b'{"records":['
    for part in polled.records:
        assert part.fetched is not None
        topic = encode(part.partition.topic)
        try:
            async with aclosing(_acquired(part, part.fetched, reader)) as slices:
                async for acquired, records in slices:
                    has_records = True
                    head = b'{"topic":%s,"deliveries":%d,' % (topic, acquired.delivery_count)
                    opening = partial(separator.before, head)
                    decoded = await decoding.decoded(part.partition.topic, records)
                    async for piece in form.stream(
                        part.partition.partition, records, opening=opening, end=b"", decoded=decoded
                    ):
                        yield piece
        except CorruptLog as error:
            # What no client can read stays locked, and is eventually given up; the records beside it are not.
            logger.warning("group %r: a record is not delivered: %s", group, error)
            failure = error
    if failure is not None and not has_records:
        raise failure
    rest = encode(
        {
            "lock": polled.lock if has_records else None,
            "expires_at": now_ms + polled.expires_in_ms if has_records else None,
            "expires_in_ms": polled.expires_in_ms if has_records else None,
        }
    )
    yield b"]," + rest[1:]


async def _acquired(
    part: SharedRecords, fetched: Fetched, reader: DecodedReader
) -> AsyncGenerator[tuple[AcquiredRange, list[RecordView]]]:
    """Yield the records of acquired ranges, each list of one range."""
    firsts = [acquired.first for acquired in part.acquired]
    async with aclosing(records_in_turns(fetched, firsts[0], reader)) as slices:
        async for records in slices:
            of_range: list[RecordView] = []
            current: AcquiredRange | None = None
            for record in records:
                acquired = part.acquired[max(0, bisect_right(firsts, record.offset) - 1)]
                if not acquired.first <= record.offset <= acquired.last:
                    continue
                if current is not None and acquired is not current:
                    yield current, of_range
                    of_range = []
                current = acquired
                of_range.append(record)
            if current is not None:
                yield current, of_range


async def _settle(request: Request, kind: AcknowledgeType) -> int:
    body = await _LOCK.read(request)
    group, queue = GROUP.read(request), group_of(request).queue
    records: dict[TopicPartition, list[int]] | None = None
    if body.records is not None:
        records = {}
        for record in body.records:
            records.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
    if records is not None:
        require(request, READ_TOPIC, {part.topic for part in records})
    elif (access := access_of(request)) is not None and not all(
        access.sees(READ_TOPIC, topic) for topic in queue.topics_of(group, body.lock)
    ):
        # The lock may be another client's, so the error must not name its topics.
        raise TopicAuthorizationFailed(
            str(access.principal), "read", f"all topics of lock {body.lock[:40]!r}"
        )
    return await queue.settle(group, body.lock, kind, records)


@route("POST /v1/groups/{group}/share/ack", "Acknowledge records", body=_LOCK)
async def share_ack(request: Request) -> ShareSettled:
    """Finish records of a lock: the group never delivers them again, even after a crash.

    Either all records of the request change, or none: 409 if the lock no longer holds one of them.
    """
    return {"records": await _settle(request, AcknowledgeType.ACCEPT)}


@route("POST /v1/groups/{group}/share/release", "Release records", body=_LOCK)
async def share_release(request: Request) -> ShareSettled:
    """Give records back before the lock ends: they are delivered again, unless it was their last delivery."""
    return {"records": await _settle(request, AcknowledgeType.RELEASE)}


@route("POST /v1/groups/{group}/share/reject", "Reject records", body=_LOCK)
async def share_reject(request: Request) -> ShareSettled:
    """Give records up: the group does not deliver them again."""
    return {"records": await _settle(request, AcknowledgeType.REJECT)}


@route("POST /v1/groups/{group}/share/renew", "Renew a lock", body=_LOCK)
async def share_renew(request: Request) -> ShareRenewed:
    """Let the lock of records last for `share.record.lock.duration.ms` from now on."""
    count = await _settle(request, AcknowledgeType.RENEW)
    lock_ms = group_of(request).queue.lock_ms(GROUP.read(request))
    expires_at_ms = broker_of(request).now_ms() + lock_ms
    return {"records": count, "expires_at": expires_at_ms, "expires_in_ms": lock_ms}


@route(
    "POST /v1/groups/{group}/share/redrive", "Redrive dead letters of a group", body=_REDRIVE, errors=(500,)
)
async def redrive(request: Request) -> Redriven:
    """Append the records of dead letters to the partitions that they came from.

    The oldest letter is first.

    A letter is redriven once: the group remembers which are done, and `is_more` tells whether to ask again. `lost`
    counts letters whose record can no longer be read, or is refused by its topic. The dead-letter topic is the group's
    `errors.deadletterqueue.topic.name`.
    """
    body = await _REDRIVE.read(request)
    group = GROUP.read(request)
    redriving = DeadLetterRedrive(broker=broker_of(request), queue=group_of(request).queue)
    topic = redriving.topic_of(group)
    require(request, READ_TOPIC, [topic])
    done = await redriving.redrive(
        group,
        records_max=body.max_records,
        check_topic=lambda name: require(request, WRITE_TOPIC, [name]),
    )
    return {"topic": topic, "redriven": done.redriven, "lost": done.lost, "is_more": done.is_more}
