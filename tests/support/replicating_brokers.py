"""Brokers that keep a replica in a bucket, and what a test looks at in one."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from stele import Client, Consumer
from stele.broker_process import BrokerProcess

from app.storage.replica.bucket_url import open_bucket
from app.storage.replica.chain import CutChain, NoCut
from app.storage.replica.cut import CutHeader
from app.storage.replica.moments import Moments
from app.storage.replica.state import PartitionReplica, ReplicaState
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

INTERVAL_MS = 100
# Each round of a test waits for its records to be in a cut.
FENCE = "fence"


def replicating(data_dir: Path, url: str, **environment: str) -> BrokerProcess:
    """Return a broker with a replica at ``url``; it is not started."""
    settings = {"STELE_REPLICATE_TO": url, "STELE_REPLICA_INTERVAL_MS": str(INTERVAL_MS)}
    return BrokerProcess(data_dir, environment={**settings, **environment})


async def _newest_state(url: str) -> ReplicaState | None:
    chain = CutChain(open_bucket(url))
    try:
        moments = await Moments.of(chain)
        return await chain.state_at((await moments.newest()).sequence)
    except NoCut:
        return None


def newest_state(url: str) -> ReplicaState | None:
    """Return what the newest cut adds up to."""
    return asyncio.run(_newest_state(url))


def newest_header(url: str) -> CutHeader:
    state = newest_state(url)
    assert state is not None
    assert state.header is not None
    return state.header


def partition_of(state: ReplicaState, topic: str, partition: int = 0) -> PartitionReplica | None:
    for key, replica in state.partitions.items():
        if (replica.topic, key.partition) == (topic, partition):
            return replica
    return None


def await_cut(broker: BrokerProcess, url: str) -> None:
    """Return when a cut has everything that the broker has answered."""
    with Client(broker.http_url) as client:
        offset = client.produce(FENCE, b"all before this is in the cut", partition=0).offset

    def is_there() -> bool:
        # The newest cut of an earlier broker may have this offset, too, if the directory was put back.
        if not httpx.get(f"{broker.http_url}/v1/replica").json()["counts"]["cuts"]:
            return False
        state = newest_state(url)
        replica = None if state is None else partition_of(state, FENCE)
        return replica is not None and replica.end_offset > offset

    eventually(is_there, "the bucket has a cut of everything")


def restore(url: str, data_dir: Path, *options: str) -> dict[str, Any]:
    """Restore, and return what the command says."""
    done = stele("restore", url, "--data-dir", str(data_dir), "--format", "json", *options)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def stele(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_stele(*arguments, stdin=stdin, timeout=300)


def command(broker: BrokerProcess, *arguments: str, stdin: bytes = b"") -> Any:
    """Run a command with a broker, and return its document."""
    done = stele(*arguments, "--url", broker.http_url, "--format", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def records_of(broker: BrokerProcess, topic: str) -> list[tuple[Any, ...]]:
    """Return all records of a topic that are committed, as tuples."""

    def read() -> Iterator[tuple[Any, ...]]:
        with (
            Client(broker.binary_url) as client,
            Consumer(client, topic, start="earliest", follow=False) as consumer,
        ):
            for record in consumer:
                yield (
                    record.partition,
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    tuple(record.headers),
                )

    return sorted(read(), key=lambda record: record[:2])


def contents(broker: BrokerProcess) -> dict[str, Any]:
    """Return all that a client can see of topics, records, groups, configurations and rules."""
    with httpx.Client(base_url=broker.http_url) as http:
        topics = [topic["name"] for topic in http.get("/v1/topics").json()["topics"]]
        topics = sorted(topic for topic in topics if not topic.startswith("__"))
        groups = sorted(group["group"] for group in http.get("/v1/groups").json()["groups"])
        return {
            "topics": {topic: _described(http, topic) for topic in topics},
            "records": {topic: records_of(broker, topic) for topic in topics},
            "groups": {group: command(broker, "groups", "describe", group) for group in groups},
            "users": command(broker, "user", "list"),
            "acls": command(broker, "acls", "list"),
            "quotas": command(broker, "quotas", "list"),
        }


def _described(http: httpx.Client, topic: str) -> dict[str, Any]:
    document = http.get(f"/v1/topics/{topic}").json()
    for partition in document["partitions"]:
        # They depend on the start, and on when segments were deleted, compacted and synced.
        for name in ("leader_epoch", "dirty_ratio", "cleaner", "segments", "size_bytes", "synced_offset"):
            del partition[name]
    return document
