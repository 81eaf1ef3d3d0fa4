"""Run Apache Kafka on this machine, for comparisons and for its tools.

``python -m load.apache_kafka`` runs a node until it is interrupted. Its jars come from Maven Central once, into
``.kafka/``; nothing else is installed.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from .kafka_frames import await_metadata
from .server_start import free_ports

# The newest release that is on Maven Central with its tools.
VERSION = "4.3.1"
# What the start script of its release gives a broker.
HEAP = "1g"
# Nothing takes that long, but on a machine that computes something else, too.
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0

_ROOT = Path(__file__).resolve().parents[1]
_POM = Path(__file__).with_name("apache_kafka.pom.xml")
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_JAVA_MAJOR = 17
_SHOWN_BYTES = 8000
# As the start script of its release runs a broker, logging aside.
_BROKER_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dlog4j2.level=INFO",
)
# Tools run once and briefly: an optimizing compiler would only compete with them for the cores.
_TOOL_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class KafkaUnavailable(RuntimeError):
    """Something that is needed is missing; the message says what to install."""


class KafkaStartError(RuntimeError):
    """The broker did not get ready; the message has the end of its log."""


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise KafkaUnavailable(
            f"{name} is not on the PATH, and Apache Kafka {VERSION} needs it: install {package}"
            f" (for example: apt install openjdk-{_JAVA_MAJOR}-jre-headless maven)"
        )
    return found


def java() -> str:
    """The path of ``java``.

    Raises:
        KafkaUnavailable: there is none.
    """
    return _program("java", f"a Java runtime, {_JAVA_MAJOR} or newer")


def libs() -> Path:
    """The directory with the jars of Apache Kafka ``VERSION``; downloads them if they are not there.

    Safe to call from several processes at once.

    Raises:
        KafkaUnavailable: Java or Maven is missing, or Maven could not get them.
    """
    java()
    directory = _ROOT / ".kafka" / VERSION / "libs"
    if directory.exists():
        return directory
    maven = _program("mvn", "Apache Maven")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.exists():
            return directory
        partial = directory.with_name("libs.partial")
        shutil.rmtree(partial, ignore_errors=True)
        command = [maven, "--batch-mode", "--quiet", "--file", str(_POM), _COPY_GOAL]
        command += [f"-Dkafka.version={VERSION}", f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0 or not partial.exists():
            raise KafkaUnavailable(
                f"Maven could not fetch Apache Kafka {VERSION} (it needs Maven Central once):\n"
                f"{done.stdout[-_SHOWN_BYTES:]}"
            )
        # A directory with this name is always complete.
        partial.rename(directory)
    return directory


def run_tool(class_name: str, *arguments: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """One of Kafka's command-line tools by its class; its exit code is the caller's to judge."""
    command = [java(), *_TOOL_OPTIONS, "-cp", f"{libs()}/*", class_name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)


class NodeOfCluster(NamedTuple):
    """The own settings of a node of a cluster, and the cluster's id."""

    cluster_id: str
    port: int
    controller_port: int


