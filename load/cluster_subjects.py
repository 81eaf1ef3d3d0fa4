"""The subjects of ``bench_cluster``: clusters of Stele, a single broker, and Apache Kafka."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol
from uuid import uuid4

from stele.broker_process import BrokerProcess

from app.clock import SystemClock
from app.storage.disk.files import RealFiles
from app.storage.shared.options import SharedOptions
from app.storage.shared.postgres_engine import PostgresEngine, SharedStorage
from app.storage.shared.upkeep import UpkeepOptions

from .apache_kafka import ApacheKafka
from .object_servers import running_store
from .postgres_server import PostgresServer, find_bin
from .process_usage import cpu_seconds

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "stele", "AWS_SECRET_ACCESS_KEY": "stele"}
# Several JVMs that start at once have few cores each.
_NODES_START_S = 240.0
# A row with its line pointer; what does not fit into it; an entry of 28 bytes in the primary key, of 20 in others.
_METADATA_BYTES = """
    SELECT (SELECT coalesce(sum(pg_column_size(b.*) + 4 + coalesce(octet_length(idx), 0) + 28 + 20), 0)
            FROM stele.batches b)
         + (SELECT coalesce(sum(pg_column_size(o.*) + 4 + 20 + octet_length(key) + 16), 0)
            FROM stele.objects o WHERE state = 'c')
