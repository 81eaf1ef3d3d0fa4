"""What each request of the binary protocol does: one function a message.

A handler that can answer at once returns the frame; one that must wait returns
a coroutine. Errors of the tree become error frames in ``protocol``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, cast

from stele.wire import messages as m
from stele.wire.record_batch import RecordView

from ...broker.broker import Broker
from ...broker.fetch import PartitionFetch, records_from
from ...broker.produce import Acks
from ...broker.topics import Topic
from ...errors import InvalidRequest, SteleError
from ...groups.consumer_protocol import AssignedPartition
from ...groups.lease import PollRequest
from ...groups.messages import LeavingMember, ManagedJoin, OffsetToCommit
from ...groups.ownership import Claimant
from ...groups.services import Groups
from ..connection import Buffers
from ..errors import error_code_of

# ADR-0009 answers are bounded by a batch size in messages; this bounds them in bytes.
CONSUME_BYTES_MAX = 4 * 1024 * 1024
_CONSUME_FIRST_READ_BYTES = 64 * 1024
METADATA_TOPICS_MAX = 10_000

# An answer of 10,000 topics is about this large; LIST_OFFSETS answers are nothing beside it.
_METADATA_BYTES = 1024 * 1024
_SMALL_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAnswer:
    """An answer that waits for a sync that many share: ``encode`` makes it then, or raises a ``SteleError``."""

    future: asyncio.Future[None]
    timeout_ms: int
    encode: Callable[[], Buffers]
    what: str


Answer = PendingAnswer | Buffers | Coroutine[Any, Any, Buffers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What handlers know beyond the request: the broker, its groups, and where clients reach this listener."""

    broker: Broker
    groups: Groups
    host: str
    port: int


# ── ADR-0009 ──


async def consume(listener: Listener, request: m.ConsumeRequest) -> Buffers:
    """Up to ``batch_size`` messages of partition 0; a tombstone is a message of no bytes."""
    if request.batch_size < 1:
        raise InvalidRequest(f"batch size is {request.batch_size}; ask for at least one message")
    messages: list[tuple[int, bytes]] = []
    offset, size = request.offset, 0
    wanted_bytes = _CONSUME_FIRST_READ_BYTES
    while len(messages) < request.batch_size and size < CONSUME_BYTES_MAX:
        (fetched,) = await listener.broker.fetch(
            [PartitionFetch(topic=request.topic, partition=0, offset=offset, max_bytes=wanted_bytes)],
            max_bytes=CONSUME_BYTES_MAX,
        )
        if fetched.error is not None:
            # What was read before the damage is served first.
            if messages:
                break
            raise fetched.error
        if not fetched.batches:
            break
        try:
            for records in records_from(fetched, offset):
                offset, size = _take(records, request.batch_size, messages, offset, size)
                if len(messages) >= request.batch_size or size >= CONSUME_BYTES_MAX:
                    break
        except SteleError:
            if not messages:
                raise
            break
        wanted_bytes = CONSUME_BYTES_MAX - size
    return m.ConsumeResponse(next_offset=offset, messages=messages).encode()


def _take(
    records: list[RecordView], batch_size: int, messages: list[tuple[int, bytes]], offset: int, size: int
) -> tuple[int, int]:
    for record in records:
        data = record.value or b""
        if messages and size + len(data) > CONSUME_BYTES_MAX:
            return offset, CONSUME_BYTES_MAX
        messages.append((record.offset, data))
        offset, size = record.offset + 1, size + len(data)
        if len(messages) >= batch_size:
            break
    return offset, size


async def flush(listener: Listener, request: m.FlushRequest) -> Buffers:
    await listener.broker.flush()
    return m.FlushResponse().encode()


# ── ADR-0010 ──


async def metadata(listener: Listener, request: m.MetadataRequest) -> Buffers:
    broker = listener.broker
    found: list[m.TopicMetadata] = []
    if request.topics is None:
        found = [_topic_metadata(broker, topic) for topic in broker.topics()]
    elif len(request.topics) > METADATA_TOPICS_MAX:
        raise InvalidRequest(
            f"{len(request.topics)} topics asked for at once; the limit is {METADATA_TOPICS_MAX}"
        )
    else:
        for name in request.topics:
            try:
                topic = await broker.ensure_topic(name) if request.auto_create else broker.topic(name)
                found.append(_topic_metadata(broker, topic))
            except SteleError as error:
                found.append(m.TopicMetadata(topic=name[:1000], code=error_code_of(error)))
    return m.MetadataResponse(
        cluster_id=broker.cluster_id,
        brokers=[m.BrokerEndpoint(id=broker.broker_id, host=listener.host, port=listener.port)],
        topics=found,
    ).encode()


