"""Programs of users that go on, or begin again, while the directory of their broker is lost and restored."""

from __future__ import annotations

import json
import subprocess
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from stele.testing import BrokerProcess

from load.apache_kafka import libs
from tests.support.lost_directories import now_ms

_CALL_TIMEOUT_S = 60.0
_POLL_S = 0.1


class Ack(NamedTuple):
    """A record that was acknowledged, and when the program knew of it."""

    offset: int
    value: bytes
    at_ms: int


class Restore(NamedTuple):
    """The moment of the cut, the end of the log then, and when the restored broker was started."""

    cut_ms: int
    end: int
    started_ms: int


def surviving(acks: Iterable[Ack], restores: Sequence[Restore]) -> dict[int, bytes]:
    """Return the acknowledged values that must be in the log, by offset.

    Raises:
        AssertionError: a restore has lost one that was acknowledged before the cut.
    """
    kept: dict[int, bytes] = {}
    for ack in acks:
        losses = [one for one in restores if ack.at_ms < one.started_ms and ack.offset >= one.end]
        early = [one for one in losses if ack.at_ms < one.cut_ms]
        assert not early, f"{ack} was acknowledged before the cut of {early[0]}"
        if not losses:
            kept[ack.offset] = ack.value
    return kept


# ── Apache Kafka ──


class KafkaTool:
    """A program of Apache Kafka that runs until it ends or is killed; ``lines`` is what it has reported."""

    def __init__(self, name: str, *arguments: str) -> None:
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{libs()}/*"]
        command += [f"org.apache.kafka.tools.{name}", *arguments]
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                if line.startswith(b"{") and line.endswith(b"}\n"):
                    self.lines.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if line.get("name") == name]

    def acks(self) -> list[Ack]:
        return [
            Ack(line["offset"], line["value"].encode(), line["timestamp"])
            for line in self.named("producer_send_success")
        ]

    def read(self) -> list[tuple[int, bytes]]:
        return [(line["offset"], line["value"].encode()) for line in self.named("record_data")]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


class RepeatedTool:
    """Runs a program of Apache Kafka again and again, whatever it ends with."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.codes: Counter[int] = Counter()
        self._command = name, *arguments
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            tool = KafkaTool(*self._command)
            while tool.process.poll() is None and not self._is_over.wait(_POLL_S):
                pass
            if not self._is_over.is_set():
                self.codes[tool.process.returncode] += 1
            tool.end()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


# ── librdkafka ──


class _Working(ABC):
    """Work in a thread that goes on until ``end``; ``errors`` counts those that the client reported."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.errors: Counter[str] = Counter()
        # How often it had to begin with a new client.
        self.begun = 0
        self.config = {"bootstrap.servers": broker.kafka_bootstrap, "log_level": 0, "error_cb": self._note}
        self._is_over = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _note(self, error: KafkaError) -> None:
        self.errors[error.name()] += 1

    def _work(self) -> None:
        try:
            while not self._is_over.is_set():
                self.begun += 1
                try:
                    self._run()
                except KafkaException as failed:
                    self._note(failed.args[0])
                except SystemError:
                    # confluent-kafka has called back while it was raising a fatal error.
                    self.errors["_FATAL"] += 1
        except BaseException as problem:
            self._problem = problem
            raise

    @abstractmethod
    def _run(self) -> None: ...

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._problem is None, self._problem


class LibrdkafkaProducer(_Working):
    """An idempotent producer, which begins again only after a fatal error."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._topic = topic
        self._number = 0
        self._acks: list[Ack] = []
        super().__init__(broker)

    def acks(self) -> list[Ack]:
        return list(self._acks)

    def _run(self) -> None:
        producer = Producer({**self.config, "enable.idempotence": True, "linger.ms": 5})
        while not self._is_over.is_set():
            with suppress(BufferError):
                value = str(self._number).encode()
                producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
                self._number += 1
            producer.poll(0.002)
        producer.flush(_CALL_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._note(error)
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        self._acks.append(Ack(offset, value, now_ms()))


class LibrdkafkaConsumer(_Working):
    """A consumer that never begins again, in a group of its own, or without one if ``protocol`` is None."""

    def __init__(
        self,
        broker: BrokerProcess,
        topic: str,
        *,
        reset: str,
        protocol: str | None,
    ) -> None:
        self._topic, self._reset, self._protocol = topic, reset, protocol
        self._read: list[tuple[int, bytes]] = []
        super().__init__(broker)

    def read(self) -> list[tuple[int, bytes]]:
        return list(self._read)

    def _run(self) -> None:
        consumer = Consumer(
            {
                **self.config,
                "group.id": f"librdkafka-{self._topic}-{self._reset}-{self._protocol}",
                "group.protocol": self._protocol or "classic",
                "enable.auto.commit": self._protocol is not None,
                "auto.offset.reset": self._reset,
                "auto.commit.interval.ms": 200,
            }
        )
        if self._protocol is None:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
        else:
            consumer.subscribe([self._topic])
        try:
            while not self._is_over.is_set():
                for message in consumer.consume(500, _POLL_S):
                    if (error := message.error()) is not None:
                        self._note(error)
                        continue
                    offset, value = message.offset(), message.value()
                    assert offset is not None
                    assert value is not None
                    self._read.append((offset, bytes(value)))
        finally:
            consumer.close()


class LibrdkafkaCopier(_Working):
    """Copies a topic in transactions, with the offsets that it has read; begins again after each error."""

    def __init__(self, broker: BrokerProcess, source: str, target: str) -> None:
        self._source, self._target = source, target
        self.copied = 0
        super().__init__(broker)

    def _run(self) -> None:
        producer = Producer({**self.config, "transactional.id": "librdkafka-copier"})
        producer.init_transactions(_CALL_TIMEOUT_S)
        consumer = Consumer(
            {
                **self.config,
                "group.id": "librdkafka-copier",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self._source])
        try:
            while not self._is_over.is_set():
                messages = [one for one in consumer.consume(200, _POLL_S) if not one.error()]
                if not messages:
                    continue
                producer.begin_transaction()
                for message in messages:
                    producer.produce(self._target, message.value(), partition=0)
                # Not the position, which a truncation of the log may have moved since.
                last = messages[-1].offset()
                assert last is not None
                offsets = [TopicPartition(self._source, 0, last + 1)]
                producer.send_offsets_to_transaction(
                    offsets, consumer.consumer_group_metadata(), _CALL_TIMEOUT_S
                )
                producer.commit_transaction(_CALL_TIMEOUT_S)
                self.copied += len(messages)
        finally:
            consumer.close()


@contextmanager
def ended(*programs: KafkaTool | RepeatedTool | _Working) -> Generator[None]:
    """End the programs afterwards."""
    try:
        yield
    finally:
        for program in programs:
            program.end()
