"""Batches out, and where to begin reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

from stele.wire import messages as m
from stele.wire.isolation_level import IsolationLevel
from stele.wire.schema import NO_UUID

from ....broker.broker import Broker
from ....broker.reading.fetch import Fetched, PartitionFetch, read_bound, visible_bytes
from ....errors import InvalidRequest, SteleError, TopicRecreated
from ....security.acl import READ_TOPIC
from ....security.authorizer import Access
from ....work_budget import PARTITIONS_PER_TURN, pause, visited
from ...errors import error_code_of
from ...response_queue import Buffers
from .context import BinaryListener, encoded

_FETCH_ANSWERS: dict[type[m.FetchRequest], type[m.FetchResponse]] = {
    m.FetchRequest: m.FetchResponse,
    m.IsolatedFetchRequest: m.IsolatedFetchResponse,
    m.TopicFetchRequest: m.TopicFetchResponse,
}


async def fetch(listener: BinaryListener, request: m.FetchRequest) -> Buffers:
    broker, access, asked = listener.broker, listener.access, request.partitions
    # By their indexes. What is refused once is not read, so it stays refused whatever changes meanwhile.
    refused: dict[int, m.FetchedPartition] = {}
    # Under which the rest is allowed.
    epoch: object = None
    if access is not None:
        epoch = access.epoch
        for index, partition in enumerate(asked, 1):
            if partition.topic != access.read_last and not access.may_read(partition.topic):
                await _refuse_forbidden(access, asked, refused)
                break
            if not index % PARTITIONS_PER_TURN:
                await pause()
    isolation = _isolation_of(request)
    await broker.try_to_find_topics(
        partitions=(
            (partition.topic, partition.partition)
            for index, partition in enumerate(asked)
            if index not in refused
        )
    )
    topic_ids: dict[str, bytes] = {}
    if isinstance(request, m.TopicFetchRequest):
        topic_ids = {one.topic: one.topic_id for one in request.topic_ids if one.topic_id != NO_UUID}
        await _refuse_recreated(broker, asked, topic_ids, refused)
    wanted = [index for index in range(len(asked)) if index not in refused] if refused else range(len(asked))
    fetches: list[PartitionFetch] = []
    for index in wanted:
        partition = asked[index]
        fetches.append(
            PartitionFetch(
                topic=partition.topic,
                partition=partition.partition,
                offset=partition.offset,
                max_bytes=max(0, partition.max_bytes),
                isolation=isolation,
            )
        )
        if not len(fetches) % PARTITIONS_PER_TURN:
            await pause()
    reads = await broker.fetch(
        fetches,
        max_bytes=broker.unread.bytes_of_fetch(request.max_bytes),
        min_bytes=request.min_bytes,
        # An error is an answer, too.
        max_wait_ms=0 if refused else max(0, request.max_wait_ms),
    )
    # Rules and topics may have changed while it waited.
    if access is not None and access.epoch is not epoch:
        await _refuse_forbidden(access, asked, refused)
    if topic_ids:
        await _refuse_recreated(broker, asked, topic_ids, refused)
    read_of = dict(zip(wanted, reads, strict=True))
    fetched: list[m.FetchedPartition] = []
    for index in range(len(asked)):
        fetched.append(refused[index] if index in refused else await _fetched(read_of[index]))
        if not len(fetched) % PARTITIONS_PER_TURN:
            await pause()
    return await encoded(_FETCH_ANSWERS[type(request)](partitions=fetched), len(fetched))


async def _refuse_forbidden(
    access: Access, asked: Sequence[m.FetchPartition], refused: dict[int, m.FetchedPartition]
) -> None:
    """Add the partitions of topics that may not be read to ``refused``."""
    async for index, wanted in visited(enumerate(asked)):
        if not access.allows(READ_TOPIC, wanted.topic):
            refused[index] = _error_answer(wanted, READ_TOPIC.error(str(access.principal), wanted.topic))


async def _refuse_recreated(
    broker: Broker,
    asked: Sequence[m.FetchPartition],
    topic_ids: Mapping[str, bytes],
    refused: dict[int, m.FetchedPartition],
) -> None:
    """Add the partitions of topics that are others than the client means to ``refused``."""
    async for index, wanted in visited(enumerate(asked)):
        topic, topic_id = broker.topic_by_name(wanted.topic), topic_ids.get(wanted.topic)
        if index in refused or topic is None or topic_id is None or topic.topic_id.bytes == topic_id:
            continue
        error = TopicRecreated(wanted.topic, str(UUID(bytes=topic_id)))
        refused[index] = _error_answer(wanted, error)


async def _fetched(read: Fetched) -> m.FetchedPartition:
    return m.FetchedPartition(
        topic=read.topic,
        partition=read.partition,
        code=m.ErrorCode.NONE if read.error is None else error_code_of(read.error),
        message="" if read.error is None else str(read.error),
        high_watermark=read_bound(read),
        log_start_offset=read.log_start_offset,
        # The encoder passes a bytearray on uncopied.
        batches=cast("bytes", await visible_bytes(read)),
    )


def _error_answer(wanted: m.FetchPartition, error: SteleError) -> m.FetchedPartition:
    return m.FetchedPartition(
        topic=wanted.topic, partition=wanted.partition, code=error_code_of(error), message=str(error)
    )


async def list_offsets(listener: BinaryListener, request: m.ListOffsetsRequest) -> Buffers:
    if request.timestamp_ms < m.EARLIEST_TIMESTAMP:
        raise InvalidRequest(
            f"timestamp is {request.timestamp_ms}; use ms since the epoch, -1 latest or -2 earliest"
        )
    offset, timestamp_ms, epoch = await listener.broker.list_offset(
        request.topic, request.partition, request.timestamp_ms, isolation=_isolation_of(request)
    )
    is_isolated = isinstance(request, m.IsolatedListOffsetsRequest)
    answer = m.IsolatedListOffsetsResponse if is_isolated else m.ListOffsetsResponse
    return answer(offset=offset, timestamp_ms=timestamp_ms, leader_epoch=epoch).encode()


def _isolation_of(request: m.FetchRequest | m.ListOffsetsRequest) -> IsolationLevel:
    if not isinstance(request, m.IsolatedFetchRequest | m.IsolatedListOffsetsRequest):
        return IsolationLevel.READ_COMMITTED
    try:
        return IsolationLevel(request.isolation)
    except ValueError:
        raise InvalidRequest(
            f"isolation level is {request.isolation}; send 0 for read_uncommitted or 1 for read_committed"
        ) from None
