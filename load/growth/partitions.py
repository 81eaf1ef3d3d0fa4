"""Measure requests about all partitions of a topic, and what the broker does by itself with as many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from stele.broker_process import BrokerProcess

from ..decoded_reads import ask
from ..kafka_clients import CLIENT, make_topic
from ..subjects import Subject
from .costs import Costs, Point

SIZES = (100, 1_000, 9_900)
# Longer than the intervals of checkpoints, samples and retention.
_IDLE_S = 32.0
ENVIRONMENT = {"STELE_PARTITIONS_MAX": "20000", "STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "10000"}
_TIMEOUT_S = 120.0
# Tens of thousands of files, on a disk that may have other work.
_DELETED_S = 300.0


class Wide:
    """One topic with many partitions, and the clients of them."""

    def __init__(self, subject: Subject, partitions: int) -> None:
        self.topic = make_topic(subject, partitions=partitions)
        self._partitions = [TopicPartition(self.topic, number) for number in range(partitions)]
        kafka: dict[str, Any] = {
            "bootstrap.servers": subject.bootstrap,
            "socket.timeout.ms": int(1000 * _DELETED_S),
            **CLIENT,
        }
        self._admin = AdminClient(kafka)
        self._producer = Producer({**kafka, "linger.ms": 20})
        self._consumer = Consumer({**kafka, "group.id": self.topic, "enable.auto.commit": False})
        self._round = 0

    def describe(self) -> None:
        self._admin.list_topics(self.topic, timeout=_TIMEOUT_S)

    def describe_over_http(self, broker: BrokerProcess) -> None:
        ask(broker.http_port, "GET", f"/v1/topics/{self.topic}")

    def produce(self) -> None:
        """One record to each partition, all of them synced."""
        for each in self._partitions:
            self._producer.produce(self.topic, b"value", partition=each.partition)
        self._producer.flush(_TIMEOUT_S)
        self._round += 1

    def list_offsets(self) -> None:
        asked: dict[TopicPartition, Any] = dict.fromkeys(self._partitions, OffsetSpec.latest())
        for offset in cast("dict[object, Future[object]]", self._admin.list_offsets(asked)).values():
            offset.result(_TIMEOUT_S)

    def commit(self) -> None:
        offsets = [TopicPartition(self.topic, each.partition, self._round) for each in self._partitions]
        self._consumer.commit(offsets=offsets, asynchronous=False)

    def committed(self) -> None:
        self._consumer.committed(self._partitions, timeout=_TIMEOUT_S)

    def close(self) -> None:
        self._consumer.close()
        self._admin.delete_topics([self.topic], request_timeout=_DELETED_S)[self.topic].result(_DELETED_S)


async def partitions(costs: Costs, sizes: Sequence[int] = SIZES) -> list[Point]:
    """Measure topics of so many partitions; Stele has ``ENVIRONMENT``, and Apache Kafka answers Metadata only."""
    points: list[Point] = []
    for size in sizes:
        wide = await asyncio.to_thread(Wide, costs.subject, size)
        works: dict[str, Callable[[], None]] = {"Metadata": wide.describe}
        if costs.subject.is_stele:
            works |= {
                "description over HTTP": partial(wide.describe_over_http, costs.broker),
                "produce to each partition": wide.produce,
                "ListOffsets": wide.list_offsets,
                "OffsetCommit": wide.commit,
                "OffsetFetch": wide.committed,
            }
        for what, work in works.items():
            points.append(await costs.of(what, size, _in_thread(work, size)))
        if costs.subject.is_stele:
            points.append(await costs.of("passing of time", size, partial(_idle, size)))
        await asyncio.to_thread(wide.close)
    return points


def _in_thread(work: Callable[[], None], units: int) -> Callable[[], Awaitable[int]]:
    async def run() -> int:
        await asyncio.to_thread(work)
        return units

    return run


async def _idle(size: int) -> int:
    await asyncio.sleep(_IDLE_S)
    return size
