"""Requests made from the OpenAPI document, sensible and not: the broker answers all of them and never fails.

Run by schemathesis' own command, as anybody would run it against a broker. The
live tail is left out: it is meant to have no end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stele.testing import run_broker

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = "30"
PHASES = "examples,coverage,fuzzing"


def _command() -> str:
    found = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("schemathesis is not installed; run: pip install 'schemathesis>=4'")
    return found


def _run(directory: Path, url: str, *selection: str) -> subprocess.CompletedProcess[str]:
    command = [_command(), "run", f"{url}/openapi.json", *selection]
    command += [
        "--max-examples",
        EXAMPLES,
        "--checks",
        "not_a_server_error",
        "--seed",
        "1",
        "--no-color",
    ]
    command += ["--phases", PHASES, "--request-timeout", "20"]
    # An event stream has no end either.
    command += ["-H", "Accept: application/json"]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "tests.support.schemathesis_hooks",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.long
def test_no_request_that_the_schema_allows_or_forbids_makes_the_broker_fail(tmp_path: Path) -> None:
    # The route of the tail is also the one that produces.
    route = "/v1/topics/{topic}/records"
    with run_broker(environment={"STELE_PARTITIONS_MAX": "300"}) as broker:
        runs = [
            _run(tmp_path, broker.http_url, "--exclude-path", route),
            _run(
                tmp_path,
                broker.http_url,
                "--include-path",
                route,
                "--include-method",
                "POST",
            ),
        ]
        assert broker.is_running
    for run in runs:
        assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
