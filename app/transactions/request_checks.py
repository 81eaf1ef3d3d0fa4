"""Checks of requests before anything is stored, shared by the coordinators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..broker.broker import Broker
from ..errors import (
    InvalidRequest,
    InvalidTransactionTimeout,
    MirroredTopic,
    OperationNotAttempted,
    SteleError,
    UnknownPartition,
)
from ..storage.topic_partition import TopicPartition
from ..work_budget import SMALL_VISIT, visited
from .transaction import Transaction

# Each is stored with every change of its transaction. Programs use one.
GROUPS_OF_TRANSACTION_MAX = 1000
# Kafka limits an id by the size of a string only; ids this long are mistakes.
TRANSACTIONAL_ID_LENGTH_MAX = 1024


def check_transactional_id(transactional_id: str) -> None:
    """Raises ``InvalidRequest``."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty; set one, or none at all")
    if len(transactional_id) > TRANSACTIONAL_ID_LENGTH_MAX:
        raise InvalidRequest(
            f"the transactional id has {len(transactional_id)} characters; it must have at most "
            f"{TRANSACTIONAL_ID_LENGTH_MAX}"
        )


def check_timeout(transactional_id: str, timeout_ms: int, *, limit: int) -> None:
    """Raises ``InvalidTransactionTimeout``."""
    if not 0 < timeout_ms <= limit:
        raise InvalidTransactionTimeout(transactional_id, timeout_ms, limit=limit)


def check_groups(transaction: Transaction, group: str) -> None:
    """Raises ``InvalidRequest``: the transaction has too many groups."""
    if len(transaction.groups) >= GROUPS_OF_TRANSACTION_MAX and group not in transaction.groups:
        raise InvalidRequest(
            f"the transaction commits offsets of {GROUPS_OF_TRANSACTION_MAX} groups already, which is the limit"
        )


async def refused_partitions(
    broker: Broker, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, SteleError]:
    """Return an error for each partition if one cannot be in a transaction, otherwise nothing; with pauses.

    The error is what is wrong with a partition, ``OperationNotAttempted`` for the others.
    """
    errors: dict[TopicPartition, SteleError] = {}
    async for partition in visited(partitions, SMALL_VISIT):
        if (error := _error_of(broker, partition)) is not None:
            errors[partition] = error
    if not errors:
        return {}
    return {
        partition: errors.get(partition) or OperationNotAttempted(f"adding partition {partition}")
        async for partition in visited(partitions, SMALL_VISIT)
    }


def _error_of(broker: Broker, topic_partition: TopicPartition) -> SteleError | None:
    name, partition = topic_partition
    try:
        topic = broker.topic(name)
        if not 0 <= partition < topic.partitions:
            raise UnknownPartition(name, partition, partitions=topic.partitions)
        if topic.config.mirror:
            raise MirroredTopic(name, topic.config.mirror)
        if topic.config.storage == "memory":
            raise InvalidRequest(
                f"topic {name!r} is in memory, so it cannot be in a transaction; use a topic on disk"
            )
    except SteleError as error:
        return error
    return None
