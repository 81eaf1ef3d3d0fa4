"""Whatever a route's call of the layers below raises, its client gets a problem of the right type.

Every route of the table of rights is called in this process. Each call that it makes of the broker, the groups and
the transactions raises each leaf of the tree of errors.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from app.api.application import create_application
from app.api.errors import kind_of
from app.api.rights import NEEDS
from app.broker.placement import Placement
from app.broker.produce import Acks
from app.errors import TopicExists
from app.groups.lease import Lease, LeasedPartition
from tests.support.batches import batch_of
from tests.support.listeners import listeners
from tests.support.raising import Faults, an_error, leaves, raising

LEASE = Lease(
    group="group",
    lease_id="made-up",
    partitions=[LeasedPartition(topic="orders", partition=0, offset=0, next_offset=1)],
).token()
OWNER = {"member_id": "m", "generation": 1}
LOCK = {"lock": "lock", "records": [{"topic": "orders", "partition": 0, "offset": 0}]}
PRODUCER = {"producer_id": 1, "producer_epoch": 0}
VALUES = {
    "topic": "orders",
    "partition": "0",
    "group": "group",
    "member_id": "m",
    "offset": "0",
    "key": "k",
    "producer_id": "1",
    "transactional_id": "transactional",
    "user": "alice",
    "key_id": "key",
    "version": "1",
    "name": "style.css",
}
BODIES: dict[tuple[str, str], Any] = {
    ("PUT", "/v1/topics/{topic}"): {"partitions": 1},
    ("PATCH", "/v1/topics/{topic}"): {"configs": {"retention.ms": "1000"}},
    ("POST", "/v1/topics/{topic}/records"): {"records": [{"value": "a"}]},
    ("POST", "/v1/topics/{topic}/search"): {},
    ("PUT", "/v1/groups/{group}/offsets"): {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]},
    ("POST", "/v1/groups/{group}/members"): {"topics": ["orders"], "session_timeout_ms": 10_000},
    ("POST", "/v1/groups/{group}/members/{member_id}/heartbeat"): OWNER,
    ("PUT", "/v1/groups/{group}/partitions/{topic}/{partition}/owner"): OWNER,
    ("DELETE", "/v1/groups/{group}/partitions/{topic}/{partition}/owner"): OWNER,
    ("PUT", "/v1/groups/{group}/partitions/{topic}/{partition}/offset"): OWNER | {"offset": 0},
    ("POST", "/v1/groups/{group}/poll"): {"topics": ["orders"]},
    ("POST", "/v1/groups/{group}/ack"): {"lease": LEASE},
    ("POST", "/v1/groups/{group}/nack"): {"lease": LEASE},
    ("POST", "/v1/groups/{group}/extend"): {"lease": LEASE},
    ("POST", "/v1/groups/{group}/share/poll"): {"topics": ["orders"]},
    **{
        ("POST", f"/v1/groups/{{group}}/share/{action}"): LOCK
        for action in ("ack", "release", "reject", "renew")
    },
    ("POST", "/v1/groups/{group}/share/redrive"): {"topic": "orders"},
    ("PATCH", "/v1/groups/{group}/configs"): {"configs": {"share.auto.offset.reset": "earliest"}},
    ("POST", "/v1/transactions"): {"records": [{"topic": "orders", "value": "a"}]},
    ("POST", "/v1/transactions/{transactional_id}/records"): PRODUCER
    | {"records": [{"topic": "orders", "value": "a"}]},
    ("POST", "/v1/transactions/{transactional_id}/settle"): PRODUCER | {"lease": LEASE, "group": "group"},
    ("POST", "/v1/transactions/{transactional_id}/commit"): PRODUCER,
    ("POST", "/v1/transactions/{transactional_id}/abort"): PRODUCER,
    ("POST", "/v1/transactions/{transactional_id}/begin"): {},
    ("PATCH", "/v1/quotas"): {"entries": [{"user": "alice", "set": {"producer_byte_rate": 1024}}]},
}
QUERIES = {
    ("POST", "/v1/producers"): b"name=a&version=1",
    ("DELETE", "/v1/topics/{topic}/partitions/{partition}/records"): b"before=1",
    ("GET", "/v1/topics/{topic}/table"): b"partition=0",
}
ROUTES = [pytest.param(*route, id=" ".join(route)) for route in NEEDS if route[1].startswith("/v1/")]


# Kept by its contract from raising: it notes appends of a topic, which may be gone.
NEVER_RAISE = {"broker.subscribe_tail"}
# (method, path, call): errors that the route has an answer for.
ANSWERED = {("PUT", "/v1/topics/{topic}", "broker.create_topic"): {TopicExists}}
COMPACTED = ("/keys/", "/table")


async def call(application: FastAPI, method: str, path: str) -> tuple[int, bytes, bytes]:
    """Call a route as a server does; return the status, the media type and the body.

    The client of a response without an end disconnects.
    """
    body = json.dumps(BODIES.get((method, path), {})).encode() if method in ("PUT", "PATCH", "POST") else b""
    url = path.replace(":path", "").format(**VALUES)
    started: list[Any] = []
    received = bytearray()
    begun, gone = asyncio.Event(), asyncio.Event()
    requests = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        if (request := next(requests, None)) is not None:
            return request
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            started.append(message)
            begun.set()
        else:
            received.extend(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": url,
        "raw_path": url.encode(),
        "query_string": QUERIES.get((method, path), b""),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    async with asyncio.timeout(60):
        work = asyncio.ensure_future(application(scope, receive, send))
        await asyncio.wait((work, asyncio.ensure_future(begun.wait())), return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and "/records" in path and method == "GET":
            # The tail of a topic has no end; whatever it has to say about its error comes at once.
            await asyncio.wait((work,), timeout=0.1)
            gone.set()
        await work
    (start,) = started
    return start["status"], dict(start["headers"]).get(b"content-type", b""), bytes(received)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_error_of_every_call_is_a_problem_of_its_own_type(
    method: str, path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    is_compacted = any(part in path for part in COMPACTED)
    wrong: list[str] = []
    async with listeners(tmp_path) as at:
        await at.broker.create_topic(
            "orders",
            placement=Placement(partitions=1),
            configs={"cleanup.policy": "compact"} if is_compacted else {},
        )
        if not is_compacted:
            at.broker.produce("orders", 0, batch_of([b"a"]), acks=Acks.LEADER)
        faults = Faults()
        application = create_application(
            raising(at.broker, faults, "broker"),
            raising(at.kafka.groups, faults, "groups"),
            raising(at.application.state.stele.transactions, faults, "transactions"),
            at.broker.settings,
        )
        await call(application, method, path)
        for name, kind in itertools.product(list(faults.calls), leaves()):
            faults.arm(name, an_error(kind))
            if name in NEVER_RAISE or kind in ANSWERED.get((method, path, name), ()):
                continue
            status, media_type, body = await call(application, method, path)
            if not faults.raised:
                continue
            slug = f"/problems/{kind_of(an_error(kind)).slug}".encode()
            if slug not in body or (status >= 400 and media_type != b"application/problem+json"):
                wrong.append(f"{kind.__name__} of {name}: {status} {media_type!r} {body[:100]!r}")
        assert wrong == []
        assert caplog.records == []
