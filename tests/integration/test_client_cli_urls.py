"""One URL works for every command that calls a broker, whichever listener it names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner, Result
from stele import Client, Schema, SchemaRegistry
from stele.broker_process import BrokerProcess, run_broker
from stele.cli import LazyGroup, stele
from stele.config import broker_urls, http_url_of
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.messages.frame_types import MessageType

from tests.integration.test_client_cli_json import leaves
from tests.integration.test_kafka_logins import PASSWORD, add_user

ADMIN = "root"
# In an order in which each has something to do. {key} is the id of the key that was created, {schema} a file.
ROWS: list[tuple[str, str]] = [
    ("topics create", "urls"),
    ("topics list", ""),
    ("topics describe", "urls"),
    ("topics alter", "urls --config retention.ms=86400000"),
    ("produce", "urls"),
    ("consume", "urls --max 1"),
    ("table", "keyed"),
    ("sql", 'from"urls"'),
    ("top", "--once"),
    ("groups configure", "urls-share --config errors.deadletterqueue.topic.name=dlq.urls"),
    ("groups redrive", "urls-share"),
    ("groups list", ""),
    ("groups describe", "urls-group"),
    ("groups reset", "urls-group --to earliest --yes"),
    ("groups delete", "urls-group --yes"),
    ("transactions list", ""),
    ("transactions hanging", "--all"),
    ("transactions describe", "urls-id"),
    ("transactions abort", "urls-id --yes"),
    ("schemas register", "urls-value {schema}"),
    ("schemas list", ""),
    ("schemas show", "urls-value"),
    ("schemas check", "urls-value {schema}"),
    ("schemas config", "urls-value --level FULL"),
    ("schemas mode", "urls-value"),
    ("schemas delete", "urls-value --yes"),
    ("cdc status", ""),
    ("cdc add", "orders"),
    ("cdc drop", "orders"),
    ("cdc copy", "orders"),
    ("cdc tables", ""),
    ("mirror create", "urls --from 127.0.0.1:1 --topics none"),
    ("mirror list", ""),
    ("mirror status", "urls"),
    ("mirror pause", "urls"),
    ("mirror resume", "urls"),
    ("mirror truncate", "urls --yes"),
    ("mirror promote", "urls --yes"),
    ("mirror create", "urls --to 127.0.0.1:1 --topics none"),
    ("mirror delete", "urls --yes"),
    ("iceberg status", ""),
    ("quotas set", "producer_byte_rate=1000000000 --for-client-id urls"),
    ("quotas list", ""),
    ("quotas remove", "--for-client-id urls"),
    ("user add", "ada"),
    ("user passwd", "ada"),
    ("user list", ""),
    ("key create", "ada"),
    ("key list", ""),
    ("key delete", "{key}"),
    ("user delete", "ada"),
    ("acls add", "--principal User:ada --operation READ --topic urls"),
    ("acls list", ""),
    ("acls remove", "--principal User:ada"),
    ("topics delete", "urls --yes"),
]
# Their URLs are those of buckets; the last one runs until it is stopped.
WITHOUT = {"replica status", "replica verify", "restore", "iceberg run"}


def invoke(command: str, arguments: str, environment: dict[str, str], stdin: str = "") -> Result:
    return CliRunner().invoke(stele, [*command.split(), *arguments.split()], env=environment, input=stdin)


@dataclass(frozen=True)
class Secured:
    broker: BrokerProcess
    environment: dict[str, str]
    schema: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with logins and access rules, and the environment of its administrator."""
    folder = tmp_path_factory.mktemp("urls")
    data_dir = folder / "data"
    data_dir.mkdir()
    add_user(data_dir, ADMIN)
    assert invoke("acls add", f"--admin User:{ADMIN} --data-dir {data_dir}", {}).exit_code == 0
    password = folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    environment = {
        "STELE_USER": ADMIN,
        "STELE_PASSWORD_FILE": str(password),
        "STELE_NEW_PASSWORD": "a long generated password",
    }
    schema = folder / "schema.avsc"
    schema.write_text('"string"')
    settings = {"STELE_AUTHENTICATION": "required", "STELE_LOGIN_FAILURES_FREE": "10000"}
    with run_broker(data_dir=data_dir, environment=settings) as broker:
        yield Secured(broker, environment, schema)


def test_every_command_with_a_url_has_a_row() -> None:
    with_url = {
        name
        for name, command in leaves(LazyGroup(name="stele"))
        if {"url", "broker"} & {parameter.name for parameter in command.params}
    }
    assert with_url - WITHOUT == {command for command, _ in ROWS}


@pytest.mark.parametrize("scheme", ["stele", "http"])
def test_every_command_works_with_the_url_of_either_listener(secured: Secured, scheme: str) -> None:
    broker = secured.broker
    environment = secured.environment | {
        "STELE_URL": broker.binary_url if scheme == "stele" else broker.http_url
    }
    _create_what_the_rows_need(broker)
    key = ""
    for command, arguments in ROWS:
        given = arguments.format(key=key, schema=secured.schema)
        done = invoke(command, given, environment, "value\n")
        assert done.exit_code == 0, f"{command}: {done.output}"
        if command == "key list":
            key = done.output.split()[0]


