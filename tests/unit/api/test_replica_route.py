"""``GET /v1/replica`` and the metrics say of each state of a replica what is known, and null or 0 for what is not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.state import ApiState, ReplicaView
from app.storage.replica.status import ReplicaPhase, ReplicaStatus
from app.storage.shared.store.block_cache import CacheCounts
from tests.support.http_application import application
from tests.support.simulated_time import SimulatedClock, simulated

URL = "s3://backups/stele"
NOTHING_YET = ReplicaStatus(url=URL, lag_ms=1500)
FULL = ReplicaStatus(
    url=URL,
    phase="replicating",
    generation=3,
    sequence=41,
    cut_ms=1_763_664_052_224,
    oldest_ms=1_763_577_652_101,
    lag_ms=412,
    replica_bytes=7_000,
    retained_bytes=300,
    cuts=5,
    objects=9,
    uploaded_bytes=8_100,
    deleted_objects=2,
    failed_requests=1,
    remote=CacheCounts(hits=6, misses=4, failed=3, loaded_bytes=4_096),
)


@dataclass
class Shown:
    """Implements ``ReplicaView`` with a status that does not change."""

    status: ReplicaStatus


async def answer(
    path: Path, replica: ReplicaView | None, **given: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the answer of the route, and the series of the replica in ``/metrics``."""
    async with application(path, SimulatedClock(), replica=replica, **given) as app:
        state: ApiState = app.state.stele
        await state.sampler.sample()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            answered = await http.get("/v1/replica")
            metrics = (await http.get("/metrics")).text
    assert answered.status_code == 200, answered.text
    assert answered.headers["cache-control"] == "no-store"
    lines = [line.rpartition(" ") for line in metrics.splitlines() if line.startswith("stele_replica")]
    return answered.json(), {series: float(value) for series, _, value in lines if "_created" not in series}


@simulated
async def test_a_broker_without_a_replica_says_off_and_has_no_series(tmp_path: Path) -> None:
    document, series = await answer(tmp_path, None)
    assert document == {
        "state": "off",
        "url": None,
        "interval_ms": 1_000,
        "retention_ms": 86_400_000,
        "generation": None,
        "newest_cut": None,
        "lag_seconds": None,
        "oldest_restorable_at": None,
        "replica_bytes": None,
        "retained_bytes": None,
        "counts": None,
        "problem": None,
    }
    assert series == {}


@simulated
async def test_a_replica_is_described_with_all_that_is_known(tmp_path: Path) -> None:
    document, series = await answer(
        tmp_path, Shown(FULL), replica_interval_ms=2_000, replica_retention_ms=3_600_000
    )
    assert document == {
        "state": "replicating",
        "url": URL,
        "interval_ms": 2_000,
        "retention_ms": 3_600_000,
        "generation": 3,
        "newest_cut": {"sequence": 41, "at": 1_763_664_052_224},
        "lag_seconds": 0.412,
        "oldest_restorable_at": 1_763_577_652_101,
        "replica_bytes": 7_000,
        "retained_bytes": 300,
        "counts": {
            "cuts": 5,
            "objects": 9,
            "uploaded_bytes": 8_100,
            "deleted_objects": 2,
            "failed_requests": 1,
        },
        "problem": None,
    }
    states = {name: value for name, value in series.items() if name.startswith("stele_replica_state{")}
    assert {name for name, value in states.items() if value} == {'stele_replica_state{state="replicating"}'}
    assert {name: value for name, value in series.items() if name not in states} == {
        "stele_replica_lag_seconds": 0.412,
        "stele_replica_newest_cut_timestamp_seconds": 1_763_664_052.224,
        "stele_replica_oldest_cut_timestamp_seconds": 1_763_577_652.101,
        "stele_replica_generation": 3,
        "stele_replica_bytes": 7_000,
        "stele_replica_retained_bytes": 300,
        "stele_replica_cuts_total": 5,
        "stele_replica_objects_total": 9,
        "stele_replica_uploaded_bytes_total": 8_100,
        "stele_replica_deleted_objects_total": 2,
        "stele_replica_failed_requests_total": 1,
        "stele_replica_read_bytes_total": 4_096,
        "stele_replica_failed_reads_total": 3,
        'stele_replica_cache_blocks_total{outcome="hit"}': 6,
        'stele_replica_cache_blocks_total{outcome="miss"}': 4,
    }


@simulated
async def test_what_is_not_known_before_the_first_cut_is_null(tmp_path: Path) -> None:
    document, series = await answer(tmp_path, Shown(NOTHING_YET))
    assert document["state"] == "starting"
    assert document["lag_seconds"] == 1.5
    assert [document[name] for name in ("generation", "newest_cut", "oldest_restorable_at")] == [None] * 3
    assert series["stele_replica_newest_cut_timestamp_seconds"] == 0
    assert series["stele_replica_oldest_cut_timestamp_seconds"] == 0
    assert series["stele_replica_generation"] == 0


@pytest.mark.parametrize("phase", ["failing", "overtaken", "stopped"])
@simulated
async def test_a_replica_with_a_problem_says_which(tmp_path: Path, phase: ReplicaPhase) -> None:
    document, series = await answer(
        tmp_path, Shown(replace(FULL, phase=phase, problem="no route to the bucket"))
    )
    assert (document["state"], document["problem"]) == (phase, "no route to the bucket")
    assert series[f'stele_replica_state{{state="{phase}"}}'] == 1
    assert series['stele_replica_state{state="replicating"}'] == 0
