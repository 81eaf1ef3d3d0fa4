"""Describe and alter configurations of all of Kafka's resource types.

DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

Topics, the broker (this one, or "" for all), groups, client metrics subscriptions, and
the levels of the broker's loggers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ResourceType,
)

from .... import logs
from ....broker.broker import Broker
from ....broker.config_values import (
    ConfigChange,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    Operation,
    changed_values,
)
from ....broker.dynamic_configs import ConfigKind
from ....broker.topics import Topic, validate_topic_name
from ....errors import InvalidConfig, InvalidRequest, SteleError
from ....security.acl import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_GROUP, ALTER_CONFIGS_TOPIC
from ....storage.config_types import ConfigType
from ....storage.topic_config import CONFIG_ENTRIES, type_of_topic_config, without_aliases
from ....work_budget import SMALL_VISIT, WorkBudget, visited
from ..context import Context, describe_error
from ..guards import topics as topic_guards
from ..served import Served, always

_Resource = TypeVar("_Resource", AlterConfigsResource, IncrementalAlterConfigsResource)


_KINDS = {
    ResourceType.BROKER: ConfigKind.BROKER,
    ResourceType.CLIENT_METRICS: ConfigKind.CLIENT_METRICS,
    ResourceType.GROUP: ConfigKind.GROUP,
}
_WIRE_TYPES = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
}
_UNKNOWN_TYPE = 0
# More than any resource has. They are checked and changed together, in one turn of the loop.
_CONFIGS_MAX = 1000
# A resource with all its configurations takes as long as this many partitions: some tenths of a millisecond.
_PARTITIONS_PER_RESOURCE = 25
# Groups and client metrics subscriptions need not exist to be described, so the response to a request of
# 4 MiB could have gigabytes. The limit is the number that can have configurations.
_ENTITIES_DESCRIBED_MAX = 10_000


# ── DescribeConfigs ──


async def describe_configs(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    # Once per resource, because a name is short and the description of a resource is not.
    resources = {
        (resource.resource_type, resource.resource_name): resource
        async for resource in visited(request.resources, SMALL_VISIT)
    }
    results: list[DescribeConfigsResult] = []
    await context.broker.try_to_find_topics(name for kind, name in resources if kind == ResourceType.TOPIC)
    entities = 0
    budget = WorkBudget()
    for resource in resources.values():
        entities += resource.resource_type in (ResourceType.CLIENT_METRICS, ResourceType.GROUP)
        if entities > _ENTITIES_DESCRIBED_MAX:
            results.append(_refused(resource))
        else:
            results.append(_describe(context.broker, resource, request))
        await budget.visit(_PARTITIONS_PER_RESOURCE)
    return DescribeConfigsResponse(results=results)


def _refused(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    code, message = describe_error(
        InvalidRequest(
            f"one request describes at most {_ENTITIES_DESCRIBED_MAX} groups and client metrics subscriptions; "
            "send several requests"
        )
    )
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=(),
    )


def _describe(
    broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    code, message, values = ErrorCode.NONE, None, list[ConfigValue]()
    try:
        values = _values_of(broker, resource.resource_type, resource.resource_name)
    except SteleError as error:
        code, message = describe_error(error)
    # As null, an empty list of names asks for all: old and new clients mean that.
    wanted = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _described(
                value, with_synonyms=request.include_synonyms, with_words=request.include_documentation
            )
            for value in values
            if not wanted or value.name in wanted
        ],
    )


def _values_of(broker: Broker, resource_type: int, name: str) -> list[ConfigValue]:
    configs = broker.configs
    if resource_type == ResourceType.TOPIC:
        return configs.describe_topic(broker.readable_topic(name))
    if resource_type == ResourceType.BROKER:
        return configs.describe_broker(name)
    if resource_type in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
        return configs.describe_entity(_KINDS[ResourceType(resource_type)], name)
    if resource_type == ResourceType.BROKER_LOGGER:
        _check_logger_node(broker, name)
        return [_level(logger, level) for logger, level in logs.levels().items()]
    raise _unknown_resource_type(resource_type)


def _level(logger: str, level: str) -> ConfigValue:
    return ConfigValue(
        name=logger, value=level, source=ConfigSource.BROKER_LOGGER, type=None, documentation=""
    )


def _unknown_resource_type(resource_type: int) -> InvalidRequest:
    return InvalidRequest(f"Unknown resource type {resource_type}")


def _described(value: ConfigValue, *, with_synonyms: bool, with_words: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=value.name,
        value=value.value,
        read_only=value.is_read_only,
        config_source=value.source,
        is_default=value.source is ConfigSource.DEFAULT,
        is_sensitive=value.is_sensitive,
        synonyms=[_synonym(synonym) for synonym in value.synonyms] if with_synonyms else (),
        config_type=_UNKNOWN_TYPE if value.type is None else _WIRE_TYPES[value.type],
        documentation=value.documentation if with_words else None,
    )


def _synonym(synonym: ConfigSynonym) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)


# ── AlterConfigs ──


async def alter_configs(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace configurations: those that are not named return to their defaults."""

    async def replace(resource: AlterConfigsResource) -> None:
        await _replace(context.broker, resource, validate_only=request.validate_only)

    return AlterConfigsResponse(responses=await _each_once(request.resources, replace))


