"""A name that a client may not read is refused before anything looks for it.

A broker of several asks the others for topics that it does not know, and for no others: a look before the right would
tell by its time whether a hidden topic exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from stele.wire import messages as m

from app.security.acl import Acl, Operation, PatternType, ResourceType
from app.security.principal import ANONYMOUS
from tests.support.acls import authorizer_over
from tests.support.binary_peer import Peer
from tests.support.listeners import Listeners, listeners

OPEN, HIDDEN, MISSING = "open", "hidden", "missing"
RIGHTS = [
    Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=str(ANONYMOUS),
        operation=Operation.READ,
    )
    for kind, name in ((ResourceType.GROUP, "g"), (ResourceType.TOPIC, OPEN))
]


async def reset(at: Listeners, name: str, **body: Any) -> int:
    answer = await at.http.put("/v1/groups/g/offsets", json=body)
    return int(answer.json()["kafka_code"]) if answer.status_code == 403 else 0


async def reset_of_topics(at: Listeners, name: str) -> int:
    return await reset(at, name, to="earliest", topics=[name])


async def reset_of_offsets(at: Listeners, name: str) -> int:
    return await reset(at, name, offsets=[{"topic": name, "partition": 0, "offset": 0}])


async def binary_metadata(at: Listeners, name: str) -> int:
    def call() -> Any:
        with Peer(at) as peer:
            return peer.call(m.MetadataRequest(topics=[name]))

    (topic,) = (await asyncio.to_thread(call)).topics
    return int(topic.code)


async def binary_fetch(at: Listeners, name: str) -> int:
    request = m.FetchRequest(partitions=[m.FetchPartition(topic=name, partition=0, offset=0)])

    def call() -> Any:
        with Peer(at) as peer:
            return peer.call(request)

    (partition,) = (await asyncio.to_thread(call)).partitions
    return int(partition.code)


@pytest.mark.parametrize("ask", [reset_of_topics, reset_of_offsets, binary_metadata, binary_fetch])
async def test_it_is_not_looked_up_and_refused_as_one_that_does_not_exist(ask: Any, tmp_path: Path) -> None:
    looked_up: list[str] = []

    async def find(
        names: Iterable[str] = (), *, ids: Iterable[bytes] = (), partitions: Iterable[tuple[str, int]] = ()
    ) -> None:
        looked_up.extend({*names, *(topic for topic, _ in partitions)})
        assert not list(ids)

    async with listeners(tmp_path, authorizer=await authorizer_over(RIGHTS)) as at:
        for name in (OPEN, HIDDEN):
            await at.broker.create_topic(name)
        with mock.patch.object(at.broker, "try_to_find_topics", find):
            assert [await ask(at, name) for name in (OPEN, HIDDEN, MISSING)] == [0, 29, 29]
    assert set(looked_up) == {OPEN}
