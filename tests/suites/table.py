"""The suites: where each comes from, how it is run, and what is known to differ.

A suite runs against a broker of its own. ``known`` names tests that fail, and why Stele leaves it at that.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from load.apache_kafka import KafkaUnavailable, java, libs

from .karapace import KARAPACE
from .results import Outcome, of_go
from .running import Run, Suite, execute, run_pytest
from .sources import Folder, GoModule, Sdist, Unavailable, need, replace_text, run


def _go(package: str, *arguments: str) -> list[str]:
    return ["go", "test", "-json", "-count=1", "-timeout=0", *arguments, package]


def _results_of_go(of: Run, command: list[str], environment: Mapping[str, str]) -> dict[str, Outcome]:
    # A checkout may have a workspace around it.
    output = of.execute(command, {"GOFLAGS": "-mod=mod", "GOWORK": "off", **environment})
    return of_go(output.read_text(errors="replace").splitlines())


def _franz_go(of: Run) -> dict[str, Outcome]:
    environment = {
        "KGO_SEEDS": of.broker.kafka_bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": "50000",
    }
    return _results_of_go(of, _go("./pkg/kgo"), environment)


_NIL_FUNCTION = "the helper of the test calls a function that is nil, and the panic ends the run"
_KAFKA_GO_LEFT_OUT = {
    "TestReaderConsumerGroup/verify_offset_committed": _NIL_FUNCTION,
    "TestReaderConsumerGroup/verify_offset_committed_when_using_interval_committer": _NIL_FUNCTION,
    "TestReaderConsumerGroup/consumer_group_commits_on_close": _NIL_FUNCTION,
    "TestReaderConsumerGroup/consumer_group_rebalance": (
        "two readers of three partitions with 8 records each want 12 records each: it passes only if the one that gets"
        " a single partition has fetched from the others before"
    ),
}


def _kafka_go(of: Run) -> dict[str, Outcome]:
    # Its tests know one port, which is also the client's default.
    files = [*of.sources.glob("*.go")]
    port = str(of.broker.kafka_port)
    replace_text(files, 'TCP("localhost")', 'TCP("localhost:9092")')
    replace_text(files, "9092", port)
    skipped = "|".join(f"{test}$" for test in _KAFKA_GO_LEFT_OUT)
    return _results_of_go(of, _go(".", f"-skip={skipped}"), {"KAFKA_VERSION": "4.0.0"})


def _sarama(of: Run) -> dict[str, Outcome]:
    # Its tests know five addresses, behind a toxiproxy that may refuse or delay; all five are this broker.
    first, api = of.ports[0], of.ports[5]
    replace_text(of.sources.glob("functional_*test.go"), "29090+i", f"{first}+i-1")
    # There is one broker.
    replace_text(of.sources.glob("functional_*test.go"), "ReplicationFactor: 3", "ReplicationFactor: 1")
    version = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
    done = subprocess.run(
        ["go", "install", version],
        env={**os.environ, "GOBIN": str(of.scratch), "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"go install {version} failed: {done.stderr[-1000:]}")
    proxies = of.scratch / "proxies.json"
    proxies.write_text(
        json.dumps(
            [
                {
                    "name": f"kafka{number + 1}",
                    "listen": f"127.0.0.1:{first + number}",
                    "upstream": of.broker.kafka_bootstrap,
                    "enabled": True,
                }
                for number in range(5)
            ]
        )
    )
    server = subprocess.Popen(
        [str(of.scratch / "server"), "-port", str(api), "-config", str(proxies)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        environment = {"TOXIPROXY_ADDR": f"http://127.0.0.1:{api}", "KAFKA_VERSION": "4.0.0"}
        return _results_of_go(of, _go(".", "-tags=functional", "-run=^TestFunc"), environment)
    finally:
        server.kill()
        server.wait()


_KAFKA_PYTHON_SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        pass

    def open(self):
        pass

    close = dump_logs = stop = open


SpawnedService = None
"""


