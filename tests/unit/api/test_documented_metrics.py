"""Every metric and every alert has a row in docs/operations.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from app.api.state import ApiState
from app.broker.mirrors import MirrorDefinition
from app.cdc.metrics import CdcCollector
from app.mirrors.metrics import MirrorCollector
from app.storage.replica.status import ReplicaStatus
from tests.support.http_application import application
from tests.support.simulated_time import SimulatedClock, simulated

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()
GROUPS: list[dict[str, Any]] = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
MIRROR: dict[str, Any] = {
    "definition": MirrorDefinition(name="prod", servers="kafka:9092", topics=".*"),
    "state": "level",
    "lag": 0,
    "stopped": 0,
    "copied_bytes": 0,
}
CONNECTOR: dict[str, Any] = {
    "slot": "stele",
    "state": "streaming",
    "lag_bytes": 0,
    "commit_ms": 0,
    **dict.fromkeys(
        ("events", "repeated", "transactions", "notifications", "messages", "refused_messages", "failures"), 0
    ),
    "tables": {"public.orders": {"copied": 0, "changes": 0}},
}


class _Replica:
    """Implements ``ReplicaView``."""

    status = ReplicaStatus(url="file:///replica")


def names_of(registry: CollectorRegistry) -> set[str]:
    return {metric.name + ("_total" if metric.type == "counter" else "") for metric in registry.collect()}


@simulated
async def test_the_metrics_of_the_broker_are_documented_and_no_others(tmp_path: Path) -> None:
    async with application(tmp_path, SimulatedClock(), replica=_Replica()) as app:
        state: ApiState = app.state.stele
        await state.sampler.sample()
        # The middleware registers its metrics when it is built.
        app.build_middleware_stack()
        registry: CollectorRegistry = app.state.registry
        registry.register(CdcCollector(lambda: [CONNECTOR]))
        registry.register(MirrorCollector(lambda: [MIRROR]))
        existing = names_of(registry)
    documented = set(re.findall(r"`(stele_\w+)`", PAGE))
    assert existing == documented


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_alert_is_documented_with_its_severity(rule: dict[str, Any]) -> None:
    assert f"| `{rule['alert']}` | {rule['labels']['severity']} |" in PAGE


def test_no_alert_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `(Stele\w+)` ", PAGE, re.MULTILINE)) == {rule["alert"] for rule in RULES}