"""


class Subject(Protocol):
    """Brokers under measurement. ``topic_configs`` are those of every topic of it."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def replication_factor(self) -> int: ...
    @property
    def topic_configs(self) -> dict[str, str]: ...
    def broker_cpu_s(self) -> float:
        """Return the CPU time that all brokers have used."""
        ...

    def other_cpu_s(self) -> dict[str, float]:
        """Return the CPU time that each other part has used."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUse:
    """The use of PostgreSQL, and its counts of live runs and committed objects."""

    cpu_s: float
    wal_bytes: int
    runs: int
    objects: int
    log_bytes: int


@dataclass
class SteleCluster:
    """Brokers on one PostgreSQL."""

    name: str
    postgres: PostgresServer
    store: str
    linger_ms: int
    store_pid: int | None = None
    brokers: list[BrokerProcess] = field(default_factory=list[BrokerProcess])
    replication_factor: int = 1
    topic_configs: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.kafka_bootstrap for broker in self.brokers if broker.is_running)

    def broker_cpu_s(self) -> float:
        return sum(cpu_seconds(broker.pid) for broker in self.brokers if broker.is_running)

    def other_cpu_s(self) -> dict[str, float]:
        used_s = {"PostgreSQL": cpu_seconds(self.postgres.pid)}
        if self.store_pid is not None:
            used_s["store"] = cpu_seconds(self.store_pid)
        return used_s

    def database(self) -> DatabaseUse:
        ((wal_bytes, runs, objects, log_bytes),) = self.postgres.run(
            "SELECT pg_current_wal_insert_lsn() - '0/0', (SELECT count(*) FROM stele.batches),"
            " (SELECT count(*) FROM stele.objects WHERE state = 'c'),"
            " (SELECT coalesce(sum(size_bytes), 0) FROM stele.logs WHERE deleted_at IS NULL)"
        )
        return DatabaseUse(
            cpu_s=cpu_seconds(self.postgres.pid),
            wal_bytes=int(wal_bytes),
            runs=runs,
            objects=objects,
            log_bytes=int(log_bytes),
        )

    def metadata_bytes(self) -> int:
        """Return the size of live rows that name runs, and of their index entries.

        It is an upper bound.

        Not the size of the tables: those of a small measurement are mostly empty pages.
        """
        ((size,),) = self.postgres.run(_METADATA_BYTES)
        return int(size)

    def merge(self) -> None:
        """Merge all logs and delete what that leaves.

        Brokers do the same within minutes and days.
        """
        asyncio.run(self._merge())

    async def _merge(self) -> None:
        with TemporaryDirectory(prefix="stele-merge-") as directory:
            engine = PostgresEngine(
                RealFiles(),
                Path(directory) / "data",
                storage=SharedStorage(
                    postgres_url=self.postgres.dsn, object_store=self.store, linger_ms=None
                ),
                incarnation=uuid4(),
                clock=SystemClock(),
                options=SharedOptions(
                    upkeep=UpkeepOptions(
                        is_enabled=False, merge_min_bytes=1, merge_min_age_ms=0, dead_ms=0, forget_ms=0
                    )
                ),
            )
            await engine.open()
            await engine.upkeep.merge_all()
            await engine.upkeep.collect_garbage()
            await engine.close()


@contextmanager
def stele_cluster(
    *, brokers: int, store: str, linger_ms: int, postgres: dict[str, str] | None = None
) -> Generator[SteleCluster]:
    """Run ``brokers`` brokers.

    ``store`` is ``inline`` or one of ``STORES``, perhaps with an option of its URL (``seaweedfs,payload=unsigned``).

    Raises:
        PostgresMissing, SeaweedMissing, VersitygwMissing, BrokerStartError: see there.
    """
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="stele-bench-", dir="/tmp")))
        home.chmod(0o755)
        settings = {
            "wal_level": "replica",
            "max_connections": "200",
            "shared_buffers": "256MB",
            **(postgres or {}),
        }
        server = stack.enter_context(PostgresServer(find_bin(), parent=home, own_identity=True, **settings))
        os.environ.update({name: os.environ.get(name, value) for name, value in _CREDENTIALS.items()})
        cluster = SteleCluster(
            name=f"{brokers} × {store}, linger {linger_ms} ms",
            postgres=server,
            store="inline",
            linger_ms=linger_ms,
        )
        if store != "inline":
            kind, comma, option = store.partition(",")
            objects = stack.enter_context(running_store(kind, bucket="stele", parent=home))
            cluster.store = objects.url + (f"&{option}" if comma else "")
            cluster.store_pid = objects.pid
        stack.callback(_stop, cluster.brokers)
        for number in range(1, brokers + 1):
            broker = BrokerProcess(
                home / f"broker-{number}",
                arguments=["--log-level", "warning"],
                environment={
                    "STELE_STORAGE": "shared",
                    "STELE_POSTGRES_URL": server.dsn,
                    "STELE_OBJECT_STORE": cluster.store,
                    "STELE_SHARED_LINGER_MS": str(linger_ms),
                    "STELE_BROKER_ID": str(number),
                    "STELE_PARTITIONS_MAX": "20000",
                },
            )
            broker.start()
            cluster.brokers.append(broker)
        yield cluster


@dataclass
class SingleBroker:
    """A broker with embedded storage."""

    broker: BrokerProcess
    name: str = "1 embedded"
    replication_factor: int = 1
    topic_configs: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def bootstrap(self) -> str:
        return self.broker.kafka_bootstrap

    def broker_cpu_s(self) -> float:
        return cpu_seconds(self.broker.pid)

    def other_cpu_s(self) -> dict[str, float]:
        return {}


@contextmanager
def embedded_broker() -> Generator[SingleBroker]:
    with TemporaryDirectory(prefix="stele-bench-") as home:
        broker = BrokerProcess(Path(home) / "data", arguments=["--log-level", "warning"])
        broker.start()
        try:
            yield SingleBroker(broker)
        finally:
            _stop([broker])


@dataclass
class KafkaCluster:
    """Nodes of Apache Kafka that replicate to each other."""

    nodes: Sequence[ApacheKafka]
    name: str = ""
    topic_configs: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def replication_factor(self) -> int:
        return len(self.nodes)

    def broker_cpu_s(self) -> float:
        return sum(cpu_seconds(node.pid) for node in self.nodes)

    def other_cpu_s(self) -> dict[str, float]:
        return {}

    def flushing(self, is_flushing: bool) -> KafkaCluster:
        """Return the same nodes, whose topics sync each batch before the answer or not."""
        configs = {"min.insync.replicas": str(min(2, len(self.nodes)))}
        if is_flushing:
            configs["flush.messages"] = "1"
        suffix = ", flush.messages=1" if is_flushing else ""
        return KafkaCluster(self.nodes, f"{len(self.nodes)} Apache Kafka, replicated{suffix}", configs)


@contextmanager
def kafka_cluster(nodes: int, heap: str) -> Generator[KafkaCluster]:
    """Run nodes that are brokers and controllers.

    Raises:
        KafkaUnavailable, KafkaStartError: see there.
    """
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="apache-kafka-")))
        running = ApacheKafka.several(home, nodes, heap=heap)
        for node in running:
            stack.callback(node.stop)
        for node in running:
            node.spawn()
        for node in running:
            node.await_answer(_NODES_START_S)
        yield KafkaCluster(running)


def _stop(brokers: Sequence[BrokerProcess]) -> None:
    for broker in brokers:
        if broker.is_running:
            broker.stop()


__all__ = [
    "DatabaseUse",
    "KafkaCluster",
    "SingleBroker",
    "SteleCluster",
    "Subject",
    "embedded_broker",
    "kafka_cluster",
    "stele_cluster",
]
