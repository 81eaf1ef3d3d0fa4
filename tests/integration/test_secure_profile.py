"""The profile ``secure`` of compose.yaml: its services as processes, with their commands, environment and files.

There need be no container engine: the image's part is read from the Dockerfile. Paths of the image are replaced by
directories of the test, and published ports are those that the broker binds, on loopback.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from app.security.policy import UnsafeSettings, check_exposure
from app.security.tls.settings import listener_tls
from app.settings import SETTINGS, Settings
from load.server_start import free_ports
from tests.support.certificates import Authority
from tests.support.documents import ROOT
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

pytestmark = pytest.mark.long

USER, PASSWORD = "operator", "a-long-generated-password"
USERS_SERVICE, BROKER_SERVICE = "secure-user", "broker-secure"
PORTS = {"8080": "http_port", "9009": "binary_port", "9092": "kafka_port", "8081": "registry_port"}
TIMEOUT_S = 240
ATTEMPTS = 3
IN_USE = os.strerror(errno.EADDRINUSE)


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """Replace ``${NAME:-default}`` and ``$$`` in all texts, as docker compose does."""
    if isinstance(value, dict):
        return {name: interpolated(one, variables) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [interpolated(one, variables) for one in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1]) or match[2]

    text = re.sub(r"\$\$|\$\{(\w+):-([^}]*)\}", replace, value)
    assert "${" not in text, text
    return text


def instructions() -> list[tuple[str, str]]:
    """The instructions of the last stage of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    (last,) = [number for number, line in enumerate(lines) if line.startswith("FROM ")][-1:]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines[last:])]


