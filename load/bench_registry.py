"""Measure the schema registry beside Karapace, which has Apache Kafka below it.

- ``rate``: requests per second over a few connections, and the CPU time that the registry uses for each: a schema by its
  id, as consumers ask; a schema that is registered already, as producers ask; and new schemas, each of a subject of its
  own. Stele answers when a new schema is synced to the disk, Karapace when Kafka has it in memory.
- ``many``: the start over many schemas until the last one is answered, and the memory after it; ``empty`` is without
  them. That of Stele is the start of the whole broker.

``KARAPACE_PYTHON`` names a Python with Karapace, which is not on PyPI. The CPU time of its Kafka is not counted.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from confluent_kafka import Producer
from stele.broker_process import BrokerProcess, run_broker

from .apache_kafka import KafkaUnavailable, apache_kafka
from .harness import Benchmark, Rounds
from .kafka_clients import CLIENT
from .process_usage import cpu_seconds, resident_mb
from .results import at_least, at_most
from .server_start import free_ports
from .subjects import QUIET, STELE, THIS, environment_of

PARTS = ("rate", "many")
_TIMEOUT_S = 120.0
_LOOK_S = 0.02
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_numbers = count()


class Karapace:
    """A process of Karapace."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        (self.port,) = free_ports(1)
        settings = {
            "bootstrap_uri": bootstrap,
            "host": "127.0.0.1",
            "port": str(self.port),
            "advertised_hostname": "127.0.0.1",
            "advertised_port": str(self.port),
            "karapace_registry": "true",
            "log_level": "WARNING",
            # Other registries might write while a new one becomes the master; there are none.
            "waiting_time_before_acting_as_master_ms": "100",
        }
        self._environment = {
            **os.environ,
            **{f"KARAPACE_{name.upper()}": to for name, to in settings.items()},
        }
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [os.environ["KARAPACE_PYTHON"], "-m", "karapace"],
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True, slots=True)
class Registry:
    """One that runs, at a port of this machine."""

    name: str
    process: BrokerProcess | Karapace
    bootstrap: str

    @property
    def is_stele(self) -> bool:
        return self.name == STELE

    @property
    def port(self) -> int:
        process = self.process
        return process.registry_port if isinstance(process, BrokerProcess) else process.port


@contextmanager
def registries() -> Generator[list[Registry]]:
    """Run both.

    Raises:
        KafkaUnavailable: there is no Karapace, or no Kafka.
    """
    python = os.environ.get("KARAPACE_PYTHON", "false")
    if subprocess.run([python, "-c", "import karapace"], capture_output=True, check=False).returncode:
        raise KafkaUnavailable(
            "KARAPACE_PYTHON must name a Python with Karapace, installed from its repository"
        )
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-registry-")))
        broker = stack.enter_context(
            run_broker(directory / "stele", arguments=QUIET, environment=environment_of(THIS))
        )
        kafka = stack.enter_context(apache_kafka())
        karapace = Karapace(kafka.bootstrap, directory / "karapace.log")
        stack.callback(karapace.stop)
        karapace.start()
        both = [
            Registry(STELE, broker, broker.kafka_bootstrap),
            Registry("Karapace", karapace, kafka.bootstrap),
        ]
        for registry in both:
            await_answer(registry, request("PUT", "/config", {"compatibility": "BACKWARD"}))
        yield both


# ── requests ──


def request(method: str, path: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(content)}"]
    if content:
        lines.append("Content-Type: application/vnd.schemaregistry.v1+json")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def schema(number: int) -> str:
    """Return the text of a schema, which is different for each number."""
    fields = [{"name": f"field{index}", "type": "string"} for index in range(8)]
    return json.dumps({"type": "record", "name": f"Record{number}".replace("-", "_"), "fields": fields})


def registration(subject: str, number: int) -> bytes:
    return request("POST", f"/subjects/{subject}/versions", {"schema": schema(number)})


def send(port: int, requests: Sequence[bytes]) -> bytes:
    """Send requests over one connection, one after the other; return the last body.

    Raises:
        RuntimeError: an answer is not 200.
        OSError: nobody answers.
    """
    body = b""
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for sent in requests:
            connection.sendall(sent)
            received = b""
            while (end := received.find(b"\r\n\r\n")) < 0:
                received += connection.recv(65536) or _refuse(b"the connection was closed")
            head, body = received[:end], received[end + 4 :]
            length = _LENGTH.search(head)
            while length is not None and len(body) < int(length[1]):
                body += connection.recv(65536) or _refuse(b"the connection was closed")
            if head.split(b" ", 2)[1] != b"200":
                _refuse(head + b"\n" + body)
    return body


def _refuse(why: bytes) -> bytes:
    raise RuntimeError(why.decode(errors="replace"))


