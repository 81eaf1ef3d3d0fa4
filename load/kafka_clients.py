"""What benchmarks do with confluent-kafka (librdkafka): topics, producers, consumers, a steady rate."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .subjects import Subject


class At(NamedTuple):
    """Where brokers are reached: what a process of its own is given of a ``Subject``."""

    name: str
    bootstrap: str


TIMEOUT_S = 120.0
CLIENT: dict[str, str | int] = {"log_level": "0", "topic.metadata.propagation.max.ms": 10_000}
# A GB: how fast Python fills the queue again must not decide.
UNBOUNDED = {"queue.buffering.max.messages": 0, "queue.buffering.max.kbytes": 1_000_000}
# A full queue would have the client pause for up to a second.
_PREFETCH = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_000_000}
_FULL_PAUSE_S = 0.01
_PRODUCED_AT_ONCE, _CONSUMED_AT_ONCE = 500, 10_000
# A metadata answer of a topic that has just been made may not know all its leaders yet.
_LEADER_PAUSE_S = 0.02
_names = (f"bench-{number}" for number in count())


def make_topic(subject: Subject, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
    """Create a topic of its own for a measurement, and return its name."""
    admin = AdminClient({"bootstrap.servers": subject.bootstrap, **CLIENT})
    topic = next(_names)
    wanted = NewTopic(
        topic, partitions, subject.replication_factor, config={**subject.topic_configs, **(configs or {})}
    )
    admin.create_topics([wanted], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    return topic


@contextmanager
def new_topic(
    subject: Subject,
    *,
    partitions: int = 1,
    is_synced: bool = False,
    configs: Mapping[str, str] | None = None,
) -> Generator[str]:
    """A topic that is deleted afterwards; ``is_synced``: acks=all means a sync before the answer."""
    if is_synced:
        configs = {**subject.synced_configs, **(configs or {})}
    topic = make_topic(subject, partitions=partitions, configs=configs)
    try:
        yield topic
    finally:
        admin = AdminClient({"bootstrap.servers": subject.bootstrap, **CLIENT})
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def await_leaders(client: Producer | Consumer, topic: str, partitions: int) -> None:
    """Also what connects the client, so that neither is in the measurement."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        found = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
            return
        time.sleep(_LEADER_PAUSE_S)
    raise TimeoutError(f"{topic} has no leaders")


def make_producer(subject: Subject, topic: str, partitions: int = 1, **settings: str | int) -> Producer:
    """Return a producer that knows the leaders of ``topic``; ``linger_ms`` is the setting ``linger.ms``."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    # An object store may take longer than the library waits by default for a busy machine.
    patience = {"message.timeout.ms": 120_000}
    producer = Producer({"bootstrap.servers": subject.bootstrap, **CLIENT, **patience, **given})
    await_leaders(producer, topic, partitions)
    return producer


def make_consumer(
    subject: Subject | At, topic: str, partitions: int, offset: int, **settings: str | int
) -> Consumer:
    """Return a consumer of all partitions from ``offset`` on."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    # It joins no group; the client library wants a name all the same.
    group: dict[str, str | int] = {"group.id": "bench", "enable.auto.commit": "false"}
    consumer = Consumer({"bootstrap.servers": subject.bootstrap, **group, **CLIENT, **given})
    await_leaders(consumer, topic, partitions)
    consumer.assign([TopicPartition(topic, partition, offset) for partition in range(partitions)])
    return consumer


def random_text(size: int) -> bytes:
    return os.urandom(size // 2).hex().encode()


def produce(
    subject: Subject,
    topic: str,
    *,
    partitions: int,
    records: int,
    size: int,
    contents: Sequence[dict[str, object]] = (),
    **settings: str | int,
) -> float:
    """Produce with acks=all and wait for the answers; return records per second.

    ``contents`` are produced in turn; without them, all records have the same value of ``size`` bytes.
    """
    producer = make_producer(subject, topic, partitions, **UNBOUNDED, **settings)
    some = contents or [{"value": random_text(size)}] * _PRODUCED_AT_ONCE
    turn = 0
    begun_s = time.perf_counter()
    unsent = records // _PRODUCED_AT_ONCE * _PRODUCED_AT_ONCE
    while unsent:
        # It takes no more than its queue has room for.
        taken = producer.produce_batch(topic, list(some[turn : turn + min(unsent, _PRODUCED_AT_ONCE)]))
        turn = (turn + taken) % len(some)
        unsent -= taken
        if not taken:
            producer.poll(_FULL_PAUSE_S)
    left = producer.flush(TIMEOUT_S)
    rate = records / (time.perf_counter() - begun_s)
    producer.close()
    if left:
        raise RuntimeError(f"{subject.name}: {left} of {records} records without an answer")
    return rate


def consume(subject: Subject | At, topic: str, *, partitions: int, records: int) -> float:
    """Read a topic from its beginning; return records per second.

    Raises:
        RuntimeError: records are missing.
    """
    consumer = make_consumer(subject, topic, partitions, OFFSET_BEGINNING, **_PREFETCH)
    begun_s = time.perf_counter()
    got = 0
    while got < records:
        # It waits for as many as it is asked for, or the whole time.
        messages = consumer.consume(min(_CONSUMED_AT_ONCE, records - got), TIMEOUT_S)
        if not messages or any(message.error() is not None for message in (messages[0], messages[-1])):
            raise RuntimeError(f"{subject.name}: {got} of {records} records arrived")
        got += len(messages)
    rate = records / (time.perf_counter() - begun_s)
    consumer.close()
    return rate


def stored_in(subject: Subject, topic: str) -> int:
    """Return the records in partition 0."""
    consumer = make_consumer(subject, topic, 1, OFFSET_BEGINNING)
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    consumer.close()
    return high - low


class SteadyProducer:
    """A thread that sends records of 100 B at a steady rate to all partitions in turn.

    A value is the time at which it was sent, of ``time.perf_counter_ns``. ``acks`` has when each record was
    acknowledged, and after how many ms.
    """

    def __init__(
        self, subject: Subject, topic: str, *, partitions: int, per_s: int, acks: str = "all"
    ) -> None:
        self.acks: list[tuple[float, float]] = []
        self.failed = 0
        self._topic, self._partitions, self._per_s = topic, partitions, per_s
        self._is_over = threading.Event()
        self._producer = make_producer(subject, topic, partitions, acks=acks, linger_ms=0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        begun_s = time.perf_counter()
        for number in count():
            while (pause_s := begun_s + number / self._per_s - time.perf_counter()) > 0:
                self._producer.poll(pause_s)
            if self._is_over.is_set():
                break
            self._send(number)
        self._producer.flush(TIMEOUT_S)

    def _send(self, number: int) -> None:
        sent_s = time.perf_counter()

        def delivered(error: KafkaError | None, _: Message) -> None:
            now_s = time.perf_counter()
            if error is None:
                self.acks.append((now_s, (now_s - sent_s) * 1000))
            else:
                self.failed += 1

        value = b"%0100d" % time.perf_counter_ns()
        self._producer.produce(self._topic, value, partition=number % self._partitions, on_delivery=delivered)

    def end(self) -> None:
        """Return when all records have been answered.

        Raises:
            RuntimeError: one was refused, or had no answer.
        """
        self._is_over.set()
        self._thread.join()
        left = len(self._producer)
        self._producer.close()
        if left or self.failed:
            raise RuntimeError(f"{left} records without an answer, {self.failed} refused")

    def latencies_ms(self, since_s: float = 0.0) -> list[float]:
        return [latency for at_s, latency in self.acks if at_s >= since_s]
