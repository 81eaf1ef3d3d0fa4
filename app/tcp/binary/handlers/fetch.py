"""Batches out, and where to begin reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from stele.wire import messages as m
from stele.wire.isolation_level import IsolationLevel

from ....broker.reading.fetch import Fetched, PartitionFetch, read_bound, visible_bytes
from ....errors import InvalidRequest
from ....security.acl import READ_TOPIC
from ....security.authorizer import Access
from ...errors import error_code_of
from ...response_queue import Buffers
from .context import BinaryListener


async def fetch(listener: BinaryListener, request: m.FetchRequest) -> Buffers:
    wanted_partitions, access = request.partitions, listener.access
    # Under which all of it is allowed.
    epoch: object = None
    if access is not None:
        epoch = access.epoch
        for wanted in wanted_partitions:
            if wanted.topic != access.read_last and not access.may_read(wanted.topic):
                wanted_partitions, epoch = _allowed(access, wanted_partitions)
                break
    isolation = _isolation_of(request)
    await listener.broker.try_to_find_topics(
        partitions=((wanted.topic, wanted.partition) for wanted in wanted_partitions)
    )
    reads = await listener.broker.fetch(
        [
            PartitionFetch(
                topic=wanted.topic,
                partition=wanted.partition,
                offset=wanted.offset,
                max_bytes=max(0, wanted.max_bytes),
                isolation=isolation,
            )
            for wanted in wanted_partitions
        ],
        max_bytes=max(0, request.max_bytes),
        min_bytes=request.min_bytes,
        max_wait_ms=max(0, request.max_wait_ms),
    )
    refused: list[m.FetchedPartition] = []
    if access is not None and access.epoch is not epoch:
        # Again, because rules have changed while it waited, or some of it is refused.
        reads = [read for read in reads if access.allows(READ_TOPIC, read.topic)]
        refused = [
            _refused(access, wanted)
            for wanted in request.partitions
            if not access.allows(READ_TOPIC, wanted.topic)
        ]
    answer = m.IsolatedFetchResponse if isinstance(request, m.IsolatedFetchRequest) else m.FetchResponse
    return answer(partitions=[*refused, *[await _fetched(read) for read in reads]]).encode_parts()


def _allowed(
    access: Access, wanted_partitions: Sequence[m.FetchPartition]
) -> tuple[Sequence[m.FetchPartition], object]:
    """Return the partitions that may be read, and the epoch of that.

    The epoch is None if others may not be read.
    """
    allowed = [wanted for wanted in wanted_partitions if access.allows(READ_TOPIC, wanted.topic)]
    return allowed, access.epoch if len(allowed) == len(wanted_partitions) else None


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


def _refused(access: Access, wanted: m.FetchPartition) -> m.FetchedPartition:
    error = READ_TOPIC.error(str(access.principal), wanted.topic)
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
