"""ShareFetch and ShareAcknowledge.

Records for members of share groups, and what became of them (KIP-932).

A request names what changed in its share session. Acknowledgements are taken in when the request begins,
and answered when they are durable. Then the fetch reads the partitions of the session, in turn, until it has
what was asked for, or waits for the first record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, overload
from uuid import UUID

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.share_groups import (
    SHARE_ACKNOWLEDGE_API,
    SHARE_FETCH_API,
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

from .....broker.broker import Broker
from .....errors import CoordinatorNotAvailable, InvalidRequest, NotCoordinator, SteleError, UnknownTopicId
from .....groups.base.share_state import Acknowledgement, AcknowledgeType
from .....groups.share.reads import SharedRecords, ShareRead, acquire_records
from .....security.acl import READ_TOPIC
from .....storage.topic_partition import TopicPartition
from .....work_budget import WorkBudget
from ...context import Context, describe_error
from ...guards import groups as group_guards
from ...served import Served
from ...sessions.fetch_sessions import FINAL_EPOCH, NEW_SESSION_EPOCH
from ...sessions.share_sessions import SharedPartition, ShareSession

_FIRST_WITH_RENEW = 2
_STRICT = 1
_NO_LEADER = {"leader_id": -1, "leader_epoch": -1}
_RECORDS_MAX = 1 << 20
# More than a member can hold in a partition (``share.partition.max.record.locks``), in batches and their types.
_ACKNOWLEDGED_MAX = 20_000
_MISSING = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

_Outcome = tuple[ErrorCode, str | None]


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


class _Topic(Protocol):
    topic_id: bytes
    partitions: Sequence[Any]


def answer_bytes_max(broker: Broker, request: ShareFetchRequest) -> int:
    """Return how many bytes of records the response may bring."""
    return broker.unread.bytes_of_fetch(request.max_bytes)


# ── fetch ──


async def share_fetch(context: Context, request: ShareFetchRequest) -> ShareFetchResponse:
    """Take acknowledgements in, then acquire records; at once, or when there are some."""
    group = request.group_id or ""
    try:
        _check(request.group_id, request.member_id)
        _check_fetch(request)
        context.coordinator(group).shares.check_served()
    except NotCoordinator as error:
        await _coordinator_moved(context, request)
        return refusal_of(request, error)
    except SteleError as error:
        return _refused_fetch(*describe_error(error))
    await context.broker.try_to_find_topics(ids=(topic.topic_id for topic in request.topics))
    session = _session_of_fetch(context, request)
    if not isinstance(session, ShareSession):
        if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # The client asks again at once.
            await asyncio.sleep(wait_ms_of(context, request) / 1000)
        return _refused_fetch(session, None)
    refused = await _update(context, session, request)
    outcomes = await _acknowledged(context, session, request.topics)
    if request.share_session_epoch == FINAL_EPOCH:
        context.listener.give_back([session])
        return _fetched(context, group, outcomes, {}, [])
    wait_ms = context.consume_wait_ms()
    if wait_ms:
        response = _fetched(context, group, outcomes, {}, [])
        response.throttle_time_ms = wait_ms
        return response
    records: list[SharedRecords] = []
    places: dict[TopicPartition, SharedPartition] = {}
    if not request.is_renew_ack and request.max_records > 0 and request.max_bytes > 0:
        try:
            share = context.coordinator(group).shares.existing(group)
        except SteleError as error:
            return _refused_fetch(*describe_error(error))
        places = await _places(context, session, refused)
        has_news = bool(refused or outcomes)
        try:
            records = await acquire_records(
                context.broker,
                share,
                ShareRead(
                    member_id=session.member_id,
                    partitions=list(places),
                    isolation=context.coordinator(group).shares.isolation(group),
                    records_max=min(request.max_records, _RECORDS_MAX),
                    bytes_max=answer_bytes_max(context.broker, request),
                    wait_ms=0 if has_news else wait_ms_of(context, request),
                    is_strict=request.share_acquire_mode == _STRICT,
                    is_over=partial(context.listener.share_sessions.is_over, session),
                ),
            )
        finally:
            if context.listener.share_sessions.is_gone(session):
                # Its connection has ended meanwhile, and what this read had acquired is of no use to anyone.
                context.listener.give_back([session])
    access = context.access
    acquired: list[tuple[SharedPartition, SharedRecords]] = []
    for one in records:
        # Again, because a fetch may wait. The records stay locked until their locks end.
        if access is None or access.allows(READ_TOPIC, one.partition.topic):
            acquired.append((places[one.partition], one))
        else:
            refused[places[one.partition]] = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    return _fetched(context, group, outcomes, refused, acquired)


def _check(group: str | None, member_id: str | None) -> None:
    """Raises ``InvalidRequest``."""
    if not group or not member_id:
        raise InvalidRequest("a request of a share group needs a group id and a member id")


def _check_fetch(request: ShareFetchRequest) -> None:
    """Raises ``InvalidRequest``."""
    is_new = request.share_session_epoch == NEW_SESSION_EPOCH
    if is_new and any(
        partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
    ):
        raise InvalidRequest("the first request of a share session must not acknowledge records")
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(limits):
        raise InvalidRequest("a request that renews locks fetches nothing; its limits must be 0")


def _session_of_fetch(context: Context, request: ShareFetchRequest) -> ShareSession | ErrorCode:
    sessions = context.listener.share_sessions
    group, member_id = request.group_id or "", request.member_id or ""
    if request.share_session_epoch == NEW_SESSION_EPOCH:
        session = sessions.begin(group, member_id, context.connection)
        if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # Those of groups that other brokers have taken over are of no use.
            sessions.keep_groups(lambda name: _is_served(context, name))
            session = sessions.begin(group, member_id, context.connection)
        return session
    return sessions.take(group, member_id, request.share_session_epoch, broker=context.connection.broker)


def _is_served(context: Context, group: str) -> bool:
    try:
        context.coordinator(group).shares.check_served()
    except SteleError:
        return False
    return True


async def _coordinator_moved(context: Context, request: ShareFetchRequest) -> None:
    """Wait for as long as the client would wait for records: it asks again at once."""
    if context.listener.forwarding is not None:
        await context.listener.forwarding.moved(wait_ms_of(context, request))


async def _update(
    context: Context, session: ShareSession, request: ShareFetchRequest
) -> dict[SharedPartition, _Outcome]:
    """Take into the session what the request changes.

    Return the partitions that do not exist.

    Only partitions that exist are in a session, so that they bound its memory.
    """
    budget = WorkBudget()
    refused: dict[SharedPartition, _Outcome] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            named = SharedPartition(topic.topic_id, partition.partition_index)
            place, outcome = _place(context, named)
            if place is None and outcome[0] in _MISSING:
                refused[named] = outcome
            else:
                session.add(named)
            await budget.visit()
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.forget(SharedPartition(forgotten.topic_id, index))
            await budget.visit()
    return refused


async def _places(
    context: Context, session: ShareSession, refused: dict[SharedPartition, _Outcome]
) -> dict[TopicPartition, SharedPartition]:
    """Return where the partitions of a session are, in turn.

    Add to ``refused`` what cannot be read.
    """
    budget = WorkBudget()
    places: dict[TopicPartition, SharedPartition] = {}
    for partition in session.in_turn():
        place, outcome = _place(context, partition)
        if place is not None:
            places[place] = partition
        else:
            refused[partition] = outcome
            if outcome[0] in _MISSING:
                # Its topic was deleted; the client is told once.
                session.forget(partition)
        await budget.visit()
    return places


def _place(context: Context, partition: SharedPartition) -> tuple[TopicPartition | None, _Outcome]:
    """Return where a partition is, or why it cannot be read."""
    try:
        topic = context.broker.topic_by_id(partition.topic_id)
        if topic is None:
            raise UnknownTopicId(UUID(bytes=partition.topic_id).hex)
        if context.access is not None and not context.access.allows(READ_TOPIC, topic.name):
            return None, (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        if not 0 <= partition.number < topic.partitions:
            return None, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    except SteleError as error:
        return None, describe_error(error)
    return TopicPartition(topic.name, partition.number), (ErrorCode.NONE, None)


def wait_ms_of(context: Context, request: ShareFetchRequest | ShareAcknowledgeRequest) -> int:
    """Return how long a request may wait for records."""
    if isinstance(request, ShareAcknowledgeRequest):
        return 0
    return min(max(0, request.max_wait_ms), context.broker.settings.fetch_wait_ms_max)


@overload
def refusal_of(request: ShareFetchRequest, error: NotCoordinator) -> ShareFetchResponse: ...
@overload
def refusal_of(request: ShareAcknowledgeRequest, error: NotCoordinator) -> ShareAcknowledgeResponse: ...
def refusal_of(
    request: ShareFetchRequest | ShareAcknowledgeRequest, error: NotCoordinator
) -> ShareFetchResponse | ShareAcknowledgeResponse:
    """Return the response where no coordinator could be asked.

    Clients begin a new session then, and take the records of the old one for lost, which is what happens when
    another broker takes the group over. No client expects NOT_COORDINATOR of a broker that is not asked as one.
    """
    code, message = ErrorCode.SHARE_SESSION_NOT_FOUND, describe_error(error)[1]
    if isinstance(request, ShareFetchRequest):
        return _refused_fetch(code, message)
    return _refused_acknowledge(code, message)


def _refused_fetch(code: ErrorCode, message: str | None) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=code,
        error_message=message,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )


@dataclass(slots=True)
class _Parts:
    """What the response says of one partition."""

    outcome: _Outcome = (ErrorCode.NONE, None)
    refusal: _Outcome = (ErrorCode.NONE, None)
    records: SharedRecords | None = None

    def data(self, index: int) -> PartitionData:
        records = self.records
        if records is not None and records.error is not None:
            self.refusal = describe_error(records.error)
            if isinstance(records.error, NotCoordinator | CoordinatorNotAvailable):
                # Kafka's consumer tries again after this code, and ends with an exception after one of coordinators.
                self.refusal = (ErrorCode.KAFKA_STORAGE_ERROR, self.refusal[1])
        return PartitionData(
            partition_index=index,
            error_code=self.refusal[0],
            error_message=self.refusal[1],
            acknowledge_error_code=self.outcome[0],
            acknowledge_error_message=self.outcome[1],
            current_leader=LeaderIdAndEpoch(**_NO_LEADER),
            records=b"" if records is None or records.fetched is None else records.fetched.batches,
            acquired_records=[
                AcquiredRecords(
                    first_offset=acquired.first,
                    last_offset=acquired.last,
                    delivery_count=acquired.delivery_count,
                )
                for acquired in (() if records is None else records.acquired)
            ],
        )


def _fetched(
    context: Context,
    group: str,
    outcomes: dict[SharedPartition, _Outcome],
    refused: dict[SharedPartition, _Outcome],
    acquired: Sequence[tuple[SharedPartition, SharedRecords]],
) -> ShareFetchResponse:
    parts: dict[SharedPartition, _Parts] = {}
    for partition, outcome in outcomes.items():
        parts.setdefault(partition, _Parts()).outcome = outcome
    for partition, refusal in refused.items():
        parts.setdefault(partition, _Parts()).refusal = refusal
    for partition, records in acquired:
        parts.setdefault(partition, _Parts()).records = records
    topics: dict[bytes, list[PartitionData]] = {}
    for partition, part in parts.items():
        topics.setdefault(partition.topic_id, []).append(part.data(partition.number))
    return ShareFetchResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=context.coordinator(group).shares.lock_ms(group),
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=(),
    )


# ── acknowledge ──


async def share_acknowledge(context: Context, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """Answer when all that is acknowledged is durable."""
    group = request.group_id or ""
    try:
        _check(request.group_id, request.member_id)
        context.coordinator(group).shares.check_served()
        session = context.listener.share_sessions.take(
            group,
            request.member_id or "",
            request.share_session_epoch,
            broker=context.connection.broker,
        )
    except NotCoordinator as error:
        return refusal_of(request, error)
    except SteleError as error:
        return _refused_acknowledge(*describe_error(error))
    if not isinstance(session, ShareSession):
        return _refused_acknowledge(session, None)
    outcomes = await _acknowledged(context, session, request.topics)
    if request.share_session_epoch == FINAL_EPOCH:
        context.listener.give_back([session])
    topics: dict[bytes, list[ShareAcknowledgePartitionData]] = {}
    for partition, (code, message) in outcomes.items():
        topics.setdefault(partition.topic_id, []).append(
            ShareAcknowledgePartitionData(
                partition_index=partition.number,
                error_code=code,
                error_message=message,
                current_leader=LeaderIdAndEpoch(**_NO_LEADER),
            )
        )
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=context.coordinator(group).shares.lock_ms(group),
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=(),
    )


def _refused_acknowledge(code: ErrorCode, message: str | None) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=code, error_message=message, responses=(), node_endpoints=())


async def _acknowledged(
    context: Context, session: ShareSession, topics: Sequence[_Topic]
) -> dict[SharedPartition, _Outcome]:
    """Take in all acknowledgements of a request, then wait until they are durable."""
    begun: dict[SharedPartition, asyncio.Future[None]] = {}
    outcomes: dict[SharedPartition, _Outcome] = {}
    budget = WorkBudget()
    for topic in topics:
        for partition in topic.partitions:
            await budget.visit(1 + len(partition.acknowledgement_batches))
            if not partition.acknowledgement_batches:
                continue
            named = SharedPartition(topic.topic_id, partition.partition_index)
            place, outcomes[named] = _place(context, named)
            if place is None:
                continue
            try:
                begun[named] = context.coordinator(session.group).shares.acknowledge(
                    session.group,
                    session.member_id,
                    place.topic,
                    place.partition,
                    _acknowledgements(partition.acknowledgement_batches),
                    may_renew=context.version >= _FIRST_WITH_RENEW,
                )
            except SteleError as error:
                outcomes[named] = describe_error(error)
    for named, future in begun.items():
        try:
            # The client may be gone before the write is done.
            await asyncio.shield(future)
        except SteleError as error:
            outcomes[named] = describe_error(error)
    return outcomes


def _acknowledgements(batches: Sequence[_Batch]) -> list[Acknowledgement]:
    """Raises ``InvalidRequest``."""
    count = sum(1 + len(batch.acknowledge_types) for batch in batches)
    if count > _ACKNOWLEDGED_MAX:
        raise InvalidRequest(
            f"a partition is acknowledged with {count} batches and types, and {_ACKNOWLEDGED_MAX} are allowed"
        )
    return [
        Acknowledgement(
            first=batch.first_offset,
            last=batch.last_offset,
            types=batch.acknowledge_types or (AcknowledgeType.ACCEPT,),
        )
        for batch in batches
    ]


ROWS = (
    Served(
        SHARE_FETCH_API,
        share_fetch,
        group_guards.SHARE_FETCH,
        reads=answer_bytes_max,
        finds_topics_itself=True,
    ),
    Served(SHARE_ACKNOWLEDGE_API, share_acknowledge, group_guards.SHARE_ACKNOWLEDGE, changes=True),
)
