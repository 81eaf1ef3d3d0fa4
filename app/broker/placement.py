"""Checks the requested placement of partitions, by Kafka's rules.

Brokers with shared storage accept a placement and do not need it: every broker serves every partition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..errors import (
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The placement that a request asks for; None leaves a choice to the broker.

    ``assignments`` lists partitions, each with the brokers that are to hold its replicas.
    """

    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[tuple[int, Sequence[int]]] = ()

    def count(self, topic: str, *, default: int, broker_ids: Collection[int]) -> int:
        """Return the number of partitions; the checks come in Kafka's order.

        Raises:
            InvalidRequest: an assignment together with a number of partitions or replicas.
            InvalidReplicaAssignment: it names another broker, or a partition not exactly once.
            InvalidReplicationFactor: more than there are brokers, or less than 1.
            InvalidPartitionCount: less than 1.
        """
        if self.assignments:
            return self._assigned(broker_ids)
        replicas = 1 if self.replication_factor is None else self.replication_factor
        if replicas < 1:
            raise InvalidReplicationFactor(replicas)
        partitions = default if self.partitions is None else self.partitions
        if partitions < 1:
            raise InvalidPartitionCount(topic, partitions, "it needs at least one")
        if replicas > len(broker_ids):
            raise InvalidReplicationFactor(replicas, brokers=len(broker_ids))
        return partitions

    def _assigned(self, broker_ids: Collection[int]) -> int:
        for option, value in (
            ("a replication factor", self.replication_factor),
            ("a number of partitions", self.partitions),
        ):
            if value is not None:
                raise InvalidRequest(
                    f"{option} and an assignment of replicas exclude each other; leave out one"
                )
        numbers = [partition for partition, _ in self.assignments]
        if len(set(numbers)) < len(numbers):
            raise InvalidReplicaAssignment("a partition is assigned more than once")
        for _, brokers in self.assignments:
            check_assignment(brokers, broker_ids=broker_ids)
        if sorted(numbers) != list(range(len(numbers))):
            raise InvalidReplicaAssignment("partitions must be numbered from 0 without a gap")
        return len(numbers)


def check_assignment(brokers: Sequence[int], *, broker_ids: Collection[int]) -> None:
    """Check the replicas of one partition. Raises ``InvalidReplicaAssignment``."""
    if not brokers:
        raise InvalidReplicaAssignment("a partition has no broker")
    for broker in brokers:
        if broker not in broker_ids:
            known = ", ".join(map(str, sorted(broker_ids)))
            others = f"broker {known} is the only one" if len(broker_ids) == 1 else f"brokers are {known}"
            raise InvalidReplicaAssignment(f"broker {broker} is not registered; {others}")
    for broker in brokers:
        if brokers.count(broker) > 1:
            raise InvalidReplicaAssignment(f"broker {broker} is named more than once for a partition")