def _topic_metadata(broker: Broker, topic: Topic) -> m.TopicMetadata:
    return m.TopicMetadata(
        topic=topic.name,
        topic_id=topic.topic_id.bytes,
        partitions=[
            m.PartitionMetadata(
                partition=partition,
                leader=broker.broker_id,
                leader_epoch=broker.log_state(topic.name, partition).leader_epoch,
            )
            for partition in range(topic.partitions)
        ],
    )


def produce_batch(listener: Listener, request: m.ProduceBatchRequest) -> Answer:
    """Ordered now, answered when durable. The topic is there: ``protocol`` saw to it."""
    acks = Acks.parse(request.acks)
    pending = listener.broker.produce(request.topic, request.partition, bytearray(request.batches), acks=acks)

    def answer() -> bytes:
        produced = pending.result()
        is_promised = acks is not Acks.NONE
        return m.ProduceBatchResponse(
            partition=produced.partition,
            base_offset=produced.base_offset if is_promised else m.UNKNOWN_OFFSET,
            last_offset=produced.last_offset if is_promised else m.UNKNOWN_OFFSET,
            log_append_time_ms=produced.log_append_time_ms,
            log_start_offset=produced.log_start_offset,
            durability=produced.durability,
        ).encode()

    if pending.future is None or pending.done:
        return answer()
    return PendingAnswer(
        future=pending.future,
        timeout_ms=max(1, min(request.timeout_ms, listener.broker.settings.request_timeout_ms)),
        encode=answer,
        what=f"the sync of {pending.topic}-{pending.partition}",
    )


async def fetch(listener: Listener, request: m.FetchRequest) -> Buffers:
    fetched = await listener.broker.fetch(
        [
            PartitionFetch(
                topic=p.topic, partition=p.partition, offset=p.offset, max_bytes=max(0, p.max_bytes)
            )
            for p in request.partitions
        ],
        max_bytes=max(0, request.max_bytes),
        min_bytes=request.min_bytes,
        max_wait_ms=max(0, request.max_wait_ms),
    )
    return m.FetchResponse(
        partitions=[
            m.FetchedPartition(
                topic=one.topic,
                partition=one.partition,
                code=m.ErrorCode.NONE if one.error is None else error_code_of(one.error),
                message="" if one.error is None else str(one.error),
                high_watermark=one.high_watermark,
                log_start_offset=one.log_start_offset,
                # Sent as it is: a bytearray does as well.
                batches=cast("bytes", one.batches),
            )
            for one in fetched
        ]
    ).encode_parts()


async def list_offsets(listener: Listener, request: m.ListOffsetsRequest) -> Buffers:
    if request.timestamp_ms < m.EARLIEST_TIMESTAMP:
        raise InvalidRequest(
            f"timestamp is {request.timestamp_ms}; use ms since the epoch, -1 latest or -2 earliest"
        )
    offset, timestamp_ms, epoch = await listener.broker.list_offset(
        request.topic, request.partition, request.timestamp_ms
    )
    return m.ListOffsetsResponse(offset=offset, timestamp_ms=timestamp_ms, leader_epoch=epoch).encode()


async def create_topic(listener: Listener, request: m.CreateTopicRequest) -> Buffers:
    configs = {name: value for name, value in request.configs if value is not None}
    partitions = None if request.partitions == m.DEFAULT_PARTITIONS else request.partitions
    topic = await listener.broker.create_topic(request.topic, partitions=partitions, configs=configs)
    return m.CreateTopicResponse(
        topic_id=topic.topic_id.bytes, partitions=topic.partitions, configs=tuple(topic.configs.items())
    ).encode()


async def delete_topic(listener: Listener, request: m.DeleteTopicRequest) -> Buffers:
    await listener.broker.delete_topic(request.topic)
    return m.DeleteTopicResponse().encode()


def describe_topic(listener: Listener, request: m.DescribeTopicRequest) -> Answer:
    topic = listener.broker.topic(request.topic)
    return m.DescribeTopicResponse(
        topic_id=topic.topic_id.bytes,
        partitions=topic.partitions,
        configs=tuple(topic.effective_configs.items()),
    ).encode()