class ApacheKafka:
    """One node, broker and controller in one process, on free loopback ports.

    All its files are in ``directory``; ports and data outlast ``stop``, so a ``start`` after it goes on.
    """

    def __init__(
        self,
        directory: Path,
        *,
        properties: Mapping[str, str] | None = None,
        heap: str = HEAP,
        cluster: NodeOfCluster | None = None,
    ) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.log_path = directory / "kafka.log"
        self._controller_port = 0
        self._directory = directory
        self._configuration = directory / "server.properties"
        self._properties = dict(properties or {})
        self._heap = heap
        self._cluster = cluster
        self._begun = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def several(cls, directory: Path, count: int, *, heap: str = HEAP) -> list[ApacheKafka]:
        """Return nodes of one cluster, which all vote; ``spawn`` all of them, then ``await_answer``."""
        host = "127.0.0.1"
        ports = free_ports(2 * count, host)
        voters = ",".join(f"{number}@{host}:{port}" for number, port in enumerate(ports[count:], 1))
        cluster_id = random_cluster_id()
        replicas = {"default.replication.factor": str(count), "offsets.topic.replication.factor": str(count)}
        return [
            cls(
                directory / str(number),
                properties={"node.id": str(number), "controller.quorum.voters": voters, **replicas},
                heap=heap,
                cluster=NodeOfCluster(cluster_id, ports[number - 1], ports[count + number - 1]),
            )
            for number in range(1, count + 1)
        ]

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Raises RuntimeError while it is not running."""
        if self._process is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The last of what it logged, over all its starts."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace")

    def prepare(self) -> None:
        """Write its configuration and format its storage, once; ``start`` does it if it was not done.

        Raises:
            KafkaUnavailable: Java or Maven is missing.
            KafkaStartError: the storage could not be formatted.
        """
        if self.port:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._cluster is None:
            self.port, self._controller_port = free_ports(2, self.host)
        else:
            self.port, self._controller_port = self._cluster.port, self._cluster.controller_port
        lines = [f"{name}={value}\n" for name, value in self._all_properties().items()]
        self._configuration.write_text("".join(lines))
        done = run_tool(
            "kafka.tools.StorageTool",
            *("format", "--ignore-formatted", "--cluster-id", self._cluster_id()),
            *("--config", str(self._configuration)),
        )
        if done.returncode != 0:
            raise KafkaStartError(f"the storage could not be formatted:\n{done.stdout}{done.stderr}")

    def _cluster_id(self) -> str:
        return random_cluster_id() if self._cluster is None else self._cluster.cluster_id

    def start(self) -> float:
        """Wait until it answers a client; return the seconds since the process started.

        Raises:
            KafkaUnavailable: Java or Maven is missing.
            KafkaStartError: it ended, or did not answer in time.
        """
        self.spawn()
        return self.await_answer()

    def spawn(self) -> None:
        """Start the process.

        Raises ``KafkaUnavailable`` and ``KafkaStartError`` as ``prepare`` does.
        """
        self.prepare()
        command = [java(), f"-Xmx{self._heap}", f"-Xms{self._heap}", *_BROKER_OPTIONS]
        command += ["-cp", f"{libs()}/*", "kafka.Kafka", str(self._configuration)]
        self._begun = time.perf_counter()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self._directory
            )

    def await_answer(self, timeout_s: float = START_TIMEOUT_S) -> float:
        """Return the seconds from the start of the process until it answers a client.

        Raises:
            KafkaStartError: it ended, or did not answer in time.
        """
        process, begun = self._process, self._begun
        assert process is not None
        deadline = begun + timeout_s
        while process.poll() is None and time.perf_counter() < deadline:
            if await_metadata(self.host, self.port, timeout_s=1.0):
                return time.perf_counter() - begun
        has_ended = process.poll() is not None
        self.kill()
        why = f"ended with {process.returncode}" if has_ended else f"did not answer in {timeout_s:g} s"
        raise KafkaStartError(f"Apache Kafka {why}; the end of its log:\n{self.log}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not end it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _all_properties(self) -> dict[str, str]:
        node_id = self._properties.get("node.id", "1")
        return {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": f"{node_id}@{self.host}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._directory / "data"),
            # One node is all there is.
            "default.replication.factor": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # A few partitions of its own topics instead of fifty of each: they cost every start.
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "share.coordinator.state.topic.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "true",
            **self._properties,
        }


def random_cluster_id(make_uuid: Callable[[], uuid.UUID] = uuid.uuid4) -> str:
    """Return a random UUID in URL-safe base64, as Kafka writes it.

    It does not begin with ``-``.

    The storage tool takes such an id (one in 64) for an option and refuses to format.
    """
    while True:
        cluster_id = base64.urlsafe_b64encode(make_uuid().bytes).decode().rstrip("=")
        if not cluster_id.startswith("-"):
            return cluster_id


@contextmanager
def apache_kafka(
    data_dir: Path | None = None, *, properties: Mapping[str, str] | None = None, heap: str = HEAP
) -> Generator[ApacheKafka]:
    """A running Apache Kafka; its files are deleted afterwards unless ``data_dir`` was given.

    ``properties`` are further ones of its ``server.properties``, or others instead of ours.

    Raises:
        KafkaUnavailable: Java or Maven is missing.
        KafkaStartError: it did not get ready.
    """
    with tempfile.TemporaryDirectory(prefix="apache-kafka-") as scratch:
        kafka = ApacheKafka(Path(scratch) if data_dir is None else data_dir, properties=properties, heap=heap)
        try:
            kafka.start()
            yield kafka
        finally:
            kafka.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=f"Run Apache Kafka {VERSION} until it is interrupted.")
    parser.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", dest="properties")
    parser.add_argument("--data-dir", type=Path, help="kept afterwards (default: a temporary one)")
    parser.add_argument("--heap", default=HEAP)
    options = parser.parse_args()
    properties: dict[str, str] = {}
    for given in options.properties:
        name, equals, value = given.partition("=")
        if not equals:
            parser.error(f"--property needs NAME=VALUE, not {given!r}")
        properties[name] = value
    is_over = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        is_over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        with apache_kafka(options.data_dir, properties=properties, heap=options.heap) as kafka:
            print(f"ready {kafka.bootstrap}", flush=True)
            while kafka.is_running and not is_over.wait(0.5):
                pass
            if not is_over.is_set():
                raise KafkaStartError(f"Apache Kafka ended by itself; the end of its log:\n{kafka.log}")
    except (KafkaUnavailable, KafkaStartError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
