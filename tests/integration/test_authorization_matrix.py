"""The same decision on every listener: random policies, asked through each of them, against a plain model.

``STELE_TORTURE_SEEDS`` sets how many policies ``make torture`` tries (100,000).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.cluster import DescribeLogDirsRequest
from stele.wire.kafka.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from stele.wire.kafka.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
)
from stele.wire.kafka.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from stele.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stele.wire.kafka.transactions import InitProducerIdRequest

from app.errors import AuthorizationError
from app.groups.leases.lease import Lease, LeasedPartition
from app.security.acl import CLUSTER_NAME, Acl, Operation, ResourceType
from app.security.authorizer import Access, Authorizer
from app.security.principal import Principal
from app.tcp.binary import guards as binary_guards
from app.tcp.binary.dispatch import HANDLERS
from app.tcp.deferred_response import DeferredResponse
from app.tcp.kafka.apis import SERVED
from app.tcp.kafka.context import Context
from tests.support.acls import HOSTS, PRINCIPALS, authorizer_over, is_allowed, random_acls, replace_rules
from tests.support.histories import seed_ranges
from tests.support.kafka_peer import api_of
from tests.support.listeners import Listeners, listeners

SEEDS = 8
# Many policies with some questions each find more than few with all: each question is asked of 10,000 of 100,000.
SHARE_OF_QUESTIONS = 0.1
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
REFUSALS = {29, 30, 31, 53}
# "ab" exists, "c" does not: a refusal must not tell which.
TOPICS, GROUPS = ("ab", "b", "c"), ("a", "abc")
# A rule about the model: whether the client may, by a function of operation, type and name.
May = Callable[[Operation, ResourceType, str], bool]


@dataclass(slots=True)
class Caller:
    """One client, over the three listeners."""

    served: Listeners
    authorizer: Authorizer
    principal: Principal
    host: str
    http: httpx.AsyncClient

    def access(self, listener: str) -> Access:
        return self.authorizer.access(listener, self.principal, self.host)

    async def kafka(self, request: object, version: int | None = None) -> Any:
        api = api_of(request)
        context = Context(
            listener=self.served.kafka,
            version=api.versions[1] if version is None else version,
            client_id="",
            client_host=self.host,
            principal=self.principal,
            access=self.access("kafka"),
        )
        answer = SERVED[api.key].guarded().handle(context, request)
        if isinstance(answer, Coroutine):
            answer = await cast("Coroutine[Any, Any, Any]", answer)
        if isinstance(answer, DeferredResponse):
            answer = await cast("DeferredResponse[Any]", answer).wait()
        return answer

    async def binary(self, request: m.Request) -> bool:
        """Return whether the message is allowed."""
        listener = replace(self.served.binary, access=self.access("binary"))
        try:
            await binary_guards.check(listener, request)
        except AuthorizationError:
            return False
        return True

    async def asks(self, method: str, path: str, **options: Any) -> bool:
        """Return whether a request over HTTP is allowed."""
        answer = await self.http.request(method, path, **options)
        is_refused = answer.status_code == 403 and answer.json()["kafka_code"] in REFUSALS
        return not is_refused


Question = Callable[[Caller, str], Awaitable[bool]]


def refused(code: int) -> bool:
    return code in REFUSALS


async def _kafka_produce(caller: Caller, name: str) -> bool:
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=None)])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
    (topic,) = (await caller.kafka(request, 9)).responses
    return not refused(topic.partition_responses[0].error_code)


async def _kafka_fetch(caller: Caller, name: str) -> bool:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1, log_start_offset=-1)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=name, partitions=[partition])],
        session_epoch=-1,
    )
    (topic,) = (await caller.kafka(request, 11)).responses
    return not refused(topic.partitions[0].error_code)


async def _kafka_list_offsets(caller: Caller, name: str) -> bool:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])])
    (topic,) = (await caller.kafka(request, 5)).topics
    return not refused(topic.partitions[0].error_code)


async def _kafka_delete_records(caller: Caller, name: str) -> bool:
    partition = DeleteRecordsPartition(partition_index=0, offset=0)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[partition])], timeout_ms=1000
    )
    (topic,) = (await caller.kafka(request)).topics
    return not refused(topic.partitions[0].error_code)


async def _kafka_heartbeat(caller: Caller, name: str) -> bool:
    request = HeartbeatRequest(group_id=name, generation_id=1, member_id="m")
    return not refused((await caller.kafka(request)).error_code)


async def _kafka_describe_group(caller: Caller, name: str) -> bool:
    request = DescribeGroupsRequest(groups=[name])
    (group,) = (await caller.kafka(request)).groups
    return not refused(group.error_code)


async def _kafka_find_group(caller: Caller, name: str) -> bool:
    request = FindCoordinatorRequest(coordinator_keys=[name])
    (found,) = (await caller.kafka(request)).coordinators
    return not refused(found.error_code)


async def _kafka_delete_group(caller: Caller, name: str) -> bool:
    (group,) = (await caller.kafka(DeleteGroupsRequest(groups_names=[name]))).results
    return not refused(group.error_code)


async def _kafka_commit(caller: Caller, name: str) -> bool:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="abc", topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])]
    )
    (topic,) = (await caller.kafka(request, 7)).topics
    return not refused(topic.partitions[0].error_code)


async def _kafka_committed(caller: Caller, name: str) -> bool:
    topic = OffsetFetchRequestTopics(name=name, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="abc", topics=[topic])])
    (group,) = (await caller.kafka(request, 9)).groups
    return not refused(group.error_code) and not refused(group.topics[0].partitions[0].error_code)


async def _kafka_transactional_id(caller: Caller, name: str) -> bool:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
    return not refused((await caller.kafka(request)).error_code)


async def _kafka_log_dirs(caller: Caller, _name: str) -> bool:
    return not refused((await caller.kafka(DescribeLogDirsRequest(topics=[]))).error_code)


def lease(group: str, topic: str) -> str:
    part = LeasedPartition(topic=topic, partition=0, offset=0, next_offset=1)
    return Lease(group=group, lease_id="made-up", partitions=[part]).token()


OWNER = {"member_id": "m", "generation": 1}


def _operation(operation: Operation, kind: ResourceType) -> Callable[[May, str], bool]:
    return lambda may, name: may(operation, kind, name)


def _may_produce(may: May, name: str) -> bool:
    may_create = may(Operation.CREATE, CLUSTER, CLUSTER_NAME) or may(Operation.CREATE, TOPIC, name)
    return may(Operation.WRITE, TOPIC, name) and (name == "ab" or may_create)


def _may_own(may: May, name: str) -> bool:
    return may(Operation.READ, GROUP, "abc") and may(Operation.READ, TOPIC, name)


READ_TOPIC, READ_GROUP = _operation(Operation.READ, TOPIC), _operation(Operation.READ, GROUP)
DESCRIBE_TOPIC, DESCRIBE_GROUP = _operation(Operation.DESCRIBE, TOPIC), _operation(Operation.DESCRIBE, GROUP)
DELETE_TOPIC = _operation(Operation.DELETE, TOPIC)

# Per row: the right in the model, the names to ask about, and how each listener is asked.
CASES: list[tuple[Callable[[May, str], bool], tuple[str, ...], list[Question]]] = [
    (
        _may_produce,
        TOPICS,
        [
            _kafka_produce,
            lambda caller, name: caller.asks("POST", f"/v1/topics/{name}/records", json={"wrong": 1}),
            lambda caller, name: caller.binary(m.ProduceRequest(topic=name, data=b"")),
            lambda caller, name: caller.binary(
                m.ProduceBatchRequest(topic=name, partition=0, acks=1, batches=b"")
            ),
        ],
    ),
    (
        READ_TOPIC,
        TOPICS,
        [
            _kafka_fetch,
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}/partitions/0/records"),
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}/search?limit=0"),
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}/records?from=nowhere"),
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}/partitions/0/records/0"),
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}/keys/k"),
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}/table?partition=9"),
            lambda caller, name: caller.asks("POST", f"/v1/topics/{name}/partitions/0/verify"),
            lambda caller, name: caller.binary(m.ConsumeRequest(topic=name, offset=0, batch_size=1)),
            lambda caller, name: caller.binary(m.LookUpKeyRequest(topic=name, key=b"k")),
            lambda caller, name: caller.binary(m.TableFetchRequest(topic=name, partition=0)),
        ],
    ),
    (
        DESCRIBE_TOPIC,
        TOPICS,
        [
            _kafka_list_offsets,
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}"),
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}/partitions/0/offsets"),
            lambda caller, name: caller.asks("GET", f"/v1/topics/{name}/partitions/0/segments"),
            lambda caller, name: caller.binary(
                m.ListOffsetsRequest(topic=name, partition=0, timestamp_ms=-1)
            ),
            lambda caller, name: caller.binary(m.DescribeTopicRequest(topic=name)),
        ],
    ),
    (
        DELETE_TOPIC,
        TOPICS,
        [
            _kafka_delete_records,
            lambda caller, name: caller.asks("DELETE", f"/v1/topics/{name}/records"),
            lambda caller, name: caller.asks("DELETE", f"/v1/topics/{name}/partitions/0/records?before=x"),
            lambda caller, name: caller.binary(m.DeleteTopicRequest(topic=name)),
        ],
    ),
    (
        READ_GROUP,
        GROUPS,
        [
            _kafka_heartbeat,
            lambda caller, name: caller.asks("POST", f"/v1/groups/{name}/members/m/heartbeat", json=OWNER),
            lambda caller, name: caller.asks("DELETE", f"/v1/groups/{name}/members/m"),
            lambda caller, name: caller.binary(m.HeartbeatRequest(group=name, member_id="m", generation=1)),
            lambda caller, name: caller.binary(m.LeaveGroupRequest(group=name, member_id="m")),
        ],
    ),
    (
        DESCRIBE_GROUP,
        GROUPS,
        [
            _kafka_describe_group,
            _kafka_find_group,
            lambda caller, name: caller.asks("GET", f"/v1/groups/{name}"),
            lambda caller, name: caller.asks("GET", f"/v1/groups/{name}/lag/history"),
        ],
    ),
    (
        _operation(Operation.DELETE, GROUP),
        GROUPS,
        [_kafka_delete_group, lambda caller, name: caller.asks("DELETE", f"/v1/groups/{name}")],
    ),
    (
        _may_own,
        TOPICS,
        [
            _kafka_commit,
            lambda caller, name: caller.asks("PUT", f"/v1/groups/abc/partitions/{name}/0/owner", json=OWNER),
            lambda caller, name: caller.asks(
                "PUT", f"/v1/groups/abc/partitions/{name}/0/offset", json={**OWNER, "offset": 0}
            ),
            lambda caller, name: caller.asks(
                "POST", "/v1/groups/abc/ack", json={"lease": lease("abc", name)}
            ),
            lambda caller, name: caller.asks(
                "POST", "/v1/groups/abc/nack", json={"lease": lease("abc", name)}
            ),
            lambda caller, name: caller.asks(
                "POST", "/v1/groups/abc/extend", json={"lease": lease("abc", name)}
            ),
            lambda caller, name: caller.asks(
                "POST", "/v1/groups/abc/poll", json={"topics": [name], "max_records": 0}
            ),
            lambda caller, name: caller.asks(
                "POST", "/v1/groups/abc/members", json={"topics": [name], "session_timeout_ms": 1}
            ),
            lambda caller, name: caller.binary(m.AckRequest(group="abc", lease=lease("abc", name))),
            lambda caller, name: caller.binary(m.NackRequest(group="abc", lease=lease("abc", name))),
            lambda caller, name: caller.binary(
                m.ExtendRequest(group="abc", lease=lease("abc", name), lease_ms=1)
            ),
            lambda caller, name: caller.binary(m.PollRequest(group="abc", topics=[name])),
            lambda caller, name: caller.binary(
                m.CommitRequest(group="abc", member_id="m", generation=1, topic=name, partition=0, offset=0)
            ),
        ],
    ),
    (
        lambda may, name: may(Operation.DESCRIBE, GROUP, "abc") and may(Operation.DESCRIBE, TOPIC, name),
        TOPICS,
        [
            _kafka_committed,
            lambda caller, name: caller.asks("GET", f"/v1/groups/abc/partitions/{name}/0/offset"),
            lambda caller, name: caller.binary(m.CommittedRequest(group="abc", topic=name, partition=0)),
        ],
    ),
    (
        _operation(Operation.WRITE, TRANSACTIONAL_ID),
        ("a", "abc"),
        [
            _kafka_transactional_id,
            lambda caller, name: caller.asks("POST", f"/v1/producers?name={quote(name)}&version=1"),
            lambda caller, name: caller.binary(m.NamedProducerRequest(name=name, version=1)),
        ],
    ),
    (
        _operation(Operation.DESCRIBE, CLUSTER),
        (CLUSTER_NAME,),
        [
            _kafka_log_dirs,
            lambda caller, _name: caller.asks("GET", "/v1/cdc"),
            lambda caller, _name: caller.asks("GET", "/v1/replica"),
            lambda caller, _name: caller.asks("GET", "/v1/overview"),
            lambda caller, _name: caller.asks("GET", "/v1/overview/history"),
            lambda caller, _name: caller.asks("GET", "/v1/connections"),
            lambda caller, _name: caller.asks("GET", "/v1/acls"),
            lambda caller, _name: caller.asks("GET", "/metrics"),
        ],
    ),
    (
        _operation(Operation.ALTER, CLUSTER),
        (CLUSTER_NAME,),
        [
            lambda caller, _name: caller.asks("POST", "/v1/cdc", json={"action": "add", "tables": ["t"]}),
        ],
    ),
]


async def check_policy(served: Listeners, authorizer: Authorizer, seed: int, share: float) -> tuple[int, int]:
    """Ask a random ``share`` of all questions, as one client under one random policy.

    Returns how many were asked, and how many of them were allowed.
    """
    rng = random.Random(seed)
    acls = random_acls(rng)
    await replace_rules(authorizer, acls)
    principal, host = Principal.parse(rng.choice(PRINCIPALS)), rng.choice(HOSTS)

    def may(operation: Operation, kind: ResourceType, name: str) -> bool:
        return is_allowed(acls, str(principal), host, operation, kind, name)

    async def as_client(scope: Scope, receive: Receive, send: Send) -> None:
        scope["stele.principal"] = principal
        scope["stele.access"] = authorizer.access("http", principal, host)
        await served.application(scope, receive, send)

    asked = allowed = 0
    transport = httpx.ASGITransport(as_client)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        caller = Caller(served, authorizer, principal, host, http)
        for right, names, questions in CASES:
            for name in names:
                is_right = right(may, name)
                for number, question in enumerate(questions):
                    if rng.random() >= share:
                        continue
                    context = seed, principal, host, name, CASES.index((right, names, questions)), number
                    assert await question(caller, name) is is_right, context
                    asked += 1
                    allowed += is_right
    return asked, allowed


async def check_policies(path: Path, seeds: range, share: float = 1.0) -> None:
    authorizer = await authorizer_over()
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(listeners(path, authorizer=authorizer))
        await served.broker.create_topic("ab")
        counts: list[tuple[int, int]] = []
        for seed in seeds:
            for name in ("b", "c"):
                if served.broker.has_topic(name):
                    await served.broker.delete_topic(name)
            if not served.broker.has_topic("ab"):
                await served.broker.create_topic("ab")
            counts.append(await check_policy(served, authorizer, seed, share))
    asked, allowed = (sum(column) for column in zip(*counts, strict=True))
    # Over many policies, 4 % of the questions have a yes.
    assert asked * 0.02 < allowed < asked * 0.8


@pytest.mark.parametrize("seeds", seed_ranges(SEEDS, SEEDS))
async def test_all_listeners_decide_alike(seeds: range, tmp_path: Path) -> None:
    await check_policies(tmp_path, seeds, 1 if seeds[0] < SEEDS else SHARE_OF_QUESTIONS)


async def test_a_client_is_no_follower_without_the_right(tmp_path: Path) -> None:
    """Sessions of followers push out those of clients; a client that may read could pass for one (CVE-2018-1288)."""
    authorizer = await authorizer_over()
    alice = Principal("alice")
    read = Acl(resource_type=TOPIC, resource_name="ab", principal=str(alice), operation=Operation.READ)
    act = Acl(
        resource_type=CLUSTER,
        resource_name=CLUSTER_NAME,
        principal=str(alice),
        operation=Operation.CLUSTER_ACTION,
    )
    async with listeners(tmp_path, authorizer=authorizer) as served:
        await served.broker.create_topic("ab")
        caller = Caller(served, authorizer, alice, HOSTS[0], served.http)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1, log_start_offset=-1)
        request = FetchRequest(
            replica_id=1,
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic="ab", partitions=[partition])],
            session_id=0,
            session_epoch=0,
        )
        for rules, is_privileged in (([read], False), ([act], True)):
            await authorizer.acls.add(rules)
            session_id = (await caller.kafka(request, 11)).session_id
            assert served.kafka.fetch_sessions._sessions[session_id].is_privileged is is_privileged


def test_the_matrix_asks_for_each_kind_of_refusal() -> None:
    assert {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    } == REFUSALS
    assert m.ProduceRequest not in HANDLERS
