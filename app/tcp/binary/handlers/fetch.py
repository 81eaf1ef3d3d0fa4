"""Batches out, and where to begin reading."""

from __future__ import annotations

from typing import cast

from stele.wire import messages as m

from ....broker.fetch import PartitionFetch
from ....errors import InvalidRequest
from ...errors import error_code_of
from ...response_queue import Buffers
from .context import BinaryListener


async def fetch(listener: BinaryListener, request: m.FetchRequest) -> Buffers:
    partitions = await listener.broker.fetch(
        [
            PartitionFetch(
                topic=wanted.topic,
                partition=wanted.partition,
                offset=wanted.offset,
                max_bytes=max(0, wanted.max_bytes),
            )
            for wanted in request.partitions
        ],
        max_bytes=max(0, request.max_bytes),
        min_bytes=request.min_bytes,
        max_wait_ms=max(0, request.max_wait_ms),
    )
    return m.FetchResponse(
        partitions=[
            m.FetchedPartition(
                topic=fetched.topic,
                partition=fetched.partition,
                code=m.ErrorCode.NONE if fetched.error is None else error_code_of(fetched.error),
                message="" if fetched.error is None else str(fetched.error),
                high_watermark=fetched.high_watermark,
                log_start_offset=fetched.log_start_offset,
                # The encoder passes a bytearray on uncopied.
                batches=cast("bytes", fetched.batches),
            )
            for fetched in partitions
        ]
    ).encode_parts()


async def list_offsets(listener: BinaryListener, request: m.ListOffsetsRequest) -> Buffers:
    if request.timestamp_ms < m.EARLIEST_TIMESTAMP:
        raise InvalidRequest(
            f"timestamp is {request.timestamp_ms}; use ms since the epoch, -1 latest or -2 earliest"
        )
    offset, timestamp_ms, epoch = await listener.broker.list_offset(
        request.topic, request.partition, request.timestamp_ms
    )
    return m.ListOffsetsResponse(offset=offset, timestamp_ms=timestamp_ms, leader_epoch=epoch).encode()
