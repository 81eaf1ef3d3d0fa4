"""AlterReplicaLogDirs (api key 34): moves replicas between data directories.

The directories are of one broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, Int32, message

from ..api import Api


@message
class AlterReplicaLogDirTopic:
    name: str
    partitions: Sequence[Int32]


@message
class AlterReplicaLogDir:
    path: str
    topics: Sequence[AlterReplicaLogDirTopic]


@message
class AlterReplicaLogDirsRequest:
    dirs: Sequence[AlterReplicaLogDir]


@message
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@message
class AlterReplicaLogDirTopicResult:
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirPartitionResult]


@message
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[AlterReplicaLogDirTopicResult]


API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    versions=(1, 2),
    flexible_since=2,
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
)