async def _replace(broker: Broker, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    resource_type, name = resource.resource_type, resource.resource_name
    changes = [ConfigChange(config.name, Operation.SET, config.value) for config in resource.configs]
    values = changed_values(changes, effective={}, type_of=type_of_topic_config)
    configs = {name: value for name, value in values.items() if value is not None}
    if resource_type == ResourceType.TOPIC:
        topic = _topic_to_alter(broker, name)
        # Except the storage of a topic, which is chosen when it is created.
        unset = () if topic is None else (key for key in topic.configs if key != "stele.storage")
        await broker.alter_topic(
            name, configs={**dict.fromkeys(unset), **configs}, validate_only=validate_only
        )
    elif resource_type in _KINDS:
        await broker.configs.replace(
            _KINDS[ResourceType(resource_type)], name, configs, validate_only=validate_only
        )
    else:
        raise _unknown_resource_type(resource_type)


# ── IncrementalAlterConfigs ──


async def incremental_alter_configs(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: IncrementalAlterConfigsResource) -> None:
        await _alter(context.broker, resource, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(responses=await _each_once(request.resources, alter))


async def _alter(broker: Broker, resource: IncrementalAlterConfigsResource, *, validate_only: bool) -> None:
    resource_type, name = resource.resource_type, resource.resource_name
    changes = [
        ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs
    ]
    if resource_type == ResourceType.TOPIC:
        topic = _topic_to_alter(broker, name)
        effective = {} if topic is None else topic.effective_configs
        values = without_aliases(changed_values(changes, effective=effective, type_of=type_of_topic_config))
        # As in Kafka it is no error to unset a configuration that does not exist.
        known = {key: value for key, value in values.items() if value is not None or key in CONFIG_ENTRIES}
        await broker.alter_topic(name, configs=known, validate_only=validate_only)
    elif resource_type in _KINDS:
        await broker.configs.change(
            _KINDS[ResourceType(resource_type)], name, changes, validate_only=validate_only
        )
    elif resource_type == ResourceType.BROKER_LOGGER:
        _check_logger_node(broker, name)
        _set_levels(_requested_levels(changes), validate_only=validate_only)
    else:
        raise _unknown_resource_type(resource_type)


def _topic_to_alter(broker: Broker, name: str) -> Topic | None:
    """Return the topic; None if it does not exist.

    That is reported only after all other errors.

    Raises:
        InvalidRequest, InvalidTopicName: no topic can have this name.
    """
    if not name:
        raise InvalidRequest("Default topic resources are not allowed.")
    validate_topic_name(name)
    return broker.topic(name) if broker.has_topic(name) else None


def check_number(configs: Sequence[object]) -> None:
    """Raises ``InvalidRequest``."""
    if len(configs) > _CONFIGS_MAX:
        raise InvalidRequest(
            f"{len(configs)} configurations of one resource are more than any has; send at most {_CONFIGS_MAX}"
        )


async def _each_once(
    resources: Sequence[_Resource], change: Callable[[_Resource], Awaitable[None]]
) -> list[AlterConfigsResourceResponse]:
    """Call ``change`` for each resource, and return the responses.

    A resource that is named twice is refused each time.
    """
    keys = [(one.resource_type, one.resource_name) async for one in visited(resources, SMALL_VISIT)]
    times = Counter(keys)
    responses: list[AlterConfigsResourceResponse] = []
    async for (kind, name), resource in visited(zip(keys, resources, strict=True)):
        code, message = ErrorCode.NONE, None
        try:
            if times[kind, name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            check_number(resource.configs)
            await change(resource)
        except SteleError as error:
            code, message = describe_error(error)
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
        )
    return responses


# ── loggers ──


def _check_logger_node(broker: Broker, name: str) -> None:
    if not name.isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name[:80]}")
    if name != str(broker.broker_id):
        raise InvalidRequest(f"Unexpected node id. Expected {broker.broker_id}, but received {name[:80]}")


def _requested_levels(changes: Sequence[ConfigChange]) -> dict[str, str | None]:
    for change in changes:
        if change.operation in (Operation.APPEND, Operation.SUBTRACT):
            raise InvalidRequest(
                f"{Operation(change.operation).name} operation is not allowed for the BROKER_LOGGER resource"
            )
    requested = changed_values(changes, effective={}, type_of=lambda _name: None)
    known = logs.levels()
    for logger, level in requested.items():
        if logger not in known:
            reason = f"Logger {logger[:80]} does not exist!"
            raise InvalidConfig(logger, level, reason, message=reason)
        if level is None and logger == logs.ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
        if level is not None and level not in logs.LEVELS:
            reason = (
                f"Cannot set the log level of {logger} to {level[:80]} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(logs.LEVELS))}"
            )
            raise InvalidConfig(logger, level, reason, message=reason)
    return requested


def _set_levels(levels: Mapping[str, str | None], *, validate_only: bool) -> None:
    if not validate_only:
        for logger, level in levels.items():
            logs.set_level(logger, level)


ROWS = (
    Served(
        DESCRIBE_CONFIGS_API,
        describe_configs,
        topic_guards.on_configs(DescribeConfigsResponse, "results", *topic_guards.DESCRIBE_CONFIGS_RIGHTS),
        walks=True,
    ),
    Served(
        ALTER_CONFIGS_API,
        alter_configs,
        topic_guards.on_configs(
            AlterConfigsResponse, "responses", ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_GROUP, ALTER_CONFIGS_CLUSTER
        ),
        changes=True,
        is_barrier=always,
    ),
    Served(
        INCREMENTAL_ALTER_CONFIGS_API,
        incremental_alter_configs,
        topic_guards.on_configs(
            IncrementalAlterConfigsResponse,
            "responses",
            ALTER_CONFIGS_TOPIC,
            ALTER_CONFIGS_GROUP,
            ALTER_CONFIGS_CLUSTER,
        ),
        changes=True,
        is_barrier=always,
    ),
)
