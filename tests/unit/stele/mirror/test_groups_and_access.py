"""Which offsets and which access rules are written."""

from __future__ import annotations

import pytest
from stele.mirror.access import rule_of, shown_acl
from stele.mirror.groups import due_commits
from stele.mirror.source.reads import Commit, SourceAcl
from stele.records import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_offsets_are_written_if_they_changed_and_the_copy_has_them() -> None:
    ends = {A: 5, B: 5}

    def due(
        committed: dict[TopicPartition, int], written: dict[TopicPartition, int]
    ) -> list[tuple[TopicPartition, int]]:
        found = due_commits(
            {name: Commit(offset, "m") for name, offset in committed.items()},
            {name: Commit(offset, "m") for name, offset in written.items()},
            ends.get,
        )
        return [(name, commit.offset) for name, commit in found]

    assert due({B: 5, A: 3, C: 1}, {}) == [(A, 3), (B, 5)]
    assert due({A: 3, B: 6}, {A: 3}) == []
    assert due({A: 2}, {A: 3}) == [(A, 2)]
    assert due_commits({A: Commit(3, "new")}, {A: Commit(3, "old")}, ends.get) == [(A, Commit(3, "new"))]


def test_a_rule_has_the_names_of_the_api() -> None:
    rule = rule_of(SourceAcl(2, "orders", 4, "User:a", "*", 3, 3))
    assert rule is not None
    assert dict(rule) == {
        "resource_type": "TOPIC",
        "resource_name": "orders",
        "pattern_type": "PREFIXED",
        "principal": "User:a",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }


@pytest.mark.parametrize(
    "acl",
    [
        SourceAcl(4, "kafka-cluster", 3, "User:a", "*", 9, 3),
        SourceAcl(6, "token", 3, "User:a", "*", 8, 2),
        SourceAcl(99, "x", 3, "User:a", "*", 77, 3),
    ],
)
def test_rules_about_the_cluster_and_of_unknown_kinds_are_named_instead(acl: SourceAcl) -> None:
    assert rule_of(acl) is None
    assert "User:a" in shown_acl(acl)
