"""When a committed offset expires, to the millisecond."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.cluster.group_store import MemberProtocol, OffsetRecord
from app.groups.base.member import Member
from app.groups.base.offset_rules import is_due
from app.groups.base.states import Event
from app.groups.classic.group import Group

RETENTION_MS = 1000
COMMITTED_AT_MS = 5000


def empty_group(*, emptied_at_ms: int | None = None) -> Group:
    group = Group("g")
    group.emptied_at_ms = emptied_at_ms
    return group


def group_with_a_member() -> Group:
    group = Group("g")
    group.add(
        Member(
            member_id="m",
            instance_id=None,
            client_id="c",
            client_host="",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            protocols=(MemberProtocol("range", b""),),
        ),
        "consumer",
    )
    group.handle(Event.REBALANCE)
    return group


def first_due_ms(group: Group, *, expires_at_ms: int | None = None) -> int:
    """The first of the milliseconds after the commit in which the offset is due; it stays due after that."""
    record = OffsetRecord(
        group="g",
        topic="orders",
        topic_id=UUID(int=1),
        partition=0,
        offset=1,
        leader_epoch=-1,
        metadata="",
        committed_at_ms=COMMITTED_AT_MS,
        expires_at_ms=expires_at_ms,
    )
    due = [is_due(record, group, now_ms=now_ms, retention_ms=RETENTION_MS) for now_ms in range(20_000)]
    assert due == sorted(due)
    return due.index(True)


@pytest.mark.parametrize("emptied_at_ms", [None, 4000, 5000, 5001, 9000])
def test_the_retention_begins_with_the_commit_or_when_the_group_became_empty(
    emptied_at_ms: int | None,
) -> None:
    begin_ms = max(COMMITTED_AT_MS, emptied_at_ms or 0)
    assert first_due_ms(empty_group(emptied_at_ms=emptied_at_ms)) == begin_ms + RETENTION_MS


@pytest.mark.parametrize("expires_at_ms", [0, 5500, 6000, 9000])
@pytest.mark.parametrize("emptied_at_ms", [None, 9000])
def test_a_retention_of_its_own_counts_alone(expires_at_ms: int, emptied_at_ms: int | None) -> None:
    group = empty_group(emptied_at_ms=emptied_at_ms)
    assert first_due_ms(group, expires_at_ms=expires_at_ms) == expires_at_ms


@pytest.mark.parametrize("expires_at_ms", [None, 5500])
def test_no_offset_expires_while_the_group_has_members(expires_at_ms: int | None) -> None:
    with pytest.raises(ValueError, match="True is not in list"):
        first_due_ms(group_with_a_member(), expires_at_ms=expires_at_ms)
