"""A load and three applications that move from one broker to another, with what each of them has put out.

All read one topic. What is written to it is known: whatever was acknowledged, in transactions whatever was committed.
Each record is its number, which no other has, and a word, which many have.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.conformance.programs import JAVA, Program
from tests.conformance.spark import job_command
from tests.support.waiting import eventually

PARTITIONS = 3
TIMEOUT_S = 180.0
_WORDS = 20
_PER_TRANSACTION = 4
# Longer than any broker is away: nothing that was written may be given up.
_DELIVERY_MS = 600_000
# Otherwise each attempt to connect to a broker that was killed is a line.
_QUIET = {"log_level": 2}


def done(futures: Any) -> None:
    """Wait for what an administrator asked for."""
    for future in futures.values():
        future.result(TIMEOUT_S)


class Names:
    """What belongs to one run; the names of all its topics and groups begin with it."""

    def __init__(self, run: str) -> None:
        self.all = f"{run}-.*"
        self.input = f"{run}-lines"
        self.output = f"{run}-counts"
        self.group = f"{run}-readers"
        self.streams = f"{run}-words"
        self.writer = f"{run}-writer"


class Load:
    """Two producers in a thread, one of them with transactions, half of which it aborts."""

    def __init__(self, names: Names, bootstrap: str, first: int, seed: int) -> None:
        self.count = first
        self.written: list[str] = []
        self._bootstrap = bootstrap
        # Of transactions whose outcome was not told.
        self.unknown: list[str] = []
        self._topic = names.input
        self._random = random.Random(seed)
        options = {
            **_QUIET,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": _DELIVERY_MS,
            "transaction.timeout.ms": 120_000,
        }
        self._transactional_options = {
            **options,
            "message.timeout.ms": 120_000,
            "transactional.id": names.writer,
        }
        self._plain = Producer(options)
        self._transactional = Producer(self._transactional_options)
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def await_count(self, count: int) -> None:
        """Wait until so many have been sent."""

        def is_reached() -> bool:
            self._check()
            return self.count >= count

        eventually(is_reached, f"{count} are sent", timeout_s=TIMEOUT_S)

    def end(self) -> None:
        """Return once all is acknowledged, and what was not told is known."""
        self._is_over.set()
        self._thread.join()
        self._check()
        if self.unknown:
            stored = {value for _, value in committed_in(self._bootstrap, self._topic)}
            self.written += [value for value in self.unknown if value in stored]
            self.unknown = []

    def _check(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"the load failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            _retried(lambda: self._transactional.init_transactions(10))
            while not self._is_over.wait(0.01):
                for _ in range(self._random.randrange(1, 12)):
                    self._send(self._plain, self._take_delivered)
                self._plain.poll(0)
                if self._random.random() < 0.3:
                    self._write_transaction()
            assert self._plain.flush(TIMEOUT_S) == 0
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: the test raises it
            self._failure = error

    def _send(self, producer: Producer, delivered: Callable[[KafkaError | None, Message], None]) -> str:
        value = f"n{self.count} w{self._random.randrange(_WORDS)}"
        producer.produce(
            self._topic, value, partition=self._random.randrange(PARTITIONS), on_delivery=delivered
        )
        self.count += 1
        return value

    def _take_delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = KafkaException(error)
        else:
            self.written.append((message.value() or b"").decode())

    def _write_transaction(self) -> None:
        producer = self._transactional
        is_aborted = self._random.random() < 0.5
        values: list[str] = []
        try:
            _retried(producer.begin_transaction)
            values = [self._send(producer, lambda error, message: None) for _ in range(_PER_TRANSACTION)]
            if is_aborted:
                producer.flush(1)
                _retried(lambda: producer.abort_transaction(10))
                return
            _retried(lambda: producer.commit_transaction(10))
            self.written += values
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                _retried(lambda: producer.abort_transaction(10))
                return
            # Its broker was killed meanwhile, and answers the repeated end so that librdkafka gives up.
            if not error.args[0].fatal():
                raise
            self.unknown += [] if is_aborted else values
            self._transactional = Producer(self._transactional_options)
            _retried(lambda: self._transactional.init_transactions(10))


def _retried(call: Callable[[], None]) -> None:
    """Call until it succeeds, as librdkafka asks for, or no broker comes back."""
    end_s = time.monotonic() + _DELIVERY_MS / 1000
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end_s:
                raise


class Readers:
    """A group of two members, which commits what it has put out.

    What it knows besides the committed offsets ends with it: the next one goes on where the group is.
    """

    def __init__(self, names: Names, bootstrap: str, output: list[str], *, reset: str) -> None:
        """``reset`` is where partitions without a committed offset begin."""
        self._output = output
        self._topic = names.input
        self._next: dict[int, int] = {}
        options = {
            **_QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": names.group,
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "isolation.level": "read_committed",
        }
        self._members = [Consumer(options) for _ in range(2)]
        for member in self._members:
            member.subscribe([names.input])
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="readers")
        self._thread.start()

    def end(self) -> None:
        """Commit all that was put out, and leave."""
        self._is_over.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"the group failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            while not self._is_over.is_set() or not self._has_committed_all():
                for member in self._members:
                    self._take(member, self._is_over.is_set())
            for member in self._members:
                member.close()
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: the test raises it
            self._failure = error

    def _take(self, member: Consumer, is_over: bool) -> None:
        for message in member.consume(100, 0.1):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise KafkaException(error)
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            # After a rebalance, a commit that failed brings records again.
            if offset >= self._next.get(partition, 0) and not is_over:
                self._output.append((message.value() or b"").decode())
                self._next[partition] = offset + 1
        assigned = {one.partition for one in member.assignment()}
        positions = [
            TopicPartition(self._topic, number, offset)
            for number, offset in self._next.items()
            if number in assigned
        ]
        if positions:
            # If it fails, the next one says the same.
            with suppress(KafkaException):
                member.commit(offsets=positions, asynchronous=False)

    def _has_committed_all(self) -> bool:
        wanted = [TopicPartition(self._topic, number) for number in self._next]
        try:
            found = self._members[0].committed(wanted, timeout=10) if wanted else []
        except KafkaException:
            return False
        return {one.partition: one.offset for one in found} == self._next


class Words:
    """Kafka Streams, exactly once: how often each word was counted."""

    def __init__(self, names: Names, home: Path, directory: Path) -> None:
        self._names = names
        self._home = home
        self._directory = directory
        self.state_dir = directory / "state"
        self.program: Program | None = None

    def start(self, bootstrap: str) -> None:
        properties = self._directory / "streams.properties"
        others = {
            "application.id": self._names.streams,
            "commit.interval.ms": "300",
            # A transaction of a program that was killed holds its readers back for as long.
            "producer.transaction.timeout.ms": "10000",
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in others.items()))
        self.program = Program(
            [
                *JAVA,
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                *("-cp", f"{self._home / 'classes'}:{self._home / 'lib'}/*"),
                "stele.conformance.streams.WordCount",
                *(bootstrap, str(self.state_dir), self._names.input, self._names.output),
                *("exactly_once_v2", str(properties)),
            ],
            self._directory / "streams.log",
        )
        self.program.start()

    def check(self) -> None:
        assert self.program is not None
        self.program.need_running()


def committed_in(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """Return the keys and values of a topic, of what is committed."""
    reader = Consumer(
        {
            **_QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[tuple[str, str]] = []
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in reader.consume(1000, 1.0):
            error = message.error()
            if error is None:
                found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                pytest.fail(str(error))
    reader.close()
    return found


def counts_in(bootstrap: str, topic: str) -> Counter[tuple[str, int]]:
    """Return how often each word was put out with each count."""
    return Counter((word, int(count)) for word, count in committed_in(bootstrap, topic))


def counted(values: list[str]) -> Counter[tuple[str, int]]:
    """Return what the word count puts out of these records: without a cache, each count once."""
    words = Counter(word for value in values for word in value.split())
    return Counter({(word, count): 1 for word, total in words.items() for count in range(1, total + 1)})


class Spark:
    """Spark with one query, whose micro-batches are files; it stays for all runs."""

    def __init__(self, home: Path, log_path: Path) -> None:
        self.program = Program(job_command(home, "moved_query.py"), log_path)
        self._answers = 0

    def start(self, names: Names, bootstrap: str, directory: Path) -> None:
        self._tell(
            {
                "start": bootstrap,
                "topic": names.input,
                "checkpoint": str(directory / "checkpoint"),
                "output": str(directory / "batches"),
            }
        )

    def stop(self) -> None:
        self._tell({"stop": True})

    def _tell(self, command: dict[str, object]) -> None:
        self.program.tell(json.dumps(command))
        self._answers += 1

        def has_answered() -> bool:
            self.program.need_running()
            return self.program.lines.count('{"done": true}') >= self._answers

        eventually(has_answered, f"Spark has done {command}", timeout_s=TIMEOUT_S)


def batches_in(directory: Path) -> list[str]:
    """Return what the query has put out."""
    files = sorted((directory / "batches").glob("*.json"), key=lambda path: int(path.stem))
    return [value for path in files for value in json.loads(path.read_text())]
