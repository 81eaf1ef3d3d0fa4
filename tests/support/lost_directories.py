"""A broker that loses its data directory and comes back from its replica, at the same address."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
from stele.testing import BrokerProcess
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic
from stele.wire.kafka.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from tests.support.kafka_peer import KafkaPeer
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

INTERVAL_MS = 500


class LostDirectories:
    """Loses the directory of ``broker``, as often as a test wants, and restores it."""

    def __init__(self, path: Path, url: str, environment: Mapping[str, str]) -> None:
        self.url = url
        self._environment = {
            "STELE_REPLICATE_TO": url,
            "STELE_REPLICA_INTERVAL_MS": str(INTERVAL_MS),
            **environment,
        }
        self.broker = BrokerProcess(path / "data", environment=self._environment)
        self.restores = 0
        # When the restored broker was started: what was acknowledged before that, another one had acknowledged.
        self.started_ms = 0

    def lose(self) -> None:
        """Kill the broker, and delete its directory."""
        self.broker.kill()
        shutil.rmtree(self.broker.data_dir)

    def restore(
        self, to_ms: int | None = None, *, write: Callable[[BrokerProcess], object] | None = None
    ) -> int:
        """Restore the directory, and start the broker; return the moment that it is as of, in ms.

        ``write`` gets a broker on the directory at another address first. So the logs have grown again before the
        programs are back.
        """
        arguments = ["restore", self.url, "--data-dir", str(self.broker.data_dir), "--format", "json"]
        if to_ms is not None:
            arguments += ["--to", datetime.fromtimestamp(to_ms / 1000, UTC).isoformat()]
        done = run_stele(*arguments)
        assert done.returncode == 0, done.stderr
        self.restores += 1
        self.started_ms = now_ms()
        if write is not None:
            elsewhere = BrokerProcess(self.broker.data_dir, environment=self._environment)
            elsewhere.start()
            try:
                write(elsewhere)
            finally:
                elsewhere.stop()
        self.broker.start()
        at_ms: int = json.loads(done.stdout)["at"]
        return at_ms

    def await_cut_after(self, moment_ms: int) -> None:
        """Wait until what the broker had at a moment can be restored."""

        def is_there() -> bool:
            replica = httpx.get(f"{self.broker.http_url}/v1/replica").json()
            return replica["newest_cut"] is not None and replica["newest_cut"]["at"] >= moment_ms

        eventually(is_there, f"a cut after {moment_ms}", timeout_s=300)

    def restored_end(self, topic: str, partition: int = 0) -> int:
        """Return how far the log goes that was restored; what follows was written after the restore."""
        with KafkaPeer(self.broker) as peer:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            (found,) = peer.call(wanted, 9).topics
            epoch = next(at.leader_epoch for at in found.partitions if at.partition_index == partition)
            asked = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch - 1)
            request = OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
            )
            (answer,) = peer.call(request, 4).topics[0].partitions
        assert answer.error_code == 0, answer
        return max(0, answer.end_offset)


@contextmanager
def lost_directories(
    path: Path, url: str, environment: Mapping[str, str] | None = None
) -> Generator[LostDirectories]:
    """Run a broker whose replica is at ``url``."""
    lost = LostDirectories(path, url, environment or {})
    lost.broker.start()
    try:
        yield lost
    finally:
        if lost.broker.is_running:
            lost.broker.kill()


def file_bucket(path: Path) -> str:
    """Make a directory for a replica; return its URL."""
    (path / "bucket").mkdir()
    return f"file://{path / 'bucket'}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000