def seconds_of(registry: Registry, requests: Sequence[bytes], connections: int) -> float:
    """Return the seconds that requests take over some connections at once."""
    parts = [requests[number::connections] for number in range(connections)]
    with ThreadPoolExecutor(connections) as pool:
        begun_s = time.perf_counter()
        for done in [pool.submit(send, registry.port, part) for part in parts if part]:
            done.result()
        return time.perf_counter() - begun_s


def await_answer(registry: Registry, sent: bytes) -> float:
    """Return the seconds until the registry answers a request with 200."""
    begun_s = time.perf_counter()
    while True:
        try:
            send(registry.port, [sent])
        except (OSError, RuntimeError):
            if time.perf_counter() - begun_s > _TIMEOUT_S:
                raise
            time.sleep(_LOOK_S)
        else:
            return time.perf_counter() - begun_s


# ── parts ──


def measure_rate(bench: Benchmark, both: Sequence[Registry]) -> None:
    options, rounds = bench.options, Rounds()
    known = {
        registry.name: json.loads(send(registry.port, [registration("known", 0)]))["id"] for registry in both
    }
    # Once for warmth.
    for number in range(options.rounds + 1):
        bench.say(f"round {number} of {options.rounds}")
        for registry in both if number % 2 else both[::-1]:
            new = [next(_numbers) for _ in range(options.registrations)]
            works = {
                "GET of a schema by its id": [request("GET", f"/schemas/ids/{known[registry.name]}")]
                * options.requests,
                "POST of a registered schema": [registration("known", 0)] * options.requests,
                "POST of a new schema": [registration(f"new-{one}", 1 + one) for one in new],
            }
            for what, requests in works.items():
                cpu_s = cpu_seconds(registry.process.pid)
                seconds = seconds_of(registry, requests, options.connections)
                cpu_us = (cpu_seconds(registry.process.pid) - cpu_s) / len(requests) * 1e6
                if number:
                    rounds.add(what, "rate", len(requests) / seconds, is_stele=registry.is_stele)
                    rounds.add(what, "cpu", cpu_us, is_stele=registry.is_stele)
    for what in rounds.values:
        bench.row(
            f"schema registry, {what}",
            table="work",
            baseline="Karapace",
            value=rounds.measure(what, "rate", "/s", at_least(1.0)),
            measures={"cpu": rounds.measure(what, "cpu", "µs", at_most(1.0))},
        )


def write_many(registry: Registry, schemas: int) -> bytes:
    """Write schemas into the topic of a registry, each of a subject of its own; return a request for the last one."""
    producer = Producer({"bootstrap.servers": registry.bootstrap, **CLIENT})
    for number in range(schemas):
        subject = f"many-{number}"
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        value = {"subject": subject, "version": 1, "id": 10**6 + number, "schema": schema(-1 - number)}
        producer.produce("_schemas", json.dumps({**value, "deleted": False}), json.dumps(key))
        producer.poll(0)
    assert producer.flush(_TIMEOUT_S) == 0
    return request("GET", f"/subjects/many-{schemas - 1}/versions/latest")


def measure_many(bench: Benchmark, both: Sequence[Registry]) -> None:
    options, rounds = bench.options, Rounds()
    for registry in both:
        for measure in ("empty", "value"):
            bench.say(f"{registry.name}: {options.schemas if measure == 'value' else 'no'} more schemas")
            last = request("GET", "/config")
            if measure == "value":
                last = write_many(registry, options.schemas)
            for _ in range(options.rounds):
                registry.process.stop()
                begun_s = time.perf_counter()
                registry.process.start()
                await_answer(registry, last)
                seconds = time.perf_counter() - begun_s
                pid = registry.process.pid
                for what, figure in (
                    ("start", seconds),
                    ("CPU time of a start", cpu_seconds(pid)),
                    ("memory", resident_mb(pid)),
                ):
                    rounds.add(what, measure, figure, is_stele=registry.is_stele)
    for what in rounds.values:
        unit = "MB" if what == "memory" else "s"
        bench.row(
            f"schema registry, {what} with {options.schemas:,} schemas",
            table="memory",
            baseline="Karapace, without its Kafka",
            value=rounds.measure(what, "value", unit, at_most(1.0) if unit == "MB" else None),
            measures={"empty": rounds.measure(what, "empty", unit)},
        )


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=3)
    bench.parser.add_argument("--only", choices=PARTS, help="one part")
    bench.add("--requests", type=int, default=5_000, quick=200, help="per round (default: 5,000)")
    bench.add("--registrations", type=int, default=500, quick=20, help="new schemas per round (default: 500)")
    bench.add("--schemas", type=int, default=10_000, quick=100, help="of the start (default: 10,000)")
    bench.parser.add_argument("--connections", type=int, default=4, help="default: 4")
    with bench.run() as options, registries() as both:
        if options.only != "many":
            measure_rate(bench, both)
        if options.only != "rate":
            measure_many(bench, both)


if __name__ == "__main__":
    main()
