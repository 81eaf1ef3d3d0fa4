"""Kafka's command-line tools with TLS and a login, with the properties of docs/security.md: users, rights, quotas."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from load.apache_kafka import KafkaUnavailable
from tests.conformance.clients import TOOLS as CHOICE
from tests.conformance.kafka_tools.calls import TOOLS
from tests.conformance.kafka_tools.shell import Output, ToolShell
from tests.support.documents import ROOT
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
    with locked_broker(tmp_path_factory.mktemp("locked")) as broker:
        yield broker


def properties(user: str, password: str, ca_file: Path) -> str:
    """``client.properties`` of docs/security.md, for another user and place."""
    page = (ROOT / "docs/security.md").read_text()
    text = page.partition("`client.properties` of the Java client:\n\n```\n")[2].partition("```")[0]
    for old, new in (
        ("/etc/stele/server.pem", str(ca_file)),
        ('"alice"', f'"{user}"'),
        ('"a-long-generated-password"', f'"{password}"'),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def test_users_rights_and_quotas(shell: ToolShell, locked: LockedBroker, tmp_path: Path) -> None:
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
