"""Kafka Streams keeps its state in Stele: restored from a compacted changelog, and exactly once over kills."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest
from stele import Client, NewRecord
from stele.testing import BrokerProcess

from tests.conformance.clients import STREAMS
from tests.conformance.programs import (
    JAVA,
    Program,
    RecordProperty,
    compacting_broker,
    home_of,
    jar_version,
    records_of,
    removed_records,
    running,
)
from tests.support.waiting import eventually

INPUT, OUTPUT = "lines", "counts-out"
CHANGELOG, REPARTITION = "word-count-counts-changelog", "word-count-words-repartition"
WORDS = [f"word{number}" for number in range(40)]
PARTITIONS = 2
# Records are sent at once and committed seconds later: with the defaults, a transaction may be open for milliseconds only,
# and whoever looks at its output now and then may never see that.
LONG_TRANSACTIONS = {"producer.linger.ms": "0", "commit.interval.ms": "2000"}


class WordCount:
    """The program, and the model: what it is to have counted."""

    def __init__(
        self,
        home: Path,
        directory: Path,
        broker: BrokerProcess,
        *,
        guarantee: str = "at_least_once",
        properties: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        properties_file = directory / "streams.properties"
        properties_file.write_text("".join(f"{name}={value}\n" for name, value in (properties or {}).items()))
        self.state_dir = directory / "state"
        self.program = Program(
            [
                *JAVA,
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                *("-cp", f"{home / 'classes'}:{home / 'lib'}/*", "stele.conformance.streams.WordCount"),
                *(
                    broker.kafka_bootstrap,
                    str(self.state_dir),
                    INPUT,
                    OUTPUT,
                    guarantee,
                    str(properties_file),
                ),
            ],
            directory / "streams.log",
            environment=environment,
        )
        self.model: Counter[str] = Counter()
        self._broker = broker
        self._random = random.Random(1)

    def write(self, lines: int = 100) -> None:
        with Client(self._broker.binary_url) as client:
            texts = [" ".join(self._random.choices(WORDS, k=4)) for _ in range(lines)]
            client.produce_many(
                INPUT, [NewRecord(text, partition=n % PARTITIONS) for n, text in enumerate(texts)]
            )
        self.model.update(word for text in texts for word in text.split())

    def counts(self) -> dict[str, list[int]]:
        """All committed counts of each word in the output topic, in their order."""
        found: dict[str, list[int]] = {}
        with Client(self._broker.binary_url) as client:
            for partition in range(PARTITIONS):
                end = client.list_offset(OUTPUT, partition) or 0
                for key, value in records_of(client, OUTPUT, partition, start=0, end=end):
                    found.setdefault((key or b"").decode(), []).append(int(value or b"0"))
        return found

    def output(self) -> dict[str, int]:
        """The last count of each word in the output topic."""
        return {word: counts[-1] for word, counts in self.counts().items()}

    def await_open_transaction(self) -> None:
        """Write lines until some of their counts are stored and not committed."""
        with Client(self._broker.binary_url) as client:

            def is_open() -> bool:
                for partition in range(PARTITIONS):
                    stable = client.list_offset(OUTPUT, partition) or 0
                    end = client.list_offset(OUTPUT, partition, isolation="read_uncommitted") or 0
                    if end > stable:
                        return True
                self.write(20)
                return False

            self.eventually(is_open, "a transaction is open in the output")

    def await_counts(self) -> None:
        self.eventually(lambda: self.output() == self.model, "the output has the counts of the model")

    def store(self) -> dict[str, int]:
        """What the store of the running program has."""
        before = len(self.program.lines)
        self.program.tell("counts")
        self.eventually(lambda: "counted" in self.program.lines[before:], "the store is listed")
        counts = [line.split()[1:] for line in self.program.lines[before:] if line.startswith("count ")]
        return {word: int(count) for word, count in counts}

    def await_running(self, starts: int) -> None:
        self.eventually(
            lambda: self.program.lines.count("state RUNNING") >= starts, f"it runs, start {starts}"
        )

    @property
    def restored(self) -> int:
        """Records that were restored into the store, over all starts."""
        return sum(int(line.split()[2]) for line in self.program.lines if line.startswith("restored counts "))

    def eventually(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self.program.need_running()
            return condition()

        eventually(is_so, what)


@pytest.mark.program("kafka-streams")
def test_state_is_restored_from_a_compacted_changelog(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    home = home_of(STREAMS)
    record_property("version", jar_version(home, "kafka-streams"))
    with compacting_broker(tmp_path / "brokers") as broker:
        with Client(broker.binary_url) as client:
            client.create_topic(INPUT, partitions=PARTITIONS)
            client.create_topic(OUTPUT, partitions=PARTITIONS)
        count = WordCount(home, tmp_path, broker)
        with running(count.program):
            count.write()
            count.await_running(1)
            count.await_counts()
            policies = {topic: policy_of(broker, topic) for topic in (CHANGELOG, REPARTITION)}
            assert policies == {CHANGELOG: "compact", REPARTITION: "delete"}
            assert count.restored == 0

            def is_compacted() -> bool:
                if removed_records(broker, CHANGELOG) > len(WORDS):
                    return True
                count.write(10)
                count.await_counts()
                return False

            count.eventually(is_compacted, "the changelog is compacted")
            updates = count.model.total()

            count.program.end_input()
            shutil.rmtree(count.state_dir)
            broker.kill()
            broker.start()
            count.program.start()
            count.await_running(2)
            assert count.store() == count.model
            # From the newest records of each word, not from all of them.
            assert len(WORDS) <= count.restored < updates

            count.write()
            count.await_counts()
            assert count.store() == count.model
            count.program.end_input()


def policy_of(broker: BrokerProcess, topic: str) -> str:
    answer = httpx.get(f"{broker.http_url}/v1/topics/{topic}")
    assert answer.status_code == 200, answer.text
    policy: str = answer.json()["effective_configs"]["cleanup.policy"]
    return policy


@pytest.mark.program("kafka-streams")
def test_every_word_is_counted_exactly_once_over_kills(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    """With ``exactly_once_v2``, program and broker are killed while transactions are open."""
    home = home_of(STREAMS)
    record_property("version", jar_version(home, "kafka-streams"))
    with compacting_broker(tmp_path / "brokers") as broker:
        with Client(broker.binary_url) as client:
            client.create_topic(INPUT, partitions=PARTITIONS)
            client.create_topic(OUTPUT, partitions=PARTITIONS)
        count = WordCount(home, tmp_path, broker, guarantee="exactly_once_v2", properties=LONG_TRANSACTIONS)
        with running(count.program):
            count.write()
            count.await_running(1)
            count.await_counts()

            count.await_open_transaction()
            count.program.kill()
            count.write()
            count.program.start()
            count.await_running(2)
            count.await_counts()

            count.await_open_transaction()
            broker.kill()
            broker.start()
            count.write()
            count.await_counts()
            count.program.end_input()
        # Without a cache each update is a record: a word that is counted twice, or not, leaves a gap or a repetition.
        assert count.counts() == {word: list(range(1, total + 1)) for word, total in count.model.items()}
        assert aborted_records(broker, OUTPUT), "no kill fell into a transaction: this run has proved nothing"


def aborted_records(broker: BrokerProcess, topic: str) -> int:
    """How many records are stored and not committed."""
    hidden = 0
    with Client(broker.binary_url) as client:
        for partition in range(PARTITIONS):
            end = client.list_offset(topic, partition, isolation="read_uncommitted") or 0
            committed = records_of(client, topic, partition, start=0, end=end)
            stored = client.fetch(topic, partition, isolation="read_uncommitted")
            count = 0
            while stored.records or stored.next_offset < end:
                count += len(stored.records)
                stored = client.fetch(topic, partition, stored.next_offset, isolation="read_uncommitted")
            hidden += count - len(committed)
    return hidden