@dataclass(slots=True)
class Profile:
    """compose.yaml with the variables of the test, and the directories that stand for those of containers."""

    directory: Path
    authority: Authority
    ports: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.choose_ports()

    def choose_ports(self) -> None:
        self.ports = dict(zip(PORTS.values(), free_ports(len(PORTS)), strict=True))

    @property
    def compose(self) -> dict[str, Any]:
        variables = {
            "SECURE_DIR": str(self.directory / "files"),
            "SECURE_USER": USER,
            **{f"SECURE_{name.upper()}": str(port) for name, port in self.ports.items()},
        }
        text = (ROOT / "compose.yaml").read_text()
        return cast("dict[str, Any]", interpolated(yaml.safe_load(text), variables))

    @property
    def volume(self) -> Path:
        return self.directory / "volume"

    @property
    def ca_file(self) -> str:
        return str(self.authority.ca_file)

    def url(self, name: str) -> str:
        """The address of a listener on this host."""
        scheme = {"http_port": "https", "binary_port": "stele+tls"}[name]
        return f"{scheme}://localhost:{self.ports[name]}"

    def service(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", self.compose["services"][name])

    def inside(self, text: str, service: str) -> str:
        """Replace paths and ports of a container by those of the test."""
        for path, real in (
            ("/run/secrets/", f"{self.directory}/secrets-{service}/"),
            ("/data", str(self.volume)),
            ("/opt/stele/bin", str(Path(sys.executable).parent)),
            *((f"127.0.0.1:{port}", f"127.0.0.1:{self.ports[name]}") for port, name in PORTS.items()),
        ):
            text = text.replace(path, real)
        return text

    def environment(self, service: str) -> dict[str, str]:
        """That of the image, then that of the service; the broker binds the published ports, on loopback."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.volume)}
        for instruction, rest in instructions():
            if instruction == "ENV":
                for pair in shlex.split(rest):
                    name, _, value = pair.partition("=")
                    environment[name] = value.replace("$PATH", environment["PATH"])
        environment |= {name: str(value) for name, value in self.service(service)["environment"].items()}
        environment = {name: self.inside(value, service) for name, value in environment.items()}
        ports = {f"STELE_{name.upper()}": str(port) for name, port in self.ports.items()}
        return {**environment, "STELE_HOST": "127.0.0.1", **ports}

    def command(self, service: str) -> list[str]:
        image = {name: json.loads(rest) for name, rest in instructions() if name in ("ENTRYPOINT", "CMD")}
        own = self.service(service)
        words: list[str] = [
            *own.get("entrypoint", image["ENTRYPOINT"]),
            # An entrypoint of the service's own resets the command of the image.
            *own.get("command", [] if "entrypoint" in own else image["CMD"]),
        ]
        return [self.inside(word, service) for word in words]

    def start(self, service: str, command: list[str] | None = None) -> subprocess.Popen[bytes]:
        """Run a service, or a command in its container."""
        secrets = self.directory / f"secrets-{service}"
        # Once: the broker may be reading them while its health is checked.
        if not secrets.exists():
            secrets.mkdir()
            for name in self.service(service).get("secrets", []):
                shutil.copy(self.compose["secrets"][name]["file"], secrets / name)
        # The image cannot be written to: what it writes goes to the volume.
        root = self.directory / "root"
        root.mkdir(exist_ok=True)
        return subprocess.Popen(
            command or self.command(service),
            cwd=root,
            env=self.environment(service),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, service: str, command: list[str] | None = None) -> tuple[int, str]:
        process = self.start(service, command)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, output.decode()

    def is_healthy(self) -> bool:
        kind, *command = self.service(BROKER_SERVICE)["healthcheck"]["test"]
        assert kind == "CMD"
        code, _ = self.run(BROKER_SERVICE, [self.inside(word, BROKER_SERVICE) for word in command])
        return code == 0


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return make_profile(tmp_path_factory.mktemp("secure"))


def make_profile(directory: Path) -> Profile:
    """The profile with the files that compose.yaml asks for."""
    (directory / "volume").mkdir()
    (directory / "authority").mkdir()
    authority = Authority(directory / "authority")
    server = authority.server("server")
    files = directory / "files"
    files.mkdir()
    shutil.copy(server.certificate_file, files / "server.pem")
    shutil.copy(server.key_file, files / "server.key")
    (files / "password").write_text(f"{PASSWORD}\n")
    for name in ("server.key", "password"):
        (files / name).chmod(0o600)
    return Profile(directory, authority)


@pytest.fixture(scope="module")
def running(profile: Profile) -> Iterator[subprocess.Popen[bytes]]:
    process = up(profile)
    try:
        yield process
    finally:
        stop(process)


def up(profile: Profile) -> subprocess.Popen[bytes]:
    """The broker, after the service that it depends on, as ``docker compose up broker-secure`` starts them."""
    assert profile.service(BROKER_SERVICE)["depends_on"] == {
        USERS_SERVICE: {"condition": "service_completed_successfully"}
    }
    code, output = profile.run(USERS_SERVICE)
    assert code == 0, output
    return started(profile)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def has_become_healthy(profile: Profile, process: subprocess.Popen[bytes]) -> bool:
    """Return when the broker is healthy or has ended."""
    eventually(lambda: process.poll() is not None or profile.is_healthy(), "the broker is healthy")
    return process.poll() is None


def started(profile: Profile) -> subprocess.Popen[bytes]:
    """The broker on free ports, when it is healthy."""
    output = ""
    for _ in range(ATTEMPTS):
        profile.choose_ports()
        process = profile.start(BROKER_SERVICE)
        if has_become_healthy(profile, process):
            return process
        output = process.communicate()[0].decode()
        # Another process has taken one of them meanwhile.
        assert IN_USE in output, output
    pytest.fail(output)


def test_it_publishes_each_listener_on_loopback_of_the_host(profile: Profile, running: object) -> None:
    exposed = dict(instructions())["EXPOSE"].split()
    assert exposed == list(PORTS)
    defaults = {str(SETTINGS[name].default): name for name in PORTS.values()}
    assert defaults == PORTS
    assert profile.service(BROKER_SERVICE)["ports"] == [
        f"127.0.0.1:{profile.ports[name]}:{port}" for port, name in PORTS.items()
    ]


def test_its_broker_may_bind_all_addresses_only_because_it_requires_logins_over_tls(
    profile: Profile, running: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in profile.environment(BROKER_SERVICE).items():
        if name.startswith("STELE_"):
            monkeypatch.setenv(name, value)
    image = dict(pair.split("=", 1) for pair in shlex.split(dict(instructions())["ENV"]))
    assert image["STELE_HOST"] == "0.0.0.0"

    def check(**changes: Any) -> None:
        settings = Settings(host=image["STELE_HOST"], **changes)
        tls = {name: listener_tls(settings, name) for name in settings.listeners}
        check_exposure(settings, cast("Any", tls))

    check()
    with pytest.raises(UnsafeSettings, match="STELE_AUTHENTICATION=required"):
        check(authentication="none")
    with pytest.raises(UnsafeSettings, match="STELE_TLS_CERTIFICATE_FILE"):
        check(tls_certificate_file=None, tls_key_file=None)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (apt install curl)")
def test_curl_logs_in_and_is_refused_without_a_login(profile: Profile, running: object) -> None:
    def status(*options: str) -> str:
        command = ["curl", "--silent", "--output", os.devnull, "--write-out", "%{http_code}", *options]
        done = subprocess.run(
            [*command, f"{profile.url('http_port')}/v1/topics"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.stdout

    trusts = ("--cacert", profile.ca_file)
    assert status(*trusts, "--user", f"{USER}:{PASSWORD}") == "200"
    assert status(*trusts) == "401"
    assert status(*trusts, "--user", f"{USER}:another-password-than-this") == "401"
    # Without the CA there is no connection.
    assert status("--user", f"{USER}:{PASSWORD}") == "000"


def test_kafka_clients_log_in_and_are_refused_without_a_login(profile: Profile, running: object) -> None:
    def topics(login: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> Any:
        config: dict[str, Any] = {
            **login,
            "bootstrap.servers": f"localhost:{profile.ports['kafka_port']}",
            "ssl.ca.location": profile.ca_file,
        }
        return AdminClient(config).list_topics(timeout=timeout_s)

    scram = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    (broker,) = topics(scram).brokers.values()
    # The address that clients connect to is the one that is published.
    assert (broker.host, broker.port) == ("localhost", profile.ports["kafka_port"])
    for refused in ({"security.protocol": "SSL"}, {**scram, "sasl.password": "another-password-than-this"}):
        with pytest.raises(KafkaException):
            topics(refused, 2.0)


def test_the_first_user_may_do_everything_and_its_logins_are_in_the_audit_log(
    profile: Profile, running: object, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    known = {name: value for name, value in os.environ.items() if not name.startswith("STELE_")}
    login = {"STELE_CA_FILE": profile.ca_file, "STELE_USER": USER, "STELE_PASSWORD_FILE": str(password)}

    def stele(*arguments: str, port: str, **environment: str) -> tuple[int, str]:
        done = run_stele(*arguments, "--url", profile.url(port), env={**known, **environment})
        return done.returncode, (done.stdout + done.stderr).decode()

    made = stele("topics", "create", "orders", "--partitions", "1", port="binary_port", **login)
    assert made[0] == 0, made
    rule = ("--principal", "User:billing", "--operation", "READ", "--topic", "orders")
    added = stele("acls", "add", *rule, port="http_port", **login)
    assert added[0] == 0, added
    code, output = stele("topics", "list", port="binary_port", STELE_CA_FILE=profile.ca_file)
    assert (code, "orders" in output) == (1, False), output
    lines = [json.loads(line) for line in (profile.volume / "audit.jsonl").read_text().splitlines()]
    assert {"binary", "http"} <= {
        line["listener"]
        for line in lines
        if line["verdict"] == "allowed" and line["principal"] == f"User:{USER}"
    }


@pytest.mark.long
def test_a_second_start_keeps_the_users(tmp_path: Path) -> None:
    profile = make_profile(tmp_path)
    first = up(profile)
    try:
        # docker compose up runs the first service again, also while the broker runs.
        assert profile.run(USERS_SERVICE) == (0, "")
        first.send_signal(signal.SIGTERM)
        output, _ = first.communicate(timeout=TIMEOUT_S)
        assert first.returncode == 0, output.decode()
    finally:
        stop(first)
    assert not profile.is_healthy()

    assert profile.run(USERS_SERVICE) == (0, "")
    again = started(profile)
    try:
        assert list((profile.directory / "root").iterdir()) == [], "the image is read-only"
    finally:
        stop(again)