@pytest.mark.parametrize(("command", "arguments"), [row for row in ROWS if row[1].endswith(" --yes")])
def test_a_question_that_nobody_answers_changes_nothing_and_names_the_option(
    secured: Secured, command: str, arguments: str
) -> None:
    environment = secured.environment | {"STELE_URL": secured.broker.http_url}
    _create_what_the_rows_need(secured.broker)
    if command.startswith("topics"):
        invoke("topics create", arguments.removesuffix(" --yes"), environment)
    if command.startswith("mirror"):
        invoke("mirror create", "urls --from 127.0.0.1:1 --topics none --replace", environment)
    for answers, status, said in (("", 2, "pass --yes"), ("n\n", 1, "Aborted")):
        done = invoke(command, arguments.removesuffix(" --yes"), environment, answers)
        assert (done.exit_code, said in done.output) == (status, True), done.output
    # There still is what it would have taken.
    assert invoke(command, arguments, environment).exit_code == 0
    # Nothing after what an open transaction has written is read.
    invoke("transactions abort", "urls-id --yes", environment)


def _create_what_the_rows_need(broker: BrokerProcess) -> None:
    with Client(broker.http_url, user=ADMIN, password=PASSWORD) as client:
        if "dlq.urls" not in {topic.topic for topic in client.topics()}:
            client.create_topic("dlq.urls", configs={"errors.deadletterqueue.group.enable": "true"})
            client.create_topic("keyed", configs={"cleanup.policy": "compact"})
            client.produce("keyed", b"x", key="k")
            client.create_topic("polled")
        client.produce("polled", b"x")
        with client.group("urls-group", "polled") as group:
            batch = group.poll()
            assert batch is not None
            batch.ack()
        with SchemaRegistry(broker.registry_url, user=ADMIN, password=PASSWORD) as registry:
            registry.register("urls-value", Schema('"string"'))
        # Its transaction is open until the command aborts it.
        transaction = client.transaction("urls-id").__enter__()
        transaction.produce("polled", b"x")


def test_a_url_option_works_as_the_environment_does(secured: Secured) -> None:
    for url in (secured.broker.binary_url, secured.broker.http_url):
        for command in ("groups list", "user list", "topics list", "top --once"):
            done = invoke(command, f"--url {url}", secured.environment)
            assert done.exit_code == 0, f"{command} {url}: {done.output}"


def test_a_broker_of_several_that_cannot_be_reached_is_left_out(secured: Secured) -> None:
    broker = secured.broker
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone: int = server.getsockname()[1]
    url = f"stele://{ADMIN}@127.0.0.1:{gone},127.0.0.1:{broker.binary_port}"
    done = invoke("groups list", f"--url {url}", secured.environment)
    assert done.exit_code == 0, done.output
    done = invoke("groups list", f"--url stele://127.0.0.1:{gone}", secured.environment)
    assert done.exit_code == 1
    assert f"127.0.0.1:{gone}" in done.output


@pytest.fixture
def ca_file(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A CA, and the settings with which a broker has a certificate of it."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = ca.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    (tmp_path / "server.pem").chmod(0o600)
    names = ("STELE_TLS_CERTIFICATE_FILE", "STELE_TLS_KEY_FILE")
    return tmp_path / "ca.pem", dict.fromkeys(names, str(tmp_path / "server.pem"))


def test_the_options_of_tls_hold_for_the_http_listener(ca_file: tuple[Path, dict[str, str]]) -> None:
    trusted, settings = ca_file
    with run_broker(environment=settings) as broker:
        url = f"stele+tls://127.0.0.1:{broker.binary_port}?ca_file={trusted}"
        for command in ("groups list", "top --once"):
            done = invoke(command, f"--url {url}", {})
            assert done.exit_code == 0, done.output


def test_a_login_never_moves_from_tls_to_plaintext(ca_file: tuple[Path, dict[str, str]]) -> None:
    trusted, settings = ca_file
    with run_broker(environment=settings | {"STELE_HTTP_TLS_ENABLE": "false"}) as broker:
        url = f"stele+tls://127.0.0.1:{broker.binary_port}?ca_file={trusted}"
        done = invoke("groups list", f"--url {url}", {})
        assert done.exit_code == 1
        assert "without TLS" in done.output
        assert "--url http://HOST:8080" in done.output
        assert invoke("topics list", f"--url {url}", {}).exit_code == 0


@contextmanager
def binary_listener(answer: bytes) -> Generator[int]:
    """Answer each connection with ``answer``, as another release of the broker would."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopping = threading.Event()

        def serve() -> None:
            while not stopping.is_set():
                connection, _ = server.accept()
                with connection:
                    while not stopping.is_set() and connection.recv(65_536):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        stopping.set()
        # Ends the accept.
        with socket.create_connection(server.getsockname()):
            thread.join()


def test_a_broker_that_is_older_than_the_question_is_named_with_what_to_do() -> None:
    error = m.ErrorResponse(
        response_type=MessageType.ERROR,
        code=ErrorCode.INVALID_REQUEST,
        message="frame type 0x49 is not a request",
    )
    with binary_listener(error.encode()) as port:
        done = invoke("groups list", f"--url stele://127.0.0.1:{port}", {})
    assert done.exit_code == 1
    assert "upgrade the broker" in done.output
    assert "--url http://HOST:8080" in done.output


def test_a_broker_without_an_http_listener_is_named() -> None:
    with binary_listener(m.HttpListenerResponse(port=0, has_tls=False).encode()) as port:
        done = invoke("top", f"--once --url stele://127.0.0.1:{port}", {})
    assert done.exit_code == 1
    assert f"127.0.0.1:{port} has no HTTP listener" in done.output


def test_the_http_url_keeps_login_host_and_options() -> None:
    url = "stele+tls://ada@[::1]:9009,broker-1?ca_file=/etc/ca.pem"
    first, second = broker_urls(url)
    assert http_url_of(first, 8080, has_tls=True) == "https://ada@[::1]:8080?ca_file=/etc/ca.pem"
    assert http_url_of(second, 80, has_tls=False) == "http://ada@broker-1:80?ca_file=/etc/ca.pem"
