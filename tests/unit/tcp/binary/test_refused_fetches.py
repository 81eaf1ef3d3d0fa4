"""A partition that a fetch is refused stays refused if what was the reason changes while the fetch waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import cast
from uuid import UUID

from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode

from app.broker.placement import Placement
from app.security.acl import Acl, Operation, Permission, ResourceType
from app.security.principal import ANONYMOUS
from app.tcp.binary.handlers.context import BinaryListener
from app.tcp.binary.handlers.fetch import fetch
from tests.support.acls import authorizer_over, replace_rules
from tests.support.binary_peer import decode
from tests.support.deletions import DeletedAt, delete_topic, far_away
from tests.support.listeners import listeners

REFUSED, READ = "refused", "read"
# Far more than a fetch waits.
POINTS_MAX = 50
READS = [
    Acl(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        principal=str(ANONYMOUS),
        operation=Operation.READ,
        permission=Permission.ALLOW,
    )
    for name in (READ, REFUSED)
]
PARTITIONS = [m.FetchPartition(topic=name, partition=0, offset=0) for name in (REFUSED, READ)]


async def codes(
    at: BinaryListener, request: m.FetchRequest, point: int, change: Callable[[], Awaitable[object]]
) -> list[ErrorCode] | None:
    """Return what a fetch answers if ``change`` happens at one of its waits; None if it has fewer."""
    changed = DeletedAt(point, change)
    answer = await changed.run(fetch(at, request))
    assert point < POINTS_MAX
    if not changed.has_deleted:
        return None
    response = decode(answer if isinstance(answer, bytes) else b"".join(cast("list[bytes]", answer)))
    assert isinstance(response, m.FetchResponse)
    return [one.code for one in response.partitions]


async def test_rules_that_come_to_allow_a_read(tmp_path: Path) -> None:
    authorizer = await authorizer_over(READS[:1])
    async with listeners(tmp_path, authorizer=authorizer) as served:
        served.engine.refresh = far_away  # type: ignore[method-assign]
        for name in (REFUSED, READ):
            await served.broker.create_topic(name, placement=Placement(partitions=1))
        at = replace(served.binary, access=authorizer.access("binary", ANONYMOUS, "127.0.0.1"))
        point = 0
        for point in count(1):
            await replace_rules(authorizer, READS[:1])
            request = m.FetchRequest(partitions=PARTITIONS)
            answered = await codes(at, request, point, lambda: authorizer.acls.add(READS))
            if answered is None:
                break
            assert answered == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE]
        assert point > 1


async def test_another_topic_of_the_name_that_is_deleted_in_turn(tmp_path: Path) -> None:
    async with listeners(tmp_path) as served:
        served.engine.refresh = far_away  # type: ignore[method-assign]
        await served.broker.create_topic(READ, placement=Placement(partitions=1))
        point = 0
        for point in count(1):
            await served.broker.create_topic(REFUSED, placement=Placement(partitions=1))
            meant = m.TopicIdentity(topic=REFUSED, topic_id=UUID(int=7).bytes)
            request = m.TopicFetchRequest(partitions=PARTITIONS, topic_ids=[meant])
            answered = await codes(
                served.binary, request, point, lambda: delete_topic(served.broker, REFUSED)
            )
            if answered is None:
                break
            assert answered in (
                [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE],
                [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE],
            )
        assert point > 1
