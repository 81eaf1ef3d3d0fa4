"""Every code block of the pages runs as it stands, against a broker of its own.

A block of ``sh`` is run command by command. Commands that need what a test machine
need not have stand in ``NOT_RUN`` with the reason; ``tests/unit/test_doc_names.py`` checks
their names and options all the same. A block of ``python`` runs after what ``PRELUDES``
has for its page; ``async with`` at the top is run as a coroutine. A block of
``json`` is parsed. Blocks in other languages are no code, and must be in ``NO_CODE``.

The broker of a block has the topics ``orders`` and ``flights`` with a few records
each, compacted topics ``customers`` and ``mirror.public.customers``, and a group ``billing`` that has committed and has no members.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stele import Client, UnknownTopicError
from stele.broker_process import BrokerProcess, run_broker
from stele.spark.java import SparkMissingError, require_spark

from app.security.policy import LISTENERS
from app.settings import SETTINGS
from tests.support.documents import PAGES, ROOT, Block, Place, blocks, name
from tests.support.users_pytest import run_users_tests
from tests.support.variants import long_but
from tests.support.warm_processes import run_stele

NO_CODE = {
    "": "a drawing or an output",
    "properties": "settings of another program",
    "java": "a part of tests/conformance/drivers/kafka-streams, which is compiled and run",
    "sql": "tests/conformance/test_flink_sql.py runs such statements",
    "hex": "tests/unit/test_docs.py decodes it",
    "batch": "tests/unit/test_docs.py decodes it",
    "cut": "tests/unit/storage/replica/test_documented_format.py decodes it",
}
# The beginning of a command, and why it is not run here.
NOT_RUN = {
    "make": "the target exists (checked); CI runs it",
    ".ci/run": "runs these tests",
    "pip install": "the extra exists (checked); test_wheel.py installs the wheel",
    "export": "the variable is read (checked)",
    "stele serve": "started and stopped, see below",
    "stele cdc": "names are checked; test_cdc.py runs it against PostgreSQL",
    "curl -X POST localhost:8080/v1/cdc": "needs a connector; tests/unit/api/test_cdc_route.py sends such a request",
    "stele iceberg run": "names are checked; tests/integration/iceberg/test_writer_process.py runs it",
    "stele pipeline run": "names are checked; tests/integration/spark runs the pipelines",
    "openssl": "test_tls.py makes the certificate of docs/security.md with it",
    "curl --cacert": "test_tls.py runs it against a broker with TLS",
    "stele topics list --url stele+tls": "names are checked; test_tls.py runs the command line with TLS",
    "kcat": "make conformance CLIENTS=kcat runs it",
    "echo 'N14228:from kcat' | kcat": "make conformance CLIENTS=kcat runs it",
    "kafka-": "Apache Kafka's own tools: make conformance CLIENTS=kafka-tools runs them",
    "spark-submit": "tests/integration/spark runs it",
    "spark-shell": "tests/conformance/test_iceberg_tables.py has such a session",
    "python -m": "the module exists (checked)",
    ".venv/bin/python -m": "the module exists (checked)",
    "docker compose --profile cluster": "test_compose.py runs the services as processes",
    "LOAD_BINARY_URL=": "make load runs Locust",
}
# A program that takes longer hangs; Spark alone needs a minute to start on a busy machine.
HANGS_S = 500
# What a page's Python expects to be there.
PRELUDES = {
    "docs/iceberg.md": """
        import time
        from stele import Client
        from pyiceberg.catalog import load_catalog

        with Client() as client:
            configs = {"stele.iceberg.mode": "key_value", "stele.iceberg.commit.interval.ms": 100}
            client.alter_topic("orders", configs=configs)
        while not load_catalog("", type="rest", uri="http://127.0.0.1:8080/iceberg").table_exists("stele.orders"):
            time.sleep(0.1)
        """,
    "docs/groups.md": """
        from stele import AsyncClient, Client

        def handle(record):
            raise SystemExit  # the loop of the page ends with its process only
        """,
}
# What a Spark block may use without saying where it comes from, and what waits for a stream to end.
SPARK_PRELUDE = """
import sys

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
url = "stele://127.0.0.1:9009"

from stele import Client, SchemaRegistry

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}'
with Client(url) as client, SchemaRegistry("http://127.0.0.1:8081") as registry:
    client.produce("placed", registry.serializer(ORDER, "placed")({"customer": "ada"}))
"""
SPARK_END = """
if query is not None:
    query.awaitTermination()
    assert query.exception() is None
