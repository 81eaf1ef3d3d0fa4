"""What a mirror asks its source for, as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from ...records import TopicPartition
from ...wire.isolation_level import IsolationLevel
from ...wire.kafka.acls import DESCRIBE_ACLS_API, DescribeAclsRequest
from ...wire.kafka.committed_offsets import (
    OFFSET_FETCH_API,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ...wire.kafka.configs import (
    DESCRIBE_CONFIGS_API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ResourceType,
)
from ...wire.kafka.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic, PartitionData
from ...wire.kafka.groups import LIST_GROUPS_API, ListGroupsRequest
from ...wire.kafka.metadata import METADATA_API, MetadataRequest, MetadataRequestTopic
from ...wire.kafka.offsets import (
    LIST_OFFSETS_API,
    OFFSET_FOR_LEADER_EPOCH_API,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ...wire.kafka.quotas import DESCRIBE_CLIENT_QUOTAS_API, DescribeClientQuotasRequest
from ...wire.kafka.transactions import LIST_TRANSACTIONS_API, ListTransactionsRequest
from ...wire.kafka.users import DESCRIBE_USER_SCRAM_CREDENTIALS_API, DescribeUserScramCredentialsRequest
from ...wire.schema import NO_UUID
from ..definition import Address
from ..errors import SourceError, SourceLacks, SourceReplied
from .cluster import Purpose, Source

EARLIEST, LATEST = -2, -1
# Topics of one DescribeConfigs, and groups of one OffsetFetch.
_NAMES_PER_REQUEST = 200
# Newer versions have only the ids of topics.
_LAST_FETCH_BY_NAME = 12
_LAST_OFFSET_FETCH_BY_NAME = 9
_FIRST_OF_SEVERAL_GROUPS = 8
_ANY = 1
# COORDINATOR_LOAD_IN_PROGRESS.
_LOADING = 14

T = TypeVar("T")


class Leader(NamedTuple):
    """Who leads a partition; -1 is nobody, or an epoch that is not known."""

    broker: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """``topic_id`` is ``NO_UUID`` if the source has no ids; ``error`` is a number, 0 without."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, Leader]
    error: int


async def topics(source: Source, names: Sequence[str] | None = None) -> list[SourceTopic]:
    """Return all topics that are not internal, or those with these names, and learn the brokers."""
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    response = await source.call(
        METADATA_API, MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    )
    if response.error_code:
        raise SourceReplied("Metadata", response.error_code)
    source.id = response.cluster_id or ""
    await source.know({one.node_id: Address(one.host, one.port) for one in response.brokers})
    return [
        SourceTopic(
            name=topic.name,
            topic_id=bytes(topic.topic_id),
            partitions={
                one.partition_index: Leader(one.leader_id, one.leader_epoch) for one in topic.partitions
            },
            error=topic.error_code,
        )
        for topic in response.topics
        if topic.name is not None and not topic.is_internal
    ]


class Listed(NamedTuple):
    """An offset, or the number of an error."""

    error: int
    offset: int


async def offsets(
    source: Source,
    broker: int,
    partitions: Mapping[TopicPartition, int],
    at: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, Listed]:
    """Return the log start (``EARLIEST``) or the high watermark (``LATEST``).

    ``partitions``: with the epochs of their leaders. Of committed records, the end is the last stable offset.
    """
    asked = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(partition_index=one.partition, current_leader_epoch=epoch, timestamp=at)
                for one, epoch in group
            ],
        )
        for name, group in _by_topic(partitions)
    ]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=asked, timeout_ms=30_000)
    response = await source.call(LIST_OFFSETS_API, request, broker=broker)
    return {
        TopicPartition(topic.name, one.partition_index): Listed(one.error_code, one.offset)
        for topic in response.topics
        for one in topic.partitions
    }


class EpochEnd(NamedTuple):
    """Where an epoch ends, or the number of an error; -1 for both if the source does not know."""

    error: int
    epoch: int
    end: int


class AskedEpoch(NamedTuple):
    leader_epoch: int
    epoch: int


async def epoch_ends(
    source: Source, broker: int, partitions: Mapping[TopicPartition, AskedEpoch]
) -> dict[TopicPartition, EpochEnd]:
    """Return where an epoch of each partition ends, or the last one before it that the source has."""
    asked = [
        OffsetForLeaderTopic(
            topic=name,
            partitions=[
                OffsetForLeaderPartition(
                    partition=one.partition,
                    current_leader_epoch=epochs.leader_epoch,
                    leader_epoch=epochs.epoch,
                )
                for one, epochs in group
            ],
        )
        for name, group in _by_topic(partitions)
    ]
    # As a consumer, not as a replica.
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=asked)
    response = await source.call(OFFSET_FOR_LEADER_EPOCH_API, request, broker=broker)
    return {
        TopicPartition(topic.topic, one.partition): EpochEnd(one.error_code, one.leader_epoch, one.end_offset)
        for topic in response.topics
        for one in topic.partitions
    }


