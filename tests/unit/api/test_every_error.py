"""Whatever a route's call of the layers below raises, its client gets a problem of the right type.

Every route of the table of rights is called in this process. Each call that it makes of the broker, the groups and
the transactions raises each leaf of the tree of errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from app.api.application import create_application
from app.api.errors import kind_of
from app.api.http.request_ids import RequestIds
from app.api.rights import NEEDS
from app.api.state import ApiState
from app.broker.mirrors import MirrorDefinition
from app.broker.placement import Placement
from app.broker.producing.produce import Acks
from app.cdc.supervisor import CdcSupervisor
from app.cluster.credentials import CredentialStore
from app.cluster.sqlite.catalog import CatalogDatabase
from app.errors import NotCoordinator, SteleError, TopicExists
from app.groups.leases.lease import Lease, LeasedPartition
from app.iceberg.supervisor import IcebergTables
from app.mirrors.supervisor import Mirrors
from app.registry.service import SchemaRegistry
from app.security.credentials import Credentials
from app.security.policy import ListenerSecurity
from app.security.principal import ANONYMOUS
from app.settings import Settings
from app.sql.snapshots import Snapshots
from app.sql.statements import SqlStatements
from tests.support.acls import authorizer_over
from tests.support.batches import batch_of
from tests.support.listeners import Listeners, listeners
from tests.support.raising import Faults, an_error, leaves, pairs, raising

LEASE = Lease(
    group="group",
    lease_id="made-up",
    partitions=[LeasedPartition(topic="orders", partition=0, offset=0, next_offset=1)],
).token()
OWNER = {"member_id": "m", "generation": 1}
RULE = {
    "principal": "User:alice",
    "operation": "READ",
    "resource_type": "TOPIC",
    "resource_name": "orders",
}
LOCK = {"lock": "lock", "records": [{"topic": "orders", "partition": 0, "offset": 0}]}
PRODUCER = [(b"producer-id", b"1"), (b"producer-epoch", b"0")]
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
    "mirror": "prod",
    "version": "1",
    "name": "style.css",
}
BODIES: dict[tuple[str, str], Any] = {
    ("PUT", "/v1/topics/{topic}"): {"partitions": 1},
    ("PATCH", "/v1/topics/{topic}"): {"configs": {"retention.ms": "1000"}},
    ("POST", "/v1/topics/{topic}/records"): {"records": [{"value": "a"}]},
    ("POST", "/v1/topics/{topic}/search"): {"ranges": "0:0-1"},
    ("PUT", "/v1/groups/{group}/offsets"): {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]},
    ("POST", "/v1/groups/{group}/members"): {"topics": ["orders"], "session_timeout_ms": 10_000},
    ("POST", "/v1/groups/{group}/members/{member_id}/heartbeat"): {"generation": 1},
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
    ("POST", "/v1/groups/{group}/share/redrive"): {"max_records": 10},
    ("PATCH", "/v1/groups/{group}/configs"): {"configs": {"share.auto.offset.reset": "earliest"}},
    ("POST", "/v1/transactions"): {"records": [{"topic": "orders", "value": "a"}]},
    ("POST", "/v1/transactions/{transactional_id}/records"): {"records": [{"topic": "orders", "value": "a"}]},
    ("POST", "/v1/transactions/{transactional_id}/settle"): {
        "offsets": [{"group": "group", "topic": "orders", "partition": 0, "offset": 0}]
    },
    ("POST", "/v1/users"): {"name": "bob", "password": "correct horse battery"},
    ("PUT", "/v1/users/{user:path}/password"): {"password": "correct horse battery"},
    ("POST", "/v1/keys"): {"user": "alice"},
    ("POST", "/v1/acls"): {"acls": [RULE]},
    # It has no such copy, so the mirror stays for the next call.
    ("POST", "/v1/mirrors/{mirror}/promote"): {"topic": "orders"},
    ("POST", "/v1/mirrors/{mirror}/truncate"): {},
    ("PUT", "/v1/mirrors/{mirror}"): {"from": "127.0.0.1:9092", "topics": ".*"},
    ("POST", "/v1/sql"): {"sql": "select * from orders"},
    ("POST", "/v1/cdc"): {"action": "add", "tables": ["orders"]},
    ("PATCH", "/v1/quotas"): {"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1024}},
}
CONNECTOR = Settings.model_validate({"cdc_dsn": "postgresql://nowhere", "cdc_tables": "orders"})
MIRROR = MirrorDefinition(name="prod", servers="127.0.0.1:9092", topics="orders")
QUERIES = {
    ("DELETE", "/v1/acls"): b"principal=User:alice",
    ("POST", "/v1/producers"): b"name=a&version=1",
    ("DELETE", "/v1/topics/{topic}/partitions/{partition}/records"): b"before=1",
    ("GET", "/v1/topics/{topic}/table"): b"partition=0",
}
ROUTES = [route for route in NEEDS if route[1].startswith("/v1/")]
REQUEST_ID = b"of-this-test"


# Kept by its contract from raising: it notes appends of a topic, which may be gone.
# The other counts what a client uses.
NEVER_RAISE = {"broker.subscribe_tail", "broker.quotas.check"}
# (method, path, call): errors that the route has an answer for.
ANSWERED = {
    ("PUT", "/v1/topics/{topic}", "broker.create_topic"): {TopicExists},
    # Another broker lists those groups.
    ("GET", "/v1/groups", "groups.all.coordinator.listings"): {NotCoordinator},
}
COMPACTED = ("/keys/", "/table")


async def call(application: ASGIApp, method: str, path: str) -> tuple[int, dict[bytes, bytes], bytes]:
    """Call a route as a server does; return the status, the headers and the body.

    The client of a response without an end disconnects.
    """
    given = BODIES.get((method, path), {} if method in ("PUT", "PATCH", "POST") else None)
    body = b"" if given is None else json.dumps(given).encode()
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
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"x-request-id", REQUEST_ID),
            *(PRODUCER if path.startswith("/v1/transactions/") else ()),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "stele.principal": ANONYMOUS,
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
    return start["status"], dict(start["headers"]), bytes(received)


class World:
    """An application whose services raise, as the server runs it."""

    def __init__(self, at: Listeners, security: ListenerSecurity) -> None:
        self.at = at
        self.faults = Faults()
        # By route: the errors that its calls raised.
        self.met: dict[tuple[str, str], set[type[SteleError]]] = {}
        broker = raising(at.broker, self.faults, "broker")
        iceberg = IcebergTables(at.broker.settings, broker, "")
        # Reading never fails because of the registry, which has a broker of its own for that.
        self.sql = SqlStatements(broker, Snapshots(iceberg.catalog), SchemaRegistry(at.broker).values)
        groups = raising(at.kafka.groups, self.faults, "groups")
        application = create_application(
            broker,
            groups,
            raising(at.application.state.stele.transactions, self.faults, "transactions"),
            at.broker.settings,
            CdcSupervisor(CONNECTOR, ""),
            security=security,
            mirrors=Mirrors(at.broker.settings, broker, groups, ""),
            sql=self.sql,
            iceberg=iceberg,
        )
        state: ApiState = application.state.stele
        application.state.stele = replace(
            state,
            acls=raising(state.acls, self.faults, "acls"),
            security=replace(security, credentials=raising(security.credentials, self.faults, "credentials")),
        )
        self.application = RequestIds(application)

    async def prepare(self, path: str) -> None:
        """Create the topic of a route again, with a record in it unless it is compacted."""
        is_compacted = any(part in path for part in COMPACTED)
        broker = self.at.broker
        self.faults.arm("", None)
        await self.at.broker.mirrors.put(MIRROR)
        if broker.has_topic("orders"):
            await broker.delete_topic("orders")
        configs = {"cleanup.policy": "compact"} if is_compacted else {}
        await broker.create_topic("orders", placement=Placement(partitions=1), configs=configs)
        if not is_compacted:
            broker.produce("orders", 0, batch_of([b"a"]), acks=Acks.LEADER)

    async def wrong_answers(self, method: str, path: str, *, are_all: bool) -> list[str]:
        """Let each call of a route raise; return the answers that are not the error's problem."""
        wrong: list[str] = []
        self.faults.calls.clear()
        await call(self.application, method, path)
        calls = [name for name in self.faults.calls if name not in NEVER_RAISE]
        for name, kind in pairs(calls, leaves(), are_all=are_all):
            if kind in ANSWERED.get((method, path, name), ()):
                continue
            self.faults.arm(name, an_error(kind))
            status, headers, body = await call(self.application, method, path)
            if not self.faults.raised:
                continue
            self.met.setdefault((method, path), set()).add(kind)
            slug = f"/problems/{kind_of(an_error(kind)).slug}".encode()
            media_type = headers.get(b"content-type", b"")
            is_problem = status < 400 or media_type == b"application/problem+json"
            if slug not in body or not is_problem or headers.get(b"x-request-id") != REQUEST_ID:
                wrong.append(f"{method} {path}: {kind.__name__} of {name}: {status} {headers} {body[:100]!r}")
        return wrong


