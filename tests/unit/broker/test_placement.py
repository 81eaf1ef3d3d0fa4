"""Where the partitions of a new topic are to be: what is refused, and in which order."""

from __future__ import annotations

import pytest

from app.broker.placement import Placement
from app.errors import (
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    SteleError,
)


def count(placement: Placement) -> int:
    return placement.count("t", default=4, broker_ids=(1,))


@pytest.mark.parametrize(
    ("placement", "partitions"),
    [
        (Placement(), 4),
        (Placement(partitions=2), 2),
        (Placement(partitions=2, replication_factor=1), 2),
        (Placement(assignments=[(1, [1]), (0, [1])]), 2),
    ],
)
def test_what_can_be(placement: Placement, partitions: int) -> None:
    assert count(placement) == partitions


@pytest.mark.parametrize(
    ("placement", "error"),
    [
        (Placement(partitions=0), InvalidPartitionCount),
        (Placement(replication_factor=0), InvalidReplicationFactor),
        (Placement(replication_factor=3), InvalidReplicationFactor),
        (Placement(partitions=0, replication_factor=0), InvalidReplicationFactor),
        (Placement(partitions=0, replication_factor=3), InvalidPartitionCount),
        (Placement(partitions=1, assignments=[(0, [1])]), InvalidRequest),
        (Placement(replication_factor=1, assignments=[(0, [99])]), InvalidRequest),
        (Placement(assignments=[(0, [1]), (0, [1])]), InvalidReplicaAssignment),
        (Placement(assignments=[(0, [1]), (2, [1])]), InvalidReplicaAssignment),
        (Placement(assignments=[(0, [])]), InvalidReplicaAssignment),
        (Placement(assignments=[(0, [1, 1])]), InvalidReplicaAssignment),
        (Placement(assignments=[(0, [1, 2])]), InvalidReplicaAssignment),
    ],
)
def test_the_first_rule_that_is_broken_decides(placement: Placement, error: type[SteleError]) -> None:
    with pytest.raises(error):
        count(placement)