class FetchFrom(NamedTuple):
    """Where to read; ``last_epoch`` is that of the batch before, -1 if there is none."""

    topic_id: bytes
    leader_epoch: int
    offset: int
    last_epoch: int


async def fetch(
    source: Source,
    broker: int,
    partitions: Mapping[TopicPartition, FetchFrom],
    *,
    wait_ms: int,
    bytes_max: int,
    partition_bytes: int | None = None,
    purpose: Purpose = "fetch",
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, PartitionData]:
    """Read batches as they are stored, up to the high watermark, or up to the last stable offset.

    Partitions that come first are served first. ``partition_bytes`` None is what the connection is configured for.
    """
    has_ids = all(one.topic_id != NO_UUID for one in partitions.values())
    version_max = None if has_ids else _LAST_FETCH_BY_NAME
    names = {one.topic_id: partition.topic for partition, one in partitions.items()}
    asked = [
        FetchTopic(
            topic=name,
            topic_id=group[0][1].topic_id,
            partitions=[
                FetchPartition(
                    partition=one.partition,
                    current_leader_epoch=begin.leader_epoch,
                    fetch_offset=begin.offset,
                    last_fetched_epoch=begin.last_epoch,
                    partition_max_bytes=partition_bytes or source.config.partition_bytes,
                )
                for one, begin in group
            ],
        )
        for name, group in _by_topic(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=min(source.config.fetch_bytes, bytes_max),
        isolation_level=isolation,
        topics=asked,
    )
    response = await source.call(
        FETCH_API, request, broker=broker, purpose=purpose, version_max=version_max, wait_s=wait_ms / 1000
    )
    if response.error_code:
        raise SourceReplied("Fetch", response.error_code)
    return {
        TopicPartition(topic.topic or names.get(bytes(topic.topic_id), ""), one.partition_index): one
        for topic in response.responses
        for one in topic.partitions
    }


def _by_topic(
    partitions: Mapping[TopicPartition, T],
) -> Iterable[tuple[str, list[tuple[TopicPartition, T]]]]:
    topics: dict[str, list[tuple[TopicPartition, T]]] = {}
    for partition, value in partitions.items():
        topics.setdefault(partition.topic, []).append((partition, value))
    return topics.items()


class SourceConfigValue(NamedTuple):
    """``is_of_topic``: it was set on the topic; otherwise on the cluster, or ``is_default``."""

    value: str | None
    is_of_topic: bool
    is_default: bool


_OF_TOPIC, _DEFAULT = 1, 5


async def topic_configs(source: Source, names: Sequence[str]) -> dict[str, dict[str, SourceConfigValue]]:
    """Return all configurations of topics; those that may not be read are left out."""
    found: dict[str, dict[str, SourceConfigValue]] = {}
    for start in range(0, len(names), _NAMES_PER_REQUEST):
        resources = [
            DescribeConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None
            )
            for name in names[start : start + _NAMES_PER_REQUEST]
        ]
        response = await source.call(DESCRIBE_CONFIGS_API, DescribeConfigsRequest(resources=resources))
        for result in response.results:
            if not result.error_code:
                found[result.resource_name] = {
                    one.name: SourceConfigValue(
                        one.value, one.config_source == _OF_TOPIC, one.config_source in (_DEFAULT, -1)
                    )
                    for one in result.configs
                    if not one.is_sensitive
                }
    return found


# ── groups ──


class ListedGroup(NamedTuple):
    """A share group keeps no committed offsets; all others may, also those of Kafka Streams' own protocol.

    ``has_joined``: members have; of others, clients without membership have committed offsets alone.
    """

    name: str
    is_share: bool
    has_joined: bool


async def groups(source: Source, broker: int) -> list[ListedGroup]:
    """Return the groups whose coordinator is this broker."""
    response = await source.call(LIST_GROUPS_API, ListGroupsRequest(), broker=broker)
    if response.error_code:
        raise SourceReplied("ListGroups", response.error_code)
    return [
        ListedGroup(
            one.group_id,
            is_share="share" in (one.protocol_type, one.group_type.lower()),
            has_joined=bool(one.protocol_type),
        )
        for one in response.groups
    ]


