"""Each request of the binary protocol, over a socket: without any one of its rights, and with no others.

Of rights that stand for each other, such as CREATE on the cluster and on the topic, each one suffices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
from stele.wire import messages as m

from app.groups.leases.lease import Lease, LeasedPartition
from app.security.acl import (
    ALTER_CONFIGS_TOPIC,
    ALTER_TOPIC,
    CLUSTER_ACTION_CLUSTER,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_CONFIGS_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    IDEMPOTENT_WRITE_CLUSTER,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Acl,
    Action,
)
from app.tcp.binary.guards import GUARDS
from tests.support.acls import authorizer_over, replace_rules
from tests.support.binary_peer import Peer
from tests.support.listeners import listeners
from tests.support.rights import (
    GROUP,
    NEW_TOPIC,
    REFUSAL_CODES,
    TOPIC,
    TRANSACTIONAL_ID,
    Needs,
    Refusal,
    check_needs,
    code_of,
)

# The place of a refusal of the whole request.
WHOLE = "error"
CREATE = (CREATE_TOPIC, CREATE_CLUSTER)
SOMEWHERE: Needs = {(IDEMPOTENT_WRITE_CLUSTER, WRITE_TOPIC): WHOLE}
OF_GROUP_AND_TOPIC: Needs = {(READ_GROUP,): WHOLE, (READ_TOPIC,): WHOLE}
OWNER: dict[str, Any] = {"group": GROUP, "member_id": "m", "generation": 1, "topic": TOPIC, "partition": 0}
LEASE = Lease(
    group=GROUP,
    lease_id="made-up",
    partitions=[LeasedPartition(topic=TOPIC, partition=0, offset=0, next_offset=1)],
).token()


def need(action: Action) -> Needs:
    return {(action,): WHOLE}


# By type: a request, and its rights.
CASES: list[tuple[m.Request, Needs]] = [
    (m.ProduceRequest(topic=TOPIC, data=b"x"), need(WRITE_TOPIC)),
    (m.ProduceRequest(topic=NEW_TOPIC, data=b"x"), {(WRITE_TOPIC,): WHOLE, CREATE: WHOLE}),
    (m.ConsumeRequest(topic=TOPIC, offset=0, batch_size=1), need(READ_TOPIC)),
    (m.FlushRequest(), SOMEWHERE),
    (m.MetadataRequest(topics=[TOPIC]), {(DESCRIBE_TOPIC,): "topics.code"}),
    (m.MetadataRequest(topics=None), {(DESCRIBE_TOPIC,): lambda answer: not answer.topics}),
    (
        m.MetadataRequest(auto_create=True, topics=[NEW_TOPIC]),
        {(DESCRIBE_TOPIC,): "topics.code", CREATE: "topics.code"},
    ),
    (
        m.ProduceBatchRequest(topic=NEW_TOPIC, partition=0, acks=1, batches=b""),
        {(WRITE_TOPIC,): WHOLE, CREATE: WHOLE},
    ),
    (
        m.ConditionalProduceRequest(topic=NEW_TOPIC, partition=0, acks=1, batches=b"", expected_end=0),
        {(WRITE_TOPIC,): WHOLE, CREATE: WHOLE},
    ),
    (
        m.MirrorAppendRequest(
            topic=TOPIC, topic_id=bytes(16), partition=0, expected_end=0, log_start_offset=-1, batches=b""
        ),
        {(CLUSTER_ACTION_CLUSTER,): WHOLE},
    ),
    *(
        (
            kind(partitions=[m.FetchPartition(topic=TOPIC, partition=0, offset=0)]),
            {(READ_TOPIC,): "partitions.code"},
        )
        for kind in (m.FetchRequest, m.IsolatedFetchRequest)
    ),
    (
        m.TopicFetchRequest(
            partitions=[m.FetchPartition(topic=TOPIC, partition=0, offset=0)],
            topic_ids=[m.TopicIdentity(topic=TOPIC, topic_id=bytes(16))],
        ),
        {(READ_TOPIC,): "partitions.code"},
    ),
    *(
        (kind(topic=TOPIC, partition=0, timestamp_ms=-1), need(DESCRIBE_TOPIC))
        for kind in (m.ListOffsetsRequest, m.IsolatedListOffsetsRequest)
    ),
    (m.CreateTopicRequest(topic=NEW_TOPIC), {CREATE: WHOLE}),
    (m.DeleteTopicRequest(topic="missing"), need(DELETE_TOPIC)),
    (
        m.DescribeTopicRequest(topic=TOPIC),
        {(DESCRIBE_TOPIC,): WHOLE, (DESCRIBE_CONFIGS_TOPIC,): lambda answer: not answer.configs},
    ),
    (
        m.AlterTopicRequest(topic=TOPIC, partitions=1, configs=[("retention.ms", "1000")]),
        {(DESCRIBE_TOPIC,): WHOLE, (ALTER_TOPIC,): WHOLE, (ALTER_CONFIGS_TOPIC,): WHOLE},
    ),
    (m.InitProducerIdRequest(), SOMEWHERE),
    (m.FlushTopicRequest(topic=TOPIC), need(WRITE_TOPIC)),
    (m.NamedProducerRequest(name=TRANSACTIONAL_ID, version=1), need(WRITE_TRANSACTIONAL_ID)),
    (
        m.ProducerStateRequest(topic=TOPIC, partition=0, producer_id=1),
        {(WRITE_TOPIC, READ_TOPIC): WHOLE},
    ),
    (m.JoinGroupRequest(group=GROUP, session_timeout_ms=10_000, topics=[TOPIC]), OF_GROUP_AND_TOPIC),
    (m.HeartbeatRequest(group=GROUP, member_id="m", generation=1), need(READ_GROUP)),
    (m.LeaveGroupRequest(group=GROUP, member_id="m"), need(READ_GROUP)),
    (m.ClaimRequest(**OWNER), OF_GROUP_AND_TOPIC),
    (m.ReleaseRequest(**OWNER), OF_GROUP_AND_TOPIC),
    (m.CommitRequest(**OWNER, offset=0), OF_GROUP_AND_TOPIC),
    (m.OwnerFetchRequest(**OWNER, offset=0), OF_GROUP_AND_TOPIC),
    (
        m.CommittedRequest(group=GROUP, topic=TOPIC, partition=0),
        {(DESCRIBE_GROUP,): WHOLE, (DESCRIBE_TOPIC,): WHOLE},
    ),
    (m.PollRequest(group=GROUP, topics=[TOPIC]), OF_GROUP_AND_TOPIC),
    (m.AckRequest(group=GROUP, lease=LEASE), OF_GROUP_AND_TOPIC),
    (m.NackRequest(group=GROUP, lease=LEASE), OF_GROUP_AND_TOPIC),
    (m.ExtendRequest(group=GROUP, lease=LEASE, lease_ms=1000), OF_GROUP_AND_TOPIC),
    (m.LookUpKeyRequest(topic=TOPIC, key=b"k"), need(READ_TOPIC)),
    (m.TableFetchRequest(topic=TOPIC, partition=0), need(READ_TOPIC)),
    (
        m.InitTransactionsRequest(transactional_id=TRANSACTIONAL_ID, timeout_ms=60_000),
        need(WRITE_TRANSACTIONAL_ID),
    ),
    (
        m.InitUnlessOpenRequest(transactional_id=TRANSACTIONAL_ID, timeout_ms=60_000),
        need(WRITE_TRANSACTIONAL_ID),
    ),
    (
        m.TransactionalProduceRequest(
            topic=NEW_TOPIC, partition=0, acks=-1, batches=b"", transactional_id=TRANSACTIONAL_ID
        ),
        {(WRITE_TRANSACTIONAL_ID,): WHOLE, (WRITE_TOPIC,): WHOLE, CREATE: WHOLE},
    ),
    (
        m.EndTransactionRequest(
            transactional_id=TRANSACTIONAL_ID, producer_id=1, producer_epoch=0, is_commit=True
        ),
        need(WRITE_TRANSACTIONAL_ID),
    ),
    (
        m.CommitTransactionsRequest(
            transactions=[
                m.OpenTransaction(transactional_id=TRANSACTIONAL_ID, producer_id=1, producer_epoch=0)
            ]
        ),
        need(WRITE_TRANSACTIONAL_ID),
    ),
    (m.CommitTransactionsRequest(transactions=[], abandoned_prefix="x"), need(WRITE_TRANSACTIONAL_ID)),
]


def refusals_in(answer: Any) -> set[Refusal]:
    """Where a response reports a missing right, and its code; the six simple messages have the text alone."""
    if isinstance(answer, m.ErrorResponse):
        if answer.response_type <= m.LAST_ADR_0009_TYPE:
            return {(WHOLE, 0)} if "is not allowed to" in answer.message else set()
        return {(WHOLE, int(answer.code))} & {(WHOLE, code) for code in REFUSAL_CODES}
    parts = [
        (field.name, int(getattr(part, "code", 0)))
        for field in fields(answer)
        if isinstance(getattr(answer, field.name), list | tuple)
        for part in cast("Sequence[object]", getattr(answer, field.name))
    ]
    return {(f"{name}.code", code) for name, code in parts if code in REFUSAL_CODES}


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("request_", "needs"), CASES, ids=[f"{type(one).__name__} {n}" for n, (one, _) in enumerate(CASES)]
)
async def test_a_request_needs_each_of_its_rights_and_no_others(
    request_: m.Request, needs: Needs, tmp_path: Path
) -> None:
    authorizer = await authorizer_over()
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(listeners(tmp_path, authorizer=authorizer))
        await at.broker.create_topic(TOPIC)

        async def answer(rules: Sequence[Acl]) -> Any:
            if at.broker.has_topic(NEW_TOPIC):
                await at.broker.delete_topic(NEW_TOPIC)
            await replace_rules(authorizer, rules)

            def call() -> Any:
                with Peer(at) as peer:
                    return peer.call(request_)

            return await asyncio.to_thread(call)

        is_simple = request_.TYPE <= m.LAST_ADR_0009_TYPE
        await check_needs(needs, answer, refusals_in, code=lambda right: 0 if is_simple else code_of(right))


def test_every_request_and_every_right_of_it_is_tried() -> None:
    declared = {(kind, right) for kind, guard in GUARDS.items() for right in guard.rights}
    tried = {(type(one), right) for one, needs in CASES for rights in needs for right in rights}
    assert declared == tried
