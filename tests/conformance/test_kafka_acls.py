"""Kafka's ``kafka-acls`` does and prints the same against Stele and against Apache Kafka with its authorizer."""

from __future__ import annotations

import os
import time
from contextlib import closing

import pytest
from stele.testing import run_broker

from load.apache_kafka import KafkaUnavailable, apache_kafka
from tests.conformance.clients import TOOLS as CHOICE
from tests.conformance.kafka_tools.calls import TOOLS
from tests.conformance.kafka_tools.shell import ToolShell

CLASS, OPTION = TOOLS["acls"]
KAFKA_PROPERTIES = {
    "node.id": "1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
STELE_SETTINGS = {
    "STELE_BROKER_ID": "1",
    "STELE_AUTHORIZATION": "acls",
    "STELE_SUPER_USERS": "User:ANONYMOUS",
}
# Kafka applies changes some time after it has answered.
READS_MAX, SETTLE_S = 20, 0.5

ALICE, BOB = "--allow-principal User:alice", "--deny-principal User:bob"
CALLS = (
    "--list",
    f"--add {ALICE} --operation Read --operation Describe --topic orders --group billing",
    f"--add {ALICE} --operation Read --topic orders",
    f"--add {BOB} --deny-host 10.0.0.7 --operation All --topic shop. --resource-pattern-type prefixed",
    "--add --producer --allow-principal User:writer --topic orders --idempotent --transactional-id job",
    "--add --consumer --allow-principal User:* --topic shop. --resource-pattern-type prefixed --group *",
    f"--add {ALICE} --operation Alter --cluster",
    "--list",
    "--list --topic orders",
    "--list --topic shop.carts --resource-pattern-type match",
    "--list --principal User:alice",
    "--list --cluster",
    "--list --group billing --group other",
    f"--remove {ALICE} --operation Read --topic orders --force",
    "--remove --topic shop. --resource-pattern-type prefixed --force",
    "--remove --topic no-such-topic --force",
    "--list",
)


def answer(shell: ToolShell, bootstrap: str, call: str) -> list[str]:
    output = shell.run(CLASS, [OPTION, bootstrap, *call.split()])
    assert output.code == 0, f"kafka-acls {call}: {output.out}{output.err}"
    # The tool prints sets, in any order.
    return sorted(line.strip() for line in output.out.splitlines() if line.strip())


def test_every_call_against_stele_and_apache_kafka() -> None:
    wanted = os.environ.get("STELE_CONFORMANCE_CLIENTS") or ""
    if wanted != "all" and CHOICE not in wanted.split(","):
        pytest.skip(f"{CHOICE} are not chosen: make conformance CLIENTS={CHOICE}")
    try:
        with (
            apache_kafka(properties=KAFKA_PROPERTIES, heap="512m") as kafka,
            run_broker(environment=STELE_SETTINGS) as stele,
            closing(ToolShell()) as shell,
        ):
            for call in CALLS:
                ours = answer(shell, stele.kafka_bootstrap, call)
                theirs = answer(shell, kafka.bootstrap, call)
                for _ in range(READS_MAX):
                    if theirs == ours or not call.startswith("--list"):
                        break
                    time.sleep(SETTLE_S)
                    theirs = answer(shell, kafka.bootstrap, call)
                assert ours == theirs, f"kafka-acls {call}"
    except KafkaUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
