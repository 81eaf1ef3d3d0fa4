"""Leases on records: poll, ack, nack and extend (ADR-0017)."""

from __future__ import annotations

from stele.wire import messages as m

from ....groups.leases.lease import PollRequest
from ...response_queue import Buffers
from .context import BinaryListener


async def poll(listener: BinaryListener, request: m.PollRequest) -> Buffers:
    polled = await listener.groups.of(request.group).leases.poll(
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
                topic=skipped.topic,
                partition=skipped.partition,
                offset=skipped.offset,
                next_offset=skipped.next_offset,
            )
            for skipped in polled.skipped
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


async def ack(listener: BinaryListener, request: m.AckRequest) -> Buffers:
    await listener.groups.of(request.group).leases.ack(request.group, request.lease)
    return m.AckResponse().encode()


async def nack(listener: BinaryListener, request: m.NackRequest) -> Buffers:
    await listener.groups.of(request.group).leases.nack(request.group, request.lease)
    return m.NackResponse().encode()


async def extend(listener: BinaryListener, request: m.ExtendRequest) -> Buffers:
    expires_at_ms = await listener.groups.of(request.group).leases.extend(
        request.group, request.lease, request.lease_ms
    )
    return m.ExtendResponse(expires_at_ms=expires_at_ms).encode()
