"""The brokers that benchmarks measure: Stele and Apache Kafka, alone and as clusters."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tarfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

from stele.broker_process import BrokerProcess, BrokerTls, run_broker

from app.clock import SystemClock
from app.storage.disk.files import RealFiles
from app.storage.shared.options import SharedOptions
from app.storage.shared.postgres_engine import PostgresEngine, SharedStorage
from app.storage.shared.upkeep import UpkeepOptions

from .apache_kafka import VERSION, ApacheKafka, apache_kafka
from .postgres_server import PostgresServer, find_bin
from .process_usage import cpu_seconds, resident_mb
from .seaweedfs import seaweedfs_server

THIS = Path(__file__).resolve().parents[1]
STELE, KAFKA = "Stele", f"Apache Kafka {VERSION}"
QUIET = ("--log-level", "warning")
# Several JVMs or brokers that start at once have few cores each.
_NODES_START_S = 240.0
# A row with its line pointer; what does not fit into it; an entry of 28 bytes in the primary key, of 20 in others.
_METADATA_BYTES = """
    SELECT (SELECT coalesce(sum(pg_column_size(b.*) + 4 + coalesce(octet_length(idx), 0) + 28 + 20), 0)
            FROM stele.batches b)
         + (SELECT coalesce(sum(pg_column_size(o.*) + 4 + 20 + octet_length(key) + 16), 0)
            FROM stele.objects o WHERE state = 'c')
