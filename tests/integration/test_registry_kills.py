"""kill -9 while sixteen clients register the same and different schemas."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from stele.broker_process import run_broker

from load.postgres_server import PostgresServer
from tests.support.brokers import run_brokers
from tests.support.postgres import postgres_bin
from tests.support.registry_kills import register_and_kill

KILLS, ANSWERS = 3, 120


def test_ids_are_unique_and_nothing_answered_is_lost(tmp_path: Path) -> None:
    with run_broker(tmp_path) as broker:
        register_and_kill([broker], KILLS, ANSWERS, random.randrange(2**32))


@pytest.mark.long
def test_ids_are_unique_over_three_brokers(tmp_path: Path) -> None:
    with (
        PostgresServer(postgres_bin(), fsync="off") as server,
        run_brokers(tmp_path, server.dsn) as brokers,
    ):
        register_and_kill([*brokers.processes.values()], KILLS, ANSWERS, random.randrange(2**32))