@asynccontextmanager
async def world(path: Path) -> AsyncGenerator[World]:
    credentials = Credentials(CredentialStore(CatalogDatabase(path / "credentials.sqlite")))
    await credentials.open()
    security = ListenerSecurity(
        listener="http", authorizer=await authorizer_over(allows_without_acl=True), credentials=credentials
    )
    async with listeners(path) as at:
        there = World(at, security)
        yield there
        await there.sql.close()
    await credentials.close()


async def test_each_error_is_a_problem_of_its_own_type_on_each_route(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    wrong: list[str] = []
    async with world(tmp_path) as there:
        for method, path in ROUTES:
            await there.prepare(path)
            wrong += await there.wrong_answers(method, path, are_all=False)
        assert wrong == []
        # Each route has met each error, but for reads that are answered from memory.
        for method, path in [route for route in ROUTES if route not in there.met]:
            await there.prepare(path)
            status, _, _ = await call(there.application, method, path)
            assert (method, status) == ("GET", 200), path
        # The first verification of a partition is still known to the others, and so is the topic of requests.
        once = {("POST", "/v1/topics/{topic}/partitions/{partition}/verify"), ("POST", "/v1/cdc")}
        few = {route for route, met in there.met.items() if len(met) < len(leaves()) - 1}
        assert few <= once
    assert caplog.records == []


@pytest.mark.long
@pytest.mark.parametrize(("method", "path"), ROUTES, ids=map(" ".join, ROUTES))
async def test_every_error_of_every_call_is_a_problem_of_its_own_type(
    method: str, path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with world(tmp_path) as there:
        await there.prepare(path)
        assert await there.wrong_answers(method, path, are_all=True) == []
    assert caplog.records == []
