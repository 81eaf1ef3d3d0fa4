"""The clients of ``bench_cluster``.

They produce, consume, and send at a steady rate.
"""

from __future__ import annotations

import os
import threading
import time
from itertools import count

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .bench_kafka_throughput import await_leaders
from .cluster_subjects import Subject

PARTITIONS = 6
VALUE_BYTES = 1024
TIMEOUT_S = 120.0
LATENCY_PER_S = 100
_AT_ONCE = 500
CLIENT: dict[str, str | int] = {"log_level": "0", "topic.metadata.propagation.max.ms": 10_000}
# An object store may take longer than the library waits by default for a busy machine.
PRODUCER: dict[str, str | int] = {"acks": "all", "message.timeout.ms": 120_000, "linger.ms": 5}

_numbers = count()


def new_topic(subject: Subject, partitions: int = PARTITIONS) -> str:
    """Create a topic and return its name."""
    admin = AdminClient({"bootstrap.servers": subject.bootstrap, **CLIENT})
    topic = f"bench-{next(_numbers)}"
    wanted = NewTopic(topic, partitions, subject.replication_factor, config=subject.topic_configs)
    admin.create_topics([wanted], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    return topic


def produce(subject: Subject, topic: str, records: int) -> float:
    """Produce records of 1 KB and wait for the answers; return the seconds."""
    producer = Producer(
        {
            "bootstrap.servers": subject.bootstrap,
            **CLIENT,
            **PRODUCER,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 1_000_000,
            "batch.size": 1_000_000,
        }
    )
    await_leaders(producer, topic, PARTITIONS)
    some: list[dict[str, object]] = [{"value": os.urandom(VALUE_BYTES // 2).hex().encode()}] * _AT_ONCE
    begun = time.perf_counter()
    for _ in range(records // _AT_ONCE):
        producer.produce_batch(topic, some)
    left = producer.flush(TIMEOUT_S)
    seconds = time.perf_counter() - begun
    producer.close()
    if left:
        raise RuntimeError(f"{subject.name}: {left} of {records} records were not acknowledged")
    return seconds


def consume(subject: Subject, topic: str, records: int) -> float:
    """Read a topic from its start; return the seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": subject.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": "false",
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            **CLIENT,
        }
    )
    await_leaders(consumer, topic, PARTITIONS)
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    got = 0
    while got < records:
        messages = consumer.consume(min(10_000, records - got), TIMEOUT_S)
        if not messages or any(message.error() is not None for message in (messages[0], messages[-1])):
            raise RuntimeError(f"{subject.name}: {got} of {records} records arrived")
        got += len(messages)
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


class SteadyProducer:
    """Sends small records at a steady rate, and notes each acknowledgement's delay.

    It is a thread.
    """

    def __init__(self, subject: Subject, topic: str) -> None:
        # When each record was acknowledged, and after how many ms.
        self.acks: list[tuple[float, float]] = []
        self.failed = 0
        self._topic = topic
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": subject.bootstrap,
                **CLIENT,
                **PRODUCER,
                "linger.ms": 0,
                "enable.idempotence": True,
            }
        )
        await_leaders(self._producer, topic, PARTITIONS)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        begun = time.perf_counter()
        for number in count():
            if self._is_over.is_set():
                break
            while (pause_s := begun + number / LATENCY_PER_S - time.perf_counter()) > 0:
                self._producer.poll(pause_s)
            self._send(number)
        self._producer.flush(TIMEOUT_S)

    def _send(self, number: int) -> None:
        sent = time.perf_counter()

        def delivered(error: KafkaError | None, message: Message) -> None:
            del message
            now = time.perf_counter()
            if error is None:
                self.acks.append((now, (now - sent) * 1000))
            else:
                self.failed += 1

        self._producer.produce(self._topic, b"x" * 100, partition=number % PARTITIONS, on_delivery=delivered)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.close()

    def latencies_ms(self, since: float = 0.0) -> list[float]:
        return [latency for at, latency in self.acks if at >= since]
