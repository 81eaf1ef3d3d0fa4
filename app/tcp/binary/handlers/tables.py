"""Compacted topics by key, and as tables."""

from __future__ import annotations

from stele.wire import messages as m

from ....errors import InvalidRequest
from ....query.table_batches import newest_batch, table_batches
from ...response_queue import Buffers
from .context import BinaryListener


async def look_up_key(listener: BinaryListener, request: m.LookUpKeyRequest) -> Buffers:
    if request.partition < m.ALL_PARTITIONS:
        raise InvalidRequest(f"partition is {request.partition}; name one, or -1 to look in all")
    partition = None if request.partition == m.ALL_PARTITIONS else request.partition
    newest = await newest_batch(listener.broker, request.topic, request.key, partition=partition)
    if newest is None:
        return m.LookUpKeyResponse(partition=m.ALL_PARTITIONS).encode()
    found_in, batch = newest
    return m.LookUpKeyResponse(partition=found_in, batches=batch).encode_parts()


async def table_fetch(listener: BinaryListener, request: m.TableFetchRequest) -> Buffers:
    broker = listener.broker
    page = await table_batches(
        broker,
        request.topic,
        request.partition,
        offset=request.offset,
        end_offset=request.end_offset,
        max_bytes=broker.unread.bytes_of_fetch(request.max_bytes),
        with_tombstones=request.with_tombstones,
    )
    return m.TableFetchResponse(
        next_offset=page.next_offset,
        end_offset=page.end_offset,
        is_last=page.is_last,
        batches=b"".join(page.batches),
    ).encode_parts()
