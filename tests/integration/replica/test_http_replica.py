"""What operators see of a replica: over ``GET /v1/replica`` and ``/metrics``, while the bucket is there, away and lost to another."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.testing import BrokerProcess, run_broker

from tests.support.s3_servers import seaweedfs, use_test_credentials, versitygw
from tests.support.waiting import eventually

INTERVAL = {"STELE_REPLICA_INTERVAL_MS": "100"}


@contextmanager
def replicating(
    bucket: str, data_dir: Path | None = None, **more: str
) -> Generator[tuple[BrokerProcess, httpx.Client]]:
    environment = {"STELE_REPLICATE_TO": bucket, **INTERVAL, **more}
    with (
        run_broker(data_dir, environment=environment) as broker,
        httpx.Client(base_url=broker.http_url, timeout=60) as http,
    ):
        yield broker, http


def replica(http: httpx.Client) -> dict[str, Any]:
    answered = http.get("/v1/replica")
    assert answered.status_code == 200, answered.text
    return answered.json()


def produce(http: httpx.Client, value: str = "x") -> None:
    http.post("/v1/topics/orders/records", json={"records": [{"value": value}]}).raise_for_status()


def is_in_state(http: httpx.Client, state: str) -> None:
    eventually(lambda: replica(http)["state"] == state, f"the replica is {state}")


def covers(http: httpx.Client, moment_ms: int) -> None:
    """Wait for a cut that is newer than ``moment_ms``."""
    eventually(lambda: (replica(http)["newest_cut"] or {"at": -1})["at"] > moment_ms, "there is a newer cut")


def now_ms(http: httpx.Client) -> int:
    now: int = http.get("/v1/overview").json()["now"]
    return now


def objects_in(bucket: Path) -> list[Path]:
    return [path for kind in "dsp" for path in (bucket / kind).rglob("*.*")]


def series(http: httpx.Client, name: str) -> float:
    lines = http.get("/metrics").text.splitlines()
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
    return float(value)


def test_a_broker_without_a_bucket_says_that_its_replica_is_off() -> None:
    with run_broker() as broker, httpx.Client(base_url=broker.http_url) as http:
        assert replica(http)["state"] == "off"
        assert "stele_replica" not in http.get("/metrics").text


def test_the_newest_cut_covers_what_was_produced_and_the_sizes_are_those_of_the_bucket(
    tmp_path: Path,
) -> None:
    bucket = tmp_path / "bucket"
    with replicating(f"file://{bucket}") as (_, http):
        is_in_state(http, "replicating")
        first = replica(http)
        assert (first["generation"], first["url"]) == (1, f"file://{bucket}")
        for number in range(5):
            moment_ms = now_ms(http)
            produce(http, "x" * 100 * number)
            covers(http, moment_ms)
        eventually(lambda: replica(http)["oldest_restorable_at"] is not None, "the oldest cut is known")
        now = replica(http)
        assert now["newest_cut"]["sequence"] >= first["newest_cut"]["sequence"] + 5
        assert first["newest_cut"]["at"] >= now["oldest_restorable_at"]
        assert now["problem"] is None
        # A cut that is under way would have objects that no cut names: with nothing to write there is none.
        cuts = sorted((bucket / "c").iterdir())
        assert len(cuts) == now["newest_cut"]["sequence"] + 1 == now["counts"]["cuts"]
        assert len(objects_in(bucket)) == now["counts"]["objects"]
        stored = sum(path.stat().st_size for path in objects_in(bucket))
        assert now["replica_bytes"] + now["retained_bytes"] == stored
        assert now["retained_bytes"] > 0
        assert now["counts"]["uploaded_bytes"] == stored + sum(path.stat().st_size for path in cuts)
        assert series(http, "stele_replica_bytes") == now["replica_bytes"]
        assert series(http, "stele_replica_cuts_total") == now["counts"]["cuts"]
        assert series(http, "stele_replica_newest_cut_timestamp_seconds") == now["newest_cut"]["at"] / 1000


def test_without_changes_nothing_is_written_and_nothing_lags(tmp_path: Path) -> None:
    with replicating(f"file://{tmp_path}/bucket") as (_, http):
        moment_ms = now_ms(http)
        produce(http)
        covers(http, moment_ms)
        before = replica(http)
        # As many intervals pass as there are answers with another lag.
        eventually(
            lambda: replica(http)["lag_seconds"] < before["lag_seconds"], "another interval has passed"
        )
        eventually(lambda: replica(http)["lag_seconds"] >= 0.05, "time passes")
        eventually(lambda: replica(http)["lag_seconds"] < 0.05, "another interval has passed")
        after = replica(http)
        assert after["newest_cut"] == before["newest_cut"]
        assert after["counts"] == before["counts"]


def test_a_bucket_that_is_away_shows_and_the_broker_stays_ready(tmp_path: Path) -> None:
    bucket, away = tmp_path / "bucket", tmp_path / "away"
    with replicating(f"file://{bucket}") as (_, http):
        is_in_state(http, "replicating")
        bucket.rename(away)
        # A file in its place refuses what a directory takes.
        bucket.touch()
        moment_ms = now_ms(http)
        produce(http)
        is_in_state(http, "failing")
        eventually(lambda: replica(http)["counts"]["failed_requests"] > 1, "the request is repeated")
        failing = replica(http)
        assert failing["problem"].startswith("writing d/")
        # The library of the stores repeats an error with all of its causes.
        assert "Debug source" not in failing["problem"]
        eventually(lambda: replica(http)["lag_seconds"] > failing["lag_seconds"], "the lag grows")
        assert series(http, 'stele_replica_state{state="failing"}') == 1
        assert http.get("/readyz").status_code == 200
        produce(http)
        bucket.unlink()
        away.rename(bucket)
        covers(http, moment_ms)
        is_in_state(http, "replicating")
        assert replica(http)["problem"] is None


def test_a_second_broker_on_a_copy_of_the_directory_overtakes_the_first(tmp_path: Path) -> None:
    url, copy = f"file://{tmp_path}/bucket", tmp_path / "copy"
    with replicating(url, tmp_path / "data") as (_, first):
        moment_ms = now_ms(first)
        produce(first)
        covers(first, moment_ms)
        shutil.copytree(tmp_path / "data", copy)
        with replicating(url, copy) as (_, second):
            is_in_state(second, "replicating")
            assert replica(second)["generation"] == 2
            produce(first)
            is_in_state(first, "overtaken")
            overtaken = replica(first)
            assert overtaken["generation"] == 1
            assert "another broker has written cut" in overtaken["problem"]
            assert series(first, 'stele_replica_state{state="overtaken"}') == 1
            # It goes on serving, without a replica.
            assert first.get("/readyz").status_code == 200
            produce(first)
            eventually(lambda: replica(first)["lag_seconds"] > overtaken["lag_seconds"], "the lag grows")
            assert replica(second)["state"] == "replicating"


def test_before_the_first_cut_of_a_start_the_lag_is_the_time_since_the_newest_one(tmp_path: Path) -> None:
    """The changes since the newest cut are at risk, however often the broker has been started since."""
    bucket, data = tmp_path / "bucket", tmp_path / "data"
    with replicating(f"file://{bucket}", data) as (broker, http):
        moment_ms = now_ms(http)
        produce(http)
        covers(http, moment_ms)
        bucket.rename(tmp_path / "away")
        bucket.touch()
        produce(http)
        is_in_state(http, "failing")
        newest = replica(http)["newest_cut"]
        broker.kill()
    # The next broker finds the bucket, and cannot write a cut of its own: the place of its objects is a file.
    bucket.unlink()
    (tmp_path / "away").rename(bucket)
    shutil.move(bucket / "p", tmp_path / "p")
    (bucket / "p").touch()
    with replicating(f"file://{bucket}", data) as (_, http):
        eventually(lambda: replica(http)["counts"]["failed_requests"] > 0, "it tries to write a cut")
        earlier_ms = now_ms(http)
        now = replica(http)
        assert now["state"] == "copying"
        # Its claim of the next generation says nothing new.
        assert now["newest_cut"] == {**newest, "sequence": newest["sequence"] + 1}
        assert round(now["lag_seconds"] * 1000) >= earlier_ms - newest["at"]


@pytest.mark.parametrize("server", [seaweedfs, versitygw], ids=["seaweedfs", "versitygw"])
def test_the_replica_of_an_s3_server_is_described_as_one_in_a_directory(server: Any) -> None:
    with pytest.MonkeyPatch.context() as patch, server() as url:
        use_test_credentials(patch)
        with replicating(url) as (_, http):
            moment_ms = now_ms(http)
            produce(http)
            covers(http, moment_ms)
            now = replica(http)
            assert (now["state"], now["url"], now["problem"]) == ("replicating", url, None)
            assert now["replica_bytes"] > 0


def test_clients_that_may_not_describe_the_cluster_do_not_see_the_replica(tmp_path: Path) -> None:
    environment = {
        "STELE_REPLICATE_TO": f"file://{tmp_path}/bucket",
        "STELE_AUTHORIZATION": "acls",
        "STELE_SUPER_USERS": "User:admin",
    }
    with run_broker(environment=environment) as broker, httpx.Client(base_url=broker.http_url) as http:
        refused = http.get("/v1/replica")
        assert refused.status_code == 403
        assert "bucket" not in refused.text
