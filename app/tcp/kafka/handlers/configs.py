"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

A topic's configurations can be changed; the broker's are its settings, which are
read when it starts and only shown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from stele.wire.error_codes import ErrorCode

from ....broker.broker import Broker
from ....broker.topics import Topic
from ....errors import InvalidConfig, InvalidRequest, SteleError
from ....settings import Settings
from ....storage.topic_config import CONFIG_ENTRIES, parse_topic_config
from ..schemas import alter_configs as replacing
from ..schemas import incremental_alter_configs as incremental
from ..schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from .context import Context, describe_error


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class Source(IntEnum):
    """Where a value comes from (KIP-226)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What an incremental change does to a value (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ValueType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One configuration as a client sees it."""

    name: str
    value: str
    source: Source
    type: ValueType
    documentation: str
    default: str
    read_only: bool = False


def topic_config_values(topic: Topic) -> list[ConfigValue]:
    """Every configuration of a topic, with where its value comes from."""
    defaults = parse_topic_config({}).as_strings()
    return [
        ConfigValue(
            name=name,
            value=value,
            source=Source.TOPIC if name in topic.configs else Source.DEFAULT,
            type=_value_type(name, value),
            documentation=CONFIG_ENTRIES[name].description,
            default=defaults[name],
        )
        for name, value in topic.config.as_strings().items()
    ]


# Where Kafka's type is not what the value looks like.
_VALUE_TYPES = {
    "cleanup.policy": ValueType.LIST,
    "index.interval.bytes": ValueType.INT,
    "max.message.bytes": ValueType.INT,
    "min.insync.replicas": ValueType.INT,
    "preallocate": ValueType.BOOLEAN,
    "segment.bytes": ValueType.INT,
    "unclean.leader.election.enable": ValueType.BOOLEAN,
}


def _value_type(name: str, value: str) -> ValueType:
    if name in _VALUE_TYPES:
        return _VALUE_TYPES[name]
    return ValueType.LONG if value.lstrip("-").isdigit() else ValueType.STRING


def _broker_config_values(settings: Settings) -> list[ConfigValue]:
    """The settings, by the names that the environment and the documentation use."""
    found: list[ConfigValue] = []
    for name, info in type(settings).model_fields.items():
        value, default = getattr(settings, name), info.default
        found.append(
            ConfigValue(
                name=name,
                value=_text(value),
                source=Source.DEFAULT if value == default else Source.STATIC_BROKER,
                type=ValueType.BOOLEAN
                if isinstance(value, bool)
                else ValueType.LONG
                if isinstance(value, int)
                else ValueType.STRING,
                documentation=info.description or "",
                default=_text(default),
                read_only=True,
            )
        )
    return found


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def describe_configs(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    # Once each: a name is short, and what is told of a resource is not.
    asked = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    return DescribeConfigsResponse(
        results=[_describe(context.broker, resource, request) for resource in asked.values()]
    )


def _describe(
    broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    code, message, values = ErrorCode.NONE, None, list[ConfigValue]()
    try:
        values = _values_of(broker, resource.resource_type, resource.resource_name)
    except SteleError as error:
        code, message = describe_error(error)
    # An empty list of names asks for all, as null does: so clients of every age mean it.
    wanted = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _described(one, with_synonyms=request.include_synonyms, with_words=request.include_documentation)
            for one in values
            if not wanted or one.name in wanted
        ],
    )


def _values_of(broker: Broker, resource_type: int, name: str) -> list[ConfigValue]:
    if resource_type == ResourceType.TOPIC:
        return topic_config_values(broker.topic(name))
    if resource_type == ResourceType.BROKER:
        if name not in ("", str(broker.broker_id)):
            raise InvalidRequest(f"there is no broker {name[:80]!r}; this one is {broker.broker_id}")
        return _broker_config_values(broker.settings)
    raise InvalidRequest(
        f"resource type {resource_type} has no configurations; ask for a topic (2) or broker (4)"
    )


def _described(one: ConfigValue, *, with_synonyms: bool, with_words: bool) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(name=one.name, value=one.default, source=Source.DEFAULT)]
    if one.source is not Source.DEFAULT:
        synonyms.insert(0, DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source))
    return DescribeConfigsResourceResult(
        name=one.name,
        value=one.value,
        read_only=one.read_only,
        config_source=one.source,
        is_default=one.source is Source.DEFAULT,
        is_sensitive=False,
        synonyms=synonyms if with_synonyms else (),
        config_type=one.type,
        documentation=one.documentation if with_words else None,
    )


async def alter_configs(
    context: Context, request: replacing.AlterConfigsRequest
) -> replacing.AlterConfigsResponse:
    """What is not named goes back to its default."""
    responses: list[replacing.AlterConfigsResourceResponse] = []
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            topic = _alterable(context.broker, resource.resource_type, resource.resource_name)
            changes: dict[str, str | None] = dict.fromkeys(topic.configs)
            changes.update({one.name: one.value for one in resource.configs})
            await _alter(context, topic, changes, validate_only=request.validate_only)
        except SteleError as error:
            code, message = describe_error(error)
        responses.append(
            replacing.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return replacing.AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    context: Context, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    responses: list[incremental.AlterConfigsResourceResponse] = []
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            topic = _alterable(context.broker, resource.resource_type, resource.resource_name)
            changes = _changes(topic, resource.configs)
            await _alter(context, topic, changes, validate_only=request.validate_only)
        except SteleError as error:
            code, message = describe_error(error)
        responses.append(
            incremental.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return incremental.IncrementalAlterConfigsResponse(responses=responses)


def _alterable(broker: Broker, resource_type: int, name: str) -> Topic:
    if resource_type == ResourceType.TOPIC:
        return broker.topic(name)
    if resource_type == ResourceType.BROKER:
        raise InvalidRequest(
            "the broker's settings are read when it starts; set them on its command line or as STELE_… "
            "in its environment"
        )
    raise InvalidRequest(f"resource type {resource_type} has no configurations; alter a topic (2)")


def _changes(topic: Topic, asked: Sequence[incremental.AlterableConfig]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for one in asked:
        if one.name in changes:
            raise InvalidRequest(f"configuration {one.name[:80]!r} is changed twice in one request")
        changes[one.name] = _changed(topic, one)
    return changes


def _changed(topic: Topic, one: incremental.AlterableConfig) -> str | None:
    if one.config_operation == Operation.DELETE:
        return None
    if one.value is None:
        raise InvalidConfig(one.name, None, "a value is needed; to go back to the default use DELETE")
    if one.config_operation == Operation.SET:
        return one.value
    if one.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise InvalidRequest(f"operation {one.config_operation} is none of SET, DELETE, APPEND, SUBTRACT")
    current = topic.config.as_strings().get(one.name, "")
    if _value_type(one.name, current) is not ValueType.LIST:
        raise InvalidConfig(one.name, one.value, "it is no list: nothing can be appended or subtracted")
    return ",".join(_with(current.split(","), one.value.split(","), one.config_operation))


def _with(current: Iterable[str], values: Iterable[str], operation: int) -> list[str]:
    kept = list(current)
    for value in values:
        if operation == Operation.APPEND and value not in kept:
            kept.append(value)
        elif operation == Operation.SUBTRACT and value in kept:
            kept.remove(value)
    return kept


async def _alter(
    context: Context, topic: Topic, changes: Mapping[str, str | None], *, validate_only: bool
) -> None:
    await context.broker.alter_topic(topic.name, configs=changes, validate_only=validate_only)