"""

CODE = [(page, block) for page in PAGES for block in blocks(page)]
SHELL = [block for _, block in CODE if block.language in {"sh", "bash", "console"}]
PYTHON = [
    block
    for _, block in CODE
    if block.language == "python" and "def test_" not in block.text and "spark" not in block.text
]
JSON = [block for _, block in CODE if block.language == "json"]
SPARK = [block for _, block in CODE if block.language == "python" and "spark" in block.text]
TESTS = [block for _, block in CODE if block.language == "python" and "def test_" in block.text]


def place(block: Block) -> str:
    return str(block.place)


def readme_first(blocks: list[Block]) -> list[Any]:
    """Return the blocks, for ``parametrize``: those of other pages than the README are for `make long`."""
    first = [place(block) for block in blocks if block.place.page.name == "README.md"]
    return long_but([pytest.param(block, id=place(block)) for block in blocks], *first)


def test_every_block_is_in_a_language_that_is_checked() -> None:
    for _, block in CODE:
        assert block.language in {"sh", "python", "json", *NO_CODE}, (
            f"{block.place}: nothing checks a block of {block.language!r}; "
            "use sh, python or json, or no language for an output"
        )


# ── the broker of a block ──


@pytest.fixture
def prepared_broker() -> Iterator[BrokerProcess]:
    with run_broker() as broker:
        with Client(broker.http_url) as client:
            for topic in ("orders", "flights"):
                client.create_topic(topic, partitions=2)
                for number in range(3):
                    client.produce(
                        topic, json.dumps({"dep_delay": 50 + 10 * number}), key="N14228", partition=0
                    )
            client.create_topic("customers", configs={"cleanup.policy": "compact"})
            client.produce("customers", "Paris", key="bob")
            client.create_topic("mirror.public.customers", configs={"cleanup.policy": "compact"})
            client.produce("mirror.public.customers", '{"id": 7, "city": "Paris"}', key="7")
            lease = client.group("billing", "orders")
            with lease as group, next(iter(group)):
                pass
            client.produce("orders", b"a record that billing has still to read", key="N14228", partition=0)
        yield broker


def here(text: str, broker: BrokerProcess, folder: Path) -> str:
    """Return ``text`` with the addresses and folders of a page replaced by those of this test."""
    for listener in LISTENERS:
        port, actual = SETTINGS[f"{listener}_port"].default, getattr(broker, f"{listener}_port")
        text = re.sub(rf"\b(?:localhost|127\.0\.0\.1|broker):{port}\b", f"127.0.0.1:{actual}", text)
        text = text.replace(f'"127.0.0.1", {port}', f'"127.0.0.1", {actual}')
    return re.sub(r"(?<![\w.])/(?:srv|data|shared)/", f"{folder}/", text)


def environment(broker: BrokerProcess) -> dict[str, str]:
    own = {"STELE_URL": broker.http_url, "STELE_CLIENT_HTTP_URL": broker.http_url}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    spark = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    return {**os.environ, **own, **spark, "PATH": path}


# ── shell ──


def commands(block: Block) -> list[tuple[Place, str]]:
    """Return the commands of a block, lines that end with a backslash joined, comments left out."""
    found: list[tuple[Place, str]] = []
    command, start = "", 0
    for number, line in enumerate(block.text.splitlines()):
        start = start if command else number
        command += line.removesuffix("\\") if line.endswith("\\") else line
        if line.endswith("\\"):
            command += " "
            continue
        command = re.sub(r"(?:^|\s+)# .*$", "", command).strip()
        if command:
            found.append((Place(block.place.page, block.place.line + start), command))
        command = ""
    return found


def reason_not_to_run(command: str) -> str | None:
    return next((reason for beginning, reason in NOT_RUN.items() if command.startswith(beginning)), None)


def is_endless(command: str) -> bool:
    return bool(re.search(r"curl .*-\w*N\b|text/event-stream|--follow\b| -f\b", command))


def fill_in(command: str, last_answer: str) -> str:
    """Replace a value that the page cuts short with … by that of the answer before."""
    for field, _ in re.findall(r'"(\w+)":\s?"([^"]*…)"', command):
        value = json.loads(last_answer)[field]
        command = re.sub(
            rf'("{field}":\s?)"[^"]*…"', lambda match, v=value: match[1] + json.dumps(v), command
        )
    return command


def delete_what_it_creates(command: str, broker: BrokerProcess) -> None:
    created = re.search(r"stele topics create (\S+)|PUT \S+/v1/topics/(\w+)\b(?![/?])", command)
    if created:
        with Client(broker.http_url) as client, contextlib.suppress(UnknownTopicError):
            client.delete_topic(created[1] or created[2])


@pytest.mark.parametrize("block", readme_first(SHELL))
def test_shell_blocks_run(block: Block, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("first\nsecond\n")
    (tmp_path / "order.avsc").write_text(
        '{"type":"record","name":"Order","fields":[{"name":"customer","type":"string"}]}'
    )
    (tmp_path / "orders.ndjson").write_text('{"customer":"ada"}\n')
    last_answer = ""
    for where, command in commands(block):
        if reason_not_to_run(command) and not command.startswith("stele serve"):
            continue
        runs = command.startswith(("curl ", "stele "))
        assert runs, (
            f"{where}: {command}: is not run by this test: add its beginning to NOT_RUN, with the reason"
        )
        if command.startswith("stele serve"):
            serve(command, tmp_path)
            continue
        if command.startswith("curl ") and shutil.which("curl") is None:
            assert not os.environ.get("CI"), "curl is not installed"
            pytest.skip("curl is not installed")
        broker: BrokerProcess = request.getfixturevalue("prepared_broker")
        delete_what_it_creates(command, broker)
        line = here(fill_in(command, last_answer), broker, tmp_path)
        # A tail does not end by itself: -m ends it, with 28; an error of HTTP is one of curl's.
        line = re.sub(r"^curl ", "curl -sS --fail-with-body -m 3 ", line)
        try:
            done = run(line, environment(broker), tmp_path, timeout_s=5 if is_endless(command) else HANGS_S)
        except subprocess.TimeoutExpired:
            assert is_endless(command), f"{where}: {command}: does not end"
            continue
        allowed = (0, 28) if is_endless(command) else (0,)
        assert done.returncode in allowed, f"{where}: {command}: {done.stdout.decode()}{done.stderr.decode()}"
        last_answer = done.stdout.decode()


def run(
    line: str, environment: dict[str, str], folder: Path, *, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell. Raises ``subprocess.TimeoutExpired``."""
    if re.fullmatch(r"stele [^|&;<>$`*?~()\\#]*", line):
        # Nothing in it is for a shell but words and quotes.
        return run_stele(*shlex.split(line)[1:], env=environment, cwd=folder, timeout=timeout_s)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


