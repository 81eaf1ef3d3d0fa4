"""A client that a generator makes of the OpenAPI document works, and its types are right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.testing import run_broker

pytestmark = pytest.mark.long

# The generator does not know the media type; it leaves NDJSON out of what a client may send.
CONFIG = "content_type_overrides: {application/x-ndjson: text/plain}\npost_hooks: []\n"
LEFT_OUT = ["POST /v1/topics/{topic}/records"]
PROGRAM = '''\
"""Produce and read with the generated client."""

import sys
from http import HTTPStatus

from generated import Client
from generated.api.groups import get_group, share_poll
from generated.api.records import get_record, produce, read
from generated.api.topics import create_topic, get_topic, list_topics
from generated.models import (
    ConfigChanges,
    Isolation,
    NewRecord,
    PollStart,
    Problem,
    ProduceBody,
    SharePollBody,
    TopicBody,
)

client = Client(sys.argv[1])
configs = ConfigChanges.from_dict({"retention.ms": 86400000})
created = create_topic.sync("orders", client=client, body=TopicBody(partitions=1, configs=configs))
assert created is not None and not isinstance(created, Problem)
assert created.partition_count == 1 and created.configs["retention.ms"] == "86400000"

body = ProduceBody(records=[NewRecord(key="a", value={"n": 1}), NewRecord(value=None)])
produced = produce.sync("orders", client=client, body=body)
assert produced is not None and not isinstance(produced, Problem)
assert [result.offset for result in produced.records] == [0, 1]
assert produced.durability.value == "synced"

page = read.sync("orders", 0, client=client, isolation=Isolation.READ_COMMITTED)
assert page is not None and not isinstance(page, Problem)
assert [(record.key, record.value) for record in page.records] == [("a", '{"n":1}'), (None, None)]
assert page.next_offset == 2

one = get_record.sync("orders", 0, 1, client=client)
assert one is not None and not isinstance(one, Problem) and one.offset == 1
names = list_topics.sync(client=client, sizes=True)
assert names is not None and not isinstance(names, Problem)
assert [(topic.name, topic.records) for topic in names.topics] == [("orders", 2)]

taken = share_poll.sync("workers", client=client, body=SharePollBody(topics=["orders"], from_=PollStart.EARLIEST))
assert taken is not None and not isinstance(taken, Problem) and len(taken.records) == 2

refused = get_topic.sync_detailed("unknown", client=client)
assert refused.status_code == HTTPStatus.NOT_FOUND
assert isinstance(refused.parsed, Problem) and refused.parsed.type_ == "/problems/unknown-topic"
other = get_group.sync("none", client=client)
assert isinstance(other, Problem) and not other.retriable
print("done")
'''


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_broker() as broker:
        yield broker.http_url


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    return httpx.get(f"{url}/openapi.json").json()


@pytest.fixture(scope="module")
def generated(url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Generate a client; return its folder and what the generator printed."""
    command = shutil.which("openapi-python-client", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("openapi-python-client is not installed; run: make setup")
    folder = tmp_path_factory.mktemp("client")
    (folder / "config.yaml").write_text(CONFIG)
    options = [
        "--url",
        f"{url}/openapi.json",
        "--config",
        "config.yaml",
        "--meta",
        "none",
        "--output-path",
        "generated",
    ]
    run = subprocess.run(
        [command, "generate", *options], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder, run.stdout + run.stderr


def pyright(folder: Path, *include: str) -> str:
    settings = {"include": list(include), "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", "pyrightconfig.json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_the_generator_understands_the_document_but_for_ndjson_that_a_client_sends(
    generated: tuple[Path, str],
) -> None:
    warnings = [
        line.removeprefix("WARNING parsing ").partition(" within ")[0]
        for line in generated[1].splitlines()
        if line.startswith("WARNING")
    ]
    assert warnings == LEFT_OUT, generated[1]


def test_a_generated_client_has_a_file_per_operation_and_per_named_schema(
    generated: tuple[Path, str], document: dict[str, Any]
) -> None:
    folder = generated[0] / "generated"
    operations = {
        operation["operationId"] for item in document["paths"].values() for operation in item.values()
    }
    calls = {path.stem for path in (folder / "api").rglob("*.py")} - {"__init__"}
    assert calls == operations
    models = {path.stem.replace("_", "") for path in (folder / "models").glob("*.py")} - {"init"}
    schemas = {name.lower() for name in document["components"]["schemas"]}
    assert models <= schemas, f"not named in the document: {models - schemas}"


def test_a_program_with_the_generated_client_produces_and_reads(
    generated: tuple[Path, str], url: str
) -> None:
    folder = generated[0]
    (folder / "program.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    run = subprocess.run(
        [sys.executable, "program.py", url],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "done\n", run.stderr
    assert "0 errors" in (checked := pyright(folder, "program.py")), checked


@pytest.mark.long
def test_the_types_of_the_generated_client_are_right(generated: tuple[Path, str]) -> None:
    assert "0 errors" in (checked := pyright(generated[0], "generated")), checked
