"""Serve polls with leases over HTTP (ADR-0017)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...broker.reading.decoded_bytes import DecodedReader
from ...groups.leases.lease import Polled, PollRequest
from ...groups.leases.lease_reads import leased_records
from ...security.acl import READ_TOPIC
from ...work_budget import pause
from ..bodies import ExtendBody, LeaseBody, PollBody
from ..encoded_slash import EncodedSlashRoute
from ..group_json import leased_part
from ..json_bodies import client_host, json_answer, json_body
from ..openapi import leases as openapi
from ..records.record_form import RecordForm, Separator
from ..records.record_json import encode
from ..records.stream_slots import sized_or_streamed
from ..rights import require, require_lease
from ..state import broker_of, group_of
from ..throttling import page_bytes_max

router = APIRouter(tags=["groups"], route_class=EncodedSlashRoute)

_JSON = "application/json"


@router.post("/v1/groups/{group}/poll", openapi_extra=openapi.POLL, summary="Poll for records with a lease")
async def poll(request: Request) -> Response:
    """Return records from the position of the group, with a lease: no other poll gets them until it ends.

    `ack` commits the records of the lease, `nack` returns them. The client does not have to join the group, and any
    client may acknowledge. `deliveries` of a partition counts how often its records were delivered, this one
    included.
    """
    body = await json_body(request, PollBody, '{"topics": ["orders"], "max_records": 500, "wait_ms": 1000}')
    require(request, READ_TOPIC, body.topics)
    await broker_of(request).find_topics(body.topics)
    polled = await group_of(request).leases.poll(
        PollRequest(
            group=str(request.path_params["group"]),
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
    # Again, because a poll may wait.
    require(request, READ_TOPIC, body.topics)
    reader = broker_of(request).decoded.reader()
    return await sized_or_streamed(_polled(polled, reader), reader, media_type=_JSON)


async def _polled(polled: Polled, reader: DecodedReader) -> AsyncGenerator[bytes]:
    form, separator = RecordForm(), Separator()
    yield b'{"records":['
    for leased, fetched in polled.fetched:
        head = b'{"topic":%s,' % encode(leased.topic)
        async with aclosing(leased_records(leased, fetched, reader)) as slices:
            async for records in slices:
                opening = partial(separator.before, head)
                async for piece in form.stream(leased.partition, records, opening=opening, end=b""):
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


_LEASE_EXAMPLE = '{"lease": "…"}'


@router.post("/v1/groups/{group}/ack", openapi_extra=openapi.ACK, summary="Acknowledge a lease")
async def ack(request: Request) -> Response:
    """Commit the records of a lease; the commit is durable when the answer arrives.

    Repeating the request gets the same answer; a fenced lease gets 409.
    """
    body = await json_body(request, LeaseBody, _LEASE_EXAMPLE)
    require_lease(request, str(request.path_params["group"]), body.lease)
    parts = await group_of(request).leases.ack(str(request.path_params["group"]), body.lease)
    return json_answer(
        {
            "committed": [
                {"topic": part.topic, "partition": part.partition, "offset": part.next_offset}
                for part in parts
            ]
        }
    )


@router.post(
    "/v1/groups/{group}/nack", status_code=204, openapi_extra=openapi.NACK, summary="Give a lease back"
)
async def nack(request: Request) -> Response:
    """Return the records of a lease, so that the next poll gets them at once."""
    body = await json_body(request, LeaseBody, _LEASE_EXAMPLE)
    require_lease(request, str(request.path_params["group"]), body.lease)
    await group_of(request).leases.nack(str(request.path_params["group"]), body.lease)
    return Response(status_code=204)


@router.post("/v1/groups/{group}/extend", openapi_extra=openapi.EXTEND, summary="Extend a lease")
async def extend(request: Request) -> Response:
    """Let the lease last for `lease_ms` from now on."""
    body = await json_body(request, ExtendBody, '{"lease": "…", "lease_ms": 30000}')
    require_lease(request, str(request.path_params["group"]), body.lease)
    expires_at_ms = await group_of(request).leases.extend(
        str(request.path_params["group"]), body.lease, body.lease_ms
    )
    return json_answer({"expires_at": expires_at_ms})
