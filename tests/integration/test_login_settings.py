"""Users from the command line, and which settings a broker refuses to start with."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from stele.broker_process import run_broker
from stele.cli import stele
from stele.wire import messages as m
from stele.wire.framing import LENGTH_BYTES

from app.security.policy import ListenerSecurity, UnsafeSettings, check_exposure, mechanisms_of
from app.security.service import check_login_settings
from app.settings import Settings

CLOSED = {"authentication": "required"}
OPEN_NETWORK = {"allow_anonymous_network": True}
NO_TLS = {"http": None, "binary": None, "kafka": None}


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"host": "0.0.0.0"}, "STELE_ALLOW_ANONYMOUS_NETWORK"),
        ({"host": "::"}, "STELE_AUTHENTICATION=required"),
        ({"host": "10.0.0.1", "authentication": "optional"}, "STELE_ALLOW_ANONYMOUS_NETWORK"),
        (
            {
                "host": "example.com",
                **CLOSED,
                "binary_authentication": "none",
                "allow_plaintext_passwords": True,
            },
            "the binary listener",
        ),
        ({"host": "0.0.0.0", **CLOSED}, "STELE_ALLOW_PLAINTEXT_PASSWORDS"),
        ({"host": "0.0.0.0", **OPEN_NETWORK, "kafka_authentication": "required"}, "the kafka listener"),
    ],
)
def test_an_open_network_is_refused_with_the_ways_out(values: dict[str, object], named: str) -> None:
    with pytest.raises(UnsafeSettings, match=named):
        check_exposure(settings(**values), NO_TLS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"host": "localhost"},
        {"host": "::1"},
        {"host": "0.0.0.0", **OPEN_NETWORK},
        {"host": "0.0.0.0", **CLOSED, "allow_plaintext_passwords": True},
        {
            "host": "0.0.0.0",
            **OPEN_NETWORK,
            "kafka_authentication": "required",
            "sasl_mechanisms": "SCRAM-SHA-512",
        },
    ],
)
def test_what_is_meant_or_out_of_reach_is_allowed(values: dict[str, object]) -> None:
    check_exposure(settings(**values), NO_TLS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values",
    [
        {"oauth_jwks": "keys.json"},
        {"oauth_jwks": "keys.json", "oauth_issuer": "i"},
        {"oauth_jwks": "keys.json", "oauth_audience": "a"},
        {"sasl_mechanisms": "OAUTHBEARER"},
        {"cdc_dsn": "postgresql://x", "authentication": "required", "sasl_mechanisms": "SCRAM-SHA-512"},
    ],
)
def test_incomplete_settings_of_logins_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(UnsafeSettings):
        check_login_settings(settings(**values))


def test_mechanisms_are_those_that_exist() -> None:
    assert mechanisms_of(settings(sasl_mechanisms="plain, SCRAM-SHA-256,PLAIN")) == ["PLAIN", "SCRAM-SHA-256"]
    with pytest.raises(UnsafeSettings, match="GSSAPI"):
        mechanisms_of(settings(sasl_mechanisms="GSSAPI"))


def test_passwords_are_stored_over_what_nobody_else_reads() -> None:
    security = ListenerSecurity(listener="kafka")
    assert security.may_carry_secrets("127.0.0.1", is_encrypted=False)
    assert security.may_carry_secrets("10.0.0.1", is_encrypted=True)
    assert not security.may_carry_secrets("10.0.0.1", is_encrypted=False)


def run(*arguments: str, typed: str | None = None, password: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(stele, arguments, input=typed, env={"STELE_PASSWORD": password})
    return result.exit_code, result.output


def test_users_and_keys_are_made_on_the_command_line(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    assert run("user", "add", "alice", *data, typed="from standard input\n") == (0, "added user alice\n")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert run("user", "add", "bob", *data, password="from the environment")[0] == 0
    file = tmp_path / "password"
    file.write_text("from a file\n")
    file.chmod(0o644)
    code, output = run("user", "add", "eve", "--password-file", str(file), *data)
    assert (code, f"chmod 600 {file}" in output) == (1, True)
    file.chmod(0o600)
    assert run("user", "add", "eve", "--password-file", str(file), *data)[0] == 0
    code, output = run("user", "add", "eve", "--password-file", str(file), *data)
    assert (code, "user 'eve' exists" in output) == (1, True)
    code, output = run("user", "add", "short", *data, typed="short\n")
    assert (code, "a password has 8 to" in output) == (1, True)
    assert run("user", "passwd", "bob", *data, typed="another password\n")[0] == 0
    assert run("user", "delete", "eve", *data) == (0, "deleted user eve\n")
    assert run("user", "list", *data)[1].split() == [
        *("alice", "SCRAM-SHA-256,", "SCRAM-SHA-512"),
        *("bob", "SCRAM-SHA-256,", "SCRAM-SHA-512"),
    ]
    code, token = run("key", "create", "alice", "--description", "ingest", "--expires-days", "30", *data)
    key_id = token.split("_")[1]
    listed = run("key", "list", *data)[1]
    assert listed.startswith(f"{key_id}  User:alice  expires ")
    assert token.strip().rpartition("_")[2] not in listed
    assert run("key", "delete", key_id, *data)[0] == 0
    assert run("key", "list", *data) == (0, "")
    assert run("user", "list", "--data-dir", str(tmp_path / "missing"))[0] == 1


@pytest.mark.parametrize("name", ["cdc_dsn", "cdc-dsn", "postgres_url"])
def test_a_setting_with_a_password_is_refused_in_arguments(name: str) -> None:
    """Others could read it, as from the monitoring page of NATS (CVE-2026-33247)."""
    # Without the refusal, the broker would not start either.
    settings = [f"{name}=postgresql://me:s3cr3t@db/shop", "num_partitions=0"]
    refused = CliRunner().invoke(stele, ["serve", "--set", settings[0], "--set", settings[1]])
    assert refused.exit_code == 2
    assert f"STELE_{name.upper().replace('-', '_')}" in refused.output
    assert "s3cr3t" not in refused.output


def test_no_option_takes_a_password() -> None:
    for command in (("user", "add"), ("user", "passwd"), ("key", "create")):
        assert "--password " not in run(*command, "--help")[1]


def test_the_binary_listener_refuses_clients_without_a_certificate_and_data_stays_locked(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    environment = {"STELE_AUTHENTICATION": "required"}
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        code, output = run("user", "add", "alice", "--data-dir", str(data_dir), typed="a long password\n")
        assert (code, str(os.getpid()) in output, "data directory" in output) == (1, False, True)
        for request in (
            m.ProduceRequest(topic="t", data=b"x"),
            m.ConsumeRequest(topic="t", offset=0, batch_size=1),
            m.MetadataRequest(topics=None),
        ):
            with socket.create_connection((broker.host, broker.binary_port), 60) as client:
                client.sendall(request.encode() + m.FlushRequest().encode())
                received = b""
                while piece := client.recv(65536):
                    received += piece
            assert received[LENGTH_BYTES] == request.TYPE + 1
            assert b"requires a login" in received
            assert int.from_bytes(received[:LENGTH_BYTES]) == len(received), "nothing else was answered"
        assert "there are no users" in broker.stderr