class Commit(NamedTuple):
    """``metadata`` is what the group's clients keep beside the offset: Kafka Streams, for example, times."""

    offset: int
    metadata: str


Committed = dict[TopicPartition, Commit]


async def committed(source: Source, broker: int, names: Sequence[str]) -> dict[str, Committed]:
    """Return the committed offsets of groups that this broker coordinates; those with an error are left out."""
    version = await source.version_of(OFFSET_FETCH_API, broker=broker, version_max=_LAST_OFFSET_FETCH_BY_NAME)
    found: dict[str, Committed] = {}
    if version < _FIRST_OF_SEVERAL_GROUPS:
        for name in names:
            response = await source.call(
                OFFSET_FETCH_API,
                OffsetFetchRequest(group_id=name, topics=None),
                broker=broker,
                version_max=_LAST_OFFSET_FETCH_BY_NAME,
            )
            if not response.error_code:
                found[name] = _committed_of(response)
        return found
    for start in range(0, len(names), _NAMES_PER_REQUEST):
        asked = [
            OffsetFetchRequestGroup(group_id=name, topics=None)
            for name in names[start : start + _NAMES_PER_REQUEST]
        ]
        response = await source.call(
            OFFSET_FETCH_API,
            OffsetFetchRequest(groups=asked),
            broker=broker,
            version_max=_LAST_OFFSET_FETCH_BY_NAME,
        )
        found |= {one.group_id: _committed_of(one) for one in response.groups if not one.error_code}
    return found


def _committed_of(group: Any) -> Committed:
    return {
        TopicPartition(topic.name, one.partition_index): Commit(one.committed_offset, one.metadata or "")
        for topic in group.topics
        for one in topic.partitions
        if not one.error_code and one.committed_offset >= 0
    }


class ReadGroups(NamedTuple):
    """What groups have committed, which of them are share groups, and why some are missing."""

    committed: dict[str, Committed]
    shares: set[str]
    failure: SourceError | None = None


async def read_groups(source: Source, pattern: re.Pattern[str]) -> ReadGroups:
    """Ask each broker for the groups that it coordinates; those of one that does not answer are missing."""
    found: dict[str, Committed] = {}
    shares: set[str] = set()
    failure: SourceError | None = None
    for broker in source.brokers:
        try:
            listed = [one for one in await groups(source, broker) if pattern.fullmatch(one.name)]
            shares |= {one.name for one in listed if one.is_share}
            names = [one.name for one in listed if not one.is_share]
            found |= await committed(source, broker, names)
        except SourceError as error:
            failure = error
    return ReadGroups(found, shares, failure)


async def has_ending_transactions(source: Source) -> bool:
    """Return whether transactions were decided whose markers may not be written everywhere yet.

    Only as far as the source tells: Kafka before 3.0 does not.
    """
    request = ListTransactionsRequest(state_filters=("PrepareCommit", "PrepareAbort"), producer_id_filters=())
    for broker in source.brokers:
        try:
            response = await source.call(LIST_TRANSACTIONS_API, request, broker=broker)
        except SourceLacks:
            continue
        if response.transaction_states or response.error_code == _LOADING:
            return True
    return False


# ── access ──


class SourceAcl(NamedTuple):
    """A rule, with Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


async def acls(source: Source) -> list[SourceAcl]:
    """Return all rules."""
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    response = await source.call(DESCRIBE_ACLS_API, request)
    if response.error_code:
        raise SourceReplied("DescribeAcls", response.error_code, response.error_message)
    return [
        SourceAcl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


Entity = tuple[tuple[str, str | None], ...]


async def quotas(source: Source) -> dict[Entity, dict[str, float]]:
    """Return the quotas of each entity: pairs of type and name, None for the default."""
    response = await source.call(
        DESCRIBE_CLIENT_QUOTAS_API, DescribeClientQuotasRequest(components=(), strict=False)
    )
    if response.error_code:
        raise SourceReplied("DescribeClientQuotas", response.error_code, response.error_message)
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


async def scram_users(source: Source) -> list[str]:
    """Return the names of the users with SCRAM passwords, which no client can read."""
    response = await source.call(
        DESCRIBE_USER_SCRAM_CREDENTIALS_API, DescribeUserScramCredentialsRequest(users=None)
    )
    if response.error_code:
        raise SourceReplied("DescribeUserScramCredentials", response.error_code, response.error_message)
    return sorted(result.user for result in response.results if not result.error_code)
