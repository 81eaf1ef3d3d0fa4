"""Decisions by access rules: against a plain model of Kafka's rules, with random policies."""

from __future__ import annotations

import random

import pytest

from app.security.acl import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from app.security.acl_index import AclIndex
from tests.support.acls import HOSTS, NAMES, PRINCIPALS, is_allowed, random_acls
from tests.support.histories import seed_ranges

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
DENY, PREFIXED = Permission.DENY, PatternType.PREFIXED


def check_policy(seed: int) -> tuple[int, int]:
    """Compare every decision under one random policy; return how many there were, and how many allow."""
    rng = random.Random(seed)
    acls = random_acls(rng)
    without_acl = rng.random() < 0.3
    index = AclIndex(acls, allows_without_acl=without_acl)
    decisions = allowed = 0
    for kind, operations in OPERATIONS_OF.items():
        names = (CLUSTER_NAME,) if kind is ResourceType.CLUSTER else (*NAMES, "c", "abcd", "")
        for principal in (*PRINCIPALS, "User:nobody"):
            for host in (*HOSTS, "::1"):
                for operation in operations:
                    expected = {
                        name: is_allowed(
                            acls, principal, host, operation, kind, name, without_acl=without_acl
                        )
                        for name in names
                    }
                    for name, is_right in expected.items():
                        decision = index.decide(principal, host, operation, kind, name)
                        assert decision.is_allowed is is_right, (seed, principal, host, operation, kind, name)
                        decisions += 1
                        allowed += is_right
                    somewhere = index.may_somewhere(principal, host, operation, kind)
                    if not somewhere and not without_acl and operation is not Operation.DESCRIBE:
                        is_implied = operation is Operation.DESCRIBE_CONFIGS
                        assert is_implied or not any(expected.values()), (seed, principal, operation, kind)
    return decisions, allowed


@pytest.mark.parametrize("seeds", seed_ranges(60, 60))
def test_random_policies_decide_as_the_model_of_kafkas_rules(seeds: range) -> None:
    counts = [check_policy(seed) for seed in seeds]
    decisions, allowed = (sum(column) for column in zip(*counts, strict=True))
    # The policies are neither all closed nor all open.
    assert decisions > 800 * len(seeds)
    assert decisions * 0.05 < allowed < decisions * 0.8


def allow(operation: Operation, **fields: object) -> Acl:
    known = {"resource_type": TOPIC, "resource_name": "a", "principal": "User:alice", **fields}
    return Acl(operation=operation, **known)  # type: ignore[arg-type]


def decides(acls: list[Acl], operation: Operation, name: str = "a", host: str = "127.0.0.1") -> bool:
    return AclIndex(acls).decide("User:alice", host, operation, TOPIC, name).is_allowed


def test_a_denial_beats_every_permission_and_implies_nothing() -> None:
    everything = allow(Operation.ALL, resource_name="*")
    assert not decides([everything, allow(Operation.READ, permission=DENY)], Operation.READ)
    assert decides([everything, allow(Operation.READ, permission=DENY)], Operation.DESCRIBE)
    assert not decides([everything, allow(Operation.ALL, permission=DENY)], Operation.DESCRIBE)
    prefix = allow(Operation.WRITE, permission=DENY, resource_name="a", pattern_type=PREFIXED)
    assert not decides([everything, prefix], Operation.WRITE, "abc")
    assert decides([everything, prefix], Operation.WRITE, "b")


def test_permissions_imply_describe() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert decides([allow(operation)], Operation.DESCRIBE)
    assert not decides([allow(Operation.CREATE)], Operation.DESCRIBE)
    assert decides([allow(Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS)
    assert not decides([allow(Operation.ALTER)], Operation.DESCRIBE_CONFIGS)


def test_a_rule_of_a_host_holds_there_alone() -> None:
    assert decides([allow(Operation.READ, host="10.0.0.7")], Operation.READ, host="10.0.0.7")
    assert not decides([allow(Operation.READ, host="10.0.0.7")], Operation.READ)


def test_a_rule_for_everybody_is_one_of_the_wildcard_principal() -> None:
    assert decides([allow(Operation.READ, principal="User:*")], Operation.READ)
    # A wildcard is the whole name: it is no pattern.
    assert not decides([allow(Operation.READ, principal="User:a*")], Operation.READ)
    assert not decides([allow(Operation.READ, resource_name="*b")], Operation.READ, "ab")


def test_a_right_somewhere_needs_a_name_that_no_denial_covers() -> None:
    def somewhere(*acls: Acl) -> bool:
        return AclIndex(acls).may_somewhere("User:alice", "h", Operation.WRITE, TOPIC)

    assert not somewhere()
    assert somewhere(allow(Operation.WRITE))
    assert not somewhere(allow(Operation.WRITE), allow(Operation.WRITE, permission=DENY))
    assert somewhere(allow(Operation.WRITE), allow(Operation.WRITE, permission=DENY, resource_name="b"))
    prefix = allow(Operation.WRITE, resource_name="ab", pattern_type=PREFIXED)
    assert somewhere(prefix)
    assert not somewhere(
        prefix, allow(Operation.ALL, permission=DENY, resource_name="a", pattern_type=PREFIXED)
    )
    assert not somewhere(prefix, allow(Operation.ALL, permission=DENY, resource_name="*"))
    assert not AclIndex([allow(Operation.WRITE, resource_type=GROUP)]).may_somewhere(
        "User:alice", "h", Operation.WRITE, TOPIC
    )
