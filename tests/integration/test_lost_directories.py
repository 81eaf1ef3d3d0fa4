"""A broker that loses its directory under load goes on from its replica, without what came after the last cut."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from load.apache_kafka import libs
from tests.support.apache_kafka import kafka_or_skip
from tests.support.faults.replica import Restored, lose_and_restore
from tests.support.s3_servers import use_test_credentials

pytestmark = [pytest.mark.one_broker, pytest.mark.usefixtures("credentials")]

# For the store, the proxy, the load and the way in which brokers end.
SEED = int(os.environ.get("STELE_LOST_DIRECTORIES_SEED", "1"))


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_test_credentials(monkeypatch)


def test_a_directory_that_is_lost_comes_back_from_a_bucket(tmp_path: Path) -> None:
    restored = Restored(seed=SEED, store="file")
    lose_and_restore(
        tmp_path, restored, is_over=lambda so_far: so_far.counts["restores"] == 1, is_whole=False
    )
    assert restored.counts["records"] > 100


@pytest.mark.long
@pytest.mark.parametrize("kind", ["seaweedfs", "versitygw"])
def test_so_does_one_whose_store_fails_and_whose_copy_serves_too(kind: str) -> None:
    with kafka_or_skip():
        libs()

    def is_over(so_far: Restored) -> bool:
        happened = ("copies", "store_kills", "rounds_tiered", "rounds_compacted")
        return so_far.counts["restores"] >= 4 and all(so_far.counts[name] for name in happened)

    restored = Restored(seed=SEED, store=kind)
    with tempfile.TemporaryDirectory(prefix="stele-lost-", dir="/tmp") as directory:
        lose_and_restore(Path(directory), restored, is_over=is_over)
    assert restored.failed_requests.total() > 10
    assert restored.counts["records"] > 1_000
    assert restored.counts["dumped_segments"] > 10
    assert restored.counts["changes"] > 100
