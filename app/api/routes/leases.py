"""Serve polls with leases over HTTP (ADR-0017)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated, TypedDict

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...broker.reading.decoded_bytes import DecodedReader
from ...errors import AuthorizationError, ReadMemoryFull
from ...groups.leases.lease import Polled, PollRequest
from ...groups.leases.reads import leased_records
from ...security.acl import READ_TOPIC
from ...work_budget import pause
from ..group_json import LeasedPartitionJson, LeaseToken, PollStart, Topics, leased_part
from ..json_bodies import LIST_BYTES_MAX, JsonBody, client_host
from ..openapi.operations import JSON, Content
from ..parameters import GROUP
from ..record_selection import DECODE, decoding_of
from ..records.decoded import AnswerDecoding
from ..records.form import RecordForm, Separator
from ..records.json_records import encode
from ..records.json_types import InPartition, LeasedRecord
from ..records.stream_slots import sized_or_streamed
from ..rights import require, require_lease
from ..routing import Routes
from ..schemas import Shown
from ..state import broker_of, group_of
from ..throttling import page_bytes_max

route = Routes("groups", errors=(404, 409, 503))
_LeaseMs = Annotated[int, Shown(minimum=100, maximum=3_600_000)]


class SkippedRange(InPartition):
    offset: int
    next_offset: int


class PolledJson(TypedDict):
    records: list[LeasedRecord]
    lease: str | None
    expires_at: int | None
    partitions: list[LeasedPartitionJson]
    skipped: list[SkippedRange]


class CommittedPartition(InPartition):
    offset: int


class Acknowledged(TypedDict):
    committed: list[CommittedPartition]


class Extended(TypedDict):
    expires_at: int


class PollBody(Struct, forbid_unknown_fields=True, rename={"start": "from"}):
    """A poll: what to read, how much of it, and how long the lease on it lasts."""

    topics: Topics
    max_records: Annotated[int, Shown(minimum=1, maximum=100_000)] = 500
    max_bytes: Annotated[int, Shown(minimum=1)] = 1024 * 1024
    max_partitions: Annotated[
        int | None, Shown("null: a fair share"), Shown(type=["integer", "null"], minimum=1)
    ] = None
    wait_ms: Annotated[int, Shown(minimum=0, maximum=2000)] = 0
    lease_ms: _LeaseMs = 30_000
    start: PollStart = "earliest"
    poll_id: (
        Annotated[
            str,
            Shown("chosen by the client: a repeated poll gets the same answer while its lease is held"),
        ]
        | None
    ) = None


class LeaseBody(Struct, forbid_unknown_fields=True):
    """The lease to acknowledge or give back."""

    lease: LeaseToken


class ExtendBody(Struct, forbid_unknown_fields=True):
    """The lease to extend, and for how long from now on."""

    lease: LeaseToken
    lease_ms: _LeaseMs = 30_000


_POLL = JsonBody(PollBody, '{"topics": ["orders"], "max_records": 500, "wait_ms": 1000, "lease_ms": 30000}')
_LEASE = JsonBody(LeaseBody, '{"lease": "WyJiaWxsaW5nIiwi…"}', bytes_max=LIST_BYTES_MAX)
_EXTEND = JsonBody(ExtendBody, '{"lease": "WyJiaWxsaW5nIiwi…"}', bytes_max=LIST_BYTES_MAX)


@route(
    "POST /v1/groups/{group}/poll",
    "Poll for records with a lease",
    DECODE,
    body=_POLL,
    answers=[Content(JSON, PolledJson)],
    errors=(500,),
)
async def poll(request: Request) -> Response:
    """Return records from the position of the group, with a lease: no other poll gets them until it ends.

    `ack` commits the records of the lease, `nack` returns them. The client does not have to join the group, and any
    client may acknowledge. `deliveries` of a partition counts how often its records were delivered, this one
    included.
    """
    body, decoding = await _POLL.read(request), decoding_of(request)
    require(request, READ_TOPIC, body.topics)
    await broker_of(request).find_topics(body.topics)
    leases = group_of(request).leases
    polled = await leases.poll(
        PollRequest(
            group=GROUP.read(request),
            topics=frozenset(body.topics),
            max_records=body.max_records,
            max_bytes=page_bytes_max(request, body.max_bytes),
            max_partitions=body.max_partitions,
            wait_ms=body.wait_ms,
            lease_ms=body.lease_ms,
            start=body.start,
            poll_id=body.poll_id,
            is_decoded=True,
            client_host=client_host(request),
        )
    )
    # It gives up before the lease ends.
    reader = broker_of(request).decoded.reader(body.lease_ms / 2000)
    try:
        # Again, because a poll may wait.
        require(request, READ_TOPIC, body.topics)
        body_parts = _polled(polled, reader, decoding)
        return await sized_or_streamed(body_parts, reader, media_type=JSON)
    except (AuthorizationError, ReadMemoryFull):
        if polled.lease is not None and body.poll_id is None:
            # Nobody knows the lease.
            leases.withdraw(polled.lease)
        raise


async def _polled(polled: Polled, reader: DecodedReader, decoding: AnswerDecoding) -> AsyncGenerator[bytes]:
    form, separator = RecordForm(), Separator()
    yield b'{"records":['
    for leased, fetched in polled.fetched:
        head = b'{"topic":%s,' % encode(leased.topic)
        async with aclosing(leased_records(leased, fetched, reader)) as slices:
            async for records in slices:
                opening = partial(separator.before, head)
                decoded = await decoding.decoded(leased.topic, records)
                pieces = form.stream(leased.partition, records, opening=opening, end=b"", decoded=decoded)
                async for piece in pieces:
                    yield piece
                await pause()
    lease = polled.lease
    rest = encode(
        {
            "lease": None if lease is None else lease.token(),
            "expires_at": None if lease is None else polled.expires_at_ms,
            "partitions": [leased_part(part) for part in (() if lease is None else lease.partitions)],
            "skipped": [
                {
                    "topic": skipped.topic,
                    "partition": skipped.partition,
                    "offset": skipped.offset,
                    "next_offset": skipped.next_offset,
                }
                for skipped in polled.skipped
            ],
        }
    )
    yield b"]," + rest[1:]


@route("POST /v1/groups/{group}/ack", "Acknowledge a lease", body=_LEASE, errors=(504,))
async def ack(request: Request) -> Acknowledged:
    """Commit the records of a lease; the commit is durable when the answer arrives.

    Repeating the request gets the same answer; a fenced lease gets 409.
    """
    body = await _LEASE.read(request)
    require_lease(request, GROUP.read(request), body.lease)
    parts = await group_of(request).leases.ack(GROUP.read(request), body.lease)
    return {
        "committed": [
            {"topic": part.topic, "partition": part.partition, "offset": part.next_offset} for part in parts
        ]
    }


@route("POST /v1/groups/{group}/nack", "Give a lease back", body=_LEASE)
async def nack(request: Request) -> None:
    """Return the records of a lease, so that the next poll gets them at once."""
    body = await _LEASE.read(request)
    require_lease(request, GROUP.read(request), body.lease)
    await group_of(request).leases.nack(GROUP.read(request), body.lease)


@route("POST /v1/groups/{group}/extend", "Extend a lease", body=_EXTEND)
async def extend(request: Request) -> Extended:
    """Let the lease last for `lease_ms` from now on."""
    body = await _EXTEND.read(request)
    require_lease(request, GROUP.read(request), body.lease)
    expires_at_ms = await group_of(request).leases.extend(GROUP.read(request), body.lease, body.lease_ms)
    return {"expires_at": expires_at_ms}
