"""The quick tour of the README, and the client of the protocol's page, do what the pages say.

test_doc_examples.py runs every block of every page; the tests here also check what comes back.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess

pytestmark = pytest.mark.cold_start

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PROTOCOL = (ROOT / "docs" / "formats" / "binary-protocol.md").read_text()


def here(text: str, broker: BrokerProcess) -> str:
    """``text`` with the default ports replaced by those of ``broker``."""
    text = text.replace("localhost:8080", f"127.0.0.1:{broker.http_port}")
    return text.replace("9009", str(broker.binary_port))


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def run_python(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def curl(line: str) -> str:
    if shutil.which("curl") is None:
        assert not os.environ.get("CI"), "curl is not installed"
        pytest.skip("curl is not installed")
    # A live tail does not end by itself: -m ends it, with 28.
    line = line.replace("curl ", "curl -sS -m 3 ", 1)
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode in ((0, 28) if " -N " in line else (0,)), done.stderr
    return done.stdout


def test_the_four_curl_lines_create_a_topic_store_a_record_read_it_and_follow(
    stele_broker: BrokerProcess,
) -> None:
    create, produce, read, tail = (
        here(line, stele_broker) for line in re.findall(r"^curl .*$", README, re.MULTILINE)
    )
    created = json.loads(curl(create))
    assert (created["name"], created["partition_count"]) == ("orders", 1)

    stored = json.loads(curl(produce))
    assert stored["durability"] == "synced"
    assert (stored["records"][0]["partition"], stored["records"][0]["offset"]) == (0, 0)

    (record,) = json.loads(curl(read))["records"]
    assert (record["key"], record["value"]) == ("N14228", {"from": "EWR", "to": "IAH"})

    follower = subprocess.Popen(
        ["bash", "-c", tail.replace("curl ", "curl -sS -m 60 ", 1)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert follower.stdout is not None
        with follower.stdout as lines:
            assert lines.readline().startswith(":")
            seen = next(line for line in lines if line.startswith("data:"))
            assert json.loads(seen.removeprefix("data:"))["key"] == "N14228"
    finally:
        follower.kill()
        follower.wait()


def test_the_client_example_of_the_readme_prints_its_record(stele_broker: BrokerProcess) -> None:
    (example,) = (block for block in python_blocks(README) if "AsyncClient" in block)
    assert run_python(here(example, stele_broker)) == "0 synced\n0 b'N14228' b'first'\n"


def test_the_socket_example_of_the_protocol_page_gets_its_offset(stele_broker: BrokerProcess) -> None:
    (example,) = python_blocks(PROTOCOL)
    assert run_python(here(example, stele_broker)) == "offset 0\n"
