"""Programs of users over a broker that loses its directory, again and again, and comes back at the same address.

They are not restarted: the verifiable programs of Apache Kafka, whose producers are idempotent or not, and programs
with librdkafka go on. What is fenced, because it is transactional, begins again. ``STELE_TEST_RESTORES`` says how
often the directory is lost.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from stele import Client, NewRecord
from stele.testing import BrokerProcess

from tests.support.apache_kafka import kafka_or_skip
from tests.support.kills.readers import read_with_client
from tests.support.lost_directories import INTERVAL_MS, LostDirectories, file_bucket, lost_directories, now_ms
from tests.support.restored_programs import (
    Ack,
    KafkaTool,
    LibrdkafkaConsumer,
    LibrdkafkaCopier,
    LibrdkafkaProducer,
    RepeatedTool,
    Restore,
    ended,
    surviving,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.one_broker, pytest.mark.long]

RESTORES = int(os.environ.get("STELE_TEST_RESTORES", "3"))
# Records that each program has to write or read before the directory is lost again.
STEP = 200
PATIENCE_S = 300
SEED = int(os.environ.get("STELE_LOST_DIRECTORIES_SEED", "1"))


class Rounds:
    """Loses and restores the directory while programs write to ``topics``."""

    def __init__(self, lost: LostDirectories, topics: Iterable[str]) -> None:
        self.lost = lost
        self.topics = tuple(topics)
        self.restores: dict[str, list[Restore]] = {topic: [] for topic in topics}
        # What was written before the programs were back.
        self._early: dict[str, list[Ack]] = {topic: [] for topic in topics}
        self._rng = random.Random(SEED)

    def run(self, counts: Callable[[], dict[str, int]], report: Callable[[], object]) -> None:
        """Lose the directory each time that all programs have made progress, which ``counts`` counts."""
        for _ in range(RESTORES):
            self._await_progress(counts)
            self._run_one()
            print(f"restore {self.lost.restores}: {counts()} {report()}")
        self._await_progress(counts)

    def _await_progress(self, counts: Callable[[], dict[str, int]]) -> None:
        before = counts()

        def go_on() -> bool:
            now = counts()
            return all(now[name] >= count + STEP for name, count in before.items())

        eventually(go_on, f"all programs go on after {before}", timeout_s=PATIENCE_S)

    def _run_one(self) -> None:
        self.lost.await_cut_after(now_ms())
        # Somewhere between two cuts.
        end_ms = now_ms() + self._rng.randrange(2 * INTERVAL_MS)
        eventually(lambda: now_ms() >= end_ms, "a moment")
        self.lost.lose()
        cut_ms = self.lost.restore(write=None if self.lost.restores % 2 else self._write)
        for topic, restores in self.restores.items():
            restores.append(Restore(cut_ms, self.lost.restored_end(topic), self.lost.started_ms))

    def _write(self, broker: BrokerProcess) -> None:
        """Let the logs grow past the positions of consumers before these are back."""
        with Client(broker.binary_url) as client:
            for topic in self.topics:
                values = [f"early-{self.lost.restores}-{number}".encode() for number in range(1_000)]
                receipts = client.produce_many(topic, [NewRecord(value, partition=0) for value in values])
                at_ms = now_ms()
                self._early[topic] += [
                    Ack(receipt.offset, value, at_ms) for receipt, value in zip(receipts, values, strict=True)
                ]

    def stored(self, topic: str, start: int = 0) -> dict[int, bytes]:
        contents = asyncio.run(read_with_client(self.lost.broker.binary_url, (topic, 0), start))
        return {offset: content.value or b"" for offset, content in contents.items()}

    def check_written(self, topic: str, acks: Iterable[Ack]) -> dict[int, bytes]:
        """Compare the log with what was acknowledged; return it."""
        stored = self.stored(topic)
        kept = surviving([*acks, *self._early[topic]], self.restores[topic])
        wrong = {
            offset: (value, stored.get(offset))
            for offset, value in kept.items()
            if stored.get(offset) != value
        }
        assert not wrong, f"{topic}: {len(wrong)} records are not as acknowledged, {list(wrong.items())[:3]}"
        twice = {value: count for value, count in Counter(stored.values()).items() if count > 1}
        assert not twice, f"{topic}: {len(twice)} records are there twice, {list(twice)[:3]}"
        return stored


def all_read(rounds: Rounds, topic: str, read: Callable[[], list[tuple[int, bytes]]]) -> None:
    """Wait until a consumer has had every record since its first, once nothing is written any more."""
    stored = rounds.stored(topic)
    first = min(offset for offset, _ in read())
    wanted = {place for place in stored.items() if place[0] >= first}
    last = max(wanted)
    eventually(lambda: last in read(), f"{topic} is read to its end", timeout_s=PATIENCE_S)
    # A share group delivers again, later than the end, what was not acknowledged.
    try:
        eventually(lambda: wanted.issubset(read()), "every record is read")
    finally:
        skipped = sorted(wanted.difference(read()))
        assert not skipped, f"{topic}: {len(skipped)} were never read, {skipped[:3]} to {skipped[-1]}"


def is_copied(rounds: Rounds, written: dict[int, bytes]) -> None:
    """Wait until a copier has had every record; its copy has each of them once, in their order."""
    copied: dict[int, bytes] = {}

    def is_whole() -> bool:
        copied.update(rounds.stored(COPY, max(copied, default=-1) + 1))
        return len(copied) >= len(written)

    eventually(is_whole, "all is copied", timeout_s=PATIENCE_S)
    assert list(copied.values()) == list(written.values())


PLAIN, ONCE, COPY = "plain", "once", "copy"


def test_verifiable_programs_of_kafka_go_on(tmp_path: Path) -> None:
    with kafka_or_skip(), lost_directories(tmp_path, file_bucket(tmp_path)) as lost:
        with Client(lost.broker.binary_url) as client:
            for topic in (PLAIN, ONCE, COPY):
                client.create_topic(topic, configs={"segment.bytes": "65536"})
        idempotent = tmp_path / "idempotent.properties"
        idempotent.write_text("enable.idempotence=true\nretries=2147483647\nlinger.ms=5\n")
        server = ("--bootstrap-server", lost.broker.kafka_bootstrap)
        send = ("VerifiableProducer", *server, "--acks", "-1", "--throughput", "300", "--topic")
        plain = KafkaTool(*send, PLAIN)
        once = KafkaTool(*send, ONCE, "--command-config", str(idempotent))
        receive = ("VerifiableConsumer", *server, "--verbose", "--group-id", "verifiers", "--topic")
        readers = {
            PLAIN: KafkaTool(*receive, PLAIN, "--reset-policy", "earliest"),
            ONCE: KafkaTool(*receive, ONCE, "--reset-policy", "latest", "--group-protocol", "consumer"),
        }
        share = ("VerifiableShareConsumer", *server, "--verbose", "--group-id", "sharers", "--topic")
        readers["shared"] = KafkaTool(*share, ONCE, "--offset-reset-strategy", "earliest")
        copier = RepeatedTool(
            "TransactionalMessageCopier",
            *("--broker-list", lost.broker.kafka_bootstrap),
            *("--input-topic", ONCE, "--input-partition", "0", "--output-topic", COPY),
            *("--transactional-id", "copier", "--consumer-group", "copier", "--transaction-size", "50"),
            *("--use-group-metadata", "--enable-random-aborts"),
        )
        rounds = Rounds(lost, (PLAIN, ONCE))
        with ended(plain, once, copier, *readers.values()):
            rounds.run(
                lambda: {
                    **{topic: len(tool.acks()) for topic, tool in ((PLAIN, plain), (ONCE, once))},
                    **{f"{name} read": len(reader.read()) for name, reader in readers.items()},
                },
                lambda: f"exit codes of the copier {dict(copier.codes)}",
            )
            plain.end()
            once.end()
            rounds.check_written(PLAIN, plain.acks())
            written = rounds.check_written(ONCE, once.acks())
            for name, reader in readers.items():
                all_read(rounds, PLAIN if name == PLAIN else ONCE, reader.read)
            is_copied(rounds, written)


def test_programs_with_librdkafka_go_on(tmp_path: Path) -> None:
    with lost_directories(tmp_path, file_bucket(tmp_path)) as lost:
        with Client(lost.broker.binary_url) as client:
            for topic in (ONCE, COPY):
                client.create_topic(topic, configs={"segment.bytes": "65536"})
        producer = LibrdkafkaProducer(lost.broker, ONCE)
        readers = {
            f"{reset} {protocol}": LibrdkafkaConsumer(lost.broker, ONCE, reset=reset, protocol=protocol)
            for reset, protocol in (("earliest", "classic"), ("latest", "classic"), ("latest", "consumer"))
        }
        copier = LibrdkafkaCopier(lost.broker, ONCE, COPY)
        rounds = Rounds(lost, (ONCE,))
        with ended(producer, copier, *readers.values()):
            rounds.run(
                lambda: {
                    "written": len(producer.acks()),
                    "copied": copier.copied,
                    **{name: len(reader.read()) for name, reader in readers.items()},
                },
                lambda: f"producers {producer.begun}, copiers {copier.begun}",
            )
            producer.end()
            written = rounds.check_written(ONCE, producer.acks())
            for reader in readers.values():
                all_read(rounds, ONCE, reader.read)
                assert reader.begun == 1, reader.errors
            is_copied(rounds, written)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_goes_on_where_the_log_was_lost_before_all_that_it_has_read(
    tmp_path: Path, reset: str
) -> None:
    """The log has grown past its position before it is back, and nothing is left of the epoch in which it has read."""
    with lost_directories(tmp_path, file_bucket(tmp_path)) as lost:
        with Client(lost.broker.binary_url) as client:
            client.create_topic(ONCE)
            created_ms = now_ms()
            # Another change, so that there is a cut after the first one.
            client.create_topic(PLAIN)
            lost.await_cut_after(created_ms)
            moment_ms = now_ms()
            client.produce_many(ONCE, [NewRecord(f"lost {number}", partition=0) for number in range(800)])
        reader = LibrdkafkaConsumer(lost.broker, ONCE, reset=reset, protocol=None)
        values = [f"kept {number}" for number in range(1_000)]

        def write(restored: BrokerProcess) -> None:
            with Client(restored.binary_url) as early:
                early.produce_many(ONCE, [NewRecord(value, partition=0) for value in values])

        with ended(reader):
            eventually(lambda: len(reader.read()) == 800, "it has read what will be lost")
            lost.lose()
            lost.restore(moment_ms, write=write)
            wanted = list(enumerate(value.encode() for value in values))
            eventually(lambda: wanted[-1] in reader.read(), "it reads the end")
            assert reader.read()[800:] == wanted
