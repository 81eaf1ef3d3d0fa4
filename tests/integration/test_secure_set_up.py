"""The set-up of docs/security.md: TLS and logins on all listeners, and the clients that it names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from stele.broker_process import BrokerLogin, BrokerProcess, BrokerTls, run_broker

from tests.support.certificates import Authority
from tests.support.documents import ROOT
from tests.support.warm_processes import run_stele

pytestmark = pytest.mark.long

LOGIN = BrokerLogin(user="alice", password="a-long-generated-password")
TIMEOUT_S = 240


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[BrokerProcess]:
    server = authority.server("broker")
    tls = BrokerTls(
        certificate_file=server.certificate_file, key_file=server.key_file, ca_file=authority.ca_file
    )
    with run_broker(tls=tls, login=LOGIN) as broker:
        yield broker


def output_of(*command: str) -> str:
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"needs {command[0]} (apt install {command[0]})")
    done = subprocess.run(
        [program, *command[1:]], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl(broker: BrokerProcess, authority: Authority) -> None:
    url = f"https://{broker.host}:{broker.http_port}/v1/topics"
    answer = output_of(
        "curl",
        "--silent",
        "--fail",
        "--cacert",
        str(authority.ca_file),
        "--user",
        f"{LOGIN.user}:{LOGIN.password}",
        url,
    )
    assert '"topics"' in answer


def test_kcat_and_librdkafka(broker: BrokerProcess, authority: Authority) -> None:
    config = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.ca_file),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": LOGIN.user,
        "sasl.password": LOGIN.password,
    }
    listed = AdminClient({"bootstrap.servers": broker.kafka_bootstrap, **config}).list_topics(
        timeout=TIMEOUT_S
    )
    assert len(listed.brokers) == 1
    # librdkafka before 2.6.1, with which Debian ships kcat, sends its nonce of SCRAM twice, which RFC 5802 has the
    # server refuse; PLAIN is encrypted by TLS.
    config["sasl.mechanism"] = "PLAIN"
    options = [part for name, value in config.items() for part in ("-X", f"{name}={value}")]
    assert "1 brokers" in output_of("kcat", "-b", broker.kafka_bootstrap, *options, "-L")


def test_the_command_line_and_keys(broker: BrokerProcess, authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{LOGIN.password}\n")
    file.chmod(0o600)
    login = {"STELE_CA_FILE": str(authority.ca_file), "STELE_USER": "alice", "STELE_PASSWORD_FILE": str(file)}
    https = f"https://{broker.host}:{broker.http_port}"
    made = run_stele("key", "create", "alice", "--url", https, env={**os.environ, **login})
    assert made.returncode == 0, made.stderr
    with_key = {"STELE_CA_FILE": str(authority.ca_file), "STELE_API_KEY": made.stdout.decode().strip()}
    for environment in (login, with_key):
        for url in (f"stele+tls://{broker.host}:{broker.binary_port}", https):
            listed = run_stele("topics", "list", "--url", url, env={**os.environ, **environment})
            assert listed.returncode == 0, listed.stderr


# Run elsewhere: test_kafka_tools_with_logins.py and tests/integration/spark/test_login.py.
ELSEWHERE = ("kafka-topics.sh ", "spark.")


def lines_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "security.md").read_text()
    text = page.partition("from nothing to four clients over TLS with logins")[2].partition("```\n")[2]
    return [line for line in text.partition("```")[0].splitlines() if not line.startswith(ELSEWHERE)]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat (apt install kcat)")
def test_the_lines_of_the_page_in_their_order(authority: Authority, tmp_path: Path) -> None:
    server = authority.server("server")
    shutil.copy(server.key_file, tmp_path / "server.key")
    shutil.copy(authority.ca_file, tmp_path / "server.pem")
    lines = lines_of_the_page()
    (serve,) = (number for number, line in enumerate(lines) if " stele serve " in line)
    data_dir = tmp_path / "data"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STELE_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(script: list[str], replaced: dict[str, str]) -> str:
        text = "\n".join(script)
        for old, new in replaced.items():
            assert old in text, old
            text = text.replace(old, new)
        done = subprocess.run(
            ["bash", "-e", "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(lines[:serve], {"/srv/stele": str(data_dir)})
    assert lines[serve].startswith("STELE_AUTHENTICATION=required STELE_TLS_CERTIFICATE_FILE=server.pem ")
    tls = BrokerTls(
        certificate_file=server.certificate_file,
        key_file=tmp_path / "server.key",
        ca_file=authority.ca_file,
    )
    with run_broker(data_dir=data_dir, environment={"STELE_AUTHENTICATION": "required"}, tls=tls) as started:
        ports = {"9009": started.binary_port, "8080": started.http_port, "9092": started.kafka_port}
        output = run(
            lines[serve + 1 :], {f"localhost:{port}": f"localhost:{new}" for port, new in ports.items()}
        )
    assert '"topics"' in output
    assert "1 brokers" in output
