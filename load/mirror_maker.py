"""MirrorMaker of Apache Kafka in dedicated mode, for comparisons and conformance tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"


def write_properties(path: Path, source: str, target: str, topics: str, others: Mapping[str, str]) -> None:
    """Write the file for one way from a single broker to another, where topics keep their names."""
    properties = {
        "clusters": "source, target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "topics": topics,
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        **{f"{name}.topic.replication.factor": "1" for name in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{name}.storage.replication.factor": "1" for name in ("offset", "status", "config")},
        **others,
    }
    path.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
