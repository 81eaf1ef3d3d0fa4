"""DescribeLogDirs, AlterReplicaLogDirs: one directory, and what each partition takes of it."""

from __future__ import annotations

import asyncio
import shutil

from stele.wire.error_codes import ErrorCode

from ....broker.topics import Topic
from ..schemas.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ..schemas.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from .cluster import once_each, partition_error
from .context import Context


async def describe_log_dirs(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = context.broker
    path = broker.settings.data_dir.absolute()
    # First, so that nothing is waited for below: meanwhile a topic may be deleted.
    usage = await asyncio.to_thread(shutil.disk_usage, path)
    if request.topics is None:
        wanted = [(topic, range(topic.partitions)) for topic in broker.readable_topics()]
    else:
        wanted = [
            (
                broker.readable_topic(one.topic),
                [p for p in one.partitions if 0 <= p < broker.readable_topic(one.topic).partitions],
            )
            for one in request.topics
            if broker.has_topic(one.topic)
        ]
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE if broker.failure is None else ErrorCode.KAFKA_STORAGE_ERROR,
                log_dir=str(path),
                topics=[
                    _sizes(context, topic, partitions)
                    for topic, partitions in wanted
                    if topic.config.storage == "disk"
                ],
                total_bytes=usage.total,
                usable_bytes=usage.free,
            )
        ]
    )


def _sizes(context: Context, topic: Topic, partitions: range | list[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=partition,
                partition_size=context.broker.log_state(topic.name, partition).size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for partition in partitions
        ],
    )


def alter_replica_log_dirs(
    context: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """A partition may be put into the directory it is in; there is no other."""
    here = str(context.broker.settings.data_dir.absolute())
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        asked = once_each((topic.name, topic.partitions) for topic in directory.topics)
        for topic, partitions in asked.items():
            for partition in partitions:
                code, _ = partition_error(context, topic, partition)
                if directory.path != here:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                codes.setdefault(topic, {})[partition] = code
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                    for partition, code in partitions.items()
                ],
            )
            for topic, partitions in codes.items()
        ]
    )
