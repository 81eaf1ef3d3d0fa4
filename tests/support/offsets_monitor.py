"""A lag monitor: a plain consumer of ``__consumer_offsets``, what it has learned, and a group for it to see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, TopicPartition
from stele.broker_process import BrokerProcess

from app.groups.offsets_topic.records import partition_of
from tests.support.kafka_peer import TIMEOUT_S
from tests.support.offset_records import (
    Commit,
    GroupKey,
    GroupState,
    OffsetKey,
    decode_commit,
    decode_group,
    decode_key,
)

OFFSETS = "__consumer_offsets"
# Those of a broker on its own.
PARTITIONS = 50
EARLIEST, LATEST = -2, -1


def partition_of_one_broker(group: str) -> int:
    return partition_of(group, PARTITIONS)


class Monitor:
    """A plain consumer of all partitions, from a position on.

    After OFFSET_OUT_OF_RANGE it would go on at the end, as monitors do.
    """

    def __init__(
        self,
        bootstrap: str,
        at: int,
        *,
        partitions: int = PARTITIONS,
        expected_partition: Callable[[str], int] = partition_of_one_broker,
        **settings: Any,
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "not-used",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "enable.partition.eof": True,
                **settings,
            }
        )
        self.partitions = partitions
        self._expected_partition = expected_partition
        self._consumer.assign([TopicPartition(OFFSETS, partition, at) for partition in range(partitions)])
        self._ended: set[int] = set()
        # Where it is in each partition. Ends count, because a position of librdkafka moves with records only.
        self.positions: dict[int, int] = {}
        self.commits: dict[OffsetKey, Commit] = {}
        self.groups: dict[str, GroupState] = {}

    def close(self) -> None:
        self._consumer.close()

    def catch_up(self) -> None:
        """Read until the end of every partition was reached once."""
        while len(self._ended) < self.partitions:
            self.read()

    def read(self) -> OffsetKey | GroupKey | None:
        """The key of the next record, which is noted; None for the end of a partition."""
        message = self._consumer.poll(TIMEOUT_S)
        assert message is not None, "nothing came"
        error = message.error()
        partition, offset = cast("int", message.partition()), cast("int", message.offset())
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error  # pyright: ignore[reportPrivateUsage]
            self._ended.add(partition)
            self.positions[partition] = offset
            return None
        self.positions[partition] = offset + 1
        return self._note(cast("bytes", message.key()), message.value(), partition)

    def _note(self, raw_key: bytes, value: bytes | None, partition: int) -> OffsetKey | GroupKey:
        key = decode_key(raw_key)
        assert self._expected_partition(key.group) == partition
        if isinstance(key, OffsetKey):
            self.commits.pop(key, None)
            if value is not None:
                self.commits[key] = decode_commit(value)
        else:
            self.groups.pop(key.group, None)
            if value is not None:
                self.groups[key.group] = decode_group(value)
        return key

    def read_until(self, key: OffsetKey | GroupKey) -> None:
        while self.read() != key:
            pass


def read_one(broker: BrokerProcess, group: str) -> None:
    """Read and commit a record of ``orders`` as a member of ``group``, with librdkafka."""
    settings = {
        "bootstrap.servers": broker.kafka_bootstrap,
        "client.id": f"client-of-{group}",
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["orders"])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        consumer.commit(message=message, asynchronous=False)
