"""Applications move from Apache Kafka to Stele, while Kafka, the mirror and the broker are killed: nothing lost, nothing twice.

Spark with its checkpoint, Kafka Streams with its store and its changelog, and a consumer group change nothing but their
address. ``STELE_TEST_MOVES`` is the number of runs of ``make torture`` (50). Each run is a seed, which decides about kills.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from stele.broker_process import BrokerProcess, run_broker

from load.apache_kafka import ApacheKafka
from tests.conformance.clients import SPARK, STREAMS
from tests.conformance.moving import (
    PARTITIONS,
    TIMEOUT_S,
    Load,
    Names,
    Readers,
    Spark,
    Words,
    batches_in,
    counted,
    counts_in,
    done,
)
from tests.conformance.programs import home_of, running
from tests.support.apache_kafka import start_kafka
from tests.support.mirrors import mirror_pids
from tests.support.waiting import eventually

RUNS = int(os.environ.get("STELE_TEST_MOVES", "50"))
SEEDS = [
    pytest.param(0, marks=pytest.mark.long),
    *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(1, RUNS)),
]
SETTINGS = {"STELE_LOG_FLUSH_INTERVAL_MS": "50"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    kafka = start_kafka(tmp_path_factory.mktemp("kafka"))
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    spark = Spark(home_of(SPARK), tmp_path_factory.mktemp("spark") / "spark.log")
    with running(spark.program):
        yield spark


@pytest.mark.parametrize("seed", SEEDS)
def test_applications_move_while_everything_is_killed(
    kafka: ApacheKafka, spark: Spark, tmp_path: Path, seed: int
) -> None:
    streams_home = home_of(STREAMS)
    with run_broker(tmp_path / "target" / "data", environment=SETTINGS) as broker:
        Move(kafka, spark, broker, streams_home, tmp_path, seed).run()


class Move:
    """One run."""

    def __init__(
        self, kafka: ApacheKafka, spark: Spark, broker: BrokerProcess, home: Path, path: Path, seed: int
    ) -> None:
        self._kafka = kafka
        self._broker = broker
        self._spark = spark
        self._path = path
        self._seed = seed
        self._random = random.Random(seed)
        self._names = Names(f"move{seed}")
        self._words = Words(self._names, home, path)
        self._read: list[str] = []
        self._written: list[str] = []
        self._mirror_url = f"{broker.http_url}/v1/mirrors/move"
        self._story: list[str] = []

    def run(self) -> None:
        try:
            self._run()
        finally:
            # Shown if it failed.
            print(f"seed {self._seed}: {', '.join(self._story)}")
            if self._words.program is not None:
                self._words.program.kill()

    def _run(self) -> None:
        source, target = self._kafka.bootstrap, self._broker.kafka_bootstrap
        self._make_topics()
        body = {"from": source, "topics": self._names.all, "groups": self._names.all}
        httpx.put(self._mirror_url, json=body, timeout=60).raise_for_status()

        load = Load(self._names, source, first=0, seed=self._seed)
        readers = Readers(self._names, source, self._read, reset="earliest")
        try:
            self._words.start(source)
            self._spark.start(self._names, source, self._path)
            victims = ["source", "mirror", "broker", self._random.choice(("source", "mirror", "broker"))]
            self._random.shuffle(victims)
            for victim in victims:
                load.await_count(load.count + self._random.randrange(50, 1500))
                self._kill(victim)
        finally:
            load.end()
            readers.end()
        self._written += load.written
        self._stop_words()
        self._spark.stop()
        self._await_level()
        self._promote()

        load = Load(self._names, target, first=load.count, seed=self._seed + 1000)
        # Without the offsets of the group this is an error.
        readers = Readers(self._names, target, self._read, reset="error")
        try:
            self._words.start(target)
            self._spark.start(self._names, target, self._path)
            load.await_count(load.count + self._random.randrange(200, 1500))
            if self._random.random() < 0.5:
                self._kill("broker")
            load.await_count(load.count + 200)
        finally:
            load.end()
        self._written += load.written
        try:
            self._await_outputs(readers)
        finally:
            readers.end()
            self._spark.stop()
        self._check()

    # ── what happens ──

    def _make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 1) for name in (self._names.input, self._names.output)]
        done(admin.create_topics(topics))

    def _kill(self, what: str) -> None:
        self._story.append(f"killed the {what}")
        if what == "source":
            self._kafka.kill()
            self._kafka.start()
        elif what == "broker":
            self._broker.kill()
            self._broker.start()
        else:
            with suppress(ProcessLookupError):
                for pid in mirror_pids(self._broker.pid):
                    os.kill(pid, signal.SIGKILL)

    def _stop_words(self) -> None:
        program = self._words.program
        assert program is not None
        # In the middle of a transaction, mostly.
        if self._random.random() < 0.5:
            self._story.append("killed the word count")
            program.kill()
        else:
            self._story.append("stopped the word count")
            program.end_input()
        if self._random.random() < 0.5:
            self._story.append("lost its store")
            shutil.rmtree(self._words.state_dir, ignore_errors=True)

    def _status(self) -> dict[str, Any]:
        return httpx.get(self._mirror_url, timeout=60).raise_for_status().json()

    def _await_level(self) -> None:
        eventually(
            lambda: self._status()["state"] == "level", f"level: {self._status()}", timeout_s=TIMEOUT_S
        )

    def _promote(self) -> None:
        if self._random.random() < 0.3:
            self._story.append("killed the broker while it promoted")
            delay_s = self._random.uniform(0, 0.3)
            killer = threading.Timer(delay_s, self._broker.kill)
            killer.start()
            with suppress(httpx.TransportError):
                httpx.post(f"{self._mirror_url}/promote", json={}, timeout=60)
            killer.join()
            self._broker.start()
            if httpx.get(self._mirror_url, timeout=60).status_code == 404:
                return
            self._await_level()
        answer = httpx.post(f"{self._mirror_url}/promote", json={}, timeout=120)
        assert answer.status_code == 200, answer.text
        self._story.append(
            f"promoted, aborted {sum(len(one['aborted_transactions']) for one in answer.json()['promoted'])}"
        )

    # ── what comes of it ──

    def _await_outputs(self, readers: Readers) -> None:
        expected, words = Counter(self._written), counted(self._written).total()

        def is_all() -> bool:
            readers.check()
            self._words.check()
            self._spark.program.need_running()
            return (
                len(self._read) >= expected.total()
                and len(batches_in(self._path)) >= expected.total()
                and counts_in(self._broker.kafka_bootstrap, self._names.output).total() >= words
            )

        try:
            eventually(is_all, "all applications have put out everything", timeout_s=TIMEOUT_S)
        except pytest.fail.Exception:
            # What is missing tells more.
            self._check()
            raise

    def _check(self) -> None:
        expected = Counter(self._written)
        self._compare("the group", Counter(self._read), expected)
        self._compare("Spark", Counter(batches_in(self._path)), expected)
        counts = counts_in(self._broker.kafka_bootstrap, self._names.output)
        self._compare("Streams", counts, counted(self._written))

    def _compare(self, who: str, found: Counter[Any], expected: Counter[Any]) -> None:
        lost, twice = expected - found, found - expected
        what = f"{who} of seed {self._seed}: {lost.total()} lost, {twice.total()} twice of {expected.total()}"
        assert not lost, f"{what}: {sorted(lost)[:10]}"
        assert not twice, f"{what}: {sorted(twice)[:10]}"