async def alter_topic(listener: Listener, request: m.AlterTopicRequest) -> Buffers:
    partitions = None if request.partitions == m.DEFAULT_PARTITIONS else request.partitions
    topic = await listener.broker.alter_topic(
        request.topic, partitions=partitions, configs=dict(request.configs)
    )
    return m.AlterTopicResponse(
        topic_id=topic.topic_id.bytes,
        partitions=topic.partitions,
        configs=tuple(topic.effective_configs.items()),
    ).encode()


async def init_producer_id(listener: Listener, request: m.InitProducerIdRequest) -> Buffers:
    producer_id, producer_epoch = await listener.broker.init_producer_id()
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch).encode()


async def named_producer(listener: Listener, request: m.NamedProducerRequest) -> Buffers:
    producer = await listener.broker.begin_producer_version(request.name, request.version)
    return m.NamedProducerResponse(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, is_resumed=producer.is_resumed
    ).encode()


def producer_state(listener: Listener, request: m.ProducerStateRequest) -> Answer:
    view = listener.broker.producer(request.topic, request.partition, request.producer_id)
    return m.ProducerStateResponse(
        producer_epoch=-1 if view is None else view.epoch,
        last_sequence=-1 if view is None else view.last_sequence,
        last_offset=-1 if view is None else view.last_offset,
    ).encode()


async def flush_topic(listener: Listener, request: m.FlushTopicRequest) -> Buffers:
    await listener.broker.flush(request.topic)
    return m.FlushTopicResponse().encode()


# ── groups (ADR-0017) ──


