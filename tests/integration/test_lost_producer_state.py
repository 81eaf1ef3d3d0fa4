"""Idempotent producers whose state a partition does not have: settled by Apache Kafka, whatever it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode

from tests.support.apache_kafka import start_kafka
from tests.support.kafka_peer import KafkaPeer
from tests.support.lost_producers import CASES, VERSIONS, Story

_EXPIRES_SOON = {"STELE_PRODUCER_ID_EXPIRATION_MS": "1000"}
_KAFKA_EXPIRES_SOON = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100"}


def _plays(*, expires: bool) -> list[tuple[str, int]]:
    """Cases by name, with versions of Produce; nothing about a restart, which takes seconds, depends on those."""
    return [
        (name, version)
        for name, case in CASES.items()
        if case.needs_expiry is expires
        for version in (VERSIONS[-1:] if case.has_restart else VERSIONS)
    ]


@pytest.fixture(scope="module")
def forgetful_broker() -> Iterator[BrokerProcess]:
    with run_broker(environment=_EXPIRES_SOON) as broker:
        yield broker


@pytest.mark.parametrize(("name", "version"), _plays(expires=False))
def test_a_producer_without_state(broker: BrokerProcess, name: str, version: int) -> None:
    _assert_played(broker, name, version)


@pytest.mark.parametrize(("name", "version"), _plays(expires=True))
def test_a_producer_that_was_forgotten(forgetful_broker: BrokerProcess, name: str, version: int) -> None:
    _assert_played(forgetful_broker, name, version)


def _assert_played(broker: BrokerProcess, name: str, version: int) -> None:
    def restart(is_kill: bool) -> None:
        broker.kill() if is_kill else broker.stop()
        broker.start()

    story = Story(lambda: KafkaPeer(broker), restart)
    for write, answered in story.play(CASES[name], _topic(name, version), version):
        assert answered == _as_played(write.answer), write


def _topic(name: str, version: int) -> str:
    return f"{name.replace(' ', '-')}-{version}"


def _as_played(answer: int) -> int:
    return -answer if isinstance(answer, ErrorCode) else answer


@pytest.mark.long
@pytest.mark.parametrize("expires", [False, True], ids=["kept", "expiring"])
def test_the_table_is_what_apache_kafka_answers(expires: bool, tmp_path: Path) -> None:
    kafka = start_kafka(tmp_path, _KAFKA_EXPIRES_SOON if expires else {})

    def connect() -> KafkaPeer:
        return KafkaPeer(cast("BrokerProcess", SimpleNamespace(host=kafka.host, kafka_port=kafka.port)))

    def restart(is_kill: bool) -> None:
        kafka.kill() if is_kill else kafka.stop()
        kafka.start()

    story = Story(connect, restart)
    try:
        for name, version in _plays(expires=expires):
            for write, answered in story.play(CASES[name], _topic(name, version), version):
                wanted = write.answer if write.kafka is None else write.kafka
                assert answered == _as_played(wanted), (name, version, write)
    finally:
        kafka.stop()
