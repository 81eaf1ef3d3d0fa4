"""Kafka's command-line tools with TLS and logins, with the properties of docs/security.md: users, rights, quotas, long work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from load.apache_kafka import VERSION, KafkaUnavailable
from tests.conformance.clients import TOOLS as CHOICE
from tests.conformance.kafka_tools.calls import TOOLS
from tests.conformance.kafka_tools.shell import Output, ToolShell
from tests.conformance.program_logins import (
    SESSION_MS,
    Login,
    Renewal,
    await_logins,
    denied,
    properties,
    work,
)
from tests.conformance.programs import RecordProperty
from tests.support.locked_broker import PASSWORD, LockedBroker, locked_broker

TOPIC, GROUP = "orders", "billing"
BOB_PASSWORD = "another-generated-password"
Tool = Callable[..., Output]


@pytest.fixture(scope="module")
def shell() -> Iterator[ToolShell]:
    wanted = os.environ.get("STELE_CONFORMANCE_CLIENTS") or ""
    if wanted != "all" and CHOICE not in wanted.split(","):
        pytest.skip(f"{CHOICE} are not chosen: make conformance CLIENTS={CHOICE}")
    try:
        with closing(ToolShell()) as shell:
            yield shell
    except KafkaUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def locked(shell: ToolShell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedBroker]:
    with locked_broker(tmp_path_factory.mktemp("locked"), session_ms=SESSION_MS) as broker:
        yield broker


@pytest.mark.program(CHOICE)
@pytest.mark.capability("SCRAM")
@pytest.mark.capability("wrong password")
@pytest.mark.capability("missing right")
def test_users_rights_and_quotas(
    shell: ToolShell, locked: LockedBroker, tmp_path: Path, record_property: RecordProperty
) -> None:
    record_property("version", VERSION)

    def call(
        user: str, password: str, tool: str, arguments: str, *, option: str = "--command-config"
    ) -> Output:
        configuration = tmp_path / f"{user}.properties"
        configuration.write_text(properties(user, password, locked.ca_file))
        class_name, address_option = TOOLS[tool]
        return shell.run(
            class_name, [address_option, locked.bootstrap, option, str(configuration), *arguments.split()]
        )

    admin = locked.add_user(may_do_everything=True)

    def administer(tool: str, arguments: str) -> str:
        output = call(admin, PASSWORD, tool, arguments)
        assert output.code == 0, f"{tool} {arguments}: {output.out}{output.err}"
        return output.out

    administer("topics", f"--create --topic {TOPIC}")
    locked.write(TOPIC, [b"first"])
    assert TOPIC in administer("topics", "--list").split()

    # A user.
    of_bob = "--entity-type users --entity-name bob"
    administer("configs", f"--alter {of_bob} --add-config SCRAM-SHA-512=[password={BOB_PASSWORD}]")
    assert "SCRAM-SHA-512" in administer("configs", f"--describe {of_bob}")
    read = f"--topic {TOPIC} --group {GROUP} --from-beginning --max-messages 1 --timeout-ms 20000"

    def consume(password: str) -> Output:
        return call("bob", password, "console-consumer", read, option="--command-config")

    assert "SaslAuthenticationException" in consume(PASSWORD).err
    # Kafka describes the topic before the consumer joins its group.
    assert "TopicAuthorizationException" in consume(BOB_PASSWORD).err

    # His rights.
    administer(
        "acls",
        f"--add --allow-principal User:bob --operation Read --topic {TOPIC} --group {GROUP}",
    )
    assert "principal=User:bob" in administer("acls", f"--list --topic {TOPIC}")
    consumed = consume(BOB_PASSWORD)
    assert (consumed.code, consumed.out.split()) == (0, ["first"]), consumed.err
    assert "ClusterAuthorizationException" in call("bob", BOB_PASSWORD, "acls", "--list").out

    # His quota.
    administer("configs", f"--alter {of_bob} --add-config consumer_byte_rate=1048576")
    assert "consumer_byte_rate=1048576" in administer("configs", f"--describe {of_bob}")
    administer("configs", f"--alter {of_bob} --delete-config consumer_byte_rate")
    assert "consumer_byte_rate" not in administer("configs", f"--describe {of_bob}")

    # And without him.
    administer("acls", f"--remove --allow-principal User:bob --operation Read --topic {TOPIC} --force")
    assert "TopicAuthorizationException" in consume(BOB_PASSWORD).err
    administer("configs", f"--alter {of_bob} --delete-config SCRAM-SHA-512")
    assert "SaslAuthenticationException" in consume(BOB_PASSWORD).err


@work
@pytest.mark.program(CHOICE)
def test_a_consumer_reads_past_the_end_of_sessions(
    locked: LockedBroker,
    tmp_path: Path,
    record_property: RecordProperty,
    monkeypatch: pytest.MonkeyPatch,
    shell: ToolShell,
    mechanism: str,
) -> None:
    record_property("version", VERSION)
    user, topic = locked.add_user(), locked.make_topic()
    for kind, name in (("TOPIC", topic), ("GROUP", GROUP)):
        locked.allow(user, "READ", kind, name)
    login = Login(locked, user, mechanism)
    configuration = tmp_path / "client.properties"
    configuration.write_text("".join(f"{name}={value}\n" for name, value in login.properties.items()))
    for name, value in login.environment.items():
        monkeypatch.setenv(name, value)
    class_name, address_option = TOOLS["console-consumer"]
    command = [address_option, locked.bootstrap, "--command-config", str(configuration)]
    command += ["--topic", topic, "--group", GROUP, "--from-beginning", "--max-messages", "3"]
    locked.write(topic, [b"first"])
    # Its JVM is not the one of the other tests, which was not told where tokens are.
    with closing(ToolShell()) as own, ThreadPoolExecutor(1) as thread:
        consumed = thread.submit(own.run, class_name, command)
        await_logins(locked, user)
        locked.write(topic, [b"second"])
        renewal = Renewal(locked, user)
        renewal.check_open_connections()
        locked.write(topic, [b"third"])
        output = consumed.result()
        assert (output.code, output.out.split()) == (0, ["first", "second", "third"]), output.err

        # Another one connects with the new certificate.
        locked.write(topic, [b"fourth"])
        output = own.run(class_name, [*command[:-1], "1"])
        assert (output.code, output.out.split()) == (0, ["fourth"]), output.err
    assert len(locked.logins(user)) > len(renewal.before)
    assert denied(locked, user) == []
