"""The profile ``replica`` of compose.yaml: a broker with the settings of the service comes back when its volume is lost.

Its services run here as processes; only addresses are others.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
import yaml
from stele.testing import run_broker

from app.settings import SETTINGS
from tests.support.compose import profile, profile_store
from tests.support.documents import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


def test_the_settings_exist_and_the_data_are_in_volumes() -> None:
    services = profile("replica")
    broker = services["broker-replica"]
    named = [name for name in broker["environment"] if name.startswith("STELE_")]
    assert {name.removeprefix("STELE_").lower() for name in named} <= set(SETTINGS)
    assert all(port.startswith("127.0.0.1:") for port in broker["ports"])
    assert set(broker["depends_on"]) < set(services)
    volumes = yaml.safe_load((ROOT / "compose.yaml").read_text())["volumes"]
    for name in ("broker-replica", "replica-store"):
        (mounted,) = services[name]["volumes"]
        assert mounted.partition(":")[0] in volumes


@pytest.mark.slow
def test_a_broker_of_the_profile_is_restored_when_its_volume_is_lost(tmp_path: Path) -> None:
    services = profile("replica")
    data = tmp_path / "data"
    with profile_store(services, "replica", tmp_path / "store") as address:
        environment = {name: str(value) for name, value in services["broker-replica"]["environment"].items()}
        assert "replica-store:8333" in environment["STELE_REPLICATE_TO"]
        environment["STELE_REPLICATE_TO"] = environment["STELE_REPLICATE_TO"].replace(
            "replica-store:8333", address
        )
        # Ports and the data directory of a test come as arguments, which count more than the environment.
        with (
            run_broker(data, environment=environment) as broker,
            httpx.Client(base_url=broker.http_url, timeout=60) as http,
        ):
            produced = http.post("/v1/topics/orders/records", json={"records": [{"value": "kept"}]})
            at = produced.json()["records"][0]["timestamp"]
            eventually(
                lambda: (http.get("/v1/replica").json()["newest_cut"] or {"at": 0})["at"] > at,
                "a cut has the record",
            )
            broker.kill()
        shutil.rmtree(data)
        with (
            run_broker(data, environment=environment) as broker,
            httpx.Client(base_url=broker.http_url, timeout=60) as http,
        ):
            page = http.get("/v1/topics/orders/partitions/0/records?from=earliest").json()
            assert [record["value"] for record in page["records"]] == ["kept"]
            eventually(
                lambda: http.get("/v1/replica").json()["state"] == "replicating", "the replica goes on"
            )
            assert http.get("/v1/replica").json()["generation"] == 2