"""


@dataclass(kw_only=True)
class Subject:
    """Brokers that run; ``synced_configs`` of a topic make acks=all a sync before the answer."""

    name: str
    brokers: list[BrokerProcess] | list[ApacheKafka]
    topic_configs: Mapping[str, str] = field(default_factory=dict[str, str])
    synced_configs: Mapping[str, str] = field(default_factory=dict[str, str])
    replication_factor: int = 1

    @property
    def is_stele(self) -> bool:
        return self.name != KAFKA

    @property
    def bootstrap(self) -> str:
        return ",".join(
            broker.kafka_bootstrap if isinstance(broker, BrokerProcess) else broker.bootstrap
            for broker in self.brokers
            if broker.is_running
        )

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.partition(",")[0].rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        return self.brokers[0].pid

    def cpu_s(self) -> float:
        """Return the CPU time that the brokers have used."""
        return sum(cpu_seconds(broker.pid) for broker in self.brokers if broker.is_running)

    def memory_mb(self) -> float:
        return sum(resident_mb(broker.pid) for broker in self.brokers)


def quiet_broker(
    *arguments: str, environment: Mapping[str, str] | None = None, tls: BrokerTls | None = None
) -> AbstractContextManager[BrokerProcess]:
    """Run a broker of this source tree that logs warnings only, with its data in a temporary directory."""
    environment = {**environment_of(THIS), **(environment or {})}
    return run_broker(arguments=(*QUIET, *arguments), environment=environment, tls=tls)


def stele_subject(broker: BrokerProcess, name: str = STELE) -> Subject:
    return Subject(name=name, brokers=[broker])


def kafka_subject(kafka: ApacheKafka) -> Subject:
    return Subject(name=KAFKA, brokers=[kafka], synced_configs={"flush.messages": "1"})


@contextmanager
def stele_and_kafka(
    only: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Generator[list[Subject]]:
    """Run both brokers, or only one of them: ``stele`` or ``kafka``.

    Raises:
        KafkaUnavailable, KafkaStartError, BrokerStartError: see there.
    """
    with ExitStack() as stack:
        subjects: list[Subject] = []
        if only != "kafka":
            subjects.append(stele_subject(stack.enter_context(quiet_broker(environment=environment))))
        if only != "stele":
            # Deleted data is removed before the next measurement begins.
            of_kafka = {"log.segment.delete.delay.ms": "0", **(properties or {})}
            kafka = stack.enter_context(apache_kafka(properties=of_kafka))
            subjects.append(kafka_subject(kafka))
        yield subjects


def in_alternating_order(subjects: Sequence[Subject], number: int) -> Sequence[Subject]:
    """The second broker meets the caches and queues of the first: so the order changes with each round."""
    return subjects if number % 2 == 0 else subjects[::-1]


# ── other source trees ──


@contextmanager
def source_tree(named: str) -> Generator[Path]:
    """Give the source tree in a directory, or that of a commit of this repository.

    Raises ``SystemExit`` if there is neither: the installed modules would be measured instead.
    """
    tree = Path(named).resolve()
    if (tree / "app").is_dir():
        yield tree
        return
    archive = subprocess.run(
        ["git", "archive", named, "app", "clients"], cwd=THIS, capture_output=True, check=False
    )
    if archive.returncode:
        raise SystemExit(f"{named} is neither a source tree of Stele nor a commit")
    with TemporaryDirectory(prefix="stele-tree-") as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as packed:
            packed.extractall(folder, filter="data")
        yield Path(folder)


def environment_of(tree: Path) -> dict[str, str]:
    """Return what lets an interpreter find the modules of ``tree`` anywhere."""
    return {"PYTHONPATH": f"{tree}:{tree / 'clients/python'}", "PYTHONSAFEPATH": "1"}


# ── clusters ──


class DatabaseUse(NamedTuple):
    """The committed objects in PostgreSQL, the bytes of its WAL and of all logs."""

    objects: int
    wal_bytes: int
    log_bytes: int


@dataclass(kw_only=True)
class SteleCluster(Subject):
    """Brokers on one PostgreSQL."""

    postgres: PostgresServer
    store: str
    members: list[BrokerProcess]

    def database(self) -> DatabaseUse:
        ((objects, wal_bytes, log_bytes),) = self.postgres.run(
            "SELECT (SELECT count(*) FROM stele.objects WHERE state = 'c'), pg_current_wal_insert_lsn() - '0/0',"
            " (SELECT coalesce(sum(size_bytes), 0) FROM stele.logs WHERE deleted_at IS NULL)"
        )
        return DatabaseUse(objects, int(wal_bytes), int(log_bytes))

    def metadata_share(self) -> float:
        """Return live rows that name runs, with their index entries, as a share of the bytes of all logs.

        It is an upper bound, and not the size of the tables: those of a small measurement are mostly empty pages.
        """
        ((size,),) = self.postgres.run(_METADATA_BYTES)
        return int(size) / self.database().log_bytes

    def merge(self) -> None:
        """Merge all logs and delete what that leaves. Brokers do the same within minutes and days."""
        asyncio.run(self._merge())

    async def _merge(self) -> None:
        upkeep = UpkeepOptions(
            is_enabled=False, merge_min_bytes=1, merge_min_age_ms=0, dead_ms=0, forget_ms=0
        )
        with TemporaryDirectory(prefix="stele-merge-") as directory:
            engine = PostgresEngine(
                RealFiles(),
                Path(directory) / "data",
                storage=SharedStorage(
                    postgres_url=self.postgres.dsn, object_store=self.store, linger_ms=None
                ),
                incarnation=uuid4(),
                clock=SystemClock(),
                options=SharedOptions(upkeep=upkeep),
            )
            await engine.open()
            await engine.upkeep.merge_all()
            await engine.upkeep.collect_garbage()
            await engine.close()


@contextmanager
def stele_cluster(
    *,
    brokers: int,
    store: str,
    linger_ms: int,
    environment: Mapping[str, str] | None = None,
    before: Callable[[PostgresServer], None] | None = None,
    **postgres: str,
) -> Generator[SteleCluster]:
    """Run brokers whose records are in PostgreSQL (``inline``) or in ``seaweedfs``.

    ``environment`` is that of the brokers, in which ``{dsn}`` stands for PostgreSQL; ``before`` is done in it before
    they start, and ``postgres`` has its settings.

    Raises:
        PostgresMissing, SeaweedMissing, BrokerStartError: see there.
    """
    with ExitStack() as stack:
        # PostgreSQL does not run as root, and its user has to get there; the path of its socket must be short.
        home = Path(stack.enter_context(TemporaryDirectory(prefix="stele-bench-", dir="/tmp")))
        home.chmod(0o755)
        settings = {"wal_level": "replica", "max_connections": "200", "shared_buffers": "256MB", **postgres}
        server = stack.enter_context(PostgresServer(find_bin(), parent=home, own_identity=True, **settings))
        if before is not None:
            before(server)
        url = "inline"
        if store == "seaweedfs":
            url, _ = stack.enter_context(seaweedfs_server(parent=home))
            # The server accepts any.
            os.environ.setdefault("AWS_ACCESS_KEY_ID", "stele")
            os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "stele")
        given = {name: value.format(dsn=server.dsn) for name, value in (environment or {}).items()}
        members = [
            BrokerProcess(
                home / f"broker-{number}",
                arguments=QUIET,
                start_timeout_s=_NODES_START_S,
                environment={
                    **environment_of(THIS),
                    "STELE_STORAGE": "shared",
                    "STELE_POSTGRES_URL": server.dsn,
                    "STELE_OBJECT_STORE": url,
                    "STELE_SHARED_LINGER_MS": str(linger_ms),
                    "STELE_BROKER_ID": str(number),
                    "STELE_PARTITIONS_MAX": "20000",
                    **given,
                },
            )
            for number in range(1, brokers + 1)
        ]
        place = "PostgreSQL" if store == "inline" else "S3"
        name = f"{brokers} broker{'s' * (brokers > 1)}, {place}, linger {linger_ms} ms"
        for broker in members:
            stack.callback(_stop, broker)
            broker.start()
        yield SteleCluster(name=name, brokers=members, members=members, postgres=server, store=url)


def _stop(broker: BrokerProcess) -> None:
    if broker.is_running:
        broker.stop()


@contextmanager
def kafka_cluster(nodes: int, heap: str) -> Generator[Subject]:
    """Run nodes that are brokers and controllers, and replicate to each other.

    Raises:
        KafkaUnavailable, KafkaStartError: see there.
    """
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="apache-kafka-")))
        running = ApacheKafka.several(home, nodes, heap=heap)
        for node in running:
            stack.callback(node.stop)
            node.spawn()
        for node in running:
            node.await_answer(_NODES_START_S)
        configs = {"min.insync.replicas": str(min(2, nodes))}
        yield Subject(name=KAFKA, brokers=running, topic_configs=configs, replication_factor=nodes)
