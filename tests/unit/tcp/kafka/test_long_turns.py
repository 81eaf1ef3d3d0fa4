"""No turn of the loop is long for a request with many elements, whatever its API and whichever array has them.

With access rules that allow or refuse everything, too, and in a cluster, where a request first looks for its topics.
A turn is measured by the calls that it makes, of functions in Python and in C, because these are the same in each run.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from app.broker.cluster import SoloCluster
from app.security.policy import ListenerSecurity
from app.tcp.kafka.apis import SERVED
from app.tcp.kafka.context import KafkaListener
from app.tcp.kafka.served import Served
from tests.support.acls import authorizer_over
from tests.support.kafka_application import kafka_listener, served
from tests.support.kafka_peer import request_frame
from tests.support.long_messages import long_messages
from tests.support.sample_messages import TOPIC, sample

ELEMENTS = 4_000
# A turn makes fewer than this many for each element: it may add up all of them, but handle some only. Those of the
# largest turns that depend on no number of elements are half as many.
CALLS_MAX = 5 * ELEMENTS
# In the first, each partition waits for the store in turn, for minutes in all. A member joins in one turn, and
# ``group_member_bytes_max`` bounds its protocols.
LEFT_OUT = frozenset(("AlterShareGroupOffsets", "JoinGroup"))
APIS = [pytest.param(row, id=row.api.name) for row in SERVED.values() if row.api.name not in LEFT_OUT]


class Turns:
    """Counts the calls in each turn of the loop while it is open."""

    def __init__(self) -> None:
        self.most = self._count = 0
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._loop.call_soon(self._end)
        sys.setprofile(self._called)

    def _called(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self._count += 1

    def _end(self) -> None:
        self.most, self._count = max(self.most, self._count), 0
        if self._is_open:
            self._loop.call_soon(self._end)

    def close(self) -> None:
        sys.setprofile(None)
        self._is_open = False


async def calls_of_longest_turn(address: tuple[str, int], frame: bytes) -> int:
    """Send a request, and await its response or the end of the connection."""
    reader, writer = await asyncio.open_connection(*address)
    turns = Turns()
    try:
        writer.write(frame)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    except asyncio.IncompleteReadError:
        # The broker ends a connection after what it cannot answer.
        pass
    finally:
        turns.close()
        writer.close()
    return turns.most


class OtherBrokers(SoloCluster):
    """A cluster in which other brokers may have made the topics that a request names."""

    is_shared = True


async def alone(listener: KafkaListener) -> KafkaListener:
    return listener


async def allowed_in_a_cluster(listener: KafkaListener) -> KafkaListener:
    listener.broker.cluster = OtherBrokers()
    authorizer = await authorizer_over(allows_without_acl=True)
    return replace(listener, security=ListenerSecurity(listener="kafka", authorizer=authorizer))


async def refused(listener: KafkaListener) -> KafkaListener:
    return replace(listener, security=ListenerSecurity(listener="kafka", authorizer=await authorizer_over()))


# Where all is allowed and looked for, a request does what it does without rules, and more.
@pytest.mark.parametrize(
    "where", [pytest.param(alone, marks=pytest.mark.long), allowed_in_a_cluster, refused]
)
@pytest.mark.parametrize("row", APIS)
async def test_a_long_request_takes_short_turns(
    tmp_path: Path, row: Served, where: Callable[[KafkaListener], Awaitable[KafkaListener]]
) -> None:
    api, version = row.api, row.api.versions[1]
    async with kafka_listener(tmp_path) as plain, served(await where(plain)) as address:
        broker = plain.broker
        await broker.create_topic(TOPIC, partitions=ELEMENTS, configs={"stele.storage": "memory"})
        message = sample(api.request, version, topic_id=broker.topic(TOPIC).topic_id.bytes)
        seen = {
            which: await calls_of_longest_turn(address, request_frame(long, version))
            for which, long in long_messages(message, ELEMENTS)
        }
    assert max(seen.values(), default=0) < CALLS_MAX, seen
