"""Kafka Connect, Kafka Streams and Spark's connector over TLS with logins, with the rights that docs/ecosystem.md gives.

Sessions end every few seconds, so that the programs log in again while they work, and the certificate is renewed
meanwhile. Without any one of these rights, and with a wrong password, a program reports Kafka's exception.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from stele import Client

from tests.conformance.clients import CONNECT, SPARK, STREAMS
from tests.conformance.program_logins import (
    AUTHENTICATION_FAILED,
    SESSION_MS,
    WRONG_PASSWORD,
    Login,
    Renewal,
    await_logins,
    denied,
    work,
)
from tests.conformance.programs import Program, RecordProperty, home_of, jar_version, running
from tests.conformance.spark import job_command, spark_version
from tests.conformance.test_kafka_connect import TOPIC, Worker, check_order, values_in
from tests.conformance.test_kafka_streams import INPUT, OUTPUT, PARTITIONS, WordCount
from tests.support.documents import ROOT
from tests.support.locked_broker import LockedBroker, locked_broker
from tests.support.waiting import eventually

SPARK_RECORDS = 300
SPARK_TIMEOUT_S = 300


def version_of(program: str) -> str:
    if program == SPARK:
        return spark_version()
    artifact = {CONNECT: "connect-runtime", STREAMS: "kafka-streams"}[program]
    return jar_version(home_of(program), artifact)


@pytest.fixture
def locked(
    tmp_path: Path, request: pytest.FixtureRequest, record_property: RecordProperty
) -> Iterator[LockedBroker]:
    """A broker for the program of the test, whose version is recorded."""
    program = request.node.get_closest_marker("program").args[0]
    # Skips before a broker is started for a program that was not chosen.
    home_of(program)
    record_property("version", version_of(program))
    (tmp_path / "broker").mkdir()
    with locked_broker(tmp_path / "broker", session_ms=SESSION_MS) as broker:
        yield broker


def documented_rules(program: str) -> list[list[str]]:
    """The commands ``stele acls add`` of the section of ``program`` in docs/ecosystem.md, as words."""
    page = (ROOT / "docs/ecosystem.md").read_text()
    section = page.partition(f"### {program} with logins\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    rules = [line.split()[3:] for line in section.splitlines() if line.startswith("stele acls add ")]
    assert rules, program
    return rules


def but_one(rules: list[list[str]], left_out: int, *, of: int) -> list[list[str]]:
    assert len(rules) == of, "each rule of the page is left out in one test"
    return [*rules[:left_out], *rules[left_out + 1 :]]


def check_no_login(locked: LockedBroker, user: str) -> None:
    assert locked.logins(user, verdict="denied")
    assert not locked.logins(user)


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


# ── Kafka Connect ──

CONNECT_NAMES = {"orders": TOPIC, "connect-archive": "connect-sink"}


@contextmanager
def connect_worker(locked: LockedBroker, directory: Path, login: Login) -> Generator[Worker]:
    home = home_of(CONNECT)
    with (
        closing(
            Worker(home, directory, locked.bootstrap, login=login.properties, environment=login.environment)
        ) as worker,
        running(worker.program),
    ):
        yield worker


@work
@pytest.mark.program(CONNECT)
def test_kafka_connect(locked: LockedBroker, tmp_path: Path, mechanism: str) -> None:
    user = locked.add_user()
    allow(locked, user, documented_rules("Kafka Connect"), CONNECT_NAMES)
    login = Login(locked, user, mechanism)
    with connect_worker(locked, tmp_path, login) as worker:
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

        renewal = Renewal(locked, user)
        worker.write_lines()
        worker.await_delivery()
        renewal.check_open_connections()
        for name in ("source", "sink"):
            worker.restart(name)
        worker.await_running()
        worker.write_lines()
        worker.await_delivery()
        renewal.check_new_connections()
        check_order(values_in(locked.process, TOPIC), worker.written)
        check_order(worker.delivered, worker.written)
    assert denied(locked, user) == []


@pytest.mark.capability("wrong password")
@pytest.mark.program(CONNECT)
def test_kafka_connect_with_a_wrong_password(locked: LockedBroker, tmp_path: Path) -> None:
    user = locked.add_user(may_do_everything=True)
    login = Login(locked, user, password=WRONG_PASSWORD)
    with connect_worker(locked, tmp_path, login) as worker:
        eventually(lambda: not worker.program.is_running, "the worker gives up")
        assert AUTHENTICATION_FAILED in worker.program.log
    check_no_login(locked, user)


@pytest.mark.capability("missing right")
@pytest.mark.program(CONNECT)
@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (0, "org.apache.kafka.common.errors.TopicAuthorizationException"),
        (1, "org.apache.kafka.common.errors.GroupAuthorizationException"),
        # Connect's own: it goes on without the exception of a topic that it may not create.
        (2, "ConnectException: Task failed to create new topic"),
        (3, "org.apache.kafka.common.errors.GroupAuthorizationException"),
    ],
)
def test_kafka_connect_without_a_right(locked: LockedBroker, tmp_path: Path, rule: int, error: str) -> None:
    """Without the rules of its own topics or its group, the worker ends; otherwise the task that needs the rule fails."""
    user = locked.add_user()
    allow(locked, user, but_one(documented_rules("Kafka Connect"), rule, of=4), CONNECT_NAMES)
    with connect_worker(locked, tmp_path, Login(locked, user)) as worker:
        if rule < 2:
            # It takes a while to end.
            eventually(lambda: any(error in line for line in worker.program.lines), "the worker fails")
        else:
            worker.configure("source")
            if rule == 3:
                worker.configure("sink")
            worker.write_lines()
            assert error in worker.await_failure("source" if rule == 2 else "sink")
            assert worker.delivered == []
    assert denied(locked, user)


# ── Kafka Streams ──

STREAMS_NAMES = {"orders": INPUT, "counts": OUTPUT}


def word_count(locked: LockedBroker, directory: Path, login: Login) -> WordCount:
    """The program, which counts exactly once, and its topics."""
    with Client(locked.binary_url) as client:
        client.create_topic(INPUT, partitions=PARTITIONS)
        client.create_topic(OUTPUT, partitions=PARTITIONS)
    return WordCount(
        home_of(STREAMS),
        directory,
        locked.process,
        guarantee="exactly_once_v2",
        properties=login.properties,
        environment=login.environment,
    )


@work
@pytest.mark.program(STREAMS)
def test_kafka_streams(locked: LockedBroker, tmp_path: Path, mechanism: str) -> None:
    user = locked.add_user()
    allow(locked, user, documented_rules("Kafka Streams"), STREAMS_NAMES)
    login = Login(locked, user, mechanism)
    count = word_count(locked, tmp_path, login)
    with running(count.program):
        count.write()
        count.await_running(1)
        count.await_counts()
        await_logins(locked, user)
        count.write()
        count.await_counts()
        assert count.store() == count.model

        renewal = Renewal(locked, user)
        count.write()
        count.await_counts()
        renewal.check_open_connections()
        count.program.end_input()
        count.program.start()
        count.await_running(2)
        count.write()
        count.await_counts()
        renewal.check_new_connections()
        count.program.end_input()
    assert count.counts() == {word: list(range(1, total + 1)) for word, total in count.model.items()}
    assert denied(locked, user) == []


def streams_failure(count: WordCount) -> str:
    """What the program has written when it has given up."""
    count.eventually(lambda: "state ERROR" in count.program.lines, "the program gives up")
    count.program.end_input()
    return "\n".join(count.program.lines)


@pytest.mark.capability("wrong password")
@pytest.mark.program(STREAMS)
def test_kafka_streams_with_a_wrong_password(locked: LockedBroker, tmp_path: Path) -> None:
    user = locked.add_user(may_do_everything=True)
    login = Login(locked, user, password=WRONG_PASSWORD)
    count = word_count(locked, tmp_path, login)
    with running(count.program):
        count.write()
        assert AUTHENTICATION_FAILED in streams_failure(count)
    check_no_login(locked, user)
    assert count.counts() == {}


@pytest.mark.capability("missing right")
@pytest.mark.program(STREAMS)
@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (0, "TopicAuthorizationException"),
        (1, "TopicAuthorizationException"),
        (2, "TopicAuthorizationException"),
        (3, "GroupAuthorizationException"),
        (4, "TransactionalIdAuthorizationException"),
    ],
)
def test_kafka_streams_without_a_right(locked: LockedBroker, tmp_path: Path, rule: int, error: str) -> None:
    user = locked.add_user()
    allow(locked, user, but_one(documented_rules("Kafka Streams"), rule, of=5), STREAMS_NAMES)
    login = Login(locked, user)
    count = word_count(locked, tmp_path, login)
    with running(count.program):
        count.write()
        assert f"org.apache.kafka.common.errors.{error}" in streams_failure(count)
    assert denied(locked, user)
    assert count.counts() == {}


# ── Spark's connector ──

READ, COPY = "from-spark", "from-spark-copy"


class Spark:
    """``spark_jobs/with_login.py``, and a topic that it may copy to another."""

    def __init__(self, locked: LockedBroker, directory: Path, login: Login) -> None:
        self._answers = 0
        self._directory = directory
        self.program = Program(
            job_command(home_of(SPARK), "with_login.py", locked.bootstrap, json.dumps(login.properties)),
            directory / "spark.log",
            environment=login.environment,
        )
        with Client(locked.binary_url) as client:
            client.create_topic(READ, partitions=3)
            client.create_topic(COPY, partitions=2)

    def ask(self, **command: Any) -> dict[str, Any]:
        """What it answers to a command."""

        def answers() -> list[Any]:
            self.program.need_running()
            return [json.loads(line) for line in self.program.lines if line.startswith(('{"done', '{"error'))]

        self.program.tell(json.dumps(command))
        self._answers += 1
        eventually(lambda: len(answers()) == self._answers, "Spark answers", timeout_s=SPARK_TIMEOUT_S)
        answer: dict[str, Any] = answers()[-1]
        return answer

    def copy(self) -> dict[str, Any]:
        return self.ask(copy=READ, to=COPY, checkpoint=str(self._directory / "checkpoint"))


@work
@pytest.mark.program(SPARK)
def test_spark(locked: LockedBroker, tmp_path: Path, mechanism: str) -> None:
    user = locked.add_user()
    spark = Spark(locked, tmp_path, Login(locked, user, mechanism))
    allow(locked, user, documented_rules("Spark's connector"), {"orders": READ, "copies": COPY})
    # The program also writes the topic that it reads.
    locked.allow(user, "WRITE", "TOPIC", READ)
    written = list[str]()

    def write() -> None:
        values = [f"v{number}" for number in range(len(written), len(written) + SPARK_RECORDS)]
        locked.write(READ, [value.encode() for value in values])
        written.extend(values)

    def are_copied() -> bool:
        spark.program.need_running()
        return sorted((value or b"").decode() for value in locked.values(COPY)) == sorted(written)

    with running(spark.program):
        values = [f"v{number}" for number in range(SPARK_RECORDS)]
        assert spark.ask(write=READ, values=values) == {"done": None}
        written += values
        assert spark.copy() == {"done": None}
        assert are_copied()
        await_logins(locked, user)
        write()
        eventually(are_copied, "all records are copied", timeout_s=SPARK_TIMEOUT_S)

        renewal = Renewal(locked, user)
        write()
        eventually(are_copied, "all records are copied", timeout_s=SPARK_TIMEOUT_S)
        renewal.check_open_connections()
        assert sorted(spark.ask(read=READ)["done"]) == sorted(written)
        renewal.check_new_connections()
        spark.program.end_input()
    assert denied(locked, user) == []


@pytest.mark.capability("wrong password")
@pytest.mark.program(SPARK)
def test_spark_with_a_wrong_password(locked: LockedBroker, tmp_path: Path) -> None:
    user = locked.add_user(may_do_everything=True)
    spark = Spark(locked, tmp_path, Login(locked, user, password=WRONG_PASSWORD))
    locked.write(READ, [b"secret"])
    with running(spark.program):
        for answer in (spark.ask(read=READ), spark.ask(write=COPY, values=["own"]), spark.copy()):
            assert AUTHENTICATION_FAILED in answer["error"]
        spark.program.end_input()
    check_no_login(locked, user)
    assert locked.values(COPY) == []


@pytest.mark.capability("missing right")
@pytest.mark.program(SPARK)
def test_spark_without_a_right(locked: LockedBroker, tmp_path: Path) -> None:
    user = locked.add_user()
    spark = Spark(locked, tmp_path, Login(locked, user))
    # Without the second rule of the page, and then without the first.
    read, write = documented_rules("Spark's connector")
    names = {"orders": READ, "copies": COPY}
    locked.write(READ, [b"open"])
    refused = "org.apache.kafka.common.errors.TopicAuthorizationException"
    with running(spark.program):
        allow(locked, user, [read], names)
        assert spark.ask(read=READ) == {"done": ["open"]}
        for answer in (spark.ask(write=COPY, values=["own"]), spark.copy()):
            assert refused in answer["error"]
        assert locked.values(COPY) == []
        locked.disallow(user)
        allow(locked, user, [write], names)
        assert spark.ask(write=COPY, values=["own"]) == {"done": None}
        for answer in (spark.ask(read=READ), spark.copy()):
            assert refused in answer["error"]
        assert locked.values(COPY) == [b"own"]
        spark.program.end_input()
    assert denied(locked, user)