def serve(command: str, folder: Path) -> None:
    """Start the broker as the page does, on free ports, until it is ready."""
    line = re.sub(r"(--\w+-port) \d+", r"\1 0", command)
    line = re.sub(r"--data-dir \S+", f"--data-dir {folder / 'served'}", line)
    arguments = line.split()[1:]
    if "--data-dir" not in line:
        arguments += ["--data-dir", str(folder / "served")]
    for listener in LISTENERS:
        if f"--{listener}-port" not in line:
            arguments += [f"--{listener}-port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "stele.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert ready.startswith("stele ready "), command


def test_no_command_is_excused_that_no_page_has() -> None:
    written = [command for block in SHELL for _, command in commands(block)]
    unused = [beginning for beginning in NOT_RUN if not any(c.startswith(beginning) for c in written)]
    assert not unused, f"remove from NOT_RUN: {unused}"


# ── Python ──


def program(block: Block) -> str:
    """Return the block as a program: its prelude, and a coroutine if it awaits at the top."""
    prelude = textwrap.dedent(PRELUDES.get(name(block.place.page), ""))
    try:
        ast.parse(block.text)
        compile(block.text, place(block), "exec")
    except SyntaxError:
        body = textwrap.indent(block.text, "    ")
        return f"{prelude}\nimport asyncio\n\nasync def main():\n{body}\n\nasyncio.run(main())\n"
    return f"{prelude}\n{block.text}"


@pytest.mark.parametrize("block", readme_first(PYTHON))
def test_python_blocks_run(block: Block, prepared_broker: BrokerProcess, tmp_path: Path) -> None:
    source = here(program(block), prepared_broker, tmp_path)
    if "AsyncConsumer" in source:
        # A consumer follows for ever: its first record is enough here.
        source = re.sub(r"^( +)(print\(record.*\))$", r"\1\2\n\1break", source, flags=re.MULTILINE)
    run_program(source, prepared_broker, tmp_path)


def run_program(source: str, broker: BrokerProcess, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=folder,
        env=environment(broker),
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
@pytest.mark.long
def test_spark_blocks_run(prepared_broker: BrokerProcess, tmp_path: Path) -> None:
    """All in one program: a session of Spark takes a minute to start."""
    try:
        require_spark()
    except SparkMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    parts = [
        f"print({place(block)!r}, file=sys.stderr)\nquery = None\n{block.text}{SPARK_END}" for block in SPARK
    ]
    run_program(here("".join([SPARK_PRELUDE, *parts]), prepared_broker, tmp_path), prepared_broker, tmp_path)


@pytest.mark.parametrize("block", readme_first(TESTS))
def test_blocks_that_are_tests_pass(block: Block, tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(block.text)
    done = run_users_tests(tmp_path, timeout_s=HANGS_S)
    assert done.returncode == 0, f"{block.place}: {done.stdout}"


@pytest.mark.parametrize("block", JSON, ids=place)
def test_json_blocks_are_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError as error:
        pytest.fail(f"{block.place}: no JSON: {error}")


def test_pages_name_files_of_the_repository_in_this_module() -> None:
    for page in PRELUDES:
        assert (ROOT / page).exists(), f"{page} is gone: remove it from this test"
