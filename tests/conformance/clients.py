"""The clients of the table: how each is installed and started, and what that needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stele.wire.partitioner import murmur2

from tests.support.locks import one_process_at_a_time

DRIVERS = Path(__file__).parent / "drivers"
# Toolchains are downloaded and compiled here, the first time only.
INSTALL_TIMEOUT_S = 900
_SHOWN_CHARS = 4000

Partitioner = Callable[[bytes, int], int]


class Missing(Exception):
    """The client cannot be had on this machine; the message says what to install."""


def by_murmur2(key: bytes, partitions: int) -> int:
    """The default of the Java client and of those that follow it."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def by_crc32(key: bytes, partitions: int) -> int:
    """librdkafka's ``consistent_random``."""
    return zlib.crc32(key) % partitions


def by_fnv1a(key: bytes, partitions: int) -> int:
    """sarama's hash partitioner: the remainder of a signed number, without its sign."""
    number = 0x811C_9DC5
    for byte in key:
        number = ((number ^ byte) * 0x0100_0193) & 0xFFFF_FFFF
    signed = number - (1 << 32) if number >> 31 else number
    return abs(signed) % partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """``partitioner`` is what the client does with a key unless told otherwise."""

    name: str
    language: str
    command: tuple[str, ...]
    install: Callable[[], None]
    partitioner: Partitioner
    in_make_test: bool = False

    def __str__(self) -> str:
        return self.name


def _python(name: str) -> tuple[str, ...]:
    return sys.executable, str(DRIVERS / "python" / f"{name}_driver.py")


def _installed_with_the_development_tools() -> None:
    pass


def _install_kcat() -> None:
    if shutil.which("kcat"):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        with one_process_at_a_time("install-kcat"):
            # A fresh container has no package lists; the first try tells.
            for command in ("apt-get install -y kcat", "apt-get update", "apt-get install -y kcat"):
                if shutil.which("kcat"):
                    return
                subprocess.run(command.split(), capture_output=True, check=False, timeout=INSTALL_TIMEOUT_S)
    if not shutil.which("kcat"):
        raise Missing("kcat is not installed: apt install kcat, or brew install kcat")


def install_by_script(name: str) -> Callable[[], None]:
    """``install.sh`` says itself what it lacks, and ends with ``EX_UNAVAILABLE`` then."""

    def install() -> None:
        script = DRIVERS / name / "install.sh"
        with one_process_at_a_time(f"install-{name}"):
            done = subprocess.run(
                [script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=INSTALL_TIMEOUT_S,
            )
        if done.returncode == os.EX_UNAVAILABLE:
            raise Missing(done.stdout.strip())
        if done.returncode:
            raise RuntimeError(f"{script} ended with {done.returncode}:\n{done.stdout[-_SHOWN_CHARS:]}")

    return install


def _built(name: str) -> tuple[str, ...]:
    return (str(DRIVERS / name / "run.sh"),)


CLIENTS = (
    Client(
        name="java",
        language="Java",
        command=_built("java"),
        install=install_by_script("java"),
        partitioner=by_murmur2,
    ),
    Client(
        name="confluent-kafka",
        language="Python (librdkafka)",
        command=_python("confluent_kafka"),
        install=_installed_with_the_development_tools,
        partitioner=by_crc32,
        in_make_test=True,
    ),
    Client(
        name="kcat",
        language="C (librdkafka)",
        command=_python("kcat"),
        install=_install_kcat,
        partitioner=by_crc32,
        in_make_test=True,
    ),
    Client(
        name="aiokafka",
        language="Python",
        command=_python("aiokafka"),
        install=_installed_with_the_development_tools,
        partitioner=by_murmur2,
        in_make_test=True,
    ),
    Client(
        name="kafka-python",
        language="Python",
        command=_python("kafka_python"),
        install=_installed_with_the_development_tools,
        partitioner=by_murmur2,
    ),
    Client(
        name="kafkajs",
        language="JavaScript",
        command=_built("kafkajs"),
        install=install_by_script("kafkajs"),
        partitioner=by_murmur2,
    ),
    Client(
        name="franz-go",
        language="Go",
        command=_built("franz-go"),
        install=install_by_script("franz-go"),
        partitioner=by_murmur2,
    ),
    Client(
        name="sarama",
        language="Go",
        command=_built("sarama"),
        install=install_by_script("sarama"),
        partitioner=by_fnv1a,
    ),
)
# Tested apart (``test_spark_sql_kafka``): it is no client that could be driven through the others' tests.
SPARK = "spark-sql-kafka"
# Compared with Apache Kafka apart (``test_kafka_tools``), call by call.
TOOLS = "kafka-tools"
# Programs that keep their state in compacted topics, each tested apart (``test_kafka_connect`` and so on).
CONNECT = "kafka-connect"
STREAMS = "kafka-streams"
MIRROR_MAKER = "mirror-maker"
KARAPACE = "karapace"
# Programs that use the schema registry (``test_registry_clients``, ``test_flink_sql``).
REGISTRY_GO = "registry-go"
REGISTRY_JS = "registry-js"
FLINK = "flink-sql"
# Compared with the broker's own connector to PostgreSQL (``test_debezium``), and a reader of what that writes.
DEBEZIUM = "debezium"
DEBEZIUM_JDBC = "debezium-jdbc"
_PROGRAMS = frozenset(
    {
        SPARK,
        TOOLS,
        CONNECT,
        STREAMS,
        MIRROR_MAKER,
        KARAPACE,
        REGISTRY_GO,
        REGISTRY_JS,
        FLINK,
        DEBEZIUM,
        DEBEZIUM_JDBC,
    }
)
# Makes topics and writes what others are asked to read.
REFERENCE = next(client for client in CLIENTS if client.name == "confluent-kafka")


def selected(names: str | None) -> list[Client]:
    """The clients of a comma list, ``all``, or for None those that are quick to have.

    Raises:
        ValueError: a name is unknown.
    """
    if names is None:
        return [client for client in CLIENTS if client.in_make_test]
    if names == "all":
        return list(CLIENTS)
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = wanted - {client.name for client in CLIENTS} - _PROGRAMS
    if unknown:
        raise ValueError(f"no such client: {', '.join(sorted(unknown))}")
    return [client for client in CLIENTS if client.name in wanted]
