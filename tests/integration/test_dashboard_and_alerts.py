"""The Grafana dashboard and the alert rules ask for what a broker says, and the rules do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from stele.testing import run_broker

from tests.support.certificates import Authority

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy/grafana/stele.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
_NAME = re.compile(r"\bstele_\w+")


def expressions() -> list[str]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    groups: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"]
    return [*asked, *(rule["expr"] for group in groups for rule in group["rules"])]


def exposed(directory: Path) -> set[str]:
    """The names in ``/metrics`` of a broker with TLS and a replica that was written to and read from."""
    server = Authority(directory).server()
    environment = {
        "STELE_SAMPLE_INTERVAL_MS": "100",
        "STELE_REPLICATE_TO": f"file://{directory}/replica",
        "STELE_KAFKA_TLS_CERTIFICATE_FILE": str(server.certificate_file),
        "STELE_KAFKA_TLS_KEY_FILE": str(server.key_file),
    }
    with (
        run_broker(environment=environment) as broker,
        httpx.Client(base_url=broker.http_url) as http,
    ):
        http.post("/v1/topics/orders/records", json={"records": [{"value": "x"}]})
        http.post("/v1/groups/billing/poll", json={"topics": ["orders"]})
        http.post("/v1/groups/packing/share/poll", json={"topics": ["orders"]})
        deadline_s = time.monotonic() + 30
        sampled = ('stele_group_lag{group="billing"', 'stele_share_group_records_in_flight{group="packing"')
        while not all(series in (text := http.get("/metrics").text) for series in sampled):
            assert time.monotonic() < deadline_s, text
    return set(re.findall(r"^(stele_\w+)", text, re.MULTILINE))


def test_every_metric_that_is_asked_for_exists(tmp_path: Path) -> None:
    asked = {name for expression in expressions() for name in _NAME.findall(expression)}
    of_tables = {name for name in asked if name.startswith("stele_iceberg_")}
    of_mirrors = {name for name in asked if name.startswith("stele_mirror_")}
    of_connectors = {name for name in asked if name.startswith("stele_cdc_")}
    # Brokers with shared storage have these.
    of_clusters = {name for name in asked if name.startswith(("stele_cluster_", "stele_shared_"))}
    for names, module in (
        (of_connectors, "cdc/metrics.py"),
        (of_tables, "iceberg/metrics.py"),
        (of_mirrors, "mirrors/metrics.py"),
        (of_clusters, "api/metrics/cluster.py"),
    ):
        declared = _NAME.findall((ROOT / "app" / module).read_text())
        assert {name.removesuffix("_total") for name in names} <= set(declared)
    assert asked - of_connectors - of_tables - of_mirrors - of_clusters <= exposed(tmp_path)
    assert len(asked) > 20


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_rules_are_valid_and_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing = "promtool is not installed; run tests/integration/install_promtool.sh"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    for arguments in (
        ["check", "rules", "alerts.yaml"],
        ["check", "config", "prometheus.yaml"],
        ["test", "rules", "alerts_test.yaml"],
    ):
        done = subprocess.run(
            [promtool, *arguments], cwd=ALERTS.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
