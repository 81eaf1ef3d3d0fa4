"""The compaction scenario of librdkafka's own tests: records of all kinds in, the last value per key out, per codec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError, NewTopic
from stele.testing import BrokerProcess

from tests.conformance.programs import compacting_broker
from tests.conformance.support import a_name
from tests.support.waiting import eventually

CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "100",
    "file.delete.delay.ms": "0",
}
KEYS = 20
ROUNDS = 25
READ_TIMEOUT_S = 60.0

Message = tuple[int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with compacting_broker(tmp_path_factory.mktemp("compaction") / "data") as broker:
        yield broker


class Topic:
    """A compacted topic of one partition with a model: the last value per key, ``None`` for a tombstone."""

    def __init__(self, broker: BrokerProcess, codec: str) -> None:
        self.name = a_name(f"compacted-{codec}")
        bootstrap = {"bootstrap.servers": broker.kafka_bootstrap}
        # Its futures have no types.
        admin: Any = AdminClient({**bootstrap})
        admin.create_topics([NewTopic(self.name, 1, 1, config=CONFIGS)])[self.name].result(READ_TIMEOUT_S)
        self.model: dict[bytes, bytes | None] = {}
        self._producer = Producer(
            # A batch holds records of several keys, so that a pass keeps parts of it.
            {**bootstrap, "compression.type": codec, "batch.num.messages": 10, "linger.ms": 10}
        )
        self._consumer = Consumer(
            {**bootstrap, "group.id": self.name, "enable.partition.eof": True, "enable.auto.commit": False}
        )

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()

    def write(self, key: bytes, value: bytes | None) -> None:
        self._producer.produce(self.name, value, key)
        self.model[key] = value

    def flush(self) -> None:
        assert self._producer.flush(READ_TIMEOUT_S) == 0

    def read(self) -> list[Message]:
        """Offset, key and value of every record from the beginning to the end."""
        self._consumer.assign([TopicPartition(self.name, 0, 0)])
        found: list[Message] = []
        while True:
            message = self._consumer.poll(READ_TIMEOUT_S)
            assert message is not None, "the end is not reached"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            key, value, offset = message.key(), message.value(), message.offset()
            assert offset is not None
            assert isinstance(key, bytes)
            assert value is None or isinstance(value, bytes)
            found.append((offset, key, value))


@pytest.fixture
def topic(broker: BrokerProcess, codec: str) -> Iterator[Topic]:
    topic = Topic(broker, codec)
    yield topic
    topic.close()


@pytest.mark.long
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_exactly_the_last_value_of_each_key_remains(topic: Topic) -> None:
    for round_number in range(ROUNDS):
        for number in range(KEYS):
            topic.write(b"key %d" % number, b"value %d of key %d " % (round_number, number) * 10)
        if round_number % 5 == 0:
            topic.write(b"deleted %d" % round_number, b"soon gone")
            topic.write(b"deleted %d" % round_number, None)
    topic.write(b"", b"an empty key is a key")
    topic.flush()
    written = topic.read()
    wanted = {key: value for key, value in topic.model.items() if value is not None}

    # Traffic rolls segments and makes tombstones old; each record of it replaces the one before.
    traffic = count()

    def is_compacted() -> bool:
        topic.write(b"traffic", b"%d" % next(traffic))
        topic.flush()
        found = [(key, value) for _, key, value in topic.read() if key != b"traffic"]
        assert {key: value for key, value in found if value is not None}.items() >= wanted.items()
        return Counter(found) == Counter(wanted.items())

    eventually(is_compacted, "one record of each key remains, and no tombstone")

    remains = topic.read()
    offsets = [offset for offset, _, _ in remains]
    assert offsets == sorted(set(offsets))
    # What remains is what was written there: the newest of each key, at its offset.
    newest = {key: (offset, key, value) for offset, key, value in written}
    assert [each for each in remains if each[1] != b"traffic"] == sorted(newest[key] for key in wanted)
