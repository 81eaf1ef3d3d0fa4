"""Guards of APIs for topics and records.

They list, create and delete topics, and write and read records.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import replace
from itertools import repeat
from typing import Any, cast

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.configs import ResourceType as ConfigResourceType
from stele.wire.kafka.metadata import (
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from stele.wire.kafka.produce import ProduceRequest, ProduceResponse
from stele.wire.kafka.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from stele.wire.schema import NO_UUID

from ....broker.topics import INTERNAL_TOPICS
from ....security.acl import (
    CLUSTER_NAME,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_CONFIGS_CLUSTER,
    DESCRIBE_CONFIGS_GROUP,
    DESCRIBE_CONFIGS_TOPIC,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Action,
    ResourceType,
)
from ....security.authorizer import Access
from ....work_budget import Pace, Steps, mapped
from ..context import Answer, Context, NoResponse
from . import authorized
from .refusals import access_of, code_of, refused, then, with_code
from .rights import (
    PIECES_OF_CHECK,
    PIECES_OF_REFUSAL,
    Guard,
    Handle,
    Parts,
    divided,
    name_of,
    split,
    with_more,
)

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TEXT = "Topic authorization failed."
_FIRST_METADATA_WITH_CHOICE = 4
_FIRST_METADATA_WITH_NULL = 1


# ── records ──

_PRODUCED = Parts(
    field="topic_data",
    name="name",
    answers="responses",
    answer_name="name",
    partitions="partition_data",
    index="index",
    answer_partitions="partition_responses",
    answer_index="index",
)


def _check_produce(context: Context, request: ProduceRequest, handle: Handle) -> Answer | Steps[Answer]:
    if (
        request.transactional_id is None
        and not context.is_long
        and _may_produce_to_all(context, access_of(context), request)
    ):
        return handle(context, request)
    return _check_each_produce(context, request, handle)


def _check_each_produce(context: Context, request: ProduceRequest, handle: Handle) -> Steps[Answer]:
    access = access_of(context)
    code, transactional_id = _REFUSED, request.transactional_id
    if transactional_id is not None and not access.allows(WRITE_TRANSACTIONAL_ID, transactional_id):
        allowed, denied = list[Any](), list(request.topic_data)
        code = code_of(WRITE_TRANSACTIONAL_ID)
    else:
        allowed, denied = yield from split(
            context, request.topic_data, "name", lambda name: _may_produce(context, access, name)
        )
    if not denied:
        return handle(context, request)
    rest = replace(request, topic_data=allowed)
    if request.acks == 0:
        return _unanswered(handle(context, rest), WRITE_TOPIC.error(str(access.principal), denied[0].name))
    refusals = yield from _PRODUCED.refuse(ProduceResponse, zip(denied, repeat(code), strict=False))
    return (
        yield from then(handle(context, rest), lambda response: with_more(response, "responses", refusals))
    )


def _may_produce_to_all(context: Context, access: Access, request: ProduceRequest) -> bool:
    """Return whether nothing is refused.

    For requests with one topic, as most are, the shortest way.
    """
    has_topic = context.broker.has_topic
    for topic in request.topic_data:
        name = topic.name or name_of(context, topic, "name")
        if not name or not has_topic(name) or not access.allows(WRITE_TOPIC, name):
            return False
    return True


def _may_produce(context: Context, access: Access, topic: str) -> bool:
    if not access.allows(WRITE_TOPIC, topic):
        return False
    broker = context.broker
    is_made = broker.settings.auto_create_topics_enable and topic and not broker.has_topic(topic)
    return not is_made or topic in INTERNAL_TOPICS or access.may_create(topic)


def _unanswered(answer: Answer, failure: Any) -> Answer:
    """Return the outcome of a produce without a response, which closes the connection."""
    if not isinstance(answer, Coroutine):
        return NoResponse(failure)

    async def later() -> NoResponse:
        await cast("Coroutine[Any, Any, Any]", answer)
        return NoResponse(failure)

    return later()


PRODUCE = Guard((WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, CREATE_TOPIC, CREATE_CLUSTER), _check_produce)


# The handler checks: it must again after a wait.
FETCH = Guard((READ_TOPIC,), lambda context, request, handle: handle(context, request))


# ── which topics there are ──


def _check_metadata(context: Context, request: MetadataRequest, handle: Handle) -> Steps[Answer]:
    access = access_of(context)
    wants_all = request.topics is None or (context.version < _FIRST_METADATA_WITH_NULL and not request.topics)
    refusals: list[MetadataResponseTopic] = []
    if not wants_all:
        creates = context.version < _FIRST_METADATA_WITH_CHOICE or request.allow_auto_topic_creation
        allowed, denied = yield from divided(
            request.topics or (), lambda topic: _may_look(context, access, topic, creates=creates)
        )
        refusals = yield from mapped(_not_described, denied, pieces=PIECES_OF_REFUSAL)
        request = replace(request, topics=allowed)
        if context.version < _FIRST_METADATA_WITH_NULL:
            # In v0 an empty list means all topics.
            context = replace(context, version=_FIRST_METADATA_WITH_NULL)

    def is_seen(topic: MetadataResponseTopic) -> bool:
        if wants_all and topic.name is not None and not access.sees(DESCRIBE_TOPIC, topic.name):
            return False
        if topic.topic_authorized_operations != authorized.NOT_ASKED and topic.name is not None:
            topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
        return True

    def seen(response: MetadataResponse) -> Steps[MetadataResponse]:
        topics, _ = yield from divided(response.topics, is_seen)
        return replace(
            response,
            topics=[*topics, *refusals],
            cluster_authorized_operations=on_cluster_bits(access, response.cluster_authorized_operations),
        )

    return (yield from then(handle(context, request), seen))


def _may_look(context: Context, access: Access, topic: MetadataRequestTopic, *, creates: bool) -> bool:
    name = name_of(context, topic, "name") if topic.name is None else topic.name
    if name is None:
        return True
    if not access.allows(DESCRIBE_TOPIC, name):
        return False
    broker = context.broker
    is_made = (
        creates
        and topic.name is not None
        and broker.settings.auto_create_topics_enable
        and name not in INTERNAL_TOPICS
        and not broker.has_topic(name)
    )
    return not is_made or access.may_create(name)


def _not_described(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    # By name without the id, by id without the name: neither tells of the other.
    return refused(
        MetadataResponseTopic,
        DESCRIBE_TOPIC,
        name=topic.name,
        topic_id=topic.topic_id if topic.name is None else NO_UUID,
    )


def on_cluster_bits(access: Access, asked: int) -> int:
    """Return the operations of the client on the cluster, if they were asked for."""
    return (
        asked if asked == authorized.NOT_ASKED else access.operations(ResourceType.CLUSTER, "kafka-cluster")
    )


METADATA = Guard((DESCRIBE_TOPIC, CREATE_TOPIC, CREATE_CLUSTER), _check_metadata)


def _check_describe_cluster(context: Context, request: Any, handle: Handle) -> Answer:
    # The handler answers at once.
    response = cast("DescribeClusterResponse", handle(context, request))
    bits = on_cluster_bits(access_of(context), response.cluster_authorized_operations)
    return replace(response, cluster_authorized_operations=bits)


# Every client needs the addresses of the brokers.
DESCRIBE_CLUSTER = Guard((), _check_describe_cluster)


_DESCRIBED = Parts(field="topics", name="name", answers="topics", answer_name="name")


def _check_describe_topic_partitions(
    context: Context, request: DescribeTopicPartitionsRequest, handle: Handle
) -> Steps[Answer]:
    access = access_of(context)
    wants_all = not request.topics
    allowed, denied = yield from split(
        context, request.topics, "name", lambda name: access.allows(DESCRIBE_TOPIC, name)
    )
    refusals = yield from _DESCRIBED.refuse_all(DescribeTopicPartitionsResponse, denied, DESCRIBE_TOPIC)
    if denied and not allowed:
        return DescribeTopicPartitionsResponse(topics=refusals)

    def is_seen(topic: DescribeTopicPartitionsResponseTopic) -> bool:
        if wants_all and topic.name is not None and not access.sees(DESCRIBE_TOPIC, topic.name):
            return False
        topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name or "")
        return True

    def seen(response: DescribeTopicPartitionsResponse) -> Steps[DescribeTopicPartitionsResponse]:
        topics, _ = yield from divided(response.topics, is_seen)
        following = response.next_cursor
        if following is not None and wants_all and not access.sees(DESCRIBE_TOPIC, following.topic_name):
            # The name of the next page's first topic must not be told; the next visible one stands for it.
            following = yield from _next_visible(context, access, following)
        return replace(response, topics=[*topics, *refusals], next_cursor=following)

    return (yield from then(handle(context, replace(request, topics=allowed)), seen))


def _next_visible(context: Context, access: Access, cursor: Any) -> Steps[Any]:
    pace = Pace()
    for name in sorted(topic.name for topic in context.broker.readable_topics()):
        if name > cursor.topic_name and access.sees(DESCRIBE_TOPIC, name):
            return replace(cursor, topic_name=name, partition_index=0)
        if pace.is_due(PIECES_OF_CHECK):
            yield
    return None


DESCRIBE_TOPIC_PARTITIONS = Guard((DESCRIBE_TOPIC,), _check_describe_topic_partitions)


# ── creation and deletion ──


def _check_create_topics(context: Context, request: CreateTopicsRequest, handle: Handle) -> Steps[Answer]:
    access = access_of(context)
    allowed, denied = yield from split(context, request.topics, "name", access.may_create)
    refusals = yield from mapped(
        _not_created, dict.fromkeys(topic.name for topic in denied), pieces=PIECES_OF_REFUSAL
    )

    def hide(topic: CreatableTopicResult) -> None:
        if not topic.error_code and not access.sees(DESCRIBE_CONFIGS_TOPIC, topic.name):
            topic.topic_config_error_code = _REFUSED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = ()

    def seen(response: CreateTopicsResponse) -> Steps[CreateTopicsResponse]:
        yield from mapped(hide, response.topics)
        return (yield from with_more(response, "topics", refusals))

    return (yield from then(handle(context, replace(request, topics=allowed)), seen))


def _not_created(name: str) -> CreatableTopicResult:
    return with_code(CreatableTopicResult, _REFUSED, name=name, error_message=_TEXT)


CREATE_TOPICS = Guard((CREATE_TOPIC, CREATE_CLUSTER, DESCRIBE_CONFIGS_TOPIC), _check_create_topics)


def _check_delete_topics(context: Context, request: DeleteTopicsRequest, handle: Handle) -> Steps[Answer]:
    access = access_of(context)
    by_name = yield from mapped(lambda name: DeleteTopicState(name=name), request.topic_names)
    allowed, denied = yield from split(
        context, [*request.topics, *by_name], "name", lambda name: access.allows(DELETE_TOPIC, name)
    )
    if not denied:
        return handle(context, request)
    refusals = yield from mapped(
        lambda topic: _not_deleted(context, access, topic), denied, pieces=PIECES_OF_REFUSAL
    )

    def mixed(response: Any) -> Steps[Any]:
        # Not in the order of the request, which would tell which of the others exist.
        responses = [*response.responses, *refusals]
        pace = Pace()
        for last in range(len(responses) - 1, 0, -1):
            other = random.randrange(last + 1)  # noqa: S311 - it hides an order, and no secret
            responses[last], responses[other] = responses[other], responses[last]
            if pace.is_due():
                yield
        return replace(response, responses=responses)

    return (yield from then(handle(context, replace(request, topics=allowed, topic_names=())), mixed))


def _not_deleted(context: Context, access: Access, topic: DeleteTopicState) -> DeletableTopicResult:
    name = name_of(context, topic, "name")
    is_seen = topic.name is not None or (name is not None and access.sees(DESCRIBE_TOPIC, name))
    return DeletableTopicResult(
        name=name if is_seen else None, topic_id=topic.topic_id, error_code=_REFUSED, error_message=_TEXT
    )


DELETE_TOPICS = Guard((DELETE_TOPIC, DESCRIBE_TOPIC), _check_delete_topics)


# ── configurations ──


def on_configs(response: type, answers: str, of_topic: Action, of_group: Action, of_cluster: Action) -> Guard:
    """Return the guard of an API for configurations of topics, groups and the cluster."""
    actions = {ConfigResourceType.TOPIC: of_topic, ConfigResourceType.GROUP: of_group}
    parts = Parts(field="resources", name="resource_name", answers=answers, answer_name="resource_name")

    def action_of(resource: Any) -> Action:
        return actions.get(resource.resource_type, of_cluster)

    def check(context: Context, request: Any, handle: Handle) -> Steps[Answer]:
        access = access_of(context)

        def is_allowed(resource: Any) -> bool:
            action = action_of(resource)
            return access.allows(action, CLUSTER_NAME if action is of_cluster else resource.resource_name)

        allowed, denied = yield from divided(request.resources, is_allowed)
        if not denied:
            return handle(context, request)
        refusals = yield from parts.refuse(response, ((one, code_of(action_of(one))) for one in denied))
        answer = handle(context, replace(request, resources=allowed))
        return (yield from then(answer, lambda done: with_more(done, answers, refusals)))

    return Guard((of_topic, of_group, of_cluster), check)


DESCRIBE_CONFIGS_RIGHTS = (DESCRIBE_CONFIGS_TOPIC, DESCRIBE_CONFIGS_GROUP, DESCRIBE_CONFIGS_CLUSTER)
