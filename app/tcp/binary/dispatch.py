"""The table of what the binary protocol serves: one handler per message."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from stele.wire import messages as m

from ..deferred_response import DeferredResponse
from ..response_queue import Buffers
from .handlers import fetch, groups, leases, produce, simple, tables, topics, transactions
from .handlers.context import Answer, BinaryListener

# A METADATA response of 10,000 topics is about this large.
_METADATA_BYTES = 1024 * 1024
_LIST_OFFSETS_BYTES = 64
# One record; larger ones are rare.
_LOOK_UP_KEY_BYTES = 4096

# PRODUCE of ADR-0009 is not here: it arrives in runs, which ``BinaryConnection`` appends together.
HANDLERS: dict[type[m.Request], Callable[[BinaryListener, Any], Answer]] = {
    m.ConsumeRequest: simple.consume,
    m.FlushRequest: simple.flush,
    m.MetadataRequest: topics.metadata,
    m.HttpListenerRequest: topics.http_listener,
    m.ProduceBatchRequest: produce.produce_batch,
    m.ConditionalProduceRequest: produce.produce_batch,
    m.FetchRequest: fetch.fetch,
    m.ListOffsetsRequest: fetch.list_offsets,
    m.IsolatedFetchRequest: fetch.fetch,
    m.TopicFetchRequest: fetch.fetch,
    m.IsolatedListOffsetsRequest: fetch.list_offsets,
    m.CreateTopicRequest: topics.create_topic,
    m.DeleteTopicRequest: topics.delete_topic,
    m.DescribeTopicRequest: topics.describe_topic,
    m.AlterTopicRequest: topics.alter_topic,
    m.InitProducerIdRequest: produce.init_producer_id,
    m.FlushTopicRequest: produce.flush_topic,
    m.NamedProducerRequest: produce.named_producer,
    m.ProducerStateRequest: produce.producer_state,
    m.JoinGroupRequest: groups.join_group,
    m.HeartbeatRequest: groups.heartbeat,
    m.LeaveGroupRequest: groups.leave_group,
    m.ClaimRequest: groups.claim,
    m.ReleaseRequest: groups.release,
    m.CommitRequest: groups.commit,
    m.CommittedRequest: groups.committed,
    m.OwnerFetchRequest: groups.owner_fetch,
    m.PollRequest: leases.poll,
    m.AckRequest: leases.ack,
    m.NackRequest: leases.nack,
    m.ExtendRequest: leases.extend,
    m.LookUpKeyRequest: tables.look_up_key,
    m.TableFetchRequest: tables.table_fetch,
    m.InitTransactionsRequest: transactions.init_transactions,
    m.InitUnlessOpenRequest: transactions.init_unless_open,
    m.TransactionalProduceRequest: produce.produce_batch,
    m.EndTransactionRequest: transactions.end_transaction,
    m.CommitTransactionsRequest: transactions.commit_transactions,
    m.MirrorAppendRequest: produce.mirror_append,
}


# Their handlers look for topics themselves: they name several, of which a client may see some.
_LOOK_THEMSELVES = (m.MetadataRequest, m.FetchRequest, m.IsolatedFetchRequest, m.CreateTopicRequest)


def begin(listener: BinaryListener, request: m.Request) -> Answer:
    """Hand a request to its handler, after a look for an unknown topic.

    Raises ``SteleError``.
    """
    broker, handle = listener.broker, HANDLERS[type(request)]
    if not broker.cluster.is_shared or isinstance(request, _LOOK_THEMSELVES):
        return handle(listener, request)
    names, partitions = _named(request)
    if broker.knows(names, partitions=partitions):
        return handle(listener, request)
    return _after_look(listener, request, names, partitions)


async def _after_look(
    listener: BinaryListener, request: m.Request, names: Sequence[str], partitions: Sequence[tuple[str, int]]
) -> Buffers:
    await listener.broker.try_to_find_topics(names, partitions=partitions)
    answer = HANDLERS[type(request)](listener, request)
    if isinstance(answer, DeferredResponse):
        return await answer.wait()
    return await answer if isinstance(answer, Coroutine) else answer


def _named(request: m.Request) -> tuple[Sequence[str], Sequence[tuple[str, int]]]:
    """Return the topics and the partition that a request names."""
    topic: str | None = getattr(request, "topic", None)
    if topic is None:
        return (list(getattr(request, "topics", ())), ())
    partition: int = getattr(request, "partition", -1)
    return ((topic,), ((topic, partition),) if partition >= 0 else ())


def answer_bytes_max(listener: BinaryListener, request: m.Request) -> int | None:
    """Return about how large the response to a read may be; None for requests that do not read."""
    match request:
        case m.ConsumeRequest():
            return simple.CONSUME_BYTES_MAX
        case m.FetchRequest() | m.OwnerFetchRequest() | m.PollRequest() | m.TableFetchRequest():
            return listener.broker.unread.bytes_of_fetch(request.max_bytes)
        case m.MetadataRequest():
            return _METADATA_BYTES
        case m.ListOffsetsRequest():
            return _LIST_OFFSETS_BYTES
        case m.LookUpKeyRequest():
            return _LOOK_UP_KEY_BYTES
        case _:
            return None


_LIMITED = (m.FetchRequest, m.OwnerFetchRequest, m.PollRequest, m.TableFetchRequest)
_READS_RECORDS = (*_LIMITED, m.ConsumeRequest, m.LookUpKeyRequest)


def reads_records(request: m.Request) -> bool:
    """Return whether the response carries records, which consumers' quotas count."""
    return isinstance(request, _READS_RECORDS)


def sees_records(request: m.Request) -> bool:
    """Return whether the response depends on which records are in the log."""
    return isinstance(request, m.ListOffsetsRequest) or reads_records(request)


def limited(request: m.Request, bytes_max: int | None) -> m.Request:
    """Return ``request``, and if it reads records, with ``bytes_max`` as their limit."""
    if bytes_max is not None and isinstance(request, _LIMITED) and request.max_bytes > bytes_max:
        return replace(request, max_bytes=bytes_max)
    return request


def is_barrier(request: m.Request) -> bool:
    """Return True if no later request may begin before this one has ended."""
    match request:
        case m.CreateTopicRequest() | m.DeleteTopicRequest() | m.AlterTopicRequest():
            return True
        case m.MetadataRequest():
            return request.auto_create
        case _:
            return False
