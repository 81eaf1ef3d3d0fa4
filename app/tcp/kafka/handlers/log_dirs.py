"""DescribeLogDirs, AlterReplicaLogDirs.

There is one data directory; it reports the size of each partition.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.cluster import (
    ALTER_REPLICA_LOG_DIRS_API,
    DESCRIBE_LOG_DIRS_API,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from ....broker.topics import Topic
from ....security.acl import ALTER_CLUSTER, DESCRIBE_CLUSTER
from ....work_budget import SMALL_VISIT, Steps, WorkBudget, visited
from ..context import Context
from ..guards.rights import Parts, on_cluster
from ..served import Served
from .cluster import once_each, partition_error


async def describe_log_dirs(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = context.broker
    path = broker.settings.data_dir.absolute()
    usage = await asyncio.to_thread(shutil.disk_usage, path)
    if request.topics is None:
        requested = [(topic.name, None) for topic in broker.readable_topics()]
    else:
        requested = [(topic.topic, topic.partitions) for topic in request.topics]
    budget = WorkBudget()
    topics: list[DescribeLogDirsTopic] = []
    for name, partitions in requested:
        # Looked up here, because a topic may be deleted in a pause.
        if broker.has_topic(name) and (topic := broker.readable_topic(name)).config.storage == "disk":
            topics.append(await _sizes(context, topic, partitions, budget))
        await budget.visit()
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE if broker.failure is None else ErrorCode.KAFKA_STORAGE_ERROR,
                log_dir=str(path),
                topics=topics,
                total_bytes=usage.total,
                usable_bytes=usage.free,
            )
        ]
    )


async def _sizes(
    context: Context, topic: Topic, partitions: Sequence[int] | None, budget: WorkBudget
) -> DescribeLogDirsTopic:
    """Return the sizes of ``partitions``, of those that exist; None: of all."""
    numbers = range(topic.partitions) if partitions is None else partitions
    # All before the first pause, in which the topic may be deleted.
    sizes = [
        (partition, context.broker.log_state(topic.name, partition).size_bytes)
        for partition in numbers
        if 0 <= partition < topic.partitions
    ]
    described: list[DescribeLogDirsPartition] = []
    for partition, size_bytes in sizes:
        described.append(
            DescribeLogDirsPartition(
                partition_index=partition, partition_size=size_bytes, offset_lag=0, is_future_key=False
            )
        )
        await budget.visit()
    return DescribeLogDirsTopic(name=topic.name, partitions=described)


async def alter_replica_log_dirs(
    context: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Accept the directory that a partition is in already; there is no other."""
    here = str(context.broker.settings.data_dir.absolute())
    codes: dict[str, dict[int, ErrorCode]] = {}
    budget = WorkBudget()
    for directory in request.dirs:
        requested = await once_each((topic.name, topic.partitions) for topic in directory.topics)
        for topic, partitions in requested.items():
            for partition in partitions:
                code, _ = partition_error(context, topic, partition)
                if directory.path != here:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                codes.setdefault(topic, {})[partition] = code
                await budget.visit()
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                    async for partition, code in visited(partitions.items(), SMALL_VISIT, budget)
                ],
            )
            async for topic, partitions in visited(codes.items(), SMALL_VISIT, budget)
        ]
    )


_PARTS = Parts(
    field="",
    name="name",
    answers="results",
    answer_name="topic_name",
    partitions="partitions",
    answer_partitions="partitions",
    answer_index="partition_index",
)


def _each_partition(request: AlterReplicaLogDirsRequest) -> Steps[AlterReplicaLogDirsResponse]:
    """Refuse AlterReplicaLogDirs, whose errors are per partition."""
    topics = (topic for directory in request.dirs for topic in directory.topics)
    results = yield from _PARTS.refuse_all(AlterReplicaLogDirsResponse, topics, ALTER_CLUSTER)
    return AlterReplicaLogDirsResponse(results=results)


ROWS = (
    Served(
        DESCRIBE_LOG_DIRS_API,
        describe_log_dirs,
        on_cluster(DESCRIBE_CLUSTER, DescribeLogDirsResponse),
        walks=True,
    ),
    Served(
        ALTER_REPLICA_LOG_DIRS_API,
        alter_replica_log_dirs,
        on_cluster(ALTER_CLUSTER, AlterReplicaLogDirsResponse, _each_partition),
        walks=True,
    ),
)