def _kafka_python(of: Run) -> dict[str, Outcome]:
    environment = {
        "KAFKA_VERSION": "4.3.0",
        "KAFKA_ROOT": str(of.scratch),
        "KAFKA_URI": f"kafka://{of.broker.kafka_bootstrap}",
        "PYTHONPATH": str(of.sources),
    }
    # Not in the archive: without the first, "test" is Python's own package; the second starts processes.
    (of.sources / "test" / "__init__.py").touch()
    (of.sources / "test" / "service.py").write_text(_KAFKA_PYTHON_SERVICE)
    requirements = ["pytest-mock", "crc32c", "lz4", "zstandard", "python-snappy", "mock"]
    return run_pytest(of, requirements, ["test/integration"], environment)


# Their fixture starts a container; this one names the broker that runs.
_AIOKAFKA_FIXTURE = """

@pytest.fixture(scope="session")
def kafka_server():
    host, port = os.environ["BROKERS"].split(":")
    yield KafkaServer(host, int(port), 0, 0, 0, None)


@pytest.fixture(scope="session")
def ssl_folder():
    return None


acl_manager = kerberos_utils = kafka_config = ssl_folder
"""


def _aiokafka(of: Run) -> dict[str, Outcome]:
    # The installed package has its compiled parts.
    (of.sources / "aiokafka").rename(of.scratch / "aiokafka-sources")
    conftest = of.sources / "tests" / "conftest.py"
    with conftest.open("a") as file:
        file.write(_AIOKAFKA_FIXTURE)
    requirements = [
        "aiokafka[lz4,snappy,zstd]==0.14.0",
        "pytest-asyncio==1.3.0",
        "pytest-mock",
        "async-timeout",
        "docker",
    ]
    files = [f"tests/test_transactional_{part}.py" for part in ("producer", "consumer")]
    environment = {"BROKERS": of.broker.kafka_bootstrap, "PYTHONPATH": str(of.sources)}
    options = [
        # Its configuration makes an error of the warning that this has no value.
        "--override-ini=asyncio_default_fixture_loop_scope=function",
        # Nothing is started from it: the tests take the version of Kafka from its name.
        "--docker-image=kafka:2.8.1",
    ]
    arguments = [*options, *files, "tests/test_producer.py", "tests/test_admin.py"]
    return run_pytest(of, requirements, arguments, environment)


_BYO_REGISTRY = 'return SchemaRegistryClient({"url": self._sr_url})\n\n    def client_conf'
_BYO_REGISTRIES = """return SchemaRegistryClient({"url": self._sr_url})

    def async_schema_registry(self, conf=None):
        return AsyncSchemaRegistryClient({"url": self._sr_url})

    def client_conf"""


def _confluent_kafka_python(of: Run) -> dict[str, Outcome]:
    stub = of.scratch / "stubs" / "trivup" / "clusters"
    stub.mkdir(parents=True)
    # It is imported for clusters that are not started here.
    for path in (stub.parent, stub):
        (path / "__init__.py").touch()
    (stub / "KafkaCluster.py").write_text("class KafkaCluster: pass\n")
    requirements = ["confluent-kafka[avro,json,protobuf,schema-registry,rules]==2.16.1", "pytest-asyncio"]
    # For clusters that run already, its fixture has no registry for clients with asyncio.
    replace_text(
        [of.sources / "tests" / "integration" / "cluster_fixture.py"], _BYO_REGISTRY, _BYO_REGISTRIES
    )
    environment = {
        "BROKERS": of.broker.kafka_bootstrap,
        "SR_URL": of.broker.registry_url,
        "PYTHONPATH": f"{of.sources}:{stub.parent.parent}",
    }
    parts = ("admin", "consumer", "producer", "share_consumer", "schema_registry")
    return run_pytest(of, requirements, [f"tests/integration/{part}" for part in parts], environment)