def _assignment(assigned: frozenset[AssignedPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(assigned):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


async def join_group(listener: Listener, request: m.JoinGroupRequest) -> Buffers:
    membership = await listener.groups.coordinator.join_managed(
        ManagedJoin(
            group=request.group,
            topics=request.topics,
            member_id=request.member_id,
            client_id=request.client_id or "binary",
            session_timeout_ms=request.session_timeout_ms,
        )
    )
    return m.JoinGroupResponse(
        member_id=membership.member_id,
        generation=membership.generation,
        is_rebalancing=membership.is_rebalancing,
        assignment=_assignment(membership.assigned),
    ).encode()


async def heartbeat(listener: Listener, request: m.HeartbeatRequest) -> Buffers:
    await listener.groups.coordinator.settled(request.group)
    membership = listener.groups.coordinator.membership(
        request.group, request.member_id, generation=request.generation
    )
    return m.HeartbeatResponse(
        member_id=membership.member_id,
        generation=membership.generation,
        is_rebalancing=membership.is_rebalancing,
        assignment=_assignment(membership.assigned),
    ).encode()


async def leave_group(listener: Listener, request: m.LeaveGroupRequest) -> Buffers:
    (error,) = listener.groups.coordinator.leave(request.group, [LeavingMember(member_id=request.member_id)])
    if error is not None:
        raise error
    await listener.groups.coordinator.settled(request.group)
    return m.LeaveGroupResponse().encode()


def _claimant(
    request: m.ClaimRequest | m.ReleaseRequest | m.CommitRequest | m.OwnerFetchRequest,
) -> Claimant:
    return Claimant(
        group=request.group,
        member_id=request.member_id,
        generation=request.generation,
        topic=request.topic,
        partition=request.partition,
    )


async def claim(listener: Listener, request: m.ClaimRequest) -> Buffers:
    await listener.groups.coordinator.claim(_claimant(request))
    return m.ClaimResponse().encode()


async def release(listener: Listener, request: m.ReleaseRequest) -> Buffers:
    await listener.groups.coordinator.release(_claimant(request))
    return m.ReleaseResponse().encode()


async def commit(listener: Listener, request: m.CommitRequest) -> Buffers:
    claimant = _claimant(request)
    end = listener.broker.log_state(request.topic, request.partition).high_watermark
    if not 0 <= request.offset <= end:
        raise InvalidRequest(
            f"offset {request.offset} cannot be committed: {request.topic}-{request.partition} ends at {end}"
        )
    offset = OffsetToCommit(
        topic=request.topic, partition=request.partition, offset=request.offset, metadata=request.metadata
    )
    (error,) = await listener.groups.coordinator.commit_owned(claimant, offset)
    if error is not None:
        raise error
    return m.CommitResponse().encode()


def committed(listener: Listener, request: m.CommittedRequest) -> Answer:
    listener.broker.log_state(request.topic, request.partition)
    (one,) = listener.groups.coordinator.committed(request.group, [(request.topic, request.partition)])
    return m.CommittedResponse(offset=one.offset, metadata=one.metadata).encode()


async def owner_fetch(listener: Listener, request: m.OwnerFetchRequest) -> Buffers:
    claimant = _claimant(request)
    listener.groups.coordinator.check_owner(claimant)
    max_bytes = max(0, request.max_bytes)
    (fetched,) = await listener.broker.fetch(
        [
            PartitionFetch(
                topic=request.topic, partition=request.partition, offset=request.offset, max_bytes=max_bytes
            )
        ],
        max_bytes=max_bytes,
        max_wait_ms=max(0, request.max_wait_ms),
    )
    if fetched.error is not None:
        raise fetched.error
    # It may have lost the partition while it waited.
    listener.groups.coordinator.check_owner(claimant)
    return m.OwnerFetchResponse(
        high_watermark=fetched.high_watermark,
        log_start_offset=fetched.log_start_offset,
        batches=bytes(fetched.batches),
    ).encode()


async def poll(listener: Listener, request: m.PollRequest) -> Buffers:
    polled = await listener.groups.leases.poll(
        PollRequest(
            group=request.group,
            topics=frozenset(request.topics),
            max_records=request.max_records,
            max_bytes=request.max_bytes,
            max_partitions=None if request.max_partitions == m.ANY_NUMBER else request.max_partitions,
            wait_ms=request.max_wait_ms,
            lease_ms=request.lease_ms,
            start=request.start,
            poll_id=request.poll_id,
        )
    )
    return m.PollResponse(
        lease=None if polled.lease is None else polled.lease.token(),
        expires_at_ms=polled.expires_at_ms,
        skipped=[
            m.SkippedPartition(
                topic=one.topic, partition=one.partition, offset=one.offset, next_offset=one.next_offset
            )
            for one in polled.skipped
        ],
        partitions=[
            m.PolledPartition(
                topic=leased.topic,
                partition=leased.partition,
                offset=leased.offset,
                next_offset=leased.next_offset,
                deliveries=leased.deliveries,
                batches=bytes(fetched.batches),
            )
            for leased, fetched in polled.fetched
        ],
    ).encode()


async def ack(listener: Listener, request: m.AckRequest) -> Buffers:
    await listener.groups.leases.ack(request.group, request.lease)
    return m.AckResponse().encode()


async def nack(listener: Listener, request: m.NackRequest) -> Buffers:
    await listener.groups.leases.nack(request.group, request.lease)
    return m.NackResponse().encode()


def extend(listener: Listener, request: m.ExtendRequest) -> Answer:
    expires_at_ms = listener.groups.leases.extend(request.group, request.lease, request.lease_ms)
    return m.ExtendResponse(expires_at_ms=expires_at_ms).encode()


# ADR-0009 PRODUCE is not here: it arrives in runs, which ``protocol`` appends together.
HANDLERS: dict[type[m.Request], Callable[[Listener, Any], Answer]] = {
    m.ConsumeRequest: consume,
    m.FlushRequest: flush,
    m.MetadataRequest: metadata,
    m.ProduceBatchRequest: produce_batch,
    m.FetchRequest: fetch,
    m.ListOffsetsRequest: list_offsets,
    m.CreateTopicRequest: create_topic,
    m.DeleteTopicRequest: delete_topic,
    m.DescribeTopicRequest: describe_topic,
    m.AlterTopicRequest: alter_topic,
    m.InitProducerIdRequest: init_producer_id,
    m.FlushTopicRequest: flush_topic,
    m.NamedProducerRequest: named_producer,
    m.ProducerStateRequest: producer_state,
    m.JoinGroupRequest: join_group,
    m.HeartbeatRequest: heartbeat,
    m.LeaveGroupRequest: leave_group,
    m.ClaimRequest: claim,
    m.ReleaseRequest: release,
    m.CommitRequest: commit,
    m.CommittedRequest: committed,
    m.OwnerFetchRequest: owner_fetch,
    m.PollRequest: poll,
    m.AckRequest: ack,
    m.NackRequest: nack,
    m.ExtendRequest: extend,
}


def answer_bytes_max(listener: Listener, request: m.Request) -> int | None:
    """What the answer to a request that reads can take at most, about; None for requests that do not read."""
    match request:
        case m.ConsumeRequest():
            return CONSUME_BYTES_MAX
        case m.FetchRequest() | m.OwnerFetchRequest() | m.PollRequest():
            return max(0, min(request.max_bytes, listener.broker.settings.fetch_bytes_max))
        case m.MetadataRequest():
            return _METADATA_BYTES
        case m.ListOffsetsRequest():
            return _SMALL_BYTES
        case _:
            return None
