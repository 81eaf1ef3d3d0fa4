"""The profile ``cluster`` of compose.yaml: its commands and settings start a cluster, here as processes.

Only addresses are others. What a container engine does (networks, volumes, images) is compared, not run.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from stele import Client
from stele.testing import BrokerProcess, run_broker

from app.settings import SETTINGS
from load.postgres_server import PostgresServer
from tests.support.brokers import Brokers
from tests.support.compose import profile, profile_store
from tests.support.documents import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

BROKERS = (1, 2, 3)
PORTS = ("HTTP", "BINARY", "KAFKA", "REGISTRY")


def published(service: dict[str, Any]) -> set[int]:
    ports: set[int] = set()
    for entry in service["ports"]:
        address, outside, inside = entry.split(":")
        assert address == "127.0.0.1"
        assert outside == inside
        first, _, last = inside.partition("-")
        ports.update(range(int(first), int(last or first) + 1))
    return ports


def test_every_port_of_the_brokers_is_published_by_the_service_whose_network_they_share() -> None:
    services = profile("cluster")
    ports: list[int] = []
    for number in BROKERS:
        broker = services[f"broker-{number}"]
        assert broker["network_mode"] == "service:cluster-postgres"
        assert set(broker["depends_on"]) < set(services)
        named = [name for name in broker["environment"] if name.startswith("STELE_")]
        assert {name.removeprefix("STELE_").lower() for name in named} <= set(SETTINGS)
        ports += [int(broker["environment"][f"STELE_{port}_PORT"]) for port in PORTS]
    assert len(set(ports)) == len(ports)
    assert set(ports) == published(services["cluster-postgres"])


def test_the_data_of_the_cluster_are_in_volumes_that_exist() -> None:
    volumes = yaml.safe_load((ROOT / "compose.yaml").read_text())["volumes"]
    for name in ("cluster-postgres", "cluster-store"):
        (mounted,) = profile("cluster")[name]["volumes"]
        assert mounted.partition(":")[0] in volumes


@pytest.mark.slow
def test_the_settings_of_the_profile_start_three_brokers_that_survive_the_loss_of_one(
    server: PostgresServer, tmp_path: Path
) -> None:
    services = profile("cluster")
    login = services["cluster-postgres"]["environment"]
    server.run(
        f"CREATE ROLE {login['POSTGRES_USER']} SUPERUSER LOGIN PASSWORD '{login['POSTGRES_PASSWORD']}'"
    )
    server.run(f"CREATE DATABASE {login['POSTGRES_DB']} OWNER {login['POSTGRES_USER']}")
    with ExitStack() as stack:
        address = stack.enter_context(profile_store(services, "cluster", tmp_path / "store"))
        processes: dict[int, BrokerProcess] = {}
        for number in BROKERS:
            environment: dict[str, str] = dict(services[f"broker-{number}"]["environment"])
            assert environment["STELE_BROKER_ID"] == str(number)
            for name, before, after in (
                ("STELE_POSTGRES_URL", "127.0.0.1:5432", f"127.0.0.1:{server.port}"),
                ("STELE_OBJECT_STORE", "cluster-store:8333", address),
            ):
                assert before in environment[name]
                environment[name] = environment[name].replace(before, after)
            # Ports and the data directory of a test come as arguments, which count more than the environment.
            processes[number] = stack.enter_context(
                run_broker(tmp_path / f"broker-{number}", environment=environment)
            )
        brokers = Brokers(processes)
        eventually(
            lambda: all(len(brokers.cluster(number)["brokers"]) == 3 for number in BROKERS),
            "every broker knows the others",
        )
        with Client(brokers[1].binary_url) as client:
            client.create_topic("orders")
            client.produce("orders", b"one")
        assert any((tmp_path / "store").rglob("*.dat")), "the store has no data"
        brokers[1].kill()
        with Client(brokers[2].binary_url) as client:
            client.produce("orders", b"two")
        with Client(brokers[3].binary_url) as client:
            page = client.fetch("orders", 0, 0)
            assert [record.value for record in page.records] == [b"one", b"two"]