# Those that need a broker and are not among the long ones, by number; others use librdkafka's own mock of one.
_LIBRDKAFKA_TESTS = (
    *("0011", "0012", "0013", "0014", "0015", "0017", "0018", "0019", "0022", "0026", "0028", "0029", "0030"),
    *("0031", "0033", "0036", "0039", "0040", "0042", "0044", "0045", "0048", "0050", "0051", "0052", "0054"),
    *("0057", "0061", "0063", "0064", "0067", "0069", "0070", "0073", "0074", "0081", "0085", "0086", "0090"),
    *("0092", "0098", "0099", "0102", "0103", "0107", "0109", "0111", "0112", "0113", "0118", "0121", "0122"),
    *("0129", "0130", "0132", "0137", "0140", "0153", "0170", "0171", "0172", "0173", "0175", "0176", "0177"),
    *("0178", "0179", "0181", "0184", "0185"),
)
_LIBRDKAFKA_TEST_S = 300
# Programs of Apache Kafka that the tests call.
_KAFKA_PROGRAMS = {"kafka-topics.sh": "TopicCommand", "kafka-acls.sh": "AclCommand"}


def _librdkafka(of: Run) -> dict[str, Outcome]:
    need("make", "librdkafka")
    tests = of.sources / "tests"
    # There is one broker, and no Kerberos.
    replace_text([tests / "0103-transactions.c"], "3, 5000)", "1, 5000)")
    kerberos, other = '"sasl.kerberos.min.time.before.relogin"', '"log.cleaner.backoff.ms"'
    replace_text([tests / "0081-admin.c"], kerberos, other)
    for command in (["./configure"], ["make", "-j2", "libs"], ["make", "-C", "tests", "-j2", "build"]):
        run(command, of.sources)
    (tests / "test.conf").write_text(f"bootstrap.servers={of.broker.kafka_bootstrap}\n")
    _write_kafka_programs(of.scratch / "kafka" / "bin")
    outcomes: dict[str, Outcome] = {}
    end = time.monotonic() + of.limit_s
    for number in _LIBRDKAFKA_TESTS:
        left = min(_LIBRDKAFKA_TEST_S, end - time.monotonic())
        report = of.scratch / f"{number}.json"
        environment = {
            "TESTS": number,
            "TEST_LEVEL": "1",
            "TEST_KAFKA_VERSION": "4.2.0",
            "TEST_MODE": "bare",
            "TEST_REPORT": str(report),
            "TEST_CONSUMER_GROUP_PROTOCOL": "classic",
            "BROKERS": of.broker.kafka_bootstrap,
            "KAFKA_PATH": str(of.scratch / "kafka"),
            "LD_LIBRARY_PATH": f"{of.sources / 'src'}:{of.sources / 'src-cpp'}",
        }
        # -L: of the tests of a number only those that need a broker.
        execute(
            ["./test-runner", "-p1", "-Q", "-L"],
            tests,
            environment,
            of.scratch / number,
            limit_s=max(1, left),
        )
        outcomes[number] = _of_librdkafka(report)
    return outcomes


def _write_kafka_programs(directory: Path) -> None:
    try:
        run_class = f'exec "{java()}" -cp "{libs()}/*" org.apache.kafka.tools.'
    except KafkaUnavailable as missing:
        raise Unavailable(str(missing)) from missing
    directory.mkdir(parents=True)
    for name, class_name in _KAFKA_PROGRAMS.items():
        program = directory / name
        program.write_text(f'#!/bin/sh\n{run_class}{class_name} "$@"\n')
        program.chmod(0o755)


def _of_librdkafka(report: Path) -> Outcome:
    """Return the worst outcome of the tests in a report; there is none if the test never ended."""
    if not report.exists():
        return "failed"
    tests = json.loads(report.read_text())["tests"].values()
    states = {test["state"] for test in tests} - {"SKIPPED"}
    return "skipped" if not states else "passed" if states == {"PASSED"} else "failed"


# Their tests create access rules, and expect that everything else stays allowed.
_ACLS = {"STELE_AUTHORIZATION": "acls", "STELE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true"}
_OWN_BROKER = "starts a broker of its own, with files that the archive lacks"
_SSL = ("test_ssl_handshake", "test_legacy_kafka_client_ssl")
_CONFLUENT = "tests.integration"
_INVALID = "test_api_get_register_schema_invalid"
_NEEDS_DOCKER = "stops and starts brokers of its own with docker"
_NEEDS_LOGINS = "needs a second listener with logins at port 9093"
_NEEDS_BROKERS = "needs several brokers; the suite runs against one"

