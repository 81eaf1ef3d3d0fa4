"""Measure groups that the broker assigns (KIP-848) beside Apache Kafka.

The figures are the time to stable and the CPU time of the broker.

Each member is a connection that does what Kafka's clients do: it sends a heartbeat as often as the broker says, gives
up at once what it must, and reports that. The group is stable when its members have all partitions, each an even
share. Both brokers have their default intervals, so a rebalance takes some heartbeats of 5 s on both.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, TopicPartition
from stele.wire import schema

from app.tcp.kafka.schemas.consumer_groups import (
    CONSUMER_GROUP_HEARTBEAT_API,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from .apache_kafka import VERSION, KafkaUnavailable, apache_kafka
from .broker_process import running_broker
from .measure import Comparison, report
from .process_usage import cpu_seconds

_VERSION = 1
TIMEOUT_S = 300.0
TIME_GOAL, CPU_GOAL = 1.0, 1.0
JOINING, LEAVING = 0, -1
# The coordinator of a broker that has just started is not there yet, or is loading.
_RETRIABLE = {14, 15, 16}
_PAUSE_S = 0.1
_names = count(1)

Owned = frozenset[tuple[bytes, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    name: str
    bootstrap: str
    pid: int


class Connection:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._write_body = schema.writer(ConsumerGroupHeartbeatRequest, _VERSION, True)

    async def call(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        frame = bytearray(
            struct.pack(">hhih4sb", CONSUMER_GROUP_HEARTBEAT_API.key, _VERSION, 0, 4, b"load", 0)
        )
        self._write_body(request, frame)
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(size)
        # After the correlation id and the tagged fields of the header.
        message, _ = schema.read_message(
            cast("type[Any]", CONSUMER_GROUP_HEARTBEAT_API.response), _VERSION, True, answer, 5
        )
        return message

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
        host, _, port = self.subject.bootstrap.rpartition(":")
        return Connection(*await asyncio.open_connection(host, int(port)))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds from a change of members to a stable group, and the broker's CPU time."""

    waited_s: float
    cpu_s: float


async def rebalance(subject: Subject, *, members: int, partitions: int, moved: int) -> dict[str, Spent]:
    """Let ``members`` join, then ``moved`` more, and let these leave again."""
    topic = f"wide-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": subject.bootstrap, "log_level": "0"})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    group = Group(subject=subject, topic=topic, partitions=partitions)
    # Apache Kafka makes its topic of committed offsets when the first client looks for a coordinator.
    asking = Consumer({"bootstrap.servers": subject.bootstrap, "group.id": group.name, "log_level": "0"})
    asking.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    asking.close()
    spent: dict[str, Spent] = {}
    for what in (f"{members} join", f"{moved} more join", f"{moved} leave"):
        begun_s, cpu_s = time.perf_counter(), cpu_seconds(subject.pid)
        if what.endswith("leave"):
            await group.leave(moved)
        else:
            group.join(moved if group.members else members)
        await group.stable()
        spent[what] = Spent(waited_s=time.perf_counter() - begun_s, cpu_s=cpu_seconds(subject.pid) - cpu_s)
    await group.leave(members)
    return spent


def compare(ours: Iterable[dict[str, Spent]], theirs: Iterable[dict[str, Spent]], partitions: int) -> None:
    pairs = list(zip(ours, theirs, strict=True))
    for what in pairs[0][0]:
        waited = Comparison(
            ours=[a[what].waited_s for a, _ in pairs], yardstick=[b[what].waited_s for _, b in pairs]
        )
        used = Comparison(ours=[a[what].cpu_s for a, _ in pairs], yardstick=[b[what].cpu_s for _, b in pairs])
        for unit, goal, comparison in (
            ("s until the group is stable", TIME_GOAL, waited),
            ("s of CPU time of the broker", CPU_GOAL, used),
        ):
            report(
                f"{partitions} partitions, {what}",
                comparison,
                unit=unit,
                yardstick=f"Apache Kafka {VERSION}",
                goal=goal,
                at_most=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument(
        "--moved", type=int, default=10, help="members that join later, and leave (default: 10)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    def measure(subject: Subject) -> dict[str, Spent]:
        return asyncio.run(
            rebalance(subject, members=options.members, partitions=options.partitions, moved=options.moved)
        )

    with ExitStack() as stack:
        broker = stack.enter_context(running_broker("--log-level", "warning"))
        ours = Subject(name="Stele", bootstrap=broker.kafka_bootstrap, pid=broker.pid)
        try:
            kafka = stack.enter_context(apache_kafka())
        except KafkaUnavailable as error:
            print(f"not compared with Apache Kafka: {error}", file=sys.stderr)
            for what, spent in measure(ours).items():
                print(f"{what}: {spent.waited_s:.2f} s, {spent.cpu_s:.2f} s of CPU time")
            return
        theirs = Subject(name="Apache Kafka", bootstrap=kafka.bootstrap, pid=kafka.pid)
        # Once for warmth.
        rounds = [(measure(ours), measure(theirs)) for _ in range(options.rounds + 1)][1:]
    compare((a for a, _ in rounds), (b for _, b in rounds), options.partitions)


if __name__ == "__main__":
    main()
