"""Handlers of groups return an error code when the coordinator refuses a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from stele.wire.kafka.groups import DescribeGroupsRequest, ListGroupsRequest

from app.errors import CoordinatorNotAvailable
from app.tcp.kafka.context import Context, KafkaListener
from app.tcp.kafka.handlers.groups.committed_offsets import offset_fetch
from app.tcp.kafka.handlers.groups.groups import describe_groups, list_groups


class _ClosedGroups:
    """A coordinator that was closed."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise CoordinatorNotAvailable("the broker is shutting down")

        return refuse


def context_of(version: int) -> Context:
    listener = KafkaListener(
        broker=cast("Any", None),
        groups=cast("Any", _ClosedGroups()),
        transactions=cast("Any", None),
        fetch_sessions=cast("Any", None),
        host="h",
        port=1,
    )
    return Context(listener=listener, version=version, client_id="", client_host="")


@pytest.mark.parametrize("version", range(8))
async def test_offsets_are_refused(version: int) -> None:
    asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    answer = await offset_fetch(
        context_of(version), OffsetFetchRequest(group_id="g", topics=asked, groups=())
    )
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (topic,) = answer.topics
    # Before version 2 there is no other place for it.
    assert [(one.partition_index, one.committed_offset, one.error_code) for one in topic.partitions] == [
        (0, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


async def test_all_offsets_are_refused() -> None:
    answer = await offset_fetch(context_of(7), OffsetFetchRequest(group_id="g", topics=None, groups=()))
    assert (answer.error_code, list(answer.topics)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])


@pytest.mark.parametrize("topics", [None, [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]])
async def test_offsets_of_groups_are_refused_group_by_group(topics: Any) -> None:
    asked = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("a", "b")]
    answer = await offset_fetch(context_of(8), OffsetFetchRequest(groups=asked))
    assert [(one.group_id, one.error_code, list(one.topics)) for one in answer.groups] == [
        ("a", ErrorCode.COORDINATOR_NOT_AVAILABLE, []),
        ("b", ErrorCode.COORDINATOR_NOT_AVAILABLE, []),
    ]


async def test_groups_are_not_listed_and_not_described() -> None:
    listed = await list_groups(context_of(4), ListGroupsRequest(states_filter=(), types_filter=()))
    assert (listed.error_code, list(listed.groups)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    answer = await describe_groups(context_of(4), DescribeGroupsRequest(groups=["g"]))
    (described,) = answer.groups
    assert described.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