SUITES = (
    Suite(
        name="franz-go",
        source=GoModule("github.com/twmb/franz-go", "v1.22.3"),
        test=_franz_go,
        limit_s=1200,
    ),
    Suite(
        name="sarama",
        source=GoModule("github.com/IBM/sarama", "v1.61.1"),
        test=_sarama,
        limit_s=900,
        ports=6,
        # Its tests measure what the proxy delays, and expect its configuration of Kafka.
        settings={"STELE_ADVERTISED_KAFKA_PORT": "{port}", "STELE_AUTO_CREATE_TOPICS_ENABLE": "false"},
        known={
            "TestFuncAdminListConsumerGroupOffsets": _NEEDS_DOCKER,
            "TestFuncTxnProduceWithBrokerFailure": _NEEDS_DOCKER,
            "TestFuncIdempotentBufferedSequence": _NEEDS_DOCKER,
            "TestFuncAdminDescribeLogDirs": _NEEDS_BROKERS,
            "TestFuncAdminAlterPartitionReassignments": _NEEDS_BROKERS,
        },
    ),
    Suite(
        name="kafka-go",
        source=GoModule("github.com/segmentio/kafka-go", "v0.4.51"),
        test=_kafka_go,
        limit_s=900,
        settings={
            "STELE_ADVERTISED_HOST": "localhost",
            **_ACLS,
        },
        known={
            "TestReaderReadCompactedMessage": (
                "creates a topic with segment.bytes=200; Kafka refuses less than 1 MiB since 4.0 (KIP-1030)"
            ),
            "TestUnsupportedSASLMechanism": _NEEDS_LOGINS,
            "TestWriter/writing_a_message_with_SASL_Plain_authentication": _NEEDS_LOGINS,
        },
        left_out=_KAFKA_GO_LEFT_OUT,
    ),
    Suite(
        name="kafka-python",
        source=Sdist("kafka-python==3.0.12"),
        test=_kafka_python,
        limit_s=900,
        # Of the broker that its fixtures start.
        settings={
            "STELE_BROKER_ID": "0",
            "STELE_NUM_PARTITIONS": "4",
            "STELE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
            **_ACLS,
        },
        known={
            f"test.integration.test_ssl_integration.TestSSLConnection::{name}": _OWN_BROKER for name in _SSL
        },
    ),
    # Its image of Kafka creates topics with two partitions.
    Suite(
        name="aiokafka",
        source=Folder(),
        test=_aiokafka,
        limit_s=900,
        settings={"STELE_NUM_PARTITIONS": "2"},
        known={
            "tests.test_producer.TestKafkaProducerIntegration::test_producer_ssl": (
                "needs a second listener with TLS, and certificates that its container makes"
            ),
        },
    ),
    # Its tests count on topics of four partitions.
    Suite(
        name="librdkafka",
        source=Folder(),
        test=_librdkafka,
        limit_s=2400,
        settings={"STELE_NUM_PARTITIONS": "4", **_ACLS},
    ),
    Suite(
        name="confluent-kafka-python",
        source=Folder(),
        test=_confluent_kafka_python,
        limit_s=1200,
        # Of the broker that its fixtures would start.
        settings={
            "STELE_GROUP_SHARE_RECORD_LOCK_DURATION_MS": "1000",
            "STELE_GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS": "1000",
            **_ACLS,
        },
        known={
            f"{_CONFLUENT}.admin.test_describe_operations::test_describe_operations[sasl_cluster0]": (
                "starts a broker of its own, with logins"
            ),
            **{
                f"{_CONFLUENT}.schema_registry.{kind}.test_api_client::{_INVALID}[kafka_cluster_cp_7_0_1-500-500]": (
                    "starts a registry of an older release with docker"
                )
                for kind in ("_sync", "_async")
            },
            f"{_CONFLUENT}.admin.test_incremental_alter_configs::test_incremental_alter_configs": (
                "expects a value of min.insync.replicas for all brokers, which Kafka stores at its first start (KIP-966)"
            ),
        },
    ),
    KARAPACE,
)
