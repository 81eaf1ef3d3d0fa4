"""Measure groups that the broker assigns (KIP-848) beside Apache Kafka.

The figures are the time to stable and the CPU time of the broker.

Each member is a connection that does what Kafka's clients do: it sends a heartbeat as often as the broker says, gives
up at once what it must, and reports that. The group is stable when its members have all partitions, each an even
share. Both brokers have their default intervals, so a rebalance takes some heartbeats of 5 s on both.
"""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.cimpl import TopicPartition

from app.tcp.kafka.schemas.consumer_groups import (
    CONSUMER_GROUP_HEARTBEAT_API,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from .harness import Benchmark, Rounds
from .kafka_clients import make_topic
from .kafka_frames import api_request, api_response
from .results import at_most
from .subjects import Subject, stele_and_kafka

TIMEOUT_S = 300.0
JOINING, LEAVING = 0, -1
# The coordinator of a broker that has just started is not there yet, or is loading.
_RETRIABLE = {14, 15, 16}
_PAUSE_S = 0.1
_names = count(1)

Owned = frozenset[tuple[bytes, int]]


class Connection:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def call(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        self._writer.write(api_request(CONSUMER_GROUP_HEARTBEAT_API, request))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return api_response(CONSUMER_GROUP_HEARTBEAT_API, await self._reader.readexactly(size))

    def close(self) -> None:
        self._writer.close()


class Member:
    def __init__(self, group: Group, number: int) -> None:
        self.owned: Owned = frozenset()
        self._group = group
        self._id = f"member-{number}"
        self._epoch = JOINING
        self._connection: Connection
        self._life = asyncio.create_task(self._live())

    async def leave(self) -> None:
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)
        self._connection.close()
        # Whatever the connection was waiting for, its response no longer matters.
        connection = await self._group.connect()
        await connection.call(self._request(epoch=LEAVING))
        connection.close()
        self.owned = frozenset()

    async def _live(self) -> None:
        self._connection = await self._group.connect()
        reported: Owned | None = None
        while True:
            joins = self._epoch == JOINING
            told = {} if self.owned == reported else {"topic_partitions": _by_topic(self.owned)}
            if joins:
                told |= {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": [self._group.topic]}
            reported = self.owned
            answer = await self._connection.call(self._request(epoch=self._epoch, **told))
            if answer.error_code in _RETRIABLE:
                reported = None
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.error_code:
                raise RuntimeError(f"error {answer.error_code}: {answer.error_message}")
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = frozenset(
                    (bytes(topic.topic_id), number)
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                )
                self._group.changed()
            if self.owned == reported:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)

    def _request(self, *, epoch: int, **told: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group.name, member_id=self._id, member_epoch=epoch, **told
        )

    def check(self) -> None:
        if self._life.done():
            self._life.result()


def _by_topic(owned: Owned) -> list[TopicPartitions]:
    topics = {topic for topic, _ in owned}
    return [
        TopicPartitions(
            topic_id=topic, partitions=sorted(number for other, number in owned if other == topic)
        )
        for topic in topics
    ]


@dataclass(kw_only=True)
class Group:
    subject: Subject
    topic: str
    partitions: int
    name: str = field(default_factory=lambda: f"rebalanced-{next(_names)}")
    members: list[Member] = field(default_factory=list[Member])
    _change: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self) -> Connection:
        return Connection(*await asyncio.open_connection(*self.subject.address))

    def changed(self) -> None:
        self._change.set()

    def join(self, members: int) -> None:
        known = len(self.members)
        self.members += [Member(self, known + number) for number in range(members)]

    async def leave(self, members: int) -> None:
        leaving, self.members = self.members[-members:], self.members[:-members]
        await asyncio.gather(*(member.leave() for member in leaving))

    async def stable(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not self._is_stable():
                self._change.clear()
                with_timeout = asyncio.wait_for(self._change.wait(), 1.0)
                await asyncio.gather(with_timeout, return_exceptions=True)
                for member in self.members:
                    member.check()

    def _is_stable(self) -> bool:
        share, rest = divmod(self.partitions, len(self.members))
        taken = [part for member in self.members for part in member.owned]
        return len(taken) == len(set(taken)) == self.partitions and {
            len(member.owned) for member in self.members
        } <= {share, share + bool(rest)}


async def rebalance(subject: Subject, rounds: Rounds, *, members: int, partitions: int, moved: int) -> None:
    """Let ``members`` join, then ``moved`` more, and let these leave again."""
    topic = make_topic(subject, partitions=partitions)
    group = Group(subject=subject, topic=topic, partitions=partitions)
    # Apache Kafka makes its topic of committed offsets when the first client looks for a coordinator.
    asking = Consumer({"bootstrap.servers": subject.bootstrap, "group.id": group.name, "log_level": "0"})
    asking.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    asking.close()
    for what in (f"{members} members join", f"{moved} more join", f"{moved} leave"):
        begun_s, cpu_s = time.perf_counter(), subject.cpu_s()
        if what.endswith("leave"):
            await group.leave(moved)
        else:
            group.join(moved if group.members else members)
        await group.stable()
        rounds.add(what, "value", time.perf_counter() - begun_s, is_stele=subject.is_stele)
        rounds.add(what, "cpu", subject.cpu_s() - cpu_s, is_stele=subject.is_stele)
    await group.leave(members)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=2)
    bench.parser.add_argument(
        "--only", choices=["stele", "kafka"], help="figures of one of them, without ratios"
    )
    bench.add("--members", type=int, default=100, quick=10, help="default: 100")
    bench.add("--partitions", type=int, default=1000, quick=50, help="default: 1000")
    bench.add(
        "--moved", type=int, default=10, quick=2, help="members that join later, and leave (default: 10)"
    )
    with bench.run() as options, stele_and_kafka(options.only) as subjects:
        rounds = Rounds()
        sizes = {"members": options.members, "partitions": options.partitions, "moved": options.moved}
        # Once for warmth.
        for number in range(options.rounds + 1):
            bench.say(f"round {number} of {options.rounds}")
            for subject in subjects:
                asyncio.run(rebalance(subject, rounds if number else Rounds(), **sizes))
        for what in rounds.values:
            bench.row(
                f"{what} a group that the broker assigns: stable after",
                # The others depend on when the next heartbeats are.
                table="work" if "members" in what else "",
                baseline="Kafka",
                value=rounds.measure(what, "value", "s", at_most(1.0)),
                measures={"cpu": rounds.measure(what, "cpu", "s", at_most(1.0))},
            )


if __name__ == "__main__":
    main()
