"""Kafka Connect in distributed mode keeps its connectors and offsets in Stele over kills; its sources write exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import Client
from stele.testing import BrokerProcess

from load.server_start import free_ports
from tests.conformance.clients import CONNECT
from tests.conformance.programs import (
    JAVA,
    SMALL_SEGMENTS,
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

WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TOPIC = "lines"
INTERNAL = {"config": "connect-configs", "offset": "connect-offsets", "status": "connect-status"}
CONNECTORS = {"source": SOURCE, "sink": SINK}
LINES_AT_ONCE = 200
KILLS_MIN, KILLS_MAX = 3, 10
# Long enough to kill a process after a transaction was seen open, before its end.
TRANSACTION_MS = 2000


class Worker:
    """A Connect worker with one source that reads a file and one sink that writes a file.

    ``exactly_once``: sources write records and offsets in transactions. ``login``: properties of all its clients.
    """

    def __init__(
        self,
        home: Path,
        directory: Path,
        bootstrap: str,
        *,
        exactly_once: bool = False,
        login: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect-cluster",
            "listeners": url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            # The file connectors are on the class path, and found by their manifests.
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",
            # A killed worker is missed after this, and its tasks are given to the next at once.
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "consumer.session.timeout.ms": "6000",
            "consumer.heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
        }
        if exactly_once:
            properties["exactly.once.source.support"] = "enabled"
        for kind, topic in INTERNAL.items():
            properties |= {f"{kind}.storage.topic": topic, f"{kind}.storage.replication.factor": "1"}
            properties |= {f"{kind}.storage.{name}": value for name, value in SMALL_SEGMENTS.items()}
        for prefix in ("", "producer.", "consumer.", "admin."):
            properties |= {f"{prefix}{name}": value for name, value in (login or {}).items()}
        configuration = directory / "worker.properties"
        configuration.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self.program = Program(
            [*JAVA, "-Dlog4j2.level=WARN", "-cp", f"{home / 'lib'}/*", WORKER, str(configuration)],
            directory / "worker.log",
            environment=environment,
        )
        self.input = directory / "input.txt"
        self.output = directory / "output.txt"
        self._http = httpx.Client(base_url=url, timeout=90)
        self._written = 0

    def close(self) -> None:
        self._http.close()

    # ── files ──

    def write_lines(self, count: int = LINES_AT_ONCE) -> None:
        with self.input.open("a") as file:
            for number in range(self._written, self._written + count):
                file.write(f"line {number}\n")
        self._written += count

    @property
    def written(self) -> list[str]:
        return [f"line {number}" for number in range(self._written)]

    @property
    def delivered(self) -> list[str]:
        return self.output.read_text().splitlines() if self.output.exists() else []

    def await_delivery(self) -> None:
        """Return when the sink has written the last line of the input."""
        last = f"line {self._written - 1}"
        self.eventually(lambda: last in self.delivered, f"{last!r} is delivered")

    # ── the REST interface ──

    def get(self, path: str) -> Any:
        """The document at ``path``, None while the worker cannot tell."""
        try:
            answer = self._http.get(path)
        except httpx.TransportError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def configure(self, name: str, **changes: str) -> dict[str, str]:
        """Create or change a connector, and return its configuration."""
        file = self.input if name == "source" else self.output
        config = {"connector.class": CONNECTORS[name], "tasks.max": "1", "file": str(file), **changes}
        if name == "source":
            config |= {"topic": TOPIC, "topic.creation.default.partitions": "1"}
            config["topic.creation.default.replication.factor"] = "1"
        else:
            config["topics"] = TOPIC
        return self.put(name, config)

    def put(self, name: str, config: dict[str, str]) -> dict[str, str]:
        """Create or change a connector, and return its configuration."""

        def accepted() -> bool:
            try:
                answer = self._http.put(f"/connectors/{name}/config", json=config)
            except httpx.TransportError:
                # It is starting.
                return False
            # A worker that is just rebalancing answers 409, one that has not read its topics 404 or 500.
            assert answer.status_code in (200, 201, 404, 409, 500), answer.text
            return answer.status_code in (200, 201)

        self.eventually(accepted, f"{name} is configured")
        return config

    def restart(self, name: str) -> None:
        """Restart a connector with its task, which then has clients of its own again."""

        def accepted() -> bool:
            answer = self._http.post(f"/connectors/{name}/restart", params={"includeTasks": "true"})
            assert answer.status_code in (202, 409), answer.text
            return answer.status_code == 202

        self.eventually(accepted, f"{name} is restarted")

    def await_failure(self, name: str) -> str:
        """Return the trace of the task of a connector when it has failed."""
        traces: list[str] = []

        def has_failed() -> bool:
            status = self.get(f"/connectors/{name}/status")
            traces.extend(task["trace"] for task in (status or {"tasks": ()})["tasks"] if "trace" in task)
            return bool(traces)

        self.eventually(has_failed, f"the task of {name} has failed")
        return traces[0]

    def source_position(self) -> int:
        """How far into the input file the offsets topic says that the source has read."""
        stored: Any = self.get("/connectors/source/offsets")
        return max((entry["offset"]["position"] for entry in stored["offsets"]), default=0) if stored else 0

    def await_running(self, names: Iterable[str] = CONNECTORS) -> None:
        """Return when the worker runs the connectors with their tasks."""

        def is_running() -> bool:
            states = [self.get(f"/connectors/{name}/status") for name in names]
            return all(
                state is not None
                and state["connector"]["state"] == "RUNNING"
                and [task["state"] for task in state["tasks"]] == ["RUNNING"]
                for state in states
            )

        self.eventually(is_running, "connectors and tasks run")

    def eventually(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self.program.need_running()
            return condition()

        eventually(is_so, what)


def values_in(broker: BrokerProcess, topic: str) -> list[str]:
    with Client(broker.binary_url) as client:
        end = client.list_offset(topic) or 0
        return [(value or b"").decode() for _, value in records_of(client, topic, 0, start=0, end=end)]


def check_order(lines: list[str], wanted: list[str]) -> None:
    """Fail if a line is missing or late. What was not committed before a kill is there again, in order."""
    assert list(dict.fromkeys(lines)) == wanted


@pytest.mark.program("kafka-connect")
def test_connectors_and_offsets_outlast_kills_and_compaction(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    home = home_of(CONNECT)
    record_property("version", jar_version(home, "connect-runtime"))
    with (
        compacting_broker(tmp_path / "brokers") as broker,
        closing(Worker(home, tmp_path, broker.kafka_bootstrap)) as worker,
        running(worker.program),
    ):
        worker.configure("source")
        worker.configure("sink")
        worker.write_lines()
        worker.await_running()
        worker.await_delivery()
        worker.eventually(lambda: worker.source_position() > 0, "the source's offset is stored")
        described = {topic: described_configs(broker, topic) for topic in INTERNAL.values()}
        assert {configs["cleanup.policy"] for configs in described.values()} == {"compact"}

        # Both are killed while lines are on their way.
        stored = worker.source_position()
        worker.write_lines()
        worker.program.kill()
        worker.write_lines()
        worker.program.start()
        worker.eventually(lambda: worker.source_position() >= stored, "the source's offset is there again")
        worker.write_lines()
        broker.kill()
        worker.write_lines()
        broker.start()
        worker.await_delivery()

        # Changes of the connectors and new offsets, until a pass removed records from each internal topic.
        numbers = itertools.count(100)
        config: dict[str, str] = {}

        def all_are_compacted() -> bool:
            nonlocal config
            if all(removed_records(broker, topic) for topic in INTERNAL.values()):
                return True
            config = worker.configure("source", **{"batch.size": str(next(numbers))})
            worker.write_lines(1)
            worker.await_delivery()
            return False

        worker.eventually(all_are_compacted, "the internal topics are compacted")
        stored = worker.source_position()

        # All that a worker knows now, it reads from compacted topics.
        worker.program.kill()
        broker.kill()
        broker.start()
        worker.program.start()
        worker.await_running()
        assert sorted(worker.get("/connectors")) == sorted(CONNECTORS)
        assert worker.get("/connectors/source")["config"] == {"name": "source", **config}
        assert worker.source_position() >= stored
        worker.write_lines()
        worker.await_delivery()

        # Two kills of the worker: each time the source goes back to its offset, and leaves out nothing from there.
        values = values_in(broker, TOPIC)
        check_order(values, worker.written)
        numbers_read = [int(value.removeprefix("line ")) for value in values]
        assert all(after <= before + 1 for before, after in itertools.pairwise(numbers_read))
        assert values.count("line 0") == 1, "no task started at the beginning again"
        check_order(worker.delivered, worker.written)


def described_configs(broker: BrokerProcess, topic: str) -> dict[str, Any]:
    answer = httpx.get(f"{broker.http_url}/v1/topics/{topic}")
    assert answer.status_code == 200, answer.text
    configs: dict[str, Any] = answer.json()["configs"]
    return configs


@pytest.mark.program("kafka-connect")
def test_a_source_writes_each_line_exactly_once_over_kills(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    """With ``exactly.once.source.support``, worker and broker are killed in open transactions of a file."""
    home = home_of(CONNECT)
    record_property("version", jar_version(home, "connect-runtime"))
    with (
        compacting_broker(tmp_path / "brokers") as broker,
        closing(Worker(home, tmp_path, broker.kafka_bootstrap, exactly_once=True)) as worker,
        running(worker.program),
    ):
        with Client(broker.binary_url) as client:
            client.create_topic(TOPIC, partitions=1)
        transactions = {"boundary": "interval", "boundary.interval.ms": str(TRANSACTION_MS)}
        worker.configure(
            "source",
            **{"exactly.once.support": "required"},
            **{f"transaction.{name}": value for name, value in transactions.items()},
        )
        worker.write_lines()
        worker.await_running(["source"])
        worker.eventually(lambda: values_in(broker, TOPIC) == worker.written, "the first lines are there")
        # Further kills until one has fallen into a transaction, which then was aborted.
        for kills, victim in enumerate((worker.program, broker, *[worker.program] * (KILLS_MAX - 2))):
            if kills >= KILLS_MIN and stored_lines(broker) > len(worker.written):
                break
            worker.eventually(lambda: writes_in_transaction(worker, broker), "a transaction is open")
            victim.kill()
            victim.start()
            worker.write_lines()
            worker.await_running(["source"])
            worker.eventually(
                lambda: len(values_in(broker, TOPIC)) >= len(worker.written), "all lines are there"
            )
        assert values_in(broker, TOPIC) == worker.written
        assert stored_lines(broker) > len(worker.written), (
            "no kill fell into a transaction: this run has proved nothing"
        )


def stored_lines(broker: BrokerProcess) -> int:
    """How many lines are stored, with those of aborted transactions."""
    with Client(broker.binary_url) as client:
        end, offset, lines = client.list_offset(TOPIC) or 0, 0, 0
        while offset < end:
            page = client.fetch(TOPIC, 0, offset, isolation="read_uncommitted")
            lines += len(page.records)
            offset = page.next_offset
    return lines


def writes_in_transaction(worker: Worker, broker: BrokerProcess) -> bool:
    """Whether lines are stored that are not committed; otherwise give the source a few more."""
    with Client(broker.binary_url) as client:
        if (client.list_offset(TOPIC, isolation="read_uncommitted") or 0) > (client.list_offset(TOPIC) or 0):
            return True
    worker.write_lines(20)
    return False
