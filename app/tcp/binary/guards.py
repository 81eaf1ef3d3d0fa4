"""The rights that each message of the binary protocol requires.

One without a row is refused.

Whether something exists is never looked at before the right. METADATA and FETCH of
several topics are refused topic by topic, in their handlers. AUTHENTICATE needs no right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stele.wire import messages as m

from ...groups.leases.lease import Lease
from ...security.acl import (
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
    Action,
)
from ...security.authorizer import Access
from ...work_budget import Pace, Steps, in_turns
from .handlers.context import BinaryListener

# Raises AuthorizationError. In steps where a request names any number of resources.
Check = Callable[[BinaryListener, Access, Any], Steps[None] | None]


# A check takes about 2 µs, more if it is the first of a name.
_PIECES_OF_CHECK = 10


@dataclass(frozen=True, slots=True)
class Guard:
    """The rights that a message needs, and the check of them.

    ``check`` is None if the handler checks.
    """

    rights: tuple[Action, ...]
    check: Check | None


def check_produce(listener: BinaryListener, access: Access, topic: str) -> None:
    """Check the right to write to ``topic``, and to create it where that is needed."""
    access.require(WRITE_TOPIC, topic)
    broker = listener.broker
    if not broker.has_topic(topic) and broker.settings.auto_create_topics_enable:
        access.require_create(topic)


def _check_read(listener: BinaryListener, access: Access, request: m.ConsumeRequest) -> None:
    topic = request.topic
    if topic != access.read_last and not access.may_read(topic):
        raise READ_TOPIC.error(str(access.principal), topic)


def _topic(action: Action) -> Guard:
    return Guard((action,), lambda listener, access, request: access.require(action, request.topic))


def _group(action: Action, topic_action: Action | None = None) -> Guard:
    def check(listener: BinaryListener, access: Access, request: Any) -> None:
        access.require(action, request.group)
        if topic_action is not None:
            access.require(topic_action, request.topic)

    return Guard((action,) if topic_action is None else (action, topic_action), check)


def _require_each(access: Access, action: Action, names: Iterable[str]) -> Steps[None]:
    pace = Pace()
    for name in names:
        access.require(action, name)
        if pace.is_due(_PIECES_OF_CHECK):
            yield


def _check_topics(listener: BinaryListener, access: Access, request: Any) -> Steps[None]:
    access.require(READ_GROUP, request.group)
    return _require_each(access, READ_TOPIC, request.topics)


def _check_lease(listener: BinaryListener, access: Access, request: Any) -> Steps[None]:
    """Check all that the lease holds, because anybody can make one up."""
    access.require(READ_GROUP, request.group)
    lease = Lease.of_token(request.group, request.lease)
    return _require_each(access, READ_TOPIC, {part.topic for part in lease.partitions})


def _check_alter(listener: BinaryListener, access: Access, request: m.AlterTopicRequest) -> None:
    access.require(DESCRIBE_TOPIC, request.topic)
    if request.partitions != m.DEFAULT_PARTITIONS:
        access.require(ALTER_TOPIC, request.topic)
    if request.configs or request.partitions == m.DEFAULT_PARTITIONS:
        access.require(ALTER_CONFIGS_TOPIC, request.topic)


_LEASE = Guard((READ_GROUP, READ_TOPIC), _check_lease)
_TOPICS = Guard((READ_GROUP, READ_TOPIC), _check_topics)
_OWNED = _group(READ_GROUP, READ_TOPIC)
_SOMEWHERE = Guard(
    (IDEMPOTENT_WRITE_CLUSTER, WRITE_TOPIC),
    lambda listener, access, request: access.require_write_somewhere(),
)


def _check_transactional_produce(
    listener: BinaryListener, access: Access, request: m.TransactionalProduceRequest
) -> None:
    access.require(WRITE_TRANSACTIONAL_ID, request.transactional_id)
    check_produce(listener, access, request.topic)


def _check_commit(
    listener: BinaryListener, access: Access, request: m.CommitTransactionsRequest
) -> Steps[None]:
    ids = [transaction.transactional_id for transaction in request.transactions]
    if request.abandoned_prefix is not None:
        # Otherwise a refusal would tell which ids with the prefix have open transactions.
        ids.append(request.abandoned_prefix)
    return _require_each(access, WRITE_TRANSACTIONAL_ID, ids)


_TRANSACTION = Guard(
    (WRITE_TRANSACTIONAL_ID,),
    lambda listener, access, request: access.require(WRITE_TRANSACTIONAL_ID, request.transactional_id),
)

_PRODUCE = Guard(
    (WRITE_TOPIC, CREATE_TOPIC, CREATE_CLUSTER),
    lambda listener, access, request: check_produce(listener, access, request.topic),
)

GUARDS: dict[type[m.Request], Guard] = {
    m.ProduceRequest: _PRODUCE,
    m.ProduceBatchRequest: _PRODUCE,
    m.ConditionalProduceRequest: _PRODUCE,
    m.ConsumeRequest: Guard((READ_TOPIC,), _check_read),
    m.FlushRequest: _SOMEWHERE,
    # By topic, in the handler.
    m.MetadataRequest: Guard((DESCRIBE_TOPIC, CREATE_TOPIC, CREATE_CLUSTER), None),
    # Every client that may connect may know the listeners.
    m.HttpListenerRequest: Guard((), None),
    m.FetchRequest: Guard((READ_TOPIC,), None),
    m.IsolatedFetchRequest: Guard((READ_TOPIC,), None),
    m.TopicFetchRequest: Guard((READ_TOPIC,), None),
    m.ListOffsetsRequest: _topic(DESCRIBE_TOPIC),
    m.IsolatedListOffsetsRequest: _topic(DESCRIBE_TOPIC),
    m.CreateTopicRequest: Guard(
        (CREATE_TOPIC, CREATE_CLUSTER),
        lambda listener, access, request: access.require_create(request.topic),
    ),
    m.DeleteTopicRequest: _topic(DELETE_TOPIC),
    # The handler leaves configurations out without DESCRIBE_CONFIGS.
    m.DescribeTopicRequest: Guard(
        (DESCRIBE_TOPIC, DESCRIBE_CONFIGS_TOPIC),
        lambda listener, access, request: access.require(DESCRIBE_TOPIC, request.topic),
    ),
    m.AlterTopicRequest: Guard((DESCRIBE_TOPIC, ALTER_TOPIC, ALTER_CONFIGS_TOPIC), _check_alter),
    m.InitProducerIdRequest: _SOMEWHERE,
    m.FlushTopicRequest: _topic(WRITE_TOPIC),
    m.NamedProducerRequest: Guard(
        (WRITE_TRANSACTIONAL_ID,),
        lambda listener, access, request: access.require(WRITE_TRANSACTIONAL_ID, request.name),
    ),
    m.ProducerStateRequest: Guard(
        (WRITE_TOPIC, READ_TOPIC),
        lambda listener, access, request: access.require_producer_state(request.topic),
    ),
    m.JoinGroupRequest: _TOPICS,
    m.HeartbeatRequest: _group(READ_GROUP),
    m.LeaveGroupRequest: _group(READ_GROUP),
    m.ClaimRequest: _OWNED,
    m.ReleaseRequest: _OWNED,
    m.CommitRequest: _OWNED,
    m.CommittedRequest: _group(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    m.OwnerFetchRequest: _OWNED,
    m.PollRequest: _TOPICS,
    m.AckRequest: _LEASE,
    m.NackRequest: _LEASE,
    m.ExtendRequest: _LEASE,
    m.LookUpKeyRequest: _topic(READ_TOPIC),
    m.TableFetchRequest: _topic(READ_TOPIC),
    m.InitTransactionsRequest: _TRANSACTION,
    m.InitUnlessOpenRequest: _TRANSACTION,
    m.TransactionalProduceRequest: Guard(
        (WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CREATE_TOPIC, CREATE_CLUSTER), _check_transactional_produce
    ),
    m.EndTransactionRequest: _TRANSACTION,
    # The handler also checks the transactions that it finds by their prefix.
    m.CommitTransactionsRequest: Guard((WRITE_TRANSACTIONAL_ID,), _check_commit),
    m.MirrorAppendRequest: Guard(
        (CLUSTER_ACTION_CLUSTER,), lambda listener, access, request: access.require(CLUSTER_ACTION_CLUSTER)
    ),
}


async def check(listener: BinaryListener, request: m.Request) -> None:
    """Raise AuthorizationError if the client may not send ``request``; with pauses."""
    access = listener.access
    if access is not None and (guard_check := GUARDS[type(request)].check) is not None:
        steps = guard_check(listener, access, request)
        if steps is not None:
            await in_turns(steps)
