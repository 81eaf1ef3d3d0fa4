"""The Locust file logs in as the client library does, over both of its protocols."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess, run_broker

from tests.integration.test_kafka_logins import PASSWORD, USER, add_user

# An import would patch the standard library of the tests for gevent.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("locust") is None, reason="needs Locust (make setup)"),
]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 200.0
# Ends the run as soon as both protocols have answered a request, or one has failed.
UNTIL_ALL_ARE_SEEN = """
import gevent
from locust import events
from load.locustfile import *

seen = set()

@events.init.add_listener
def watch(environment, **_):
    def count(request_type, exception, **_):
        if exception is None:
            seen.add("STELE" if request_type == "STELE" else "HTTP")
        if exception is not None or seen == {"HTTP", "STELE"}:
            # Not by the user that it ends.
            gevent.spawn(environment.runner.quit)

    events.request.add_listener(count)
"""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("locust") / "data"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def api_key(data_dir: Path) -> str:
    return add_user(data_dir)


@pytest.fixture(scope="module")
def broker(data_dir: Path, api_key: str) -> Iterator[BrokerProcess]:
    environment = {"STELE_AUTHENTICATION": "required", "STELE_AUTHORIZATION": "none"}
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        yield broker


def run_locust(
    broker: BrokerProcess, directory: Path, login: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    locustfile = directory / "locustfile.py"
    locustfile.write_text(UNTIL_ALL_ARE_SEEN)
    command = [
        sys.executable,
        "-m",
        "locust",
        "--locustfile",
        str(locustfile),
        "--headless",
        "--only-summary",
    ]
    command += ["--host", broker.http_url, "--users", "2", "--spawn-rate", "2", "--exit-code-on-error", "1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STELE_")}
    environment |= {"LOAD_BINARY_URL": broker.binary_url, "PYTHONPATH": str(ROOT), **login}
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd=directory,
    )


@pytest.mark.parametrize("kind", ["user", "key"])
def test_requests_of_a_user_and_of_a_key_succeed(
    broker: BrokerProcess, tmp_path: Path, api_key: str, kind: str
) -> None:
    login = {"STELE_USER": USER, "STELE_PASSWORD": PASSWORD} if kind == "user" else {"STELE_API_KEY": api_key}
    run = run_locust(broker, tmp_path, login)
    assert run.returncode == 0, run.stderr
    assert "PUT /topics/{topic}" in run.stderr + run.stdout
    for secret in (PASSWORD, api_key):
        assert secret not in run.stderr + run.stdout


def test_a_refused_login_ends_the_run_with_a_reason(broker: BrokerProcess, tmp_path: Path) -> None:
    run = run_locust(broker, tmp_path, {"STELE_USER": USER, "STELE_PASSWORD": "not-the-password"})
    assert run.returncode == 1, run.stderr
    assert "the login failed; check the user and password" in run.stderr, run.stderr
    assert "Traceback" not in run.stderr
    assert "not-the-password" not in run.stderr
