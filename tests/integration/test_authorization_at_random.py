"""Random policies through the listeners themselves: bytes to real connections, requests to the real application.

Policies change through the HTTP API or Kafka's, as a whole or by some rules, while the clients
stay connected: a decision that outlives its rules fails. Each policy is asked about at random,
through all three listeners, and compared with a plain model of Kafka's rules.

``STELE_TORTURE_SEEDS`` sets how many policies ``make torture`` tries (100,000).
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from stele.wire import messages as m
from stele.wire.framing import FrameReader
from stele.wire.kafka.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest

from app.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from app.security.acl_text import document_of
from app.security.authorizer import Authorizer
from app.security.principal import Principal
from app.settings import Settings
from app.tcp.binary.connection import BinaryConnection
from app.tcp.connection import Connection
from app.tcp.kafka.connection import KafkaConnection
from tests.integration.test_authorization_matrix import CASES, REFUSALS, Caller
from tests.support.acls import HOSTS, PRINCIPALS, authorizer_over, is_allowed, random_acl
from tests.support.before_login import Registry, Wire
from tests.support.histories import seed_ranges
from tests.support.kafka_peer import api_of, read_response, request_frame
from tests.support.listeners import Listeners, listeners

# Clients that ask under one policy, and how much each asks.
CLIENTS, QUESTIONS = 2, 12
# Rules of a policy that replaces another.
SIZES = (0, 5, 20, 40, 80, 160)
ADMIN = Principal("admin")
# It ends a test that failed.
TIMEOUT_S = 120.0


class HeardWire(Wire):
    """Tells when the broker has written or closed."""

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.heard = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.heard.set()

    def writelines(self, list_of_data: Any) -> None:
        super().writelines(list_of_data)
        self.heard.set()

    def close(self) -> None:
        super().close()
        self.heard.set()

    def abort(self) -> None:
        super().abort()
        self.heard.set()

    def write_eof(self) -> None:
        super().write_eof()
        self.heard.set()


@dataclass(slots=True)
class Line:
    """One connection of a client, which stays open over many policies."""

    connection: Connection[Any]
    wire: HeardWire

    async def call(self, request: bytes, is_whole: Callable[[bytearray], bool]) -> bytes:
        self.wire.written.clear()
        self.connection.data_received(request)
        async with asyncio.timeout(TIMEOUT_S):
            while not is_whole(self.wire.written):
                assert not self.wire.is_over, "the broker closed the connection"
                self.wire.heard.clear()
                await self.wire.heard.wait()
        return bytes(self.wire.written)


def _is_kafka_answer(written: bytearray) -> bool:
    return len(written) >= 4 and len(written) >= 4 + struct.unpack_from(">i", written)[0]


def _is_binary_answer(written: bytearray) -> bool:
    return len(written) >= 4 and len(written) >= struct.unpack_from(">I", written)[0]


@dataclass(slots=True)
class LiveCaller(Caller):
    """The listeners for one client, by way of its connections."""

    kafka_line: Line = field(init=False)
    binary_line: Line = field(init=False)

    def __post_init__(self) -> None:
        settings, registry = Settings(), Registry()
        self.kafka_line = self._line(
            KafkaConnection(listener=self.served.kafka, settings=settings, registry=cast("Any", registry))
        )
        self.binary_line = self._line(
            BinaryConnection(listener=self.served.binary, settings=settings, registry=cast("Any", registry))
        )

    def _line(self, connection: Connection[Any]) -> Line:
        connection.peer_host = self.host
        wire = HeardWire(self.host)
        connection.connection_made(wire)
        # As after a login.
        connection.principal = self.principal
        return Line(connection, wire)

    def close(self) -> None:
        for line in (self.kafka_line, self.binary_line):
            line.connection.connection_lost(None)

    async def kafka(self, request: object, version: int | None = None) -> Any:
        api = api_of(request)
        version = api.versions[1] if version is None else version
        answer = await self.kafka_line.call(request_frame(request, version), _is_kafka_answer)
        return read_response(answer[4:], api, version)[1]

    async def binary(self, request: m.Request) -> bool:
        answer = await self.binary_line.call(request.encode(), _is_binary_answer)
        ((kind, body),) = FrameReader().feed(answer)
        response = m.decode_response(kind, body)
        if not isinstance(response, m.ErrorResponse):
            return True
        # The errors of ADR-0009 have no number.
        return response.code not in REFUSALS and " is not allowed to " not in response.message


def _client_of(
    served: Listeners, authorizer: Authorizer, principal: Principal, host: str
) -> httpx.AsyncClient:
    async def as_client(scope: Scope, receive: Receive, send: Send) -> None:
        scope["stele.principal"] = principal
        scope["stele.access"] = authorizer.access("http", principal, host)
        await served.application(scope, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(as_client), base_url="http://127.0.0.1")


class Policies:
    """Changes the rules through the public APIs, as an administrator."""

    def __init__(self, admin: LiveCaller) -> None:
        self._admin = admin
        self.acls: set[Acl] = set()

    async def change(self, rng: random.Random) -> None:
        if rng.random() < 0.5:
            wanted = {random_acl(rng) for _ in range(rng.choice(SIZES))}
        else:
            wanted = {acl for acl in sorted(self.acls, key=str) if rng.random() < 0.7}
            wanted |= {random_acl(rng) for _ in range(rng.randint(0, 3))}
        added, removed = sorted(wanted - self.acls, key=str), sorted(self.acls - wanted, key=str)
        # The Kafka protocol has no subjects.
        has_subjects = any(acl.resource_type is ResourceType.SUBJECT for acl in (*added, *removed))
        change = self._over_http if has_subjects or rng.random() < 0.5 else self._over_kafka
        await change(added, removed)
        self.acls = wanted

    async def _over_http(self, added: list[Acl], removed: list[Acl]) -> None:
        for acl in removed:
            answer = await self._admin.http.delete("/v1/acls", params=document_of(acl))
            assert answer.status_code == 200, answer.text
            assert answer.json() == {"acls": [document_of(acl)]}
        answer = await self._admin.http.post("/v1/acls", json={"acls": [document_of(acl) for acl in added]})
        assert answer.status_code == 201 or not added, answer.text

    async def _over_kafka(self, added: list[Acl], removed: list[Acl]) -> None:
        filters = [
            DeleteAclsFilter(
                resource_type_filter=acl.resource_type,
                resource_name_filter=acl.resource_name,
                pattern_type_filter=acl.pattern_type,
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in removed
        ]
        deleted = await self._admin.kafka(DeleteAclsRequest(filters=filters))
        assert [len(result.matching_acls) for result in deleted.filter_results] == [1] * len(removed)
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in added
        ]
        created = await self._admin.kafka(CreateAclsRequest(creations=creations))
        assert {result.error_code for result in created.results} <= {0}

    async def check_list(self) -> None:
        answer = await self._admin.http.get("/v1/acls")
        listed = {
            Acl(
                resource_type=ResourceType[acl["resource_type"]],
                resource_name=acl["resource_name"],
                pattern_type=PatternType[acl["pattern_type"]],
                principal=acl["principal"],
                host=acl["host"],
                operation=Operation[acl["operation"]],
                permission=Permission[acl["permission"]],
            )
            for acl in answer.json()["acls"]
        }
        assert listed == self.acls


async def _restore(served: Listeners) -> None:
    """Undo what a question that was allowed did: of the topics, only "ab" exists."""
    broker = served.broker
    for name in ("b", "c"):
        if broker.has_topic(name):
            await broker.delete_topic(name)
    if not broker.has_topic("ab"):
        await broker.create_topic("ab")


def _all_questions() -> list[tuple[int, str, int]]:
    return [
        (row, name, number)
        for row, (_, names, questions) in enumerate(CASES)
        for name in names
        for number in range(len(questions))
    ]


async def _ask(caller: LiveCaller, acls: set[Acl], rng: random.Random, seed: int) -> list[bool]:
    """Ask as one client at random; return what was allowed."""

    def may(operation: Operation, kind: ResourceType, name: str) -> bool:
        return is_allowed(acls, str(caller.principal), caller.host, operation, kind, name)

    verdicts: list[bool] = []
    for row, name, number in rng.sample(_all_questions(), QUESTIONS):
        right, _, questions = CASES[row]
        question = questions[number]
        expected = right(may, name)
        try:
            is_right = await question(caller, name)
        except Exception as error:
            raise AssertionError(f"seed {seed}, row {row}, question {number}, {name!r}: {error!r}") from error
        assert is_right is expected, (seed, caller.principal, caller.host, row, number, name)
        verdicts.append(is_right)
        await _restore(caller.served)
    return verdicts


async def check_policies(path: Path, seeds: range) -> None:
    authorizer = await authorizer_over(super_users=[ADMIN])
    async with listeners(path, authorizer=authorizer) as served:
        await _restore(served)
        admin = LiveCaller(
            served, authorizer, ADMIN, HOSTS[0], _client_of(served, authorizer, ADMIN, HOSTS[0])
        )
        policies, callers, verdicts = Policies(admin), dict[tuple[str, str], LiveCaller](), list[bool]()
        for seed in seeds:
            rng = random.Random(f"policy {seed}")
            await policies.change(rng)
            await policies.check_list()
            for _ in range(CLIENTS):
                key = rng.choice(PRINCIPALS), rng.choice(HOSTS)
                caller = callers.get(key)
                if caller is None or caller.kafka_line.wire.is_over or caller.binary_line.wire.is_over:
                    principal = Principal.parse(key[0])
                    client = _client_of(served, authorizer, principal, key[1])
                    caller = callers[key] = LiveCaller(served, authorizer, principal, key[1], client)
                verdicts += await _ask(caller, policies.acls, rng, seed)
        for caller in (admin, *callers.values()):
            caller.close()
            await caller.http.aclose()
    assert len(verdicts) == len(seeds) * CLIENTS * QUESTIONS
    assert len(verdicts) * 0.05 < sum(verdicts) < len(verdicts) * 0.8


@pytest.mark.parametrize("seeds", seed_ranges(10, 40))
async def test_connections_that_stay_open_follow_each_change_of_the_rules(
    seeds: range, tmp_path: Path
) -> None:
    await check_policies(tmp_path, seeds)
