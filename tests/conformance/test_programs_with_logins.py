"""Kafka Connect, Kafka Streams and Spark's connector over TLS with SCRAM, with no more rights than docs/ecosystem.md gives.

Sessions end every few seconds, so that the programs log in again while they work.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from stele import Client

from tests.conformance.clients import CONNECT, DRIVERS, SPARK, STREAMS
from tests.conformance.programs import RecordProperty, home_of, jar_version, running
from tests.conformance.test_kafka_connect import TOPIC, Worker, values_in
from tests.conformance.test_kafka_streams import INPUT, OUTPUT, PARTITIONS, WordCount
from tests.conformance.test_kafka_tools_with_logins import properties
from tests.support.documents import ROOT
from tests.support.locked_broker import PASSWORD, LockedBroker, locked_broker
from tests.support.waiting import eventually

# Enough for a login on a busy machine between the time at which a client begins one and the end of its session.
SESSION_MS = 10_000
LOGINS = 2
SPARK_RECORDS = 300
SPARK_TIMEOUT_S = 300


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[LockedBroker]:
    (tmp_path / "broker").mkdir()
    with locked_broker(tmp_path / "broker", session_ms=SESSION_MS) as broker:
        yield broker


def java_login(user: str, ca_file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in properties(user, PASSWORD, ca_file).splitlines())


def documented_rules(program: str) -> list[list[str]]:
    """The commands ``stele acls add`` of the section of ``program`` in docs/ecosystem.md, as words."""
    page = (ROOT / "docs/ecosystem.md").read_text()
    section = page.partition(f"### {program} with logins\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    rules = [line.split()[3:] for line in section.splitlines() if line.startswith("stele acls add ")]
    assert rules, program
    return rules


def allow(locked: LockedBroker, user: str, rules: Sequence[Sequence[str]], names: Mapping[str, str]) -> None:
    """Give ``user`` what ``stele acls add`` with these words would; ``names`` are those of the test for the page's."""
    for words in rules:
        options = iter(words)
        operations, resources, pattern = list[str](), list[tuple[str, str]](), "LITERAL"
        for option in options:
            if option == "--prefixed":
                pattern = "PREFIXED"
            elif option == "--operation":
                operations.append(next(options))
            elif option == "--cluster":
                resources.append(("CLUSTER", "kafka-cluster"))
            elif option in ("--topic", "--group", "--transactional-id"):
                name = next(options)
                resources.append((option[2:].upper().replace("-", "_"), names.get(name, name)))
            else:
                assert option == "--principal", option
                next(options)
        for kind, name in resources:
            for operation in operations:
                locked.allow(user, operation, kind, name, pattern=pattern)


def await_logins(locked: LockedBroker, user: str) -> None:
    """Return when a connection has logged in several times."""
    eventually(
        lambda: max(locked.logins(user).values(), default=0) >= LOGINS, "the program has logged in again"
    )


def denied(locked: LockedBroker, user: str) -> list[str]:
    """What the broker has refused to ``user``, by its audit log."""
    lines = [json.loads(line) for line in locked.audit_log.read_text().splitlines()]
    return [
        f"{line['operation']} {line['resource']}"
        for line in lines
        if line["verdict"] == "denied" and line["principal"] == f"User:{user}"
    ]


@pytest.mark.program(CONNECT)
def test_kafka_connect(locked: LockedBroker, tmp_path: Path, record_property: RecordProperty) -> None:
    home = home_of(CONNECT)
    record_property("version", jar_version(home, "connect-runtime"))
    user = locked.add_user()
    allow(
        locked, user, documented_rules("Kafka Connect"), {"orders": TOPIC, "connect-archive": "connect-sink"}
    )
    login = java_login(user, locked.ca_file)
    with (
        closing(Worker(home, tmp_path, locked.bootstrap, login=login)) as worker,
        running(worker.program),
    ):
        worker.configure("source")
        worker.configure("sink")
        worker.write_lines()
        worker.await_running()
        worker.await_delivery()
        await_logins(locked, user)
        worker.write_lines()
        worker.await_delivery()
        assert values_in(locked.process, TOPIC) == worker.written
        assert worker.delivered == worker.written
    assert denied(locked, user) == []


@pytest.mark.program(STREAMS)
def test_kafka_streams(locked: LockedBroker, tmp_path: Path, record_property: RecordProperty) -> None:
    home = home_of(STREAMS)
    record_property("version", jar_version(home, "kafka-streams"))
    user = locked.add_user()
    allow(locked, user, documented_rules("Kafka Streams"), {"orders": INPUT, "counts": OUTPUT})
    with Client(locked.binary_url) as client:
        client.create_topic(INPUT, partitions=PARTITIONS)
        client.create_topic(OUTPUT, partitions=PARTITIONS)
    login = java_login(user, locked.ca_file)
    count = WordCount(home, tmp_path, locked.process, guarantee="exactly_once_v2", login=login)
    with running(count.program):
        count.write()
        count.await_running(1)
        count.await_counts()
        await_logins(locked, user)
        count.write()
        count.await_counts()
        assert count.store() == count.model
        count.program.end_input()
    assert count.counts() == {word: list(range(1, total + 1)) for word, total in count.model.items()}
    assert denied(locked, user) == []


@pytest.mark.program(SPARK)
def test_spark(locked: LockedBroker, tmp_path: Path, record_property: RecordProperty) -> None:
    home = home_of(SPARK)
    record_property("version", (DRIVERS / SPARK / "requirements.txt").read_text().strip().partition("==")[2])
    topic = "from-spark"
    user = locked.add_user()
    allow(locked, user, documented_rules("Spark's connector"), {"orders": topic, "copies": f"{topic}-copy"})
    # The job also writes the topic that it reads.
    locked.allow(user, "WRITE", "TOPIC", topic)
    with Client(locked.binary_url) as client:
        client.create_topic(topic, partitions=3)
        client.create_topic(f"{topic}-copy", partitions=2)
    done = subprocess.run(
        [
            str(home / "venv" / "bin" / "python"),
            str(DRIVERS / SPARK / "job.py"),
            *(locked.bootstrap, topic, str(SPARK_RECORDS), str(tmp_path / "checkpoint"), str(home / "jars")),
            json.dumps(java_login(user, locked.ca_file)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=SPARK_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    written = [f"v{number}" for number in range(SPARK_RECORDS)]
    assert sorted(row[3] for row in answer["read"]) == sorted(written)
    copies = [(value or b"").decode() for value in locked.values(f"{topic}-copy")]
    assert sorted(copies) == sorted(f"copy of {value}" for value in written)
    assert locked.logins(user)
    assert denied(locked, user) == []
